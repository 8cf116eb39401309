//! Puts messages together the way mail clients do: parts, encodings, encoded words, folding.

mod charset;
#[rustfmt::skip] // tables of a hundred lines, not of a thousand
mod double_byte;
mod encode;
mod header;
mod part;

pub use charset::Charset;
pub use header::{Headers, WordStyle};
pub use part::{Part, Role, TextEncoding};
