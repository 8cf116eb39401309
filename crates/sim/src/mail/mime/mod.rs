//! Builds MIME messages as mail programs do: parts, encodings, encoded words, folding.

mod charset;
mod encode;
mod header;
mod part;

pub use charset::Charset;
pub use header::{Headers, WordStyle};
pub use part::{MimePart, PartRole, TextEncoding};
