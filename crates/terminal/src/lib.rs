//! What commands show to people and to programs: tables, lines of JSON, progress bars, and failures with an exit code.

mod failure;
mod output;
pub mod process;
mod progress;

pub use failure::Failure;
pub use output::{Output, count, note, one_line, size};
pub use progress::{Bar, ProgressUnit};
