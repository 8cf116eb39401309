//! `mailroom jobs …`

use std::process::ExitCode;

use domain::{JobId, Lane, PlanTier};
use serde_json::{Value, json};
use store::Store;
use store::sql::jobs::{Cancelling, JobFilter, JobRow, Limit, NewJob, Retrying, TOO_MANY_WAITING, Target, When};

use super::job_output::{Owners, line_of, listed, owner, show_job};
use crate::app;
use crate::cli::Plan;
use crate::cli::jobs::{Enqueue, Jobs, LaneName, Most, OfKindAndTenant, TenantOrKind, Whole};
use crate::config::Config;
use crate::config::units::{DURATION_UNITS, parse_duration};
use crate::failure::Failure;
use crate::output::{Output, count};

/// As many as fit well into one commit.
const BATCH: u64 = 1000;

pub async fn run(config: &Config, command: Jobs, out: Output) -> Result<ExitCode, Failure> {
    let store = app::open(config).await?.store;
    match command {
        Jobs::Stats => super::job_stats::show(&store, out).await?,
        Jobs::List { state, of, limit, after } => {
            let filter = JobFilter { state, ..filter(&store, &of).await? };
            listed(&store, &filter, after, limit, out).await?;
        }
        Jobs::Show(job) => show_job(&store, &get(&store, job.id).await?, out).await?,
        Jobs::Why(job) => why(&store, job.id, out).await?,
        Jobs::Retry(job) => retry(&store, job.id, out).await?,
        Jobs::Cancel { job, reason } => cancel(&store, job.id, &reason, out).await?,
        Jobs::Move { job, lane } => move_to(&store, job.id, lane, out).await?,
        Jobs::Pause(whole) => switch(&store, &whole, true, out).await?,
        Jobs::Resume(whole) => switch(&store, &whole, false, out).await?,
        Jobs::Limit { target, running, waiting } => limit(&store, &target, running, waiting, out).await?,
        Jobs::Weight { plan, weight } => set_weight(&store, plan, weight, out).await?,
        Jobs::Enqueue(args) => enqueue(&store, &args, out).await?,
    }
    Ok(ExitCode::SUCCESS)
}

pub async fn filter(store: &Store, of: &OfKindAndTenant) -> Result<JobFilter, Failure> {
    let tenant = match &of.tenant {
        Some(name) => Some(owner(store, name).await?),
        None => None,
    };
    Ok(JobFilter { kind: of.kind.clone(), tenant, ..JobFilter::default() })
}

pub async fn get(store: &Store, id: JobId) -> Result<JobRow, Failure> {
    store.system().find_job(id).await?.ok_or_else(|| {
        Failure::problem(format!(
            "there is no job {id}; `mailroom jobs list` shows those that are, old ones are pruned"
        ))
    })
}

async fn why(store: &Store, id: JobId, out: Output) -> Result<(), Failure> {
    let explanation = store.system().why(id).await?;
    let Some(explanation) = explanation else { return get(store, id).await.map(drop) };
    if out.json {
        let mut object = json!({"job": explanation.job, "reasons": explanation.reasons});
        let reasons = object["reasons"].as_array_mut().into_iter().flatten();
        for (reason, why) in reasons.zip(&explanation.reasons) {
            reason["sentence"] = Value::String(why.sentence());
        }
        return out.object(&object);
    }
    out.line(&line_of(&explanation.job, &Owners::load(store).await?))?;
    explanation.reasons.iter().try_for_each(|why| out.line(&crate::output::one_line(&why.sentence(), 1000)))
}

async fn retry(store: &Store, id: JobId, out: Output) -> Result<(), Failure> {
    let Some(outcome) = store.system().retry_now(id).await? else { return get(store, id).await.map(drop) };
    let sentence = match outcome {
        Retrying::Due => format!("Job {id} is ready now."),
        Retrying::Replayed => format!("Job {id} starts again, with all its attempts."),
        Retrying::Not { state } => {
            let state = state.as_str();
            return Err(Failure::problem(format!(
                "job {id} is {state}; `mailroom jobs why {id}` says what it waits for"
            )));
        }
    };
    store.tell_of_jobs().await?;
    if out.json {
        return out.object(&json!({"id": id, "outcome": outcome_name(outcome)}));
    }
    out.line(&sentence)
}

