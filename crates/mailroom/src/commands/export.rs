//! `mailroom export`

use std::process::ExitCode;
use std::sync::Arc;

use content::query;
use engine::Progress;
use engine::archive::export::ExportFormat;
use engine::operations::Invocation;
use engine::operations::emails::{self, ExportRequest};
use serde_json::json;
use terminal::{Bar, Failure, Output, ProgressUnit, count};

use crate::app;
use crate::cli::{self, ExportFormatArg};
use crate::config::Config;

pub async fn run(config: &Config, args: &cli::ExportArgs, out: Output) -> Result<ExitCode, Failure> {
    // A mistake in it is found before anything is opened.
    query::parse(&args.query).map_err(|e| Failure::usage(e.to_string()))?;
    let engine = app::open(config).await?;
    let store = app::tenant_store(&engine, &args.tenant.tenant).await?;
    let mailbox = app::find_mailbox(&store, args.mailbox.as_deref()).await?.map(|mailbox| mailbox.id);
    let format = match args.format {
        ExportFormatArg::Mbox => ExportFormat::Mbox,
        ExportFormatArg::Eml => ExportFormat::Eml,
    };
    let request = ExportRequest {
        query: args.query.clone(),
        includes_deleted: args.include_deleted,
        mailbox,
        format,
        out: args.out.clone(),
    };
    let origin = app::origin();
    let call = Invocation::begin(&engine, &origin).await?;
    let progress = Arc::new(Progress::default());
    let bar = Bar::follow(&progress, ProgressUnit::Items, "emails");
    let exported = emails::export(&call, store.id, &request, &progress).await.map_err(app::refused)?;
    drop(bar);
    if out.json {
        out.object(&json!({"exported": exported, "out": args.out}))?;
    } else {
        out.line(&format!("Wrote {} emails to {}.", count(exported), args.out.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}
