//! `mailroom demo`: three companies' generated mail through the real thing, in a folder of its own.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use content::files::Format;
use content::spool::Spool;
use domain::{PlanTier, SystemClock};
use engine::import::{Import, Summary};
use engine::search::Search;
use engine::secrets::KeySource;
use engine::{Cpu, Engine, Vault};
use serde_json::json;
use sim::mail::{Delivery, demo};
use store::blobs::Blobs;
use store::sql::tenants::Tenant;
use store::{Location, Store};

use super::{import, verify};
use crate::cli;
use crate::config::Config;
use crate::failure::Failure;
use crate::output::{Output, count, one_line, tell};

/// Searches that show what the language can do; the generated mail has hits for each.
const SEARCHES: [&str; 5] = [
    "invoice",
    "\"as discussed\" -invoice",
    "has:attachment filename:pdf",
    "subject:contract after:2020",
    "label:sent budget",
];

pub async fn run(config: &Config, args: &cli::Demo, out: Output) -> Result<ExitCode, Failure> {
    let temporary = tempfile::tempdir()?;
    let folder = args.keep.clone().unwrap_or_else(|| temporary.path().to_owned());
    if fs::read_dir(&folder).is_ok_and(|mut entries| entries.next().is_some()) {
        return Err(Failure::usage(format!("{} is not empty; give --keep a new folder", folder.display())));
    }
    let started = Instant::now();
    if !out.json {
        out.line(&format!("Generating {} emails (seed {}) …", count(args.emails as u64), args.seed))?;
    }
    let mailboxes = generate(args, &folder.join("maildirs"))?;
    let engine = open(config, &folder).await?;
    if !out.json {
        out.line("Importing them, and once more to show that nothing is stored twice …\n")?;
    }
    let first = import_all(&engine, config, &mailboxes).await?;
    let again = import_all(&engine, config, &mailboxes).await?;
    let tenants = engine.store.system().list_tenants().await?;
    if !out.json {
        show_imports(&first, &again, out)?;
        show_searches(&engine, &tenants, out).await?;
        out.line("Is everything there, and does every byte read back?\n")?;
    }
    let is_complete = show_completeness(&engine, &tenants, out).await?;
    conclude(&first, &again, is_complete, started, &folder, args, out)?;
    let stored_again: u64 = again.iter().map(|done| done.summary.stored).sum();
    Ok(if is_complete && stored_again == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// A mailbox of the demo and where its mail waits.
struct Source {
    tenant: String,
    address: String,
    maildir: PathBuf,
}

struct Done {
    tenant: String,
    address: String,
    summary: Summary,
}

/// Maildirs, because they keep bytes, folders and flags as they are.
fn generate(args: &cli::Demo, folder: &Path) -> Result<Vec<Source>, Failure> {
    let deliveries = demo(args.seed, args.emails);
    let tenants = deliveries.tenants().to_vec();
    let mut sources: HashMap<(usize, usize), Source> = HashMap::new();
    for (n, Delivery { tenant, mailbox, message }) in deliveries.enumerate() {
        let address = &tenants[tenant].mailboxes[mailbox].owner.address;
        let source = sources.entry((tenant, mailbox)).or_insert_with(|| Source {
            tenant: tenant_name(&tenants[tenant].name),
            address: address.clone(),
            maildir: folder.join(address),
        });
        let place = match message.folder {
            "INBOX" => source.maildir.clone(),
            name => source.maildir.join(format!(".{name}")),
        };
        let name = format!("{n:08}.demo:2,{}", if message.seen { "S" } else { "" });
        fs::create_dir_all(place.join("cur"))?;
        fs::create_dir_all(source.maildir.join("cur"))?;
        fs::write(place.join("cur").join(name), &message.raw)?;
    }
    let mut sources: Vec<Source> = sources.into_values().collect();
    sources.sort_by(|a, b| (&a.tenant, &a.address).cmp(&(&b.tenant, &b.address)));
    Ok(sources)
}

/// `Harrow & Finch Ltd` becomes `harrow-finch-ltd`.
fn tenant_name(company: &str) -> String {
    let words = company.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    words.map(str::to_lowercase).collect::<Vec<_>>().join("-")
}

async fn open(config: &Config, folder: &Path) -> Result<Engine, Failure> {
    let store = Store::open(
        &Location::Sqlite { path: folder.join("mailroom.db"), connections: config.database.pool },
        Arc::new(SystemClock),
    )?;
    store.migrate().await?;
    let blobs = Blobs::local(&folder.join("blobs"))?;
    let patience = config.import.patience;
    let spool = Spool::new(&folder.join("spool"));
    let vault = Vault::new(store.clone(), KeySource::File(folder.join("master.key")));
    Ok(Engine { store, blobs, vault, limits: config.limits.clone(), spool, cpu: Cpu::all_cores(), patience })
}

async fn import_all(engine: &Engine, config: &Config, sources: &[Source]) -> Result<Vec<Done>, Failure> {
    let mut done = Vec::with_capacity(sources.len());
    for source in sources {
        // Taken on the second round.
        engine.store.system().create_tenant(&source.tenant, PlanTier::Standard).await?;
        let store = crate::app::tenant_store(engine, &source.tenant).await?;
        let mailbox = store.ensure_files_mailbox(&source.address).await?;
        let opened = Import {
            paths: vec![source.maildir.clone()],
            format: Format::Maildir,
            folder: None,
            batching: import::batching(config),
        }
        .open(&engine.limits, &engine.spool)
        .map_err(anyhow::Error::from)?;
        let summary = import::with_bar(engine, &mailbox, opened).await?;
        done.push(Done { tenant: source.tenant.clone(), address: source.address.clone(), summary });
    }
    Ok(done)
}

fn show_imports(first: &[Done], again: &[Done], out: Output) -> Result<(), Failure> {
    let row = |(first, again): (&Done, &Done)| {
        [
            first.tenant.clone(),
            first.address.clone(),
            count(first.summary.read),
            count(first.summary.stored),
            count(first.summary.attachments),
            count(again.summary.stored),
        ]
    };
    let rows: Vec<[String; 6]> = first.iter().zip(again).map(row).collect();
    out.table(["tenant", "mailbox", "messages", "stored", "attachments", "stored again"], &rows)?;
    out.line("")
}

async fn show_searches(engine: &Engine, tenants: &[Tenant], out: Output) -> Result<(), Failure> {
    // The one whose people write English, like the searches.
    let Some(tenant) = tenants.iter().find(|tenant| tenant.name.starts_with("harrow")).or(tenants.first()) else {
        return Ok(());
    };
    let store = engine.store.tenant(tenant.id);
    for text in SEARCHES {
        let search = Search { mailbox: None, limit: 2, order: Default::default(), cursor: None, marks: ("**", "**") };
        let found = engine.search(&store, text, &search).await.map_err(|e| Failure::problem(e.to_string()))?;
        out.line(&format!("$ mailroom search '{text}' --tenant {} --limit 2", tenant.name))?;
        for hit in &found.hits {
            let date = hit.email.received_at.strftime("%Y-%m-%d");
            out.line(&format!("  {date}  {}", one_line(hit.email.subject.as_deref().unwrap_or("(no subject)"), 80)))?;
            out.line(&format!("      {}", hit.snippet))?;
        }
        out.line("")?;
    }
    Ok(())
}

async fn show_completeness(engine: &Engine, tenants: &[Tenant], out: Output) -> Result<bool, Failure> {
    let mut is_complete = true;
    for tenant in tenants {
        let report = verify::with_bar(engine, tenant, None, true).await?;
        is_complete &= report.differences.is_empty();
        if !out.json || !report.differences.is_empty() {
            verify::print(tenant, &report, out)?;
        }
    }
    Ok(is_complete)
}

fn conclude(
    first: &[Done],
    again: &[Done],
    is_complete: bool,
    started: Instant,
    folder: &Path,
    args: &cli::Demo,
    out: Output,
) -> Result<(), Failure> {
    let total = |done: &[Done], field: fn(&Summary) -> u64| done.iter().map(|done| field(&done.summary)).sum::<u64>();
    let (read, stored) = (total(first, |s| s.read), total(first, |s| s.stored));
    let stored_again = total(again, |s| s.stored);
    let seconds: f64 = first.iter().map(|done| done.summary.seconds).sum();
    if out.json {
        return out.object(&json!({
            "read": read, "stored": stored, "stored_again": stored_again, "complete": is_complete, "seconds": seconds,
            "attachments": total(first, |s| s.attachments), "bytes": total(first, |s| s.bytes),
        }));
    }
    out.line(&format!(
        "\n{} messages of {} mailboxes in {seconds:.1} s; {} stored, {stored_again} stored again. Done in {:.1} s.",
        count(read),
        first.len(),
        count(stored),
        started.elapsed().as_secs_f64()
    ))?;
    if args.keep.is_some() {
        tell(&format!("Look around: MAILROOM_DATA_DIR={} mailroom search invoice --tenant …", folder.display()));
    }
    Ok(())
}
