//! `mailroom recurring …`

use std::process::ExitCode;

use ::jobs::recurring::CronTimes;
use domain::{JobId, TenantId};
use engine::operations::{Invocation, recurring};
use jiff::Timestamp;
use serde_json::json;
use store::Store;
use store::sql::schedules::Schedule;
use terminal::{Failure, Output};

use super::job_output::format_time;
use crate::app;
use crate::cli::jobs::RecurringCommand;
use crate::config::Config;

/// Number of upcoming times in the list.
const TIMES_SHOWN: usize = 5;

pub async fn run(config: &Config, command: RecurringCommand, out: Output) -> Result<ExitCode, Failure> {
    let engine = app::open(config).await?;
    let (store, origin) = (&engine.store, app::origin());
    match command {
        RecurringCommand::List => list(store, out).await?,
        RecurringCommand::Run(one) => {
            let schedule = get(store, &one.name).await?;
            let call = Invocation::begin(&engine, &origin).await?;
            let job = recurring::run(&call, &schedule).await.map_err(app::refused)?;
            print_run(&schedule.name, job, out)?;
        }
        RecurringCommand::Pause(one) => {
            let schedule = get(store, &one.name).await?;
            let call = Invocation::begin(&engine, &origin).await?;
            let changed = recurring::pause(&call, &schedule).await.map_err(app::refused)?;
            print_paused(&schedule.name, true, changed, out)?;
        }
        RecurringCommand::Resume(one) => {
            let schedule = get(store, &one.name).await?;
            let call = Invocation::begin(&engine, &origin).await?;
            let changed = recurring::resume(&call, &schedule).await.map_err(app::refused)?;
            print_paused(&schedule.name, false, changed, out)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn get(store: &Store, name: &str) -> Result<Schedule, Failure> {
    store.system().find_schedule(TenantId::SYSTEM, name).await?.ok_or_else(|| {
        Failure::problem(format!("there is no recurring job {name:?}; `mailroom recurring list` shows all of them"))
    })
}

async fn list(store: &Store, out: Output) -> Result<(), Failure> {
    let schedules = store.system().list_schedules().await?;
    if out.json {
        return schedules.iter().try_for_each(|schedule| {
            let (next_times, problem) = upcoming(store, schedule);
            let mut object = json!(schedule);
            object["next_times"] = json!(next_times);
            object["problem"] = json!(problem);
            out.object(&object)
        });
    }
    if schedules.is_empty() {
        return out.line("No recurring jobs yet; `mailroom serve --roles scheduler` defines them.");
    }
    let rows = schedules.iter().map(|schedule| {
        let (times, problem) = upcoming(store, schedule);
        let times: Vec<String> = times.into_iter().map(format_time).collect();
        [
            schedule.name.clone(),
            schedule.cron.clone(),
            schedule.zone.clone(),
            if schedule.is_paused { "paused" } else { "on" }.to_owned(),
            schedule.last_at.map(format_time).unwrap_or_default(),
            problem.unwrap_or_else(|| times.join(" ")),
        ]
    });
    let rows: Vec<[String; 6]> = rows.collect();
    out.table(["name", "cron", "zone", "state", "last", "next"], &rows)
}

/// Returns the next times of a schedule, or what is wrong with it.
fn upcoming(store: &Store, schedule: &Schedule) -> (Vec<Timestamp>, Option<String>) {
    match CronTimes::of(schedule) {
        Ok(times) => (times.upcoming(store.clock().now(), TIMES_SHOWN), None),
        Err(e) => (Vec::new(), Some(e.to_string())),
    }
}

fn print_run(name: &str, job: Option<JobId>, out: Output) -> Result<(), Failure> {
    let Some(id) = job else {
        return Err(Failure::problem(format!(
            "the last run of {name} has not ended, and runs must not overlap; try again later"
        )));
    };
    if out.json {
        return out.object(&json!({"name": name, "id": id}));
    }
    out.line(&format!("Added job {id} for {name}."))
}

fn print_paused(name: &str, is_paused: bool, changed: bool, out: Output) -> Result<(), Failure> {
    if out.json {
        return out.object(&json!({"name": name, "is_paused": is_paused, "changed": changed}));
    }
    let already = if changed { "now" } else { "already" };
    out.line(&format!("{name} is {already} {}.", if is_paused { "paused" } else { "on" }))
}
