//! Changes of jobs, queues and schedules. A tenant may change its own jobs; queues and schedules are the operator's.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use domain::{JobId, JobState, Lane, TenantId};
use jobs::recurring;
use serde::{Deserialize, Serialize};
use serde_json::json;
use store::sql::jobs::{CancelOutcome, JobFilter, JobRow, JobScope, ReplayOptions, RetryOutcome};
use store::sql::schedules::Schedule;
use utoipa::ToSchema;

use super::Path;
use super::auth::{Operator, WriteAccess};
use super::body::non_null;
use super::change::{AuditAction, ChangeRequest, Reply};
use super::jobs::find;
use super::problem::Problem;
use crate::App;

fn audit_action(action: &'static str, job: &JobRow) -> AuditAction {
    let before = Some(json!({"kind": job.kind, "state": job.state.as_str(), "lane": job.lane.as_str()}));
    AuditAction { tenant: job.tenant_id, action, target: job.id.to_string(), before, after: None }
}

/// Retry a job now.
///
/// A job that waits for its time becomes ready; a dead or cancelled job starts again.
#[utoipa::path(post, path = "/v1/jobs/{id}/retry", operation_id = "retry_job", tag = "jobs",
    params(("id" = String, Path), super::IdempotencyKey), responses(
    (status = 204, description = "The job is ready")))]
pub async fn retry(
    State(app): State<App>,
    Path(id): Path<JobId>,
    change: ChangeRequest<WriteAccess>,
) -> Result<Response, Problem> {
    let job = find(change.by.scope, &app, id).await?;
    if !matches!(job.state, JobState::Scheduled | JobState::Retry | JobState::Dead | JobState::Cancelled) {
        return Err(Problem::conflict(format!("this job is {} and cannot be retried", job.state.as_str())));
    }
    let action = audit_action("job.retry", &job);
    change.record_intent(&app, &action).await?;
    match app.engine.store.system().retry_now(id).await? {
        Some(RetryOutcome::Due | RetryOutcome::Replayed) => app.engine.notify_workers().await,
        Some(RetryOutcome::Not { state }) => {
            return Err(Problem::conflict(format!(
                "this job is {} and cannot be retried: it is running, or another live job has its unique key",
                state.as_str()
            )));
        }
        None => return Err(Problem::not_found("job")),
    }
    change.record_reply(&app, action, Reply::no_content()).await
}

/// Cancel a job; a running job is asked to stop.
#[utoipa::path(post, path = "/v1/jobs/{id}/cancel", operation_id = "cancel_job", tag = "jobs",
    params(("id" = String, Path), super::IdempotencyKey), responses(
    (status = 204, description = "The job is cancelled, or stops soon")))]
pub async fn cancel(
    State(app): State<App>,
    Path(id): Path<JobId>,
    change: ChangeRequest<WriteAccess>,
) -> Result<Response, Problem> {
    let job = find(change.by.scope, &app, id).await?;
    if matches!(job.state, JobState::Done | JobState::Dead | JobState::Cancelled) {
        return Err(Problem::conflict(format!("this job is already {}", job.state.as_str())));
    }
    let action = audit_action("job.cancel", &job);
    change.record_intent(&app, &action).await?;
    match app.engine.store.system().cancel_job(job.tenant_id, id, "cancelled through the API").await? {
        CancelOutcome::Cancelled | CancelOutcome::Requested => {
            change.record_reply(&app, action, Reply::no_content()).await
        }
        CancelOutcome::NotLive => Err(Problem::conflict("this job has already ended")),
    }
}

/// New lane of a job.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LaneChange {
    /// `critical`, `high`, `normal` or `low`.
    #[schema(example = "high")]
    lane: String,
}

/// Move a job to another lane.
///
/// A running job continues; its next attempt is in the new lane.
#[utoipa::path(post, path = "/v1/jobs/{id}/move", operation_id = "move_job", tag = "jobs",
    params(("id" = String, Path), super::IdempotencyKey), request_body = LaneChange, responses(
    (status = 204, description = "The job was moved")))]
