//! What a person can do to stored emails.

mod delete;
mod export;
mod import;
mod purge;
mod reindex;
mod restore;

pub use delete::delete;
pub use export::{ExportRequest, export};
pub use import::import;
pub use purge::purge;
pub use reindex::reindex;
pub use restore::restore;
