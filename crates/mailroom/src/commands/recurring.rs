//! `mailroom recurring …`

use std::process::ExitCode;

use ::jobs::recurring::{self, RecurringError, Times};
use domain::TenantId;
use serde_json::json;
use store::Store;
use store::sql::schedules::Schedule;

use super::job_output::when;
use crate::app;
use crate::cli::jobs::Recurring;
use crate::config::Config;
use crate::failure::Failure;
use crate::output::Output;

/// As many as show the pattern.
const TIMES_SHOWN: usize = 5;

pub async fn run(config: &Config, command: Recurring, out: Output) -> Result<ExitCode, Failure> {
    let store = app::open(config).await?.store;
    match command {
        Recurring::List => list(&store, out).await?,
        Recurring::Run(one) => run_now(&store, &get(&store, &one.name).await?, out).await?,
        Recurring::Pause(one) => {
            let schedule = get(&store, &one.name).await?;
            let changed = store.system().pause_schedule(schedule.tenant_id, &schedule.name).await?;
            switched(&schedule.name, true, changed, out)?;
        }
        Recurring::Resume(one) => {
            let schedule = get(&store, &one.name).await?;
            let changed = recurring::resume(&store, store.clock(), &schedule).await.map_err(failure)?;
            switched(&schedule.name, false, changed, out)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn get(store: &Store, name: &str) -> Result<Schedule, Failure> {
    store.system().find_schedule(TenantId::SYSTEM, name).await?.ok_or_else(|| {
        Failure::problem(format!(
            "nothing that comes back is called {name:?}; `mailroom recurring list` shows what does"
        ))
    })
}

async fn list(store: &Store, out: Output) -> Result<(), Failure> {
    let schedules = store.system().list_schedules().await?;
    let upcoming = |schedule: &Schedule| match Times::of(schedule) {
        Ok(times) => (times.upcoming(store.clock().now(), TIMES_SHOWN), None),
        Err(e) => (Vec::new(), Some(e.to_string())),
    };
    if out.json {
        return schedules.iter().try_for_each(|schedule| {
            let (next_times, problem) = upcoming(schedule);
            let mut object = json!(schedule);
            object["next_times"] = json!(next_times);
            object["problem"] = json!(problem);
            out.object(&object)
        });
    }
    if schedules.is_empty() {
        return out
            .line("Nothing comes back by the calendar yet; `mailroom serve --roles scheduler` brings what it needs.");
    }
    let row = |schedule: &Schedule| {
        let (times, problem) = upcoming(schedule);
        let times: Vec<String> = times.into_iter().map(when).collect();
        [
            schedule.name.clone(),
            schedule.cron.clone(),
            schedule.zone.clone(),
            if schedule.is_paused { "paused" } else { "on" }.to_owned(),
            schedule.last_at.map(when).unwrap_or_default(),
            problem.unwrap_or_else(|| times.join(" ")),
        ]
    };
    let rows: Vec<[String; 6]> = schedules.iter().map(row).collect();
    out.table(["name", "cron", "zone", "state", "last", "next"], &rows)
}

async fn run_now(store: &Store, schedule: &Schedule, out: Output) -> Result<(), Failure> {
    let name = &schedule.name;
    let Some(id) = recurring::run_now(store, store.clock(), schedule).await.map_err(failure)? else {
        return Err(Failure::problem(format!(
            "the last {name} has not ended, and they may not overlap; try again later"
        )));
    };
    store.tell_of_jobs().await?;
    if out.json {
        return out.object(&json!({"name": name, "id": id}));
    }
    out.line(&format!("Added job {id} for {name}."))
}

fn switched(name: &str, is_paused: bool, changed: bool, out: Output) -> Result<(), Failure> {
    if out.json {
        return out.object(&json!({"name": name, "is_paused": is_paused, "changed": changed}));
    }
    let already = if changed { "now" } else { "already" };
    out.line(&format!("{name} is {already} {}.", if is_paused { "paused" } else { "on" }))
}

fn failure(e: RecurringError) -> Failure {
    match e {
        RecurringError::Store(e) => e.into(),
        e => Failure::problem(e.to_string()),
    }
}
