//! `mailroom email purge`

use std::process::ExitCode;

use content::query;
use domain::EmailId;
use engine::archive::search::all_matching;
use engine::operations::{Invocation, emails};
use serde_json::json;
use terminal::{Failure, Output, count};

use crate::app;
use crate::config::Config;

/// Emails to purge.
pub enum PurgeSelection {
    Ids(Vec<EmailId>),
    Query { query: String, mailbox: Option<String>, include_deleted: bool },
}

pub async fn run(
    config: &Config,
    tenant: &str,
    selection: PurgeSelection,
    yes: bool,
    out: Output,
) -> Result<ExitCode, Failure> {
    let engine = app::open(config).await?;
    let store = app::tenant_store(&engine, tenant).await?;
    let ids = match selection {
        PurgeSelection::Ids(ids) => {
            let found = store.get_summaries(&ids, 0).await?;
            found.iter().map(|email| email.id).collect()
        }
        PurgeSelection::Query { query, mailbox, include_deleted } => {
            let mut query = query::parse(&query).map_err(|e| Failure::usage(e.to_string()))?;
            if include_deleted {
                query = query.including_deleted();
            }
            let mailbox = app::find_mailbox(&store, mailbox.as_deref()).await?;
            all_matching(&store, &query, mailbox.map(|mailbox| mailbox.id)).await?
        }
    };
    if !yes {
        let found = ids.len() as u64;
        if out.json {
            out.object(&json!({"found": found, "purged": 0}))?;
        } else {
            out.line(&format!("{} emails would be purged permanently; confirm with --yes.", count(found)))?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let origin = app::origin();
    let call = Invocation::begin(&engine, &origin).await?;
    let purged = emails::purge(&call, store.id, &ids).await.map_err(app::refused)?;
    if out.json {
        out.object(&json!({"found": ids.len(), "purged": purged}))?;
    } else {
        out.line(&format!("Purged {} emails. `mailroom gc` deletes their bytes.", count(purged)))?;
    }
    Ok(ExitCode::SUCCESS)
}