pub async fn move_to(
    State(app): State<App>,
    Path(id): Path<JobId>,
    change: ChangeRequest<Operator, LaneChange>,
) -> Result<Response, Problem> {
    let lane = lane(&change.body.lane, "lane")?;
    let job = app.engine.store.system().find_job(id).await?.ok_or_else(|| Problem::not_found("job"))?;
    if matches!(job.state, JobState::Done | JobState::Dead | JobState::Cancelled) {
        return Err(Problem::conflict(format!("this job is {} and cannot be moved", job.state.as_str())));
    }
    let after = Some(json!({"lane": lane.as_str()}));
    let recording =
        change.record(&app, AuditAction { after, ..audit_action("job.move", &job) }, Reply::no_content()).await?;
    recording.engine.store.system().move_job(job.tenant_id, id, lane).await?;
    recording.finish().await
}

fn lane(name: &str, field: &str) -> Result<Lane, Problem> {
    Lane::parse(name).ok_or_else(|| Problem::invalid(field, "must be critical, high, normal or low"))
}

/// Parses the lane in a path; an unknown one is a 404.
fn queue(name: &str) -> Result<Lane, Problem> {
    Lane::parse(name).ok_or_else(|| Problem::not_found("queue"))
}

fn system_action(action: &'static str, target: &str) -> AuditAction {
    AuditAction { tenant: TenantId::SYSTEM, action, target: target.to_owned(), before: None, after: None }
}

/// Pause a queue: running jobs continue, no other is started.
#[utoipa::path(post, path = "/v1/queues/{name}/pause", operation_id = "pause_queue", tag = "jobs",
    params(("name" = String, Path), super::IdempotencyKey), responses(
    (status = 204, description = "The queue is paused")))]
pub async fn pause_queue(
    State(app): State<App>,
    Path(name): Path<String>,
    change: ChangeRequest<Operator>,
) -> Result<Response, Problem> {
    let target = JobScope::Lane(queue(&name)?);
    let recording = change.record(&app, system_action("queue.pause", &name), Reply::no_content()).await?;
    recording.engine.store.system().pause_jobs(&target).await?;
    recording.finish().await
}

/// Resume a queue.
#[utoipa::path(post, path = "/v1/queues/{name}/resume", operation_id = "resume_queue", tag = "jobs",
    params(("name" = String, Path), super::IdempotencyKey), responses(
    (status = 204, description = "The queue is resumed")))]
pub async fn resume_queue(
    State(app): State<App>,
    Path(name): Path<String>,
    change: ChangeRequest<Operator>,
) -> Result<Response, Problem> {
    let target = JobScope::Lane(queue(&name)?);
    let recording = change.record(&app, system_action("queue.resume", &name), Reply::no_content()).await?;
    recording.engine.store.system().resume_jobs(&target).await?;
    app.engine.notify_workers().await;
    recording.finish().await
}

async fn schedule(app: &App, name: &str) -> Result<Schedule, Problem> {
    let found = app.engine.store.system().find_schedule(TenantId::SYSTEM, name).await?;
    found.ok_or_else(|| Problem::not_found("schedule"))
}

/// Run a recurring job now, in addition to its schedule.
#[utoipa::path(post, path = "/v1/recurring/{name}/run", operation_id = "run_recurring", tag = "jobs",
    params(("name" = String, Path), super::IdempotencyKey), responses(
    (status = 202, description = "The job was enqueued, unless its last run is still in progress")))]
pub async fn run_recurring(
    State(app): State<App>,
    Path(name): Path<String>,
    change: ChangeRequest<Operator>,
) -> Result<Response, Problem> {
    let schedule = schedule(&app, &name).await?;
    let reply = Reply::empty(StatusCode::ACCEPTED);
    let recording = change.record(&app, system_action("recurring.run", &name), reply).await?;
    let ran = recurring::run_now(&recording.engine.store, app.engine.store.clock(), &schedule).await;
    ran.map_err(anyhow::Error::from)?;
    app.engine.notify_workers().await;
    recording.finish().await
}

/// Pause a recurring job.
#[utoipa::path(post, path = "/v1/recurring/{name}/pause", operation_id = "pause_recurring", tag = "jobs",
    params(("name" = String, Path), super::IdempotencyKey), responses(
    (status = 204, description = "The recurring job is paused")))]
