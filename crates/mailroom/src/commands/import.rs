//! `mailroom import`

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use content::files::MailFileFormat;
use domain::{Backfill, MailboxSettings, PlanTier, Provider};
use engine::archive::import::{Batching, Import, ImportSummary, OpenImport};
use engine::operations::mailboxes::{self, ConnectRequest};
use engine::operations::{Invocation, emails};
use engine::{Engine, Progress};
use serde::Serialize;
use store::sql::mailboxes::Mailbox;
use store::{Precondition, TenantStore};
use terminal::{Bar, Failure, Output, ProgressUnit, count, note, process, size};

use super::tenant::create_unless_taken;
use crate::app;
use crate::cli::{self, ImportFormatArg};
use crate::config::Config;

/// Summary of an import as JSON.
#[derive(Debug, Serialize)]
struct ImportOutput {
    #[serde(flatten)]
    summary: ImportSummary,
    peak_memory_bytes: Option<u64>,
}

/// Problems that are printed one by one; a folder may contain a million broken files.
const MAX_REPORTED_PROBLEMS: u64 = 100;

pub async fn run(config: &Config, args: cli::ImportArgs, out: Output) -> Result<ExitCode, Failure> {
    let engine = app::open(config).await?;
    let paths = args.paths.clone();
    let import = Import {
        paths: args.paths,
        format: match args.format {
            ImportFormatArg::Auto => MailFileFormat::Auto,
            ImportFormatArg::Eml => MailFileFormat::Eml,
            ImportFormatArg::Mbox => MailFileFormat::Mbox,
            ImportFormatArg::Maildir => MailFileFormat::Maildir,
        },
        folder: args.folder,
        batching: batching(config),
    };
    // Before a tenant is created: a wrong path must leave nothing behind.
    let opened = import.open(&engine.limits, &engine.spool).map_err(anyhow::Error::from)?;
    let mailbox = ensure_mailbox(&engine, &args.tenant, args.create_tenant, &args.mailbox).await?;
    let summary = with_bar(&engine, &mailbox, &paths, opened).await?;
    if out.json {
        out.object(&ImportOutput { summary, peak_memory_bytes: process::peak_memory() })?;
    } else {
        out.line(&sentence(&summary))?;
    }
    if summary.incomplete > 0 {
        note(&format!(
            "{} emails are stored without some of their bytes, because blob storage was unavailable; run the same import again when it is available",
            count(summary.incomplete)
        ));
    }
    Ok(if summary.failed + summary.incomplete == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

pub fn batching(config: &Config) -> Batching {
    let settings = &config.import;
    Batching { messages: settings.batch_messages, bytes: settings.batch_bytes, in_flight: settings.in_flight }
}

async fn with_bar(
    engine: &Engine,
    mailbox: &Mailbox,
    paths: &[PathBuf],
    opened: OpenImport,
) -> Result<ImportSummary, Failure> {
    let progress = Arc::new(Progress::default());
    let bar = Arc::new(Bar::follow(&progress, ProgressUnit::Bytes, "messages"));
    let (printer, reported) = (bar.clone(), AtomicU64::new(0));
    let on_problem = Arc::new(move |problem: &str| match reported.fetch_add(1, Ordering::Relaxed) {
        0..MAX_REPORTED_PROBLEMS => printer.note(&format!("not imported: {problem}")),
        MAX_REPORTED_PROBLEMS => {
            printer.note("not imported: more files and messages, counted as failed in the summary");
        }
        _ => {}
    });
    let origin = app::origin();
    let call = Invocation::begin(engine, &origin).await?;
    emails::import(&call, mailbox, paths, opened, progress, on_problem).await.map_err(app::refused)
}

/// Finds or creates the mailbox. Imports are how people start, so a new tenant or address is created rather than refused.
async fn ensure_mailbox(engine: &Engine, tenant: &str, create_tenant: bool, mailbox: &str) -> Result<Mailbox, Failure> {
    let address = domain::address::canonical(mailbox);
    // A new tenant has no mailboxes that an id could name; it must not be created in vain.
    if address.is_none() && engine.store.system().find_tenant(tenant).await?.is_none() {
        return Err(not_an_address(mailbox));
    }
    let store = ensure_tenant(engine, tenant, create_tenant).await?;
    if let Some(found) = store.find_mailbox(mailbox).await? {
        return Ok(found);
    }
    create_mailbox(engine, &store, address.ok_or_else(|| not_an_address(mailbox))?).await
}

/// Creates the mailbox. Of concurrent imports, one creates it.
async fn create_mailbox(engine: &Engine, store: &TenantStore, address: String) -> Result<Mailbox, Failure> {
    let origin = app::origin();
    let call = Invocation::begin(engine, &origin).await?;
    let request = ConnectRequest {
        provider: Provider::Files,
        address,
        settings: MailboxSettings::default(),
        secret: None,
        backfill: Backfill::All,
    };
    match mailboxes::create(&call, store.id, &request).await {
        Err(refusal) if refusal.is(Precondition::MailboxExists) => {
            let found = store.find_mailbox(&request.address).await?;
            found.ok_or_else(|| Failure::problem("the mailbox was removed in the meantime"))
        }
        created => created.map_err(app::refused),
    }
}

fn not_an_address(mailbox: &str) -> Failure {
    Failure::usage(format!("--mailbox must be an email address, such as me@acme.test, not {mailbox:?}"))
}

/// Finds or creates the tenant. `create`: also if its name looks like a typo of another one.
async fn ensure_tenant(engine: &Engine, name: &str, create: bool) -> Result<TenantStore, Failure> {
    if let Some(tenant) = engine.store.system().find_tenant(name).await? {
        let store = engine.store.tenant(tenant.id);
        app::check_tenant_active(&store, name).await?;
        return Ok(store);
    }
    if !create {
        check_no_typo(engine, name).await?;
    }
    if create_unless_taken(engine, name, PlanTier::Standard).await?.is_some() {
        note(&format!("Created tenant {name}."));
    }
    app::tenant_store(engine, name).await
}

/// The letters by which a typo differs from the name that was meant.
const MAX_TYPO_LETTERS: usize = 2;

/// Fails if a new name is nearly that of a tenant: its mail would go where nobody looks for it.
async fn check_no_typo(engine: &Engine, name: &str) -> Result<(), Failure> {
    let tenants = engine.store.system().list_tenants().await?;
    let names = tenants.iter().map(|tenant| tenant.name.as_str());
    match domain::suggestion::within(MAX_TYPO_LETTERS, name, names) {
        None => Ok(()),
        Some(near) => Err(Failure::usage(format!(
            "there is no tenant {name:?}; did you mean {near:?}? To create {name:?}, add --create-tenant"
        ))),
    }
}

fn sentence(summary: &ImportSummary) -> String {
    let rate = if summary.seconds > 0.0 { summary.read as f64 / summary.seconds } else { 0.0 };
    let skipped = match summary.skipped {
        0 => String::new(),
        files => format!(" Passed over: {} files that are no mail.", count(files)),
    };
    format!(
        "Messages read: {} ({}) in {:.1} s, {} a second. Stored: {}, duplicates: {}, failed: {}, attachments: {}.{skipped}",
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
