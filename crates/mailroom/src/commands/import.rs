//! `mailroom import`

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use content::files::Format;
use domain::PlanTier;
use engine::import::{Batching, Import, Opened, Summary};
use engine::{Engine, Progress};
use serde::Serialize;
use store::TenantStore;
use store::sql::mailboxes::Mailbox;

use super::tenant::check_name;
use crate::app;
use crate::cli::{self, ImportFormat};
use crate::config::Config;
use crate::failure::Failure;
use crate::output::{Output, count, size, tell};
use crate::progress::{Bar, Unit};

/// What a program reads: the promised fields, and what they cost.
#[derive(Debug, Serialize)]
struct Printed {
    #[serde(flatten)]
    summary: Summary,
    peak_memory_bytes: Option<u64>,
}

/// A folder of a million broken files should not print a million lines.
const MOST_TOLD: u64 = 100;

pub async fn run(config: &Config, args: cli::Import, out: Output) -> Result<ExitCode, Failure> {
    let engine = app::open(config).await?;
    let import = Import {
        paths: args.paths,
        format: match args.format {
            ImportFormat::Auto => Format::Auto,
            ImportFormat::Eml => Format::Eml,
            ImportFormat::Mbox => Format::Mbox,
            ImportFormat::Maildir => Format::Maildir,
        },
        folder: args.folder,
        batching: batching(config),
    };
    // Before a tenant is made for it: a wrong path should leave nothing behind.
    let opened = import.open(&engine.limits, &engine.spool).map_err(anyhow::Error::from)?;
    let mailbox = ensure_mailbox(&engine, &args.tenant, &args.mailbox).await?;
    let summary = with_bar(&engine, &mailbox, opened).await?;
    if out.json {
        out.object(&Printed { summary, peak_memory_bytes: peak_memory() })?;
    } else {
        out.line(&sentence(&summary))?;
    }
    if summary.incomplete > 0 {
        tell(&format!(
            "{} emails are stored without some of their bytes, because blob storage was away; run the same import again when it is back",
            count(summary.incomplete)
        ));
    }
    Ok(if summary.failed + summary.incomplete == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

pub fn batching(config: &Config) -> Batching {
    let settings = &config.import;
    Batching { messages: settings.batch_messages, bytes: settings.batch_bytes, in_flight: settings.in_flight }
}

pub async fn with_bar(engine: &Engine, mailbox: &Mailbox, opened: Opened) -> Result<Summary, Failure> {
    let progress = Arc::new(Progress::default());
    let bar = Arc::new(Bar::follow(&progress, Unit::Bytes, "messages"));
    let (teller, told) = (bar.clone(), Arc::new(AtomicU64::new(0)));
    let on_problem = move |problem: &str| match told.fetch_add(1, Ordering::Relaxed) {
        0..MOST_TOLD => teller.tell(&format!("not imported: {problem}")),
        MOST_TOLD => teller.tell("not imported: more files and messages, counted as failed in the summary"),
        _ => {}
    };
    Ok(engine.import(mailbox, opened, progress, Arc::new(on_problem)).await?)
}

/// Imports are how people begin, so a new tenant name or address is made rather than refused.
async fn ensure_mailbox(engine: &Engine, tenant: &str, mailbox: &str) -> Result<Mailbox, Failure> {
    let wrong = || Failure::usage(format!("--mailbox wants an address like me@acme.test, not {mailbox:?}"));
    let address = domain::address::canonical(mailbox);
    // A new tenant has no mailboxes that an id could name; refused after it is made, it would stay behind.
    if address.is_none() && engine.store.system().find_tenant(tenant).await?.is_none() {
        return Err(wrong());
    }
    let store = ensure_tenant(engine, tenant).await?;
    if let Some(found) = store.find_mailbox(mailbox).await? {
        return Ok(found);
    }
    Ok(store.ensure_files_mailbox(&address.ok_or_else(wrong)?).await?)
}

async fn ensure_tenant(engine: &Engine, name: &str) -> Result<TenantStore, Failure> {
    let system = engine.store.system();
    if let Some(tenant) = system.find_tenant(name).await? {
        let store = engine.store.tenant(tenant.id);
        app::must_be_active(&store, name).await?;
        return Ok(store);
    }
    check_name(name)?;
    if system.create_tenant(name, PlanTier::Standard).await?.is_some() {
        tell(&format!("Made tenant {name}."));
    }
    app::tenant_store(engine, name).await
}

fn sentence(summary: &Summary) -> String {
    let rate = if summary.seconds > 0.0 { summary.read as f64 / summary.seconds } else { 0.0 };
    format!(
        "Messages read: {} ({}) in {:.1} s, {} a second. Stored: {}, duplicates: {}, failed: {}, attachments: {}.",
        count(summary.read),
        size(summary.bytes),
        summary.seconds,
        count(rate.round() as u64),
        count(summary.stored),
        count(summary.duplicates),
        count(summary.failed),
        count(summary.attachments)
    )
}

/// The most memory that this process has had, where the system tells.
pub fn peak_memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kilobytes: u64 = line.trim().trim_end_matches("kB").trim().parse().ok()?;
    Some(kilobytes * 1024)
}