fn outcome_name(outcome: Retrying) -> &'static str {
    match outcome {
        Retrying::Due => "due",
        Retrying::Replayed => "replayed",
        Retrying::Not { .. } => "not",
    }
}

async fn cancel(store: &Store, id: JobId, reason: &str, out: Output) -> Result<(), Failure> {
    let job = get(store, id).await?;
    let (name, sentence) = match store.system().cancel_job(job.tenant_id, id, reason).await? {
        Cancelling::Cancelled => ("cancelled", format!("Job {id} is cancelled.")),
        Cancelling::Asked => ("asked", format!("Job {id} runs; it is asked to stop.")),
        Cancelling::NotLive => {
            return Err(Failure::problem(format!("job {id} has ended before; there is nothing to cancel")));
        }
    };
    if out.json {
        return out.object(&json!({"id": id, "outcome": name}));
    }
    out.line(&sentence)
}

async fn move_to(store: &Store, id: JobId, lane: LaneName, out: Output) -> Result<(), Failure> {
    let (job, lane) = (get(store, id).await?, Lane::from(lane));
    if !job.is_live() {
        return Err(Failure::problem(format!("job {id} has ended; only a job that is still to run can be moved")));
    }
    let moved = store.system().move_job(job.tenant_id, id, lane).await?;
    store.tell_of_jobs().await?;
    if out.json {
        return out.object(&json!({"id": id, "lane": lane, "changed": moved}));
    }
    let already = if moved { "now" } else { "already" };
    out.line(&format!("Job {id} is {already} in lane {}.", lane.as_str()))
}

async fn target(
    store: &Store,
    lane: Option<LaneName>,
    kind: Option<&str>,
    tenant: Option<&str>,
) -> Result<Target, Failure> {
    Ok(match (lane, kind, tenant) {
        (Some(lane), _, _) => Target::Lane(lane.into()),
        (_, Some(kind), _) => Target::Kind(kind.to_owned()),
        (_, _, Some(tenant)) => Target::Tenant(owner(store, tenant).await?),
        (None, None, None) => return Err(Failure::usage("say which: --lane, --kind or --tenant")),
    })
}

async fn switch(store: &Store, whole: &Whole, is_paused: bool, out: Output) -> Result<(), Failure> {
    let target = target(store, whole.lane, whole.kind.as_deref(), whole.tenant.as_deref()).await?;
    let changed = match is_paused {
        true => store.system().pause_jobs(&target).await?,
        false => store.system().resume_jobs(&target).await?,
    };
    if !is_paused {
        store.tell_of_jobs().await?;
    }
    if out.json {
        let (what, which) = named(&target);
        return out.object(&json!({what: which, "is_paused": is_paused, "changed": changed}));
    }
    let name = match (&target, &whole.tenant) {
        (Target::Tenant(_), Some(tenant)) => format!("Tenant {tenant}"),
        (Target::Kind(kind), _) => format!("Kind {kind}"),
        (target, _) => format!("Lane {}", named(target).1.as_str().unwrap_or_default()),
    };
    let already = if changed { "now" } else { "already" };
    out.line(&format!("{name} is {already} {}.", if is_paused { "paused" } else { "running" }))
}

fn named(target: &Target) -> (&'static str, Value) {
    match target {
        Target::Lane(lane) => ("lane", json!(lane)),
        Target::Kind(kind) => ("kind", json!(kind)),
        Target::Tenant(tenant) => ("tenant_id", json!(tenant)),
    }
}

