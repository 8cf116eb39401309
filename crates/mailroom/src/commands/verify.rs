//! `mailroom verify`

use std::process::ExitCode;
use std::sync::Arc;

use domain::MailboxId;
use engine::verify::Report;
use engine::{Engine, Progress};
use serde_json::json;
use store::sql::tenants::Tenant;

use crate::app;
use crate::cli;
use crate::config::Config;
use crate::failure::Failure;
use crate::output::{Output, count, one_line};
use crate::progress::{Bar, Unit};

/// Long enough for the key of any pack.
const EXAMPLE: usize = 200;

/// More damaged packs than anybody reads one by one.
const PACKS: usize = 20;

pub async fn run(config: &Config, args: &cli::Verify, out: Output) -> Result<ExitCode, Failure> {
    let engine = app::open(config).await?;
    let tenants = match &args.tenant {
        Some(name) => vec![app::tenant(&engine.store, name).await?],
        None => engine.store.system().list_tenants().await?,
    };
    let mut differences = 0;
    for tenant in &tenants {
        let mailbox = app::mailbox(&engine.store.tenant(tenant.id), args.mailbox.as_deref()).await?;
        let report = with_bar(&engine, tenant, mailbox.map(|mailbox| mailbox.id), args.deep).await?;
        differences += report.differences.len();
        print(tenant, &report, out)?;
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
