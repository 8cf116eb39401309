//! `mailroom gc`

use std::process::ExitCode;
use std::sync::Arc;

use domain::units::{DURATION_UNITS, parse_duration};
use engine::Progress;
use engine::archive::gc::CollectionReport;
use jiff::SignedDuration;
use serde_json::json;
use store::sql::tenants::Tenant;
use terminal::{Bar, Failure, Output, ProgressUnit, count, size};

use crate::app;
use crate::cli;
use crate::config::Config;

pub async fn run(config: &Config, args: &cli::GcArgs, out: Output) -> Result<ExitCode, Failure> {
    let grace = grace(config, args.grace.as_deref())?;
    let engine = app::open(config).await?;
    let tenants = match &args.tenant {
        Some(name) => vec![app::find_tenant(&engine.store, name).await?],
        None => engine.store.system().list_tenants().await?,
    };
    let mut problems = 0;
    for tenant in &tenants {
        let progress = Arc::new(Progress::default());
        let bar = Bar::follow(&progress, ProgressUnit::Items, "objects");
        let collected = engine.collect(tenant.id, grace, &progress).await?;
        drop(bar);
        problems += collected.problems.len();
        print(tenant, &collected, out)?;
    }
    // Left behind by killed writers; no write takes an hour, whatever the grace period.
    let age = grace.max(SignedDuration::from_hours(1));
    let leftovers = engine.blobs.remove_unfinished(engine.store.clock().now() - age).await?;
    engine.store.system().scrub(&|| {}).await?;
    let freed = engine.store.system().compact().await?;
    if out.json {
        out.object(&json!({"unfinished_removed": leftovers, "database_bytes_freed": freed}))?;
    } else if leftovers > 0 || freed > 0 {
        out.line(&format!(
            "Unfinished files removed: {}. The database file is smaller by {}.",
            count(leftovers),
            size(freed)
        ))?;
    }
    if tenants.is_empty() && !out.json {
        out.line("Nothing to collect: there are no tenants yet.")?;
    }
    Ok(if problems == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn grace(config: &Config, given: Option<&str>) -> Result<SignedDuration, Failure> {
    let grace = match given {
        None => config.blobs.grace,
        Some(text) => parse_duration(text).map_err(|_| {
            Failure::usage(format!("--grace must be a duration such as 24h, not {text:?}; units are {DURATION_UNITS}"))
        })?,
    };
    SignedDuration::try_from(grace).map_err(|_| Failure::usage("--grace is too long; use a duration such as 24h"))
}

fn print(tenant: &Tenant, collected: &CollectionReport, out: Output) -> Result<(), Failure> {
    if out.json {
        let mut object = json!(collected);
        object["tenant"] = json!(tenant.name);
        return out.object(&object);
    }
    let CollectionReport { blobs_deleted, blobs_waiting, packs_merged, packs_made, objects_deleted, .. } = collected;
    let mut line = format!(
        "{}: {} blobs deleted, {} packs merged into {}, {} objects deleted",
        tenant.name,
        count(*blobs_deleted),
        count(*packs_merged),
        count(*packs_made),
        count(*objects_deleted)
    );
    if collected.is_on_hold {
        line.push_str(&format!("; {} blobs are kept by the legal hold", count(*blobs_waiting)));
    } else if *blobs_waiting > 0 {
        line.push_str(&format!("; {} blobs wait until the grace period is over", count(*blobs_waiting)));
    }
    if collected.objects_held > 0 {
        line.push_str(&format!("; {} objects wait for the end of a backup", count(collected.objects_held)));
    }
    out.line(&line)?;
    collected.problems.iter().try_for_each(|problem| out.line(&format!("  {problem}")))
}