async fn limit(
    store: &Store,
    which: &TenantOrKind,
    running: Option<Most>,
    waiting: Option<Most>,
    out: Output,
) -> Result<(), Failure> {
    let target = target(store, None, which.kind.as_deref(), which.tenant.as_deref()).await?;
    match &target {
        Target::Tenant(tenant) => store.system().limit_tenant(*tenant, change(running), change(waiting)).await?,
        Target::Kind(kind) => store.system().limit_kind(kind, change(running)).await?,
        Target::Lane(_) => return Err(Failure::usage("lanes have no limits; use --tenant or --kind")),
    }
    store.tell_of_jobs().await?;
    let (what, name) = named(&target);
    if out.json {
        let mut object = json!({what: name});
        for (key, most) in [("most_running", running), ("most_waiting", waiting)] {
            match most {
                Some(Most::Number(most)) => object[key] = json!(most),
                Some(Most::None) => object[key] = Value::Null,
                None => {}
            }
        }
        return out.object(&object);
    }
    let told = |most: Option<Most>, what: &str| match most {
        Some(Most::Number(most)) => Some(format!("at most {} {what}", count(most))),
        Some(Most::None) => Some(format!("any number {what}")),
        None => None,
    };
    let told: Vec<String> = told(running, "run at once").into_iter().chain(told(waiting, "wait")).collect();
    let name = which.tenant.as_ref().or(which.kind.as_ref()).map_or("", String::as_str);
    out.line(&format!("Of {name}, {}.", told.join(", and ")))
}

fn change(most: Option<Most>) -> Limit {
    match most {
        None => Limit::Keep,
        Some(Most::Number(most)) => Limit::AtMost(most),
        Some(Most::None) => Limit::Lifted,
    }
}

async fn set_weight(store: &Store, plan: Plan, weight: u64, out: Output) -> Result<(), Failure> {
    let plan = match plan {
        Plan::Standard => PlanTier::Standard,
        Plan::Vip => PlanTier::Vip,
    };
    store.system().set_weight(plan, weight).await?;
    if out.json {
        return out.object(&json!({"plan": plan, "weight": weight}));
    }
    out.line(&format!("Tenants of plan {} have weight {weight} now.", plan.as_str()))
}

async fn enqueue(store: &Store, args: &Enqueue, out: Output) -> Result<(), Failure> {
    let tenant = owner(store, &args.tenant).await?;
    let delay = args
        .delay
        .as_deref()
        .map(parse_duration)
        .transpose()
        .map_err(|_| Failure::usage(format!("--in wants a duration like 10m; units are {DURATION_UNITS}")))?;
    let job = || NewJob {
        id: JobId::new(store.clock()),
        kind: args.kind.clone(),
        lane: args.lane.into(),
        payload: args.payload.clone(),
        when: delay.map_or(When::Now, When::In),
        unique: None,
        order_key: None,
        after: Vec::new(),
        traceparent: Some(jobs::trace::root(&jobs::SystemDice)),
    };
    let (mut added, mut last) = (0, None);
    while added < args.count {
        let batch: Vec<NewJob> = (0..BATCH.min(args.count - added)).map(|_| job()).collect();
        let (size, id) = (batch.len() as u64, batch.last().map(|job| job.id));
        let mut unit = store.system().write_for(tenant);
        unit.admit(size);
        unit.enqueue(batch);
        unit.commit().await.map_err(|e| refused(e, added))?;
        (added, last) = (added + size, id);
    }
    store.tell_of_jobs().await?;
    if out.json {
        return out.object(&json!({"added": added, "id": last.filter(|_| added == 1)}));
    }
    match last {
        Some(id) if added == 1 => out.line(&format!("Added job {id}.")),
        _ => out.line(&format!("Added {} jobs.", count(added))),
    }
}

fn refused(e: store::StoreError, added: u64) -> Failure {
    match e {
        store::StoreError::Precondition(TOO_MANY_WAITING) => Failure::problem(format!(
            "{TOO_MANY_WAITING}, and {} were added; wait, or raise it with `mailroom jobs limit --tenant … --waiting N`",
            count(added)
        )),
        e => e.into(),
    }
}
