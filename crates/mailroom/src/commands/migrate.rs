//! `mailroom migrate`

use std::process::ExitCode;

use serde_json::json;
use store::migrate::latest_version;
use store::restored;
use terminal::{Failure, Output};

use crate::app;
use crate::config::Config;

pub async fn run(config: &Config, check: bool, is_restored: bool, out: Output) -> Result<ExitCode, Failure> {
    if is_restored {
        restored::mark(&app::database_location(config), "").await?;
    }
    let store = app::open_store(config)?;
    if check {
        let version = store.schema_version().await?;
        let is_current = store.check_schema().await;
        if out.json {
            out.object(&json!({"version": version, "needed": latest_version(), "up_to_date": is_current.is_ok()}))?;
        } else if is_current.is_ok() {
            out.line(&format!("The schema is up to date (version {version})."))?;
        }
        is_current?;
        return Ok(ExitCode::SUCCESS);
    }
    let applied = store.migrate().await?;
    if out.json {
        out.object(&json!({"version": latest_version(), "applied": applied}))?;
    } else if is_restored {
        out.line("The numbers of events go on beyond all that were given out before; every tenant has an event that says so.")?;
    } else if applied.is_empty() {
        out.line(&format!("The schema is up to date (version {}); nothing changed.", latest_version()))?;
    } else {
        out.line(&format!("Applied {}; the schema is now version {}.", applied.join(", "), latest_version()))?;
    }
    Ok(ExitCode::SUCCESS)
}
