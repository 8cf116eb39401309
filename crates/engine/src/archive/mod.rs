//! Stored mail: how it comes in from files, is found, checked, copied and removed.

pub mod backup;
pub mod export;
pub mod gc;
pub mod import;
pub mod ingest;
pub mod purge;
pub mod reindex;
pub mod repair;
pub mod search;
pub mod verify;
