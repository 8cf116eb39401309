//! `mailroom jobs …`

use std::process::ExitCode;
use std::time::Duration;

use domain::units::{DURATION_UNITS, parse_duration};
use domain::{JobId, JobState, Lane, PlanTier, TenantId};
use serde_json::{Value, json};
use store::sql::jobs::{CancelOutcome, JobFilter, JobRow, JobScope, LimitChange, NewJob, RetryOutcome, StartTime};
use store::{Precondition, Store, StoreError};
use terminal::{Failure, Output, count};

use super::job_output::{TenantNames, find_owner, job_line, print_job, print_jobs};
use crate::app;
use crate::cli::PlanArg;
use crate::cli::jobs::{EnqueueArgs, JobSelector, JobsCommand, LaneArg, LimitTarget, LimitValue, PauseTarget};
use crate::config::Config;

/// Jobs per commit.
const ENQUEUE_BATCH_JOBS: u64 = 1000;

pub async fn run(config: &Config, command: JobsCommand, out: Output) -> Result<ExitCode, Failure> {
    let store = app::open(config).await?.store;
    match command {
        JobsCommand::Stats => super::job_stats::show(&store, out).await?,
        JobsCommand::List { state, selector, limit, after } => {
            let filter = JobFilter { state, ..filter(&store, &selector).await? };
            print_jobs(&store, &filter, after, limit, out).await?;
        }
        JobsCommand::Show(job) => print_job(&store, &get(&store, job.id).await?, out).await?,
        JobsCommand::Why(job) => why(&store, job.id, out).await?,
        JobsCommand::Retry(job) => retry(&store, job.id, out).await?,
        JobsCommand::Cancel { job, reason } => cancel(&store, job.id, &reason, out).await?,
        JobsCommand::Move { job, lane } => move_to(&store, job.id, lane, out).await?,
        JobsCommand::Pause(target_args) => set_paused(&store, &target_args, true, out).await?,
        JobsCommand::Resume(target_args) => set_paused(&store, &target_args, false, out).await?,
        JobsCommand::Limit { target, running, waiting } => limit(&store, &target, running, waiting, out).await?,
        JobsCommand::Weight { plan, weight } => set_weight(&store, plan, weight, out).await?,
        JobsCommand::Enqueue(args) => enqueue(&store, &args, out).await?,
    }
    Ok(ExitCode::SUCCESS)
}

pub async fn filter(store: &Store, of: &JobSelector) -> Result<JobFilter, Failure> {
    let tenant = match &of.tenant {
        Some(name) => Some(find_owner(store, name).await?),
        None => None,
    };
    Ok(JobFilter { kind: of.kind.clone(), tenant, ..JobFilter::default() })
}

/// Returns a store whose next commit also writes an audit entry for this change of a job.
async fn audited(store: &Store, action: &'static str, job: &JobRow, after: Value) -> Result<Store, Failure> {
    app::audited_store(store, job.tenant_id, action, &job.id.to_string(), after).await
}

/// The same for a change of all jobs of a lane, kind or tenant; that of a lane or kind is in the system's audit log.
async fn audited_scope(store: &Store, action: &'static str, scope: &JobScope, after: Value) -> Result<Store, Failure> {
    let (tenant, target) = match scope {
        JobScope::Tenant(tenant) => (*tenant, tenant.to_string()),
        JobScope::Lane(lane) => (TenantId::SYSTEM, lane.as_str().to_owned()),
        JobScope::Kind(kind) => (TenantId::SYSTEM, kind.clone()),
    };
    app::audited_store(store, tenant, action, &target, after).await
}

pub async fn get(store: &Store, id: JobId) -> Result<JobRow, Failure> {
    store.system().find_job(id).await?.ok_or_else(|| {
        Failure::problem(format!("there is no job {id}; `mailroom jobs list` shows all jobs, old ones are pruned"))
    })
}

async fn why(store: &Store, id: JobId, out: Output) -> Result<(), Failure> {
    let explanation = store.system().diagnose_job(id).await?;
    let Some(explanation) = explanation else { return get(store, id).await.map(drop) };
    if out.json {
        let mut object = json!({"job": explanation.job, "reasons": explanation.reasons});
        let reasons = object["reasons"].as_array_mut().into_iter().flatten();
        for (reason, why) in reasons.zip(&explanation.reasons) {
            reason["sentence"] = Value::String(why.sentence());
        }
        return out.object(&object);
    }
    out.line(&job_line(&explanation.job, &TenantNames::load(store).await?))?;
    explanation.reasons.iter().try_for_each(|why| out.line(&terminal::one_line(&why.sentence(), 1000)))
}

