//! `mailroom limits show`

use std::process::ExitCode;

use outbound::limits::LimitRow;
use serde_json::json;
use terminal::{Failure, Output};

use super::job_output::format_time;
use crate::app;
use crate::config::Config;

pub async fn show(config: &Config, tenant: Option<&str>, out: Output) -> Result<ExitCode, Failure> {
    let limits = app::limits(config).rows();
    if out.json {
        for LimitRow { limit, of, allows } in &limits {
            out.object(&json!({"type": "limit", "limit": limit, "of": of, "allows": allows}))?;
        }
    } else {
        let rows: Vec<[String; 3]> = limits.into_iter().map(|row| [row.limit.to_owned(), row.of, row.allows]).collect();
        out.table(["limit", "of each", "allows"], &rows)?;
    }
    if let Some(tenant) = tenant {
        show_waiting(config, tenant, out).await?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Lists the mailboxes of a tenant that wait for a limit now.
async fn show_waiting(config: &Config, tenant: &str, out: Output) -> Result<(), Failure> {
    let engine = app::open(config).await?;
    let store = app::tenant_store(&engine, tenant).await?;
    let mut pauses = store.list_pauses().await?;
    let mut rows = Vec::new();
    for mailbox in store.list_mailboxes().await? {
        let Some(pause) = pauses.remove(&mailbox.id) else { continue };
        if out.json {
            out.object(
                &json!({"type": "waiting", "mailbox": mailbox.address, "until": pause.until, "reason": pause.reason}),
            )?;
        }
        rows.push([mailbox.address, format_time(pause.until), pause.reason]);
    }
    if out.json {
        return Ok(());
    }
    if rows.is_empty() {
        return out.line(&format!("No mailbox of {tenant} waits for a limit."));
    }
    out.table(["mailbox", "waits until", "because"], &rows)
}
