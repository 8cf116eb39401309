//! `mailroom reindex`: requests a job per tenant, and waits for their ends.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use domain::{Clock, JobState, SystemClock};
use engine::archive::reindex::{Reindex, ReindexRun, ReindexScope};
use engine::operations::{Invocation, emails};
use engine::{Engine, Progress};
use jiff::{SignedDuration, Timestamp};
use jobs::{Job, Worker};
use serde_json::json;
use store::sql::tenants::Tenant;
use terminal::{Bar, Failure, Output, ProgressUnit, count, note, one_line};

use crate::app;
use crate::cli;
use crate::config::Config;
use domain::units::{QuantityError, parse_duration};

/// Interval of checks whether the reindex has ended, and of progress updates.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// How long a reindex may not begin before the command says why.
const EXPLAIN_AFTER: Duration = Duration::from_secs(5);

/// Interval of checks whether a process works on the jobs.
const WORKER_CHECK_INTERVAL: Duration = Duration::from_secs(1);

pub async fn run(config: &Config, args: &cli::ReindexArgs, out: Output) -> Result<ExitCode, Failure> {
    let since = args.since.as_deref().map(|text| parse_since(text, SystemClock.now())).transpose()?;
    let engine = app::open(config).await?;
    let scope = if args.all { ReindexScope::All } else { ReindexScope::Stale };
    let tenants = match &args.tenant {
        Some(name) => {
            let tenant = app::find_tenant(&engine.store, name).await?;
            app::check_tenant_active(&engine.store.tenant(tenant.id), name).await?;
            vec![tenant]
        }
        // No work is done for the others.
        None => engine.store.system().list_tenants().await?.into_iter().filter(|tenant| tenant.is_active).collect(),
    };
    let origin = app::origin();
    let mut requested = Vec::with_capacity(tenants.len());
    for tenant in &tenants {
        let call = Invocation::begin(&engine, &origin).await?;
        let is_new = emails::reindex(&call, tenant.id, scope, since).await.map_err(app::refused)?;
        requested.push((tenant, is_new));
    }
    if args.background {
        requested.iter().try_for_each(|(tenant, is_new)| print_request(tenant, *is_new, out))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut workers = ReindexWorkers { config, engine: &engine, own: None, checked_at: None };
    let ended = wait_for_all(&mut workers, &requested, out).await;
    if let Some(worker) = workers.own {
        worker.shut_down().await;
    }
    if tenants.is_empty() && !out.json {
        out.line("Nothing to reindex: there are no active tenants.")?;
    }
    Ok(if ended? == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Parses a date as a search takes it, or a duration before now; a number alone is days.
fn parse_since(text: &str, now: Timestamp) -> Result<Timestamp, Failure> {
    // A year has four digits, which no number of days needs.
    if let Some(date) = content::query::parse_date(text) {
        return Ok(date);
    }
    let age = match parse_duration(text) {
        Err(QuantityError::NoUnit) => parse_duration(&format!("{text}d")),
        parsed => parsed,
    };
    let age = age.ok().and_then(|age| SignedDuration::try_from(age).ok());
    age.and_then(|age| now.checked_sub(age).ok()).ok_or_else(|| {
        Failure::usage(format!(
            "--since must be a date such as 2024-01-31 or a number of days such as 90d, not {text:?}"
        ))
    })
}

/// What a tenant is told whose reindex is live already.
const JOINED: &str = "is being reindexed already; that reindex goes on, with the options it was started with.";

fn print_request(tenant: &Tenant, is_new: bool, out: Output) -> Result<(), Failure> {
    let name = &tenant.name;
    if out.json {
        return out.object(&json!({"tenant": name, "outcome": if is_new { "requested" } else { "live" }}));
    }
    if is_new {
        return out.line(&format!("{name} is reindexed as soon as a worker is free."));
    }
    out.line(&format!("{name} {JOINED}"))
}

/// Waits for the reindex of each tenant and prints its end. Returns the number of emails that could not be read.
async fn wait_for_all(
    workers: &mut ReindexWorkers<'_>,
    requested: &[(&Tenant, bool)],
    out: Output,
) -> Result<u64, Failure> {
    let mut unreadable = 0;
    for (tenant, is_new) in requested {
        if !is_new {
            note(&format!("{} {JOINED}", tenant.name));
        }
        let run = wait_for(workers, tenant).await?;
        unreadable += run.unreadable;
        print_end(tenant, &run, *is_new, out)?;
    }
    Ok(unreadable)
}

async fn wait_for(workers: &mut ReindexWorkers<'_>, tenant: &Tenant) -> Result<ReindexRun, Failure> {
    let engine = workers.engine;
    let store = engine.store.tenant(tenant.id);
    let progress = Arc::new(Progress::default());
    let bar = Bar::follow(&progress, ProgressUnit::Items, "emails");
    let (begun, mut is_explained) = (Instant::now(), false);
    loop {
        let job = engine.find_reindex(tenant.id).await?;
        let job = job.ok_or_else(|| Failure::problem(format!("the reindex of {} was removed", tenant.name)))?;
        let run: ReindexRun = serde_json::from_value(job.payload).map_err(anyhow::Error::from)?;
        progress.set_total(run.total.unwrap_or(0));
        progress.set_done(run.examined);
        progress.add_items(run.examined.saturating_sub(progress.items()));
        match job.state {
            JobState::Done => return Ok(run),
            JobState::Dead | JobState::Cancelled => {
                return Err(Failure::problem(format!(
                    "the reindex of {} is {}: {}; `mailroom jobs retry {}` continues it",
                    tenant.name,
                    job.state.as_str(),
                    one_line(job.reason.as_deref().unwrap_or_default(), 200),
                    job.id
                )));
            }
            // Paused, say: nobody would know what the command waits for.
            _ if run.examined == 0 && !is_explained && begun.elapsed() > EXPLAIN_AFTER => {
                is_explained = true;
                let reasons = engine.store.system().diagnose_job(job.id).await?.map(|found| found.reasons);
                for reason in reasons.unwrap_or_default() {
                    bar.note(&format!("{}: {}", tenant.name, one_line(&reason.sentence(), 1000)));
                }
            }
            _ => {}
        }
        // From a deactivation on, no worker claims its jobs.
        app::check_tenant_active(&store, &tenant.name).await?;
        workers.ensure().await?;
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

fn print_end(tenant: &Tenant, run: &ReindexRun, is_new: bool, out: Output) -> Result<(), Failure> {
    let ReindexRun { examined, reindexed, unreadable, .. } = run;
    if out.json {
        return out.object(&json!({"tenant": tenant.name, "examined": examined, "reindexed": reindexed,
            "unreadable": unreadable, "joined": !is_new}));
    }
    let mut line = format!("{}: {} of {} emails reindexed", tenant.name, count(*reindexed), count(*examined));
    if *unreadable > 0 {
        line.push_str(&format!(
            "; {} left as they were, for their originals are missing or damaged (`mailroom verify --deep` names them)",
            count(*unreadable)
        ));
    }
    out.line(&line)
}

/// The processes that work on the jobs: a service, or else a worker of this command's own.
struct ReindexWorkers<'a> {
    config: &'a Config,
    engine: &'a Engine,
    own: Option<Worker>,
    checked_at: Option<Instant>,
}

impl ReindexWorkers<'_> {
    /// Starts a worker unless one is running, here or elsewhere. Asked again and again, for a service may end.
    async fn ensure(&mut self) -> Result<(), Failure> {
        let is_checked = self.checked_at.is_some_and(|at| at.elapsed() < WORKER_CHECK_INTERVAL);
        if is_checked || self.own.is_some() {
            return Ok(());
        }
        self.checked_at = Some(Instant::now());
        let running = self.engine.store.system().list_workers().await?;
        let has_worker = running.iter().any(|worker| worker.kinds.iter().any(|kind| kind == Reindex::KIND));
        if !has_worker {
            let kinds = engine::jobs::reindex_kinds(self.engine);
            self.own = Some(app::start_worker_of(self.config, &self.engine.store, kinds, "command"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn since_is_a_date_or_a_number_of_days() {
        let now: Timestamp = "2026-03-01T12:00:00Z".parse().unwrap();

        for (text, expected) in [
            ("2024-01-31", "2024-01-31T00:00:00Z"),
            ("2024", "2024-01-01T00:00:00Z"),
            ("2024-01-31T05:00:00Z", "2024-01-31T05:00:00Z"),
            ("1d", "2026-02-28T12:00:00Z"),
            ("28", "2026-02-01T12:00:00Z"),
            ("36h", "2026-02-28T00:00:00Z"),
        ] {
            assert_eq!(parse_since(text, now).unwrap(), expected.parse::<Timestamp>().unwrap(), "{text}");
        }
        for text in ["", "yesterday", "-3d", "2024-13-01", "999999999d"] {
            assert!(parse_since(text, now).is_err(), "{text}");
        }
    }
}
