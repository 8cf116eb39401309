//! The hand on what Mailroom does by itself. A tenant has it on its own jobs; lanes and schedules are the operator's.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use domain::{JobId, JobState, Lane, TenantId};
use jobs::recurring;
use serde::{Deserialize, Serialize};
use serde_json::json;
use store::sql::jobs::{Cancelling, JobFilter, JobRow, Replay, Retrying, Target};
use store::sql::schedules::Schedule;
use utoipa::ToSchema;

use super::Path;
use super::auth::{Changer, Operator};
use super::body::given;
use super::change::{Change, Told, What};
use super::jobs::find;
use super::problem::Problem;
use crate::App;

fn what(action: &'static str, job: &JobRow) -> What {
    let before = Some(json!({"kind": job.kind, "state": job.state.as_str(), "lane": job.lane.as_str()}));
    What { tenant: job.tenant_id, action, target: job.id.to_string(), before, after: None }
}

/// Run a job now: one that waits for its time is due, one that is dead or was cancelled starts again.
#[utoipa::path(post, path = "/v1/jobs/{id}/retry", operation_id = "retry_job", tag = "jobs",
    params(("id" = String, Path), super::IdempotencyKey), responses(
    (status = 204, description = "It is on its way")))]
pub async fn retry(
    State(app): State<App>,
    Path(id): Path<JobId>,
    change: Change<Changer>,
) -> Result<Response, Problem> {
    let job = find(change.by.seen, &app, id).await?;
    if !matches!(job.state, JobState::Scheduled | JobState::Retry | JobState::Dead | JobState::Cancelled) {
        return Err(Problem::conflict(format!("this job is {}; there is nothing to hurry", job.state.as_str())));
    }
    let what = what("job.retry", &job);
    change.intend(&app, &what).await?;
    match app.engine.store.system().retry_now(id).await? {
        Some(Retrying::Due | Retrying::Replayed) => app.engine.tell_workers().await,
        Some(Retrying::Not { state }) => {
            let detail = format!("this job is {}; it runs, or another with its unique key does", state.as_str());
            return Err(Problem::conflict(detail));
        }
        None => return Err(Problem::absent("job")),
    }
    change.conclude(&app, &what, Told::done()).await
}

/// Cancel a job; one that runs is told to stop.
#[utoipa::path(post, path = "/v1/jobs/{id}/cancel", operation_id = "cancel_job", tag = "jobs",
    params(("id" = String, Path), super::IdempotencyKey), responses(
    (status = 204, description = "It ends")))]
pub async fn cancel(
    State(app): State<App>,
    Path(id): Path<JobId>,
    change: Change<Changer>,
) -> Result<Response, Problem> {
    let job = find(change.by.seen, &app, id).await?;
    if matches!(job.state, JobState::Done | JobState::Dead | JobState::Cancelled) {
        return Err(Problem::conflict(format!("this job is {} already", job.state.as_str())));
    }
    let what = what("job.cancel", &job);
    change.intend(&app, &what).await?;
    match app.engine.store.system().cancel_job(job.tenant_id, id, "cancelled by somebody").await? {
        Cancelling::Cancelled | Cancelling::Asked => change.conclude(&app, &what, Told::done()).await,
        Cancelling::NotLive => Err(Problem::conflict("this job has just ended")),
    }
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Destination {
    /// critical, high, normal or low.
    #[schema(example = "high")]
    lane: String,
}

/// Move a job to another lane; one that runs goes on, and its next attempt is there.
#[utoipa::path(post, path = "/v1/jobs/{id}/move", operation_id = "move_job", tag = "jobs",
    params(("id" = String, Path), super::IdempotencyKey), request_body = Destination, responses(
    (status = 204, description = "It is there")))]
pub async fn move_to(
    State(app): State<App>,
    Path(id): Path<JobId>,
    change: Change<Operator, Destination>,
) -> Result<Response, Problem> {
    let lane = lane(&change.body.lane, "lane")?;
    let job = app.engine.store.system().find_job(id).await?.ok_or_else(|| Problem::absent("job"))?;
    if matches!(job.state, JobState::Done | JobState::Dead | JobState::Cancelled) {
        return Err(Problem::conflict(format!("this job is {} and in no lane any more", job.state.as_str())));
    }
    let after = Some(json!({"lane": lane.as_str()}));
    let recording = change.record(&app, What { after, ..what("job.move", &job) }, Told::done()).await?;
    recording.engine.store.system().move_job(job.tenant_id, id, lane).await?;
    recording.done().await
}

fn lane(name: &str, field: &str) -> Result<Lane, Problem> {
    Lane::parse(name).ok_or_else(|| Problem::invalid(field, "it is critical, high, normal or low"))
}

/// A lane by its name in the address.
fn queue(name: &str) -> Result<Lane, Problem> {
    Lane::parse(name).ok_or_else(|| Problem::absent("queue"))
}

fn of_nobody(action: &'static str, target: &str) -> What {
    What { tenant: TenantId::SYSTEM, action, target: target.to_owned(), before: None, after: None }
}

/// Pause a lane: what runs goes on, nothing more begins.
#[utoipa::path(post, path = "/v1/queues/{name}/pause", operation_id = "pause_queue", tag = "jobs",
    params(("name" = String, Path), super::IdempotencyKey), responses(
    (status = 204, description = "It is paused")))]
pub async fn pause_queue(
    State(app): State<App>,
    Path(name): Path<String>,
    change: Change<Operator>,
) -> Result<Response, Problem> {
    let target = Target::Lane(queue(&name)?);
    let recording = change.record(&app, of_nobody("queue.pause", &name), Told::done()).await?;
    recording.engine.store.system().pause_jobs(&target).await?;
    recording.done().await
}

