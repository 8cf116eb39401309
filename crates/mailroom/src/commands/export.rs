//! `mailroom export`

use std::process::ExitCode;
use std::sync::Arc;

use content::query;
use engine::Progress;
use engine::export::Format;
use serde_json::json;

use crate::app;
use crate::cli::{self, ExportFormat};
use crate::config::Config;
use crate::failure::Failure;
use crate::output::{Output, count};
use crate::progress::{Bar, Unit};

pub async fn run(config: &Config, args: &cli::Export, out: Output) -> Result<ExitCode, Failure> {
    let query = query::parse(&args.query).map_err(|e| Failure::usage(e.to_string()))?;
    let engine = app::open(config).await?;
    let store = app::tenant_store(&engine, &args.tenant.tenant).await?;
    let mailbox = app::mailbox(&store, args.mailbox.as_deref()).await?.map(|mailbox| mailbox.id);
    let format = match args.format {
        ExportFormat::Mbox => Format::Mbox,
        ExportFormat::Eml => Format::Eml,
    };
    let progress = Arc::new(Progress::default());
    let bar = Bar::follow(&progress, Unit::Items, "emails");
    let exported = engine.export(&store, &query, mailbox, format, &args.out, &progress).await?;
    drop(bar);
    if out.json {
        out.object(&json!({"exported": exported, "out": args.out}))?;
    } else {
        out.line(&format!("Wrote {} emails to {}.", count(exported), args.out.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}