async fn retry(store: &Store, id: JobId, out: Output) -> Result<(), Failure> {
    let job = get(store, id).await?;
    if !matches!(job.state, JobState::Scheduled | JobState::Retry | JobState::Dead | JobState::Cancelled) {
        return Err(not_retried(id, job.state));
    }
    let store = &audited(store, "job.retry", &job, Value::Null).await?;
    let Some(outcome) = store.system().retry_now(id).await? else { return get(store, id).await.map(drop) };
    let sentence = match outcome {
        RetryOutcome::Due => format!("Job {id} is ready now."),
        RetryOutcome::Replayed => format!("Job {id} starts again with all its attempts."),
        RetryOutcome::Not { state } => return Err(not_retried(id, state)),
    };
    store.notify_other_processes().await?;
    if out.json {
        return out.object(&json!({"id": id, "outcome": outcome_name(outcome)}));
    }
    out.line(&sentence)
}

fn not_retried(id: JobId, state: JobState) -> Failure {
    let state = state.as_str();
    Failure::problem(format!(
        "job {id} is {state} and cannot be retried; `mailroom jobs why {id}` says what it waits for"
    ))
}

fn outcome_name(outcome: RetryOutcome) -> &'static str {
    match outcome {
        RetryOutcome::Due => "due",
        RetryOutcome::Replayed => "replayed",
        RetryOutcome::Not { .. } => "not",
    }
}

async fn cancel(store: &Store, id: JobId, reason: &str, out: Output) -> Result<(), Failure> {
    let job = get(store, id).await?;
    let store = &audited(store, "job.cancel", &job, json!({"reason": reason})).await?;
    let (name, sentence) = match store.system().cancel_job(job.tenant_id, id, reason).await? {
        CancelOutcome::Cancelled => ("cancelled", format!("Job {id} is cancelled.")),
        CancelOutcome::Requested => ("asked", format!("Job {id} is running and was asked to stop.")),
        CancelOutcome::NotLive => {
            return Err(Failure::problem(format!("job {id} has already ended and cannot be cancelled")));
        }
    };
    if out.json {
        return out.object(&json!({"id": id, "outcome": name}));
    }
    out.line(&sentence)
}

async fn move_to(store: &Store, id: JobId, lane: LaneArg, out: Output) -> Result<(), Failure> {
    let (job, lane) = (get(store, id).await?, Lane::from(lane));
    if !job.is_live() {
        return Err(Failure::problem(format!("job {id} has ended and cannot be moved")));
    }
    let store = &audited(store, "job.move", &job, json!({"lane": lane})).await?;
    let moved = store.system().move_job(job.tenant_id, id, lane).await?;
    store.notify_other_processes().await?;
    if out.json {
        return out.object(&json!({"id": id, "lane": lane, "changed": moved}));
    }
    let already = if moved { "now" } else { "already" };
    out.line(&format!("Job {id} is {already} in lane {}.", lane.as_str()))
}

async fn target(
    store: &Store,
    lane: Option<LaneArg>,
    kind: Option<&str>,
    tenant: Option<&str>,
) -> Result<JobScope, Failure> {
    Ok(match (lane, kind, tenant) {
        (Some(lane), _, _) => JobScope::Lane(lane.into()),
        (_, Some(kind), _) => JobScope::Kind(kind.to_owned()),
        (_, _, Some(tenant)) => JobScope::Tenant(find_owner(store, tenant).await?),
        (None, None, None) => return Err(Failure::usage("one of --lane, --kind or --tenant is required")),
    })
}

async fn set_paused(store: &Store, target_args: &PauseTarget, is_paused: bool, out: Output) -> Result<(), Failure> {
    let target = target(store, target_args.lane, target_args.kind.as_deref(), target_args.tenant.as_deref()).await?;
    let action = if is_paused { "queue.pause" } else { "queue.resume" };
    let store = &audited_scope(store, action, &target, Value::Null).await?;
    let changed =
        if is_paused { store.system().pause_jobs(&target).await? } else { store.system().resume_jobs(&target).await? };
    if !is_paused {
        store.notify_other_processes().await?;
    }
    if out.json {
        let (what, which) = named(&target);
        return out.object(&json!({what: which, "is_paused": is_paused, "changed": changed}));
    }
    let name = match (&target, &target_args.tenant) {
        (JobScope::Tenant(_), Some(tenant)) => format!("Tenant {tenant}"),
        (JobScope::Kind(kind), _) => format!("Kind {kind}"),
        (target, _) => format!("Lane {}", named(target).1.as_str().unwrap_or_default()),
    };
    let already = if changed { "now" } else { "already" };
    out.line(&format!("{name} is {already} {}.", if is_paused { "paused" } else { "running" }))
}

fn named(target: &JobScope) -> (&'static str, Value) {
    match target {
        JobScope::Lane(lane) => ("lane", json!(lane)),
        JobScope::Kind(kind) => ("kind", json!(kind)),
        JobScope::Tenant(tenant) => ("tenant_id", json!(tenant)),
    }
}

