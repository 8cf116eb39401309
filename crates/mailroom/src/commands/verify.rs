//! `mailroom verify`

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use domain::MailboxId;
use engine::archive::verify::VerifyReport;
use engine::sync::Syncer;
use engine::{Engine, Progress};
use serde_json::json;
use store::sql::mailboxes::Mailbox;
use store::sql::tenants::Tenant;
use terminal::{Bar, Failure, Output, ProgressUnit, count, one_line};

use crate::app;
use crate::cli;
use crate::config::Config;

/// Characters of an example; enough for the key of any pack.
const MAX_EXAMPLE_CHARS: usize = 200;

/// Time for a change in progress to be synced.
const RECHECK_DELAY: Duration = Duration::from_secs(2);

/// Damaged packs that are listed.
const MAX_LISTED_PACKS: usize = 20;

pub async fn run(config: &Config, args: &cli::VerifyArgs, out: Output) -> Result<ExitCode, Failure> {
    let engine = app::open(config).await?;
    let tenants = match &args.tenant {
        Some(name) => vec![app::find_tenant(&engine.store, name).await?],
        None => engine.store.system().list_tenants().await?,
    };
    let mut differences = 0;
    let syncer = app::syncer(config, &engine, "verify")?;
    for tenant in &tenants {
        let store = engine.store.tenant(tenant.id);
        let mailbox = app::find_mailbox(&store, args.mailbox.as_deref()).await?;
        let report = with_bar(&engine, tenant, mailbox.as_ref().map(|mailbox| mailbox.id), args.deep).await?;
        differences += report.differences.len();
        print(tenant, &report, out)?;
        let mailboxes = match mailbox {
            Some(mailbox) => vec![mailbox],
            None => store.list_mailboxes().await?,
        };
        for mailbox in mailboxes.iter().filter(|mailbox| mailbox.provider.capabilities().is_remote) {
            differences += compare_with_provider(&syncer, mailbox, out).await?;
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

/// Compares a mailbox with its provider. Returns the number of differences.
async fn compare_with_provider(syncer: &Syncer, mailbox: &Mailbox, out: Output) -> Result<usize, Failure> {
    let mut compared = syncer.compare(mailbox).await;
    if let Ok(Some(first)) = &compared
        && first.difference() > 0
    {
        // A change may have been in progress; only a lasting difference counts.
        tokio::time::sleep(RECHECK_DELAY).await;
        compared = syncer.compare(mailbox).await;
    }
    let compared = match compared {
        Ok(Some(compared)) => compared,
        Ok(None) => {
            let (state, address) = (mailbox.state.as_str(), &mailbox.address);
            if out.json {
                out.object(&json!({"mailbox": address, "state": state, "compared": null}))?;
            } else {
                out.line(&format!("  {address} is {state} and was not compared with its provider"))?;
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
    let verdict = if difference == 0 { "equal" } else { "NOT equal" };
    out.line(&format!(
        "  {}: {verdict} to its provider: {} there = {} here + {} out of scope",
        mailbox.address,
        count(compared.folders.iter().map(|folder| folder.provider).sum()),
        count(compared.folders.iter().map(|folder| folder.live).sum()),
        count(compared.folders.iter().map(|folder| folder.out_of_scope).sum())
    ))?;
    for folder in compared.folders.iter().filter(|folder| folder.missing + folder.surplus > 0) {
        let example = folder.example.as_deref().unwrap_or_default();
        out.line(&format!(
            "    {}: {} missing here, {} not there, for example {}",
            one_line(&folder.name, MAX_EXAMPLE_CHARS),
            count(folder.missing),
            count(folder.surplus),
            one_line(example, MAX_EXAMPLE_CHARS)
        ))?;
    }
    if compared.unbalanced > 0 {
        out.line(&format!("    {} ledger rows are neither live nor gone, or both", count(compared.unbalanced)))?;
    }
    Ok(usize::try_from(difference).unwrap_or(usize::MAX))
}

pub async fn with_bar(
    engine: &Engine,
    tenant: &Tenant,
    mailbox: Option<MailboxId>,
    deep: bool,
) -> Result<VerifyReport, Failure> {
    let progress = Arc::new(Progress::default());
    let _bar = deep.then(|| Bar::follow(&progress, ProgressUnit::Items, "blobs"));
    Ok(engine.verify(&engine.store.tenant(tenant.id), mailbox, deep, &progress).await?)
}

pub fn print(tenant: &Tenant, report: &VerifyReport, out: Output) -> Result<(), Failure> {
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
        let example = one_line(&difference.example, MAX_EXAMPLE_CHARS);
        out.line(&format!("  {}: {}, for example {example}", difference.what, count(difference.count)))?;
    }
    for pack in report.packs.iter().take(MAX_LISTED_PACKS) {
        out.line(&format!("    {}", one_line(&pack.to_string(), 2 * MAX_EXAMPLE_CHARS)))?;
    }
    if report.packs.len() > MAX_LISTED_PACKS {
        out.line(&format!(
            "    and {} more; `verify --json` names them all",
            count((report.packs.len() - MAX_LISTED_PACKS) as u64)
        ))?;
    }
    Ok(())
}