/// Resume a lane.
#[utoipa::path(post, path = "/v1/queues/{name}/resume", operation_id = "resume_queue", tag = "jobs",
    params(("name" = String, Path), super::IdempotencyKey), responses(
    (status = 204, description = "It goes on")))]
pub async fn resume_queue(
    State(app): State<App>,
    Path(name): Path<String>,
    change: Change<Operator>,
) -> Result<Response, Problem> {
    let target = Target::Lane(queue(&name)?);
    let recording = change.record(&app, of_nobody("queue.resume", &name), Told::done()).await?;
    recording.engine.store.system().resume_jobs(&target).await?;
    app.engine.tell_workers().await;
    recording.done().await
}

async fn schedule(app: &App, name: &str) -> Result<Schedule, Problem> {
    let found = app.engine.store.system().find_schedule(TenantId::SYSTEM, name).await?;
    found.ok_or_else(|| Problem::absent("schedule"))
}

/// Run something that recurs, beside its calendar.
#[utoipa::path(post, path = "/v1/recurring/{name}/run", operation_id = "run_recurring", tag = "jobs",
    params(("name" = String, Path), super::IdempotencyKey), responses(
    (status = 202, description = "It runs, or the last one still does")))]
pub async fn run_recurring(
    State(app): State<App>,
    Path(name): Path<String>,
    change: Change<Operator>,
) -> Result<Response, Problem> {
    let schedule = schedule(&app, &name).await?;
    let told = Told::empty(StatusCode::ACCEPTED);
    let recording = change.record(&app, of_nobody("recurring.run", &name), told).await?;
    let ran = recurring::run_now(&recording.engine.store, app.engine.store.clock(), &schedule).await;
    ran.map_err(anyhow::Error::from)?;
    app.engine.tell_workers().await;
    recording.done().await
}

/// Pause something that recurs.
#[utoipa::path(post, path = "/v1/recurring/{name}/pause", operation_id = "pause_recurring", tag = "jobs",
    params(("name" = String, Path), super::IdempotencyKey), responses(
    (status = 204, description = "It is paused")))]
pub async fn pause_recurring(
    State(app): State<App>,
    Path(name): Path<String>,
    change: Change<Operator>,
) -> Result<Response, Problem> {
    let schedule = schedule(&app, &name).await?;
    let recording = change.record(&app, of_nobody("recurring.pause", &name), Told::done()).await?;
    recording.engine.store.system().pause_schedule(schedule.tenant_id, &name).await?;
    recording.done().await
}

/// Resume something that recurs; what passed during the pause does not count as missed.
#[utoipa::path(post, path = "/v1/recurring/{name}/resume", operation_id = "resume_recurring", tag = "jobs",
    params(("name" = String, Path), super::IdempotencyKey), responses(
    (status = 204, description = "It goes on")))]
pub async fn resume_recurring(
    State(app): State<App>,
    Path(name): Path<String>,
    change: Change<Operator>,
) -> Result<Response, Problem> {
    let schedule = schedule(&app, &name).await?;
    let recording = change.record(&app, of_nobody("recurring.resume", &name), Told::done()).await?;
    let resumed = recurring::resume(&recording.engine.store, app.engine.store.clock(), &schedule).await;
    resumed.map_err(anyhow::Error::from)?;
    recording.done().await
}

/// Which dead letters start again; nothing said: all.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Replayed {
    /// Only this one.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<String>, format = "uuid", nullable = false)]
    id: Option<JobId>,
    /// Only of this kind.
    #[serde(default, deserialize_with = "given")]
    #[schema(nullable = false)]
    kind: Option<String>,
    /// Only failures of one sort.
    #[serde(default, deserialize_with = "given")]
    #[schema(nullable = false)]
    fingerprint: Option<String>,
    /// At most so many a second; left out: all at once.
    #[serde(default, deserialize_with = "given")]
    #[schema(minimum = 0.001, maximum = 1_000_000, nullable = false)]
    per_second: Option<f64>,
}

#[derive(Debug, Serialize, ToSchema)]
pub struct ReplayCount {
    /// How many start again.
    replayed: u64,
}

/// Start dead letters again. Those of whose unique key another lives stay dead.
#[utoipa::path(post, path = "/v1/dead-letters/replay", operation_id = "replay_dead_letters", tag = "jobs",
    params(super::IdempotencyKey), request_body = Replayed, responses(
    (status = 200, description = "They are on their way", body = ReplayCount)))]
pub async fn replay(State(app): State<App>, change: Change<Changer, Replayed>) -> Result<Response, Problem> {
    let Replayed { id, kind, fingerprint, per_second } = &change.body;
    if per_second.is_some_and(|rate| !(0.001..=1e6).contains(&rate)) {
        return Err(Problem::invalid("per_second", "it is 0.001 to 1000000"));
    }
    let seen = change.by.seen;
    let job = match id {
        Some(id) => Some(find(seen, &app, *id).await?),
        None => None,
    };
    let what = What {
        tenant: job.as_ref().map(|job| job.tenant_id).or(seen.tenant).unwrap_or(TenantId::SYSTEM),
        action: "dead_letters.replay",
        target: id.map_or_else(|| "all".to_owned(), |id| id.to_string()),
        before: None,
        after: Some(serde_json::to_value(&change.body).map_err(anyhow::Error::from)?),
    };
    // Many commits: what is wanted is written down first, and what came of it is kept last. Begun again, it goes on.
    change.intend(&app, &what).await?;
    let (system, replay) = (app.engine.store.system(), Replay { per_second: *per_second, payload: None });
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
    app.engine.tell_workers().await;
    change.conclude(&app, &what, Told::json(StatusCode::OK, &ReplayCount { replayed })?).await
}