async fn limit(
    store: &Store,
    which: &LimitTarget,
    running: Option<LimitValue>,
    waiting: Option<LimitValue>,
    out: Output,
) -> Result<(), Failure> {
    let target = target(store, None, which.kind.as_deref(), which.tenant.as_deref()).await?;
    let store = &audited_scope(store, "queue.limit", &target, limit_json(json!({}), running, waiting)).await?;
    match &target {
        JobScope::Tenant(tenant) => store.system().limit_tenant(*tenant, change(running), change(waiting)).await?,
        JobScope::Kind(kind) => store.system().limit_kind(kind, change(running)).await?,
        JobScope::Lane(_) => return Err(Failure::usage("lanes have no limits; use --tenant or --kind")),
    }
    store.notify_other_processes().await?;
    let (what, name) = named(&target);
    if out.json {
        return out.object(&limit_json(json!({what: name}), running, waiting));
    }
    let limits: Vec<String> =
        [limit_text(running, "run at once"), limit_text(waiting, "wait")].into_iter().flatten().collect();
    let name = which.tenant.as_ref().or(which.kind.as_ref()).map_or("", String::as_str);
    out.line(&format!("Of {name}, {}.", limits.join(", and ")))
}

/// Adds the limits that are changed to an object.
fn limit_json(mut object: Value, running: Option<LimitValue>, waiting: Option<LimitValue>) -> Value {
    for (key, most) in [("most_running", running), ("most_waiting", waiting)] {
        match most {
            Some(LimitValue::Number(most)) => object[key] = json!(most),
            Some(LimitValue::None) => object[key] = Value::Null,
            None => {}
        }
    }
    object
}

fn limit_text(limit: Option<LimitValue>, verb: &str) -> Option<String> {
    match limit? {
        LimitValue::Number(most) => Some(format!("at most {} jobs {verb}", count(most))),
        LimitValue::None => Some(format!("any number of jobs {verb}")),
    }
}

fn change(most: Option<LimitValue>) -> LimitChange {
    match most {
        None => LimitChange::Keep,
        Some(LimitValue::Number(most)) => LimitChange::AtMost(most),
        Some(LimitValue::None) => LimitChange::Unlimited,
    }
}

async fn set_weight(store: &Store, plan: PlanArg, weight: u64, out: Output) -> Result<(), Failure> {
    let plan = match plan {
        PlanArg::Standard => PlanTier::Standard,
        PlanArg::Vip => PlanTier::Vip,
    };
    let after = json!({"weight": weight});
    let store = app::audited_store(store, TenantId::SYSTEM, "queue.weight", plan.as_str(), after).await?;
    store.system().set_weight(plan, weight).await?;
    if out.json {
        return out.object(&json!({"plan": plan, "weight": weight}));
    }
    out.line(&format!("Tenants of plan {} have weight {weight} now.", plan.as_str()))
}

async fn enqueue(store: &Store, args: &EnqueueArgs, out: Output) -> Result<(), Failure> {
    let tenant = find_owner(store, &args.tenant).await?;
    let delay = args
        .delay
        .as_deref()
        .map(parse_duration)
        .transpose()
        .map_err(|_| Failure::usage(format!("--in must be a duration such as 10m; units are {DURATION_UNITS}")))?;
    // The payload may hold what is nobody's business.
    let after = json!({"count": args.count});
    let store = &app::audited_store(store, tenant, "job.enqueue", &args.kind, after).await?;
    let (mut added, mut last) = (0, None);
    while added < args.count {
        let batch: Vec<NewJob> =
            (0..ENQUEUE_BATCH_JOBS.min(args.count - added)).map(|_| new_job(store, args, delay)).collect();
        let (size, id) = (batch.len() as u64, batch.last().map(|job| job.id));
        let mut unit = store.system().write_for(tenant);
        unit.admit(size);
        unit.enqueue(batch);
        unit.commit().await.map_err(|e| enqueue_failure(e, added))?;
        (added, last) = (added + size, id);
    }
    store.notify_other_processes().await?;
    if out.json {
        return out.object(&json!({"added": added, "id": last.filter(|_| added == 1)}));
    }
    match last {
        Some(id) if added == 1 => out.line(&format!("Added job {id}.")),
        _ => out.line(&format!("Added {} jobs.", count(added))),
    }
}

fn new_job(store: &Store, args: &EnqueueArgs, delay: Option<Duration>) -> NewJob {
    NewJob {
        id: JobId::new(store.clock()),
        kind: args.kind.clone(),
        lane: args.lane.into(),
        payload: args.payload.clone(),
        when: delay.map_or(StartTime::Now, StartTime::In),
        unique: None,
        order_key: None,
        after: Vec::new(),
        traceparent: Some(jobs::trace::new_traceparent(&domain::SystemRandom)),
    }
}

fn enqueue_failure(e: StoreError, added: u64) -> Failure {
    match e {
        StoreError::Precondition(full @ Precondition::TooManyWaitingJobs) => Failure::problem(format!(
            "{full}, and {} were added; wait, or raise it with `mailroom jobs limit --tenant … --waiting N`",
            count(added)
        )),
        e => e.into(),
    }
}
