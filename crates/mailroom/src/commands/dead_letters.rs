//! `mailroom dead-letters …`

use std::process::ExitCode;

use domain::{JobState, TenantId};
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
    let store = app::open(config).await?.store;
    match command {
        DeadLettersCommand::List { selector, fingerprint, groups, limit, after } => {
            let filter = JobFilter { fingerprint, ..filter(&store, &selector).await? };
            if groups {
                list_groups(&store, &filter, out).await?;
            } else {
                let dead = JobFilter { state: Some(JobState::Dead), ..filter };
                print_jobs(&store, &dead, after, limit, out).await?;
            }
        }
        DeadLettersCommand::Show(job) => print_job(&store, &get_dead(&store, job.id).await?, out).await?,
        DeadLettersCommand::Replay { selector, rate, payload } => {
            let replay = ReplayOptions { per_second: rate, payload };
            let replayed = match selector.id {
                Some(id) => {
                    let job = get_dead(&store, id).await?;
                    let store = audited_one(&store, "dead_letters.replay", &job).await?;
                    u64::from(store.system().replay_one(job.tenant_id, id, &replay).await?)
                }
                None => {
                    let filter = selector_filter(&store, &selector).await?;
                    audited_all(&store, "dead_letters.replay", &filter)
                        .await?
                        .system()
                        .replay_dead(&filter, &replay)
                        .await?
                }
            };
            store.notify_other_processes().await?;
            done(replayed, "replayed", out)?;
        }
        DeadLettersCommand::Discard(selector) => {
            let discarded = match selector.id {
                Some(id) => {
                    let job = get_dead(&store, id).await?;
                    let store = audited_one(&store, "dead_letters.discard", &job).await?;
                    u64::from(store.system().discard_one(job.tenant_id, id).await?)
                }
                None => {
                    let filter = selector_filter(&store, &selector).await?;
                    audited_all(&store, "dead_letters.discard", &filter).await?.system().discard_dead(&filter).await?
                }
            };
            done(discarded, "discarded", out)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns a store whose next commit also writes an audit entry for this dead letter.
async fn audited_one(store: &Store, action: &'static str, job: &JobRow) -> Result<Store, Failure> {
    app::audited_store(store, job.tenant_id, action, &job.id.to_string(), json!({"kind": job.kind})).await
}

/// The same for all dead letters that match; those of several tenants are in the system's audit log.
async fn audited_all(store: &Store, action: &'static str, filter: &JobFilter) -> Result<Store, Failure> {
    let tenant = filter.tenant.unwrap_or(TenantId::SYSTEM);
    let after = json!({"kind": filter.kind, "fingerprint": filter.fingerprint});
    app::audited_store(store, tenant, action, "all", after).await
}

async fn get_dead(store: &Store, id: domain::JobId) -> Result<JobRow, Failure> {
    let job = get(store, id).await?;
    if job.state == JobState::Dead {
        return Ok(job);
    }
    let state = job.state.as_str();
    Err(Failure::problem(format!("job {id} is {state}, not dead; `mailroom dead-letters list` shows all dead letters")))
}

async fn selector_filter(store: &Store, selector: &DeadLetterSelector) -> Result<JobFilter, Failure> {
    let DeadLetterSelector { kind, tenant, fingerprint, .. } = selector;
    let of = JobSelector { kind: kind.clone(), tenant: tenant.clone() };
    Ok(JobFilter { fingerprint: fingerprint.clone(), ..filter(store, &of).await? })
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
