//! `mailroom dead-letters …`

use std::process::ExitCode;

use domain::JobState;
use serde_json::json;
use store::Store;
use store::sql::jobs::{DeadGroup, JobFilter, JobRow, Replay};

use super::job_output::{listed, show_job, when};
use super::jobs::{filter, get};
use crate::app;
use crate::cli::jobs::{DeadLetters, OfKindAndTenant, WhichLetters};
use crate::config::Config;
use crate::failure::Failure;
use crate::output::{Output, count, one_line};

pub async fn run(config: &Config, command: DeadLetters, out: Output) -> Result<ExitCode, Failure> {
    let store = app::open(config).await?.store;
    match command {
        DeadLetters::List { of, fingerprint, groups, limit, after } => {
            let filter = JobFilter { fingerprint, ..filter(&store, &of).await? };
            match groups {
                true => list_groups(&store, &filter, out).await?,
                false => {
                    let dead = JobFilter { state: Some(JobState::Dead), ..filter };
                    listed(&store, &dead, after, limit, out).await?;
                }
            }
        }
        DeadLetters::Show(job) => show_job(&store, &get_dead(&store, job.id).await?, out).await?,
        DeadLetters::Replay { which, rate, payload } => {
            let replay = Replay { per_second: rate, payload };
            let replayed = match which.id {
                Some(id) => {
                    let job = get_dead(&store, id).await?;
                    u64::from(store.system().replay_one(job.tenant_id, id, &replay).await?)
                }
                None => store.system().replay_dead(&matching(&store, &which).await?, &replay).await?,
            };
            store.tell_of_jobs().await?;
            done(replayed, "replayed", out)?;
        }
        DeadLetters::Discard(which) => {
            let discarded = match which.id {
                Some(id) => {
                    let job = get_dead(&store, id).await?;
                    u64::from(store.system().discard_one(job.tenant_id, id).await?)
                }
                None => store.system().discard_dead(&matching(&store, &which).await?).await?,
            };
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
    Err(Failure::problem(format!("job {id} is {state}, not dead; `mailroom dead-letters list` shows those that are")))
}

async fn matching(store: &Store, which: &WhichLetters) -> Result<JobFilter, Failure> {
    let WhichLetters { kind, tenant, fingerprint, .. } = which;
    let of = OfKindAndTenant { kind: kind.clone(), tenant: tenant.clone() };
    Ok(JobFilter { fingerprint: fingerprint.clone(), ..filter(store, &of).await? })
}

fn done(number: u64, what: &str, out: Output) -> Result<(), Failure> {
    if number == 0 {
        return Err(Failure::problem(format!(
            "no dead letter matches, or a job with its unique key lives, so none was {what}; `mailroom dead-letters list` \
             shows those that there are"
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
    let row = |group: &DeadGroup| {
        [
            count(group.count),
            group.kind.clone(),
            one_line(&group.fingerprint, 40),
            when(group.first_at),
            when(group.last_at),
            one_line(group.sample.as_deref().unwrap_or_default(), 100),
        ]
    };
    let rows: Vec<[String; 6]> = groups.iter().map(row).collect();
    out.table(["jobs", "kind", "fingerprint", "first", "last", "one of them says"], &rows)
}
