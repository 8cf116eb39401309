//! What Mailroom does by itself: the operator sees all of it, a tenant its own.

use axum::Json;
use axum::extract::State;
use domain::{JobId, JobState, TenantId};
use serde::{Deserialize, Serialize};
use store::sql::jobs::{JobFilter, JobRow};
use utoipa::{IntoParams, ToSchema};

use super::auth::{Operator, Viewer};
use super::page::{self, Page};
use super::problem::Problem;
use super::{Path, Query};
use crate::App;

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Wanted {
    /// Only in this state: scheduled, blocked, ready, running, retry, done, dead or cancelled.
    #[param(example = "retry")]
    state: Option<String>,
    /// Only of this kind.
    #[param(example = "fetch_emails")]
    kind: Option<String>,
    #[param(minimum = 1, maximum = 500, default = 50)]
    limit: Option<u64>,
    /// What the page before gave as `next_cursor`.
    #[param(value_type = Option<String>, format = "uuid")]
    cursor: Option<JobId>,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Job)]
pub struct JobView {
    #[schema(value_type = String, format = "uuid")]
    id: JobId,
    #[schema(value_type = String, format = "uuid")]
    tenant_id: TenantId,
    #[schema(example = "fetch_emails")]
    kind: String,
    #[schema(example = "normal")]
    lane: &'static str,
    #[schema(example = "ready")]
    state: &'static str,
    #[schema(value_type = Object)]
    payload: serde_json::Value,
    /// Attempts spent.
    attempt: u64,
    #[schema(value_type = Option<String>, format = DateTime)]
    run_at: Option<jiff::Timestamp>,
    #[schema(value_type = String, format = DateTime)]
    created_at: jiff::Timestamp,
    #[schema(value_type = Option<String>, format = DateTime)]
    started_at: Option<jiff::Timestamp>,
    #[schema(value_type = Option<String>, format = DateTime)]
    ended_at: Option<jiff::Timestamp>,
    /// Why it is dead or cancelled.
    reason: Option<String>,
    error_class: Option<String>,
}

impl From<JobRow> for JobView {
    fn from(job: JobRow) -> Self {
        Self {
            id: job.id,
            tenant_id: job.tenant_id,
            kind: job.kind,
            lane: job.lane.as_str(),
            state: job.state.as_str(),
            payload: job.payload,
            attempt: job.attempt,
            run_at: job.run_at,
            created_at: job.created_at,
            started_at: job.started_at,
            ended_at: job.ended_at,
            reason: job.reason,
            error_class: job.error_class,
        }
    }
}

/// Jobs, the newest first.
#[utoipa::path(get, path = "/v1/jobs", operation_id = "list_jobs", tag = "jobs", params(Wanted), responses(
    (status = 200, description = "What was asked for", body = Page<JobView>)))]
pub async fn list(
    viewer: Viewer,
    State(app): State<App>,
    Query(wanted): Query<Wanted>,
) -> Result<Json<Page<JobView>>, Problem> {
    let state = wanted.state.as_deref().map(|state| {
        JobState::parse(state).ok_or_else(|| Problem::invalid("state", "it is not a state that a job can be in"))
    });
    let filter = JobFilter { state: state.transpose()?, kind: wanted.kind, tenant: viewer.tenant, fingerprint: None };
    page_of(&app, &filter, wanted.cursor, wanted.limit).await
}

async fn page_of(
    app: &App,
    filter: &JobFilter,
    after: Option<JobId>,
    limit: Option<u64>,
) -> Result<Json<Page<JobView>>, Problem> {
    let limit = page::limit(limit)?;
    let jobs = app.engine.store.system().list_jobs(filter, after, limit + 1).await?;
    Ok(Json(Page::cut(jobs, limit, |job| job.id).map(JobView::from)))
}

/// One job.
#[utoipa::path(get, path = "/v1/jobs/{id}", operation_id = "get_job", tag = "jobs", params(("id" = String, Path)), responses(
    (status = 200, description = "What was asked for", body = JobView)))]
pub async fn get(viewer: Viewer, State(app): State<App>, Path(id): Path<JobId>) -> Result<Json<JobView>, Problem> {
    Ok(Json(find(viewer, &app, id).await?.into()))
}

pub async fn find(viewer: Viewer, app: &App, id: JobId) -> Result<JobRow, Problem> {
    let job = app.engine.store.system().find_job(id).await?;
    job.filter(|job| viewer.may_see(job.tenant_id)).ok_or_else(|| Problem::absent("job"))
}

