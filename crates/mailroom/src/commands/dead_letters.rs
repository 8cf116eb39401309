//! `mailroom dead-letters …`

use std::process::ExitCode;

use domain::JobState;
use engine::operations::Invocation;
use engine::operations::dead_letters::{self, DeadLetters};
use serde_json::json;
use store::Store;
use store::sql::jobs::{JobFilter, JobRow, ReplayOptions};
use terminal::{Failure, Output, count, one_line};

use super::job_output::{format_time, print_job, print_jobs};
use super::jobs::{filter, get};
use crate::app;
use crate::cli::jobs::{DeadLetterSelector, DeadLettersCommand, JobSelector};
use crate::config::Config;

pub async fn run(config: &Config, command: DeadLettersCommand, out: Output) -> Result<ExitCode, Failure> {
    let engine = app::open(config).await?;
    let store = &engine.store;
    match command {
        DeadLettersCommand::List { selector, fingerprint, groups, limit, after } => {
            let filter = JobFilter { fingerprint, ..filter(store, &selector).await? };
            if groups {
                list_groups(store, &filter, out).await?;
            } else {
                let dead = JobFilter { state: Some(JobState::Dead), ..filter };
                print_jobs(store, &dead, after, limit, out).await?;
            }
        }
        DeadLettersCommand::Show(job) => print_job(store, &get_dead(store, job.id).await?, out).await?,
        DeadLettersCommand::Replay { selector, rate, payload } => {
            let options = ReplayOptions { per_second: rate, payload };
            let letters = selected(store, &selector).await?;
            let origin = app::origin();
            let call = Invocation::begin(&engine, &origin).await?;
            let replayed = dead_letters::replay(&call, &letters, &options).await.map_err(app::refused)?;
            done(replayed, "replayed", out)?;
        }
        DeadLettersCommand::Discard(selector) => {
            let letters = selected(store, &selector).await?;
            let origin = app::origin();
            let call = Invocation::begin(&engine, &origin).await?;
            let discarded = dead_letters::discard(&call, &letters).await.map_err(app::refused)?;
            done(discarded, "discarded", out)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn get_dead(store: &Store, id: domain::JobId) -> Result<JobRow, Failure> {
    let job = get(store, id).await?;
    if job.state == JobState::Dead {
        return Ok(job);
    }
    let state = job.state.as_str();
    Err(Failure::problem(format!("job {id} is {state}, not dead; `mailroom dead-letters list` shows all dead letters")))
}

async fn selected(store: &Store, selector: &DeadLetterSelector) -> Result<DeadLetters, Failure> {
    if let Some(id) = selector.id {
        return Ok(DeadLetters::One(Box::new(get_dead(store, id).await?)));
    }
    let DeadLetterSelector { kind, tenant, fingerprint, .. } = selector;
    let of = JobSelector { kind: kind.clone(), tenant: tenant.clone() };
    Ok(DeadLetters::All(JobFilter { fingerprint: fingerprint.clone(), ..filter(store, &of).await? }))
}

fn done(number: u64, what: &str, out: Output) -> Result<(), Failure> {
    if number == 0 {
        return Err(Failure::problem(format!(
            "no dead letter was {what}: none matches, or another job has its unique key; `mailroom dead-letters list` \
             shows all dead letters"
        )));
    }
    if out.json {
        return out.object(&json!({what: number}));
    }
    let letters = if number == 1 { "dead letter" } else { "dead letters" };
    out.line(&format!("{} {letters} {what}.", count(number)))
}

async fn list_groups(store: &Store, filter: &JobFilter, out: Output) -> Result<(), Failure> {
    let groups = store.system().list_dead_groups(filter).await?;
    if out.json {
        return groups.iter().try_for_each(|group| out.object(group));
    }
    if groups.is_empty() {
        return out.line("No dead letters match.");
    }
    let rows = groups.iter().map(|group| {
        [
            count(group.count),
            group.kind.clone(),
            one_line(&group.fingerprint, 40),
            format_time(group.first_at),
            format_time(group.last_at),
            one_line(group.sample.as_deref().unwrap_or_default(), 100),
        ]
    });
    let rows: Vec<[String; 6]> = rows.collect();
    out.table(["jobs", "kind", "fingerprint", "first", "last", "example"], &rows)
}
