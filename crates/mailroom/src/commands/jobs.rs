//! `mailroom jobs …`

use std::process::ExitCode;

use domain::units::{DURATION_UNITS, parse_duration};
use domain::{JobId, JobState, Lane, PlanTier};
use engine::Engine;
use engine::operations::jobs::EnqueueRequest;
use engine::operations::{self, Invocation, Origin, Refusal};
use serde_json::{Value, json};
use store::sql::jobs::{CancelOutcome, JobFilter, JobRow, JobScope, LimitChange, RetryOutcome};
use store::{Precondition, Store};
use terminal::{Failure, Output, count};

use super::job_output::{TenantNames, find_owner, job_line, print_job, print_jobs};
use crate::app;
use crate::cli::PlanArg;
use crate::cli::jobs::{EnqueueArgs, JobSelector, JobsCommand, LaneArg, LimitTarget, LimitValue, PauseTarget};
use crate::config::Config;

pub async fn run(config: &Config, command: JobsCommand, out: Output) -> Result<ExitCode, Failure> {
    let engine = app::open(config).await?;
    let (store, origin) = (engine.store.clone(), app::origin());
    match command {
        JobsCommand::Stats => super::job_stats::show(&store, out).await?,
        JobsCommand::List { state, selector, limit, after } => {
            let filter = JobFilter { state, ..filter(&store, &selector).await? };
            print_jobs(&store, &filter, after, limit, out).await?;
        }
        JobsCommand::Show(job) => print_job(&store, &get(&store, job.id).await?, out).await?,
        JobsCommand::Why(job) => why(&store, job.id, out).await?,
        JobsCommand::Retry(job) => retry(&engine, &origin, job.id, out).await?,
        JobsCommand::Cancel { job, reason } => cancel(&engine, &origin, job.id, &reason, out).await?,
        JobsCommand::Move { job, lane } => move_to(&engine, &origin, job.id, lane, out).await?,
        JobsCommand::Pause(target_args) => set_paused(&engine, &origin, &target_args, true, out).await?,
        JobsCommand::Resume(target_args) => set_paused(&engine, &origin, &target_args, false, out).await?,
        JobsCommand::Limit { target, running, waiting } => {
            limit(&engine, &origin, &target, running, waiting, out).await?;
        }
        JobsCommand::Weight { plan, weight } => set_weight(&engine, &origin, plan, weight, out).await?,
        JobsCommand::Enqueue(args) => enqueue(&engine, &origin, &args, out).await?,
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

async fn retry(engine: &Engine, origin: &Origin, id: JobId, out: Output) -> Result<(), Failure> {
    let job = get(&engine.store, id).await?;
    let call = Invocation::begin(engine, origin).await?;
    let retried = operations::jobs::retry(&call, &job).await;
    let outcome = retried.map_err(|refusal: Refusal| match refusal {
        Refusal::Conflict(_) => not_retried(id, job.state),
        refusal => app::refused(refusal),
    })?;
    if out.json {
        return out.object(&json!({"id": id, "outcome": outcome_name(outcome)}));
    }
    match outcome {
        RetryOutcome::Replayed => out.line(&format!("Job {id} starts again with all its attempts.")),
        _ => out.line(&format!("Job {id} is ready now.")),
    }
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

async fn cancel(engine: &Engine, origin: &Origin, id: JobId, reason: &str, out: Output) -> Result<(), Failure> {
    let job = get(&engine.store, id).await?;
    let call = Invocation::begin(engine, origin).await?;
    let cancelled = operations::jobs::cancel(&call, &job, reason).await;
    let outcome = cancelled.map_err(|refusal: Refusal| match refusal {
        Refusal::Conflict(_) => Failure::problem(format!("job {id} has already ended and cannot be cancelled")),
        refusal => app::refused(refusal),
    })?;
    let (name, sentence) = if outcome == CancelOutcome::Cancelled {
        ("cancelled", format!("Job {id} is cancelled."))
    } else {
        ("asked", format!("Job {id} is running and was asked to stop."))
    };
    if out.json {
        return out.object(&json!({"id": id, "outcome": name}));
    }
    out.line(&sentence)
}

async fn move_to(engine: &Engine, origin: &Origin, id: JobId, lane: LaneArg, out: Output) -> Result<(), Failure> {
    let (job, lane) = (get(&engine.store, id).await?, Lane::from(lane));
    let call = Invocation::begin(engine, origin).await?;
    let moved = operations::jobs::move_to(&call, &job, lane).await.map_err(|refusal: Refusal| match refusal {
        Refusal::Conflict(_) => Failure::problem(format!("job {id} has ended and cannot be moved")),
        refusal => app::refused(refusal),
    })?;
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

async fn set_paused(
    engine: &Engine,
    origin: &Origin,
    target_args: &PauseTarget,
    is_paused: bool,
    out: Output,
) -> Result<(), Failure> {
    let PauseTarget { lane, kind, tenant } = target_args;
    let target = target(&engine.store, *lane, kind.as_deref(), tenant.as_deref()).await?;
    let call = Invocation::begin(engine, origin).await?;
    let changed = if is_paused {
        operations::queues::pause(&call, &target).await
    } else {
        operations::queues::resume(&call, &target).await
    };
    let changed = changed.map_err(app::refused)?;
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
    engine: &Engine,
    origin: &Origin,
    which: &LimitTarget,
    running: Option<LimitValue>,
    waiting: Option<LimitValue>,
    out: Output,
) -> Result<(), Failure> {
    let target = target(&engine.store, None, which.kind.as_deref(), which.tenant.as_deref()).await?;
    let call = Invocation::begin(engine, origin).await?;
    operations::queues::limit(&call, &target, change(running), change(waiting)).await.map_err(app::refused)?;
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

async fn set_weight(engine: &Engine, origin: &Origin, plan: PlanArg, weight: u64, out: Output) -> Result<(), Failure> {
    let plan = match plan {
        PlanArg::Standard => PlanTier::Standard,
        PlanArg::Vip => PlanTier::Vip,
    };
    let call = Invocation::begin(engine, origin).await?;
    operations::queues::set_weight(&call, plan, weight).await.map_err(app::refused)?;
    if out.json {
        return out.object(&json!({"plan": plan, "weight": weight}));
    }
    out.line(&format!("Tenants of plan {} have weight {weight} now.", plan.as_str()))
}

async fn enqueue(engine: &Engine, origin: &Origin, args: &EnqueueArgs, out: Output) -> Result<(), Failure> {
    let tenant = find_owner(&engine.store, &args.tenant).await?;
    let delay = args
        .delay
        .as_deref()
        .map(parse_duration)
        .transpose()
        .map_err(|_| Failure::usage(format!("--in must be a duration such as 10m; units are {DURATION_UNITS}")))?;
    let request = EnqueueRequest {
        kind: args.kind.clone(),
        lane: args.lane.into(),
        payload: args.payload.clone(),
        delay,
        count: args.count,
    };
    let call = Invocation::begin(engine, origin).await?;
    let enqueued = operations::jobs::enqueue(&call, tenant, &request).await.map_err(app::refused)?;
    if enqueued.is_cut {
        return Err(Failure::problem(format!(
            "{}, and {} were added; wait, or raise it with `mailroom jobs limit --tenant … --waiting N`",
            Precondition::TooManyWaitingJobs,
            count(enqueued.count)
        )));
    }
    let last = enqueued.last.filter(|_| enqueued.count == 1);
    if out.json {
        return out.object(&json!({"added": enqueued.count, "id": last}));
    }
    match last {
        Some(id) => out.line(&format!("Added job {id}.")),
        None => out.line(&format!("Added {} jobs.", count(enqueued.count))),
    }
}