/// Why a job is not running, or what became of it.
#[derive(Debug, Serialize, ToSchema)]
pub struct Reasons {
    #[schema(example = "ready")]
    state: &'static str,
    /// In plain sentences.
    #[schema(example = json!(["It failed once and is tried again at 2026-01-31T08:15:00Z."]))]
    reasons: Vec<String>,
}

/// Why a job is not running.
#[utoipa::path(get, path = "/v1/jobs/{id}/why", operation_id = "why_job", tag = "jobs", params(("id" = String, Path)), responses(
    (status = 200, description = "What was asked for", body = Reasons)))]
pub async fn why(viewer: Viewer, State(app): State<App>, Path(id): Path<JobId>) -> Result<Json<Reasons>, Problem> {
    let job = find(viewer, &app, id).await?;
    // It may end and be pruned at this moment.
    let explained = app.engine.store.system().why(id).await?.ok_or_else(|| Problem::absent("job"))?;
    let reasons = explained.reasons.iter().map(store::sql::jobs::Why::sentence).collect();
    Ok(Json(Reasons { state: job.state.as_str(), reasons }))
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct WantedDead {
    /// Only of this kind.
    kind: Option<String>,
    /// Only failures of one sort.
    fingerprint: Option<String>,
    #[param(minimum = 1, maximum = 500, default = 50)]
    limit: Option<u64>,
    /// What the page before gave as `next_cursor`.
    #[param(value_type = Option<String>, format = "uuid")]
    cursor: Option<JobId>,
}

/// Jobs that went wrong too often, the newest first.
#[utoipa::path(get, path = "/v1/dead-letters", operation_id = "list_dead_letters", tag = "jobs", params(WantedDead), responses(
    (status = 200, description = "What was asked for", body = Page<JobView>)))]
pub async fn dead_letters(
    viewer: Viewer,
    State(app): State<App>,
    Query(wanted): Query<WantedDead>,
) -> Result<Json<Page<JobView>>, Problem> {
    let WantedDead { kind, fingerprint, limit, cursor } = wanted;
    let filter = JobFilter { state: Some(JobState::Dead), kind, tenant: viewer.tenant, fingerprint };
    page_of(&app, &filter, cursor, limit).await
}

/// A lane, and what waits in it.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Queue)]
pub struct QueueView {
    #[schema(example = "normal")]
    name: &'static str,
    ready: u64,
    /// For how long the oldest has waited.
    oldest_seconds: f64,
}

/// All lanes, and what waits in each.
#[utoipa::path(get, path = "/v1/queues", operation_id = "list_queues", tag = "jobs", responses(
    (status = 200, description = "What was asked for", body = Page<QueueView>)))]
pub async fn queues(_: Operator, State(app): State<App>) -> Result<Json<Page<QueueView>>, Problem> {
    let depths = app.engine.store.system().lane_depths().await?;
    let queue = |depth: store::sql::jobs::LaneDepth| QueueView {
        name: depth.lane.as_str(),
        ready: depth.waiting,
        oldest_seconds: depth.oldest_micros as f64 / 1e6,
    };
    Ok(Json(Page { items: depths.into_iter().map(queue).collect(), next_cursor: None }))
}

/// What happens by itself, and when.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Recurring)]
pub struct RecurringView {
    #[schema(example = "upkeep")]
    name: String,
    kind: String,
    #[schema(example = "17 3 * * *")]
    cron: String,
    #[schema(example = "UTC")]
    zone: String,
    is_paused: bool,
    #[schema(value_type = String, format = DateTime)]
    next_at: jiff::Timestamp,
    #[schema(value_type = Option<String>, format = DateTime)]
    last_at: Option<jiff::Timestamp>,
}

/// What happens by itself.
#[utoipa::path(get, path = "/v1/recurring", operation_id = "list_recurring", tag = "jobs", responses(
    (status = 200, description = "What was asked for", body = Page<RecurringView>)))]
pub async fn recurring(_: Operator, State(app): State<App>) -> Result<Json<Page<RecurringView>>, Problem> {
    let schedules = app.engine.store.system().list_schedules().await?;
    let view = |schedule: store::sql::schedules::Schedule| RecurringView {
        name: schedule.name,
        kind: schedule.kind,
        cron: schedule.cron,
        zone: schedule.zone,
        is_paused: schedule.is_paused,
        next_at: schedule.next_at,
        last_at: schedule.last_at,
    };
    Ok(Json(Page { items: schedules.into_iter().map(view).collect(), next_cursor: None }))
}
