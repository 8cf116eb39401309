//! Changes of jobs, queues and schedules. A tenant may change its own jobs; queues and schedules are the operator's.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use domain::{JobId, JobState, Lane, TenantId};
use engine::operations;
use engine::operations::dead_letters::DeadLetters;
use serde::{Deserialize, Serialize};
use store::sql::jobs::{JobFilter, JobScope, ReplayOptions};
use store::sql::schedules::Schedule;
use utoipa::ToSchema;

use super::Path;
use super::auth::{Operator, WriteAccess};
use super::body::non_null;
use super::change::{ChangeRequest, Reply};
use super::jobs::find;
use super::problem::Problem;
use crate::App;

/// Answers a change that has nothing to show.
fn no_content<T>(_: &T) -> anyhow::Result<Reply> {
    Ok(Reply::no_content())
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
    operations::jobs::retry(&change.invocation(&app, no_content), &job).await?;
    Ok(Reply::no_content().into_response())
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
    operations::jobs::cancel(&change.invocation(&app, no_content), &job, "cancelled through the API").await?;
    Ok(Reply::no_content().into_response())
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
    operations::jobs::move_to(&change.invocation(&app, no_content), &job, lane).await?;
    Ok(Reply::no_content().into_response())
}

fn lane(name: &str, field: &str) -> Result<Lane, Problem> {
    Lane::parse(name).ok_or_else(|| Problem::invalid(field, "must be critical, high, normal or low"))
}

/// Parses the lane in a path; an unknown one is a 404.
fn queue(name: &str) -> Result<Lane, Problem> {
    Lane::parse(name).ok_or_else(|| Problem::not_found("queue"))
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
    operations::queues::pause(&change.invocation(&app, no_content), &JobScope::Lane(queue(&name)?)).await?;
    Ok(Reply::no_content().into_response())
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
    operations::queues::resume(&change.invocation(&app, no_content), &JobScope::Lane(queue(&name)?)).await?;
    Ok(Reply::no_content().into_response())
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
    operations::recurring::run(&change.invocation(&app, |()| Ok(reply.clone())), &schedule).await?;
    Ok(reply.into_response())
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
    operations::recurring::pause(&change.invocation(&app, no_content), &schedule).await?;
    Ok(Reply::no_content().into_response())
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
    operations::recurring::resume(&change.invocation(&app, no_content), &schedule).await?;
    Ok(Reply::no_content().into_response())
}

/// Dead letters to replay; without a filter, all.
#[derive(Debug, Clone, Deserialize, ToSchema)]
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
    let DeadLetterSelection { id, kind, fingerprint, per_second } = change.body.clone();
    let seen = change.by.scope;
    let letters = match id {
        Some(id) => DeadLetters::One(Box::new(find(seen, &app, id).await?)),
        None => DeadLetters::All(JobFilter { state: Some(JobState::Dead), kind, tenant: seen.tenant, fingerprint }),
    };
    let options = ReplayOptions { per_second, payload: None };
    let replayed = operations::dead_letters::replay(&change.invocation(&app, show_count), &letters, &options).await?;
    Ok(show_count(&replayed)?.into_response())
}

fn show_count(replayed: &u64) -> anyhow::Result<Reply> {
    Reply::json(StatusCode::OK, &ReplayCount { replayed: *replayed })
}