pub async fn pause_recurring(
    State(app): State<App>,
    Path(name): Path<String>,
    change: ChangeRequest<Operator>,
) -> Result<Response, Problem> {
    let schedule = schedule(&app, &name).await?;
    let recording = change.record(&app, system_action("recurring.pause", &name), Reply::no_content()).await?;
    recording.engine.store.system().pause_schedule(schedule.tenant_id, &name).await?;
    recording.finish().await
}

/// Resume a recurring job; runs missed during the pause are not made up.
#[utoipa::path(post, path = "/v1/recurring/{name}/resume", operation_id = "resume_recurring", tag = "jobs",
    params(("name" = String, Path), super::IdempotencyKey), responses(
    (status = 204, description = "The recurring job is resumed")))]
pub async fn resume_recurring(
    State(app): State<App>,
    Path(name): Path<String>,
    change: ChangeRequest<Operator>,
) -> Result<Response, Problem> {
    let schedule = schedule(&app, &name).await?;
    let recording = change.record(&app, system_action("recurring.resume", &name), Reply::no_content()).await?;
    let resumed = recurring::resume(&recording.engine.store, app.engine.store.clock(), &schedule).await;
    resumed.map_err(anyhow::Error::from)?;
    recording.finish().await
}

/// Dead letters to replay; without a filter, all.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DeadLetterSelection {
    /// Only this job.
    #[serde(default, deserialize_with = "non_null")]
    #[schema(value_type = Option<String>, format = "uuid", nullable = false)]
    id: Option<JobId>,
    /// Only jobs of this kind.
    #[serde(default, deserialize_with = "non_null")]
    #[schema(nullable = false)]
    kind: Option<String>,
    /// Only dead letters with this error fingerprint.
    #[serde(default, deserialize_with = "non_null")]
    #[schema(nullable = false)]
    fingerprint: Option<String>,
    /// Maximum number of jobs per second. Default: all at once.
    #[serde(default, deserialize_with = "non_null")]
    #[schema(minimum = 0.001, maximum = 1_000_000, nullable = false)]
    per_second: Option<f64>,
}

/// Number of replayed dead letters.
#[derive(Debug, Serialize, ToSchema)]
pub struct ReplayCount {
    /// How many dead letters were replayed.
    replayed: u64,
}

/// Replay dead letters.
///
/// A dead letter stays dead while another job has its unique key.
#[utoipa::path(post, path = "/v1/dead-letters/replay", operation_id = "replay_dead_letters", tag = "jobs",
    params(super::IdempotencyKey), request_body = DeadLetterSelection, responses(
    (status = 200, description = "The dead letters were replayed", body = ReplayCount)))]
pub async fn replay(
    State(app): State<App>,
    change: ChangeRequest<WriteAccess, DeadLetterSelection>,
) -> Result<Response, Problem> {
    let DeadLetterSelection { id, kind, fingerprint, per_second } = &change.body;
    if per_second.is_some_and(|rate| !(0.001..=1e6).contains(&rate)) {
        return Err(Problem::invalid("per_second", "must be from 0.001 to 1000000"));
    }
    let seen = change.by.scope;
    let job = match id {
        Some(id) => Some(find(seen, &app, *id).await?),
        None => None,
    };
    let action = AuditAction {
        tenant: job.as_ref().map(|job| job.tenant_id).or(seen.tenant).unwrap_or(TenantId::SYSTEM),
        action: "dead_letters.replay",
        target: id.map_or_else(|| "all".to_owned(), |id| id.to_string()),
        before: None,
        after: Some(serde_json::to_value(&change.body).map_err(anyhow::Error::from)?),
    };
    // Many commits: the audit entry is written first, the reply last. A repeated request continues.
    change.record_intent(&app, &action).await?;
    let (system, replay) = (app.engine.store.system(), ReplayOptions { per_second: *per_second, payload: None });
    let replayed = match job {
        Some(job) => u64::from(system.replay_one(job.tenant_id, job.id, &replay).await?),
        None => {
            let filter = JobFilter {
                state: Some(JobState::Dead),
                kind: kind.clone(),
                tenant: seen.tenant,
                fingerprint: fingerprint.clone(),
            };
            system.replay_dead(&filter, &replay).await?
        }
    };
    app.engine.notify_workers().await;
    change.record_reply(&app, action, Reply::json(StatusCode::OK, &ReplayCount { replayed })?).await
}
