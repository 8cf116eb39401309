//! What an operator can do to the whole installation.

mod backup;
mod rotate_secrets;

pub use backup::backup;
pub use rotate_secrets::rotate_secrets;
