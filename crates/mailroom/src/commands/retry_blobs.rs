//! `mailroom retry-blobs`

use std::process::ExitCode;
use std::sync::Arc;

use engine::Progress;
use serde_json::json;
use terminal::{Bar, Failure, Output, ProgressUnit, count};

use crate::app;
use crate::cli;
use crate::config::Config;

pub async fn run(config: &Config, args: &cli::RetryBlobsArgs, out: Output) -> Result<ExitCode, Failure> {
    let engine = app::open(config).await?;
    let tenants = match &args.tenant {
        Some(name) => vec![app::find_tenant(&engine.store, name).await?],
        None => engine.store.system().list_tenants().await?,
    };
    let mut left = 0;
    for tenant in &tenants {
        let store = engine.store.tenant(tenant.id);
        for mailbox in store.list_mailboxes().await? {
            let progress = Arc::new(Progress::default());
            let bar = Bar::follow(&progress, ProgressUnit::Items, "emails");
            let mailbox = Arc::new(mailbox);
            let repaired = engine.retry_blobs(&store, &mailbox, &progress).await?;
            drop(bar);
            left += repaired.incomplete + repaired.without_original + repaired.problems.len() as u64;
            if out.json {
                let mut object = json!(repaired);
                object["tenant"] = json!(tenant.name);
                object["mailbox"] = json!(mailbox.address);
                out.object(&object)?;
            } else {
                out.line(&format!(
                    "{} {}: {} emails completed, {} still incomplete, {} without their original (import them again)",
                    tenant.name,
                    mailbox.address,
                    count(repaired.completed),
                    count(repaired.incomplete),
                    count(repaired.without_original)
                ))?;
                repaired.problems.iter().try_for_each(|problem| out.line(&format!("  {problem}")))?;
            }
        }
    }
    Ok(if left == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
