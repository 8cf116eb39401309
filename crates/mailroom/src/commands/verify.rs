//! `mailroom verify`

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use domain::{MailboxId, Provider};
use engine::completeness::FolderCount;
use engine::sync::Syncer;
use engine::verify::Report;
use engine::{Engine, Progress};
use serde_json::json;
use store::sql::mailboxes::Mailbox;
use store::sql::tenants::Tenant;

use crate::app;
use crate::cli;
use crate::config::Config;
use crate::failure::Failure;
use crate::output::{Output, count, one_line};
use crate::progress::{Bar, Unit};

/// Long enough for the key of any pack.
const EXAMPLE: usize = 200;

/// How long a change may take to get here.
const ON_ITS_WAY: Duration = Duration::from_secs(2);

/// More damaged packs than anybody reads one by one.
const PACKS: usize = 20;

pub async fn run(config: &Config, args: &cli::Verify, out: Output) -> Result<ExitCode, Failure> {
    let engine = app::open(config).await?;
    let tenants = match &args.tenant {
        Some(name) => vec![app::tenant(&engine.store, name).await?],
        None => engine.store.system().list_tenants().await?,
    };
    let mut differences = 0;
    let syncer = app::syncer(config, &engine, "verify")?;
    for tenant in &tenants {
        let store = engine.store.tenant(tenant.id);
        let mailbox = app::mailbox(&store, args.mailbox.as_deref()).await?;
        let report = with_bar(&engine, tenant, mailbox.as_ref().map(|mailbox| mailbox.id), args.deep).await?;
        differences += report.differences.len();
        print(tenant, &report, out)?;
        let mailboxes = match mailbox {
            Some(mailbox) => vec![mailbox],
            None => store.list_mailboxes().await?,
        };
        for mailbox in mailboxes.iter().filter(|mailbox| mailbox.provider != Provider::Files) {
            differences += at_provider(&syncer, mailbox, out).await?;
        }
    }
    if args.deep
        && let Some(damage) = engine.store.system().verify_index().await?
    {
        differences += 1;
        out.line(&format!("{}: {}", damage.what, one_line(&damage.example, 200)))?;
    }
    if tenants.is_empty() && !out.json {
        out.line("Nothing to verify: there are no tenants yet.")?;
    }
    Ok(if differences == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Counts the mailbox once more where it lives; how many folders differ.
async fn at_provider(syncer: &Syncer, mailbox: &Mailbox, out: Output) -> Result<usize, Failure> {
    let mut compared = syncer.compare(mailbox).await;
    if let Ok(Some(first)) = &compared
        && first.difference() > 0
    {
        // A change may have been on its way; what still differs does.
        tokio::time::sleep(ON_ITS_WAY).await;
        compared = syncer.compare(mailbox).await;
    }
    let compared = match compared {
        Ok(Some(compared)) => compared,
        Ok(None) => {
            let (state, address) = (mailbox.state.as_str(), &mailbox.address);
            if out.json {
                out.object(&json!({"mailbox": address, "state": state, "compared": null}))?;
            } else {
                out.line(&format!("  {address} is {state}, so it is not compared with its provider"))?;
            }
            return Ok(0);
        }
        Err(e) => {
            let why = format!("cannot compare {} with its provider: {e:#}", mailbox.address);
            if out.json {
                out.object(&json!({"mailbox": mailbox.address, "ok": false, "problem": why}))?;
            } else {
                out.line(&format!("  {why}"))?;
            }
            return Ok(1);
        }
    };
    let difference = compared.difference();
    if out.json {
        out.object(&json!({"mailbox": mailbox.address, "ok": difference == 0, "compared": compared}))?;
        return Ok(usize::try_from(difference).unwrap_or(usize::MAX));
    }
    let sum = |of: fn(&FolderCount) -> u64| compared.folders.iter().map(of).sum::<u64>();
    let verdict = if difference == 0 { "equal" } else { "NOT equal" };
    out.line(&format!(
        "  {}: {verdict} to its provider: {} there = {} here + {} out of scope",
        mailbox.address,
        count(sum(|folder| folder.provider)),
        count(sum(|folder| folder.live)),
        count(sum(|folder| folder.out_of_scope))
    ))?;
    for folder in compared.folders.iter().filter(|folder| folder.missing + folder.surplus > 0) {
        let example = folder.example.as_deref().unwrap_or_default();
        out.line(&format!(
            "    {}: {} missing here, {} not there, for example {}",
            one_line(&folder.name, EXAMPLE),
            count(folder.missing),
            count(folder.surplus),
            one_line(example, EXAMPLE)
        ))?;
    }
    if compared.unbalanced > 0 {
        out.line(&format!("    {} rows of the ledger are neither live nor gone, or both", count(compared.unbalanced)))?;
    }
    Ok(usize::try_from(difference).unwrap_or(usize::MAX))
}

pub async fn with_bar(
    engine: &Engine,
    tenant: &Tenant,
    mailbox: Option<MailboxId>,
    deep: bool,
) -> Result<Report, Failure> {
    let progress = Arc::new(Progress::default());
    let _bar = deep.then(|| Bar::follow(&progress, Unit::Items, "blobs"));
    Ok(engine.verify(&engine.store.tenant(tenant.id), mailbox, deep, &progress).await?)
}

pub fn print(tenant: &Tenant, report: &Report, out: Output) -> Result<(), Failure> {
    if out.json {
        return out.object(&json!({
            "tenant": tenant.name, "ok": report.differences.is_empty(), "totals": report.totals,
            "differences": report.differences, "packs": report.packs,
        }));
    }
    let totals = &report.totals;
    let verdict = if report.differences.is_empty() { "complete" } else { "NOT complete" };
    out.line(&format!(
        "{}: {verdict}: {} messages seen, {} emails, {} attachments, {} blobs",
        tenant.name,
        count(totals.ledger),
        count(totals.emails),
        count(totals.attachments),
        count(totals.blobs)
    ))?;
    for difference in &report.differences {
        let example = one_line(&difference.example, EXAMPLE);
        out.line(&format!("  {}: {}, for example {example}", difference.what, count(difference.count)))?;
    }
    for pack in report.packs.iter().take(PACKS) {
        out.line(&format!("    {}", one_line(&pack.to_string(), 2 * EXAMPLE)))?;
    }
    if report.packs.len() > PACKS {
        out.line(&format!(
            "    and {} more; `verify --json` names them all",
            count((report.packs.len() - PACKS) as u64)
        ))?;
    }
    Ok(())
}
