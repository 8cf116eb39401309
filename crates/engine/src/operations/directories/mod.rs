//! What a person can do to a directory.

mod delete;
mod discover;
mod put;

use serde_json::{Value, json};
use store::sql::directories::Directory;

pub use delete::delete;
pub use discover::{discover, record_discovery};
pub use put::put;

/// Renders the configuration of a directory for the audit log.
fn audit_json(directory: &Directory) -> Value {
    json!({
        "settings": directory.settings, "rules": directory.rules, "backfill_seconds": directory.backfill_seconds,
        "interval_seconds": directory.interval_seconds, "is_paused": directory.is_paused,
    })
}
