//! `mailroom export`

use std::process::ExitCode;
use std::sync::Arc;

use content::query;
use engine::Progress;
use engine::archive::export::ExportFormat;
use serde_json::json;
use terminal::{Bar, Failure, Output, ProgressUnit, count};

use crate::app;
use crate::cli::{self, ExportFormatArg};
use crate::config::Config;

pub async fn run(config: &Config, args: &cli::ExportArgs, out: Output) -> Result<ExitCode, Failure> {
    let query = query::parse(&args.query).map_err(|e| Failure::usage(e.to_string()))?;
    let engine = app::open(config).await?;
    let store = app::tenant_store(&engine, &args.tenant.tenant).await?;
    let mailbox = app::find_mailbox(&store, args.mailbox.as_deref()).await?.map(|mailbox| mailbox.id);
    let format = match args.format {
        ExportFormatArg::Mbox => ExportFormat::Mbox,
        ExportFormatArg::Eml => ExportFormat::Eml,
    };
    let after = json!({"query": args.query, "mailbox": mailbox, "out": args.out.display().to_string()});
    app::audit_start(&engine.store, store.id, "email.export", &store.id.to_string(), after).await?;
    let progress = Arc::new(Progress::default());
    let bar = Bar::follow(&progress, ProgressUnit::Items, "emails");
    let exported = engine.export(&store, &query, mailbox, format, &args.out, &progress).await?;
    drop(bar);
    if out.json {
        out.object(&json!({"exported": exported, "out": args.out}))?;
    } else {
        out.line(&format!("Wrote {} emails to {}.", count(exported), args.out.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}
