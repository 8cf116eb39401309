//! Jobs, dead letters, queues and recurring jobs. The operator sees all, a tenant its own jobs.

use axum::Json;
use axum::extract::State;
use domain::{JobId, JobState, TenantId};
use serde::{Deserialize, Serialize};
use store::sql::jobs::{JobFilter, JobRow, LaneDepth};
use store::sql::schedules::Schedule;
use utoipa::{IntoParams, ToSchema};

use super::auth::{Operator, ReadAccess};
use super::page::{self, Page};
use super::problem::Problem;
use super::{Path, Query};
use crate::App;

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct JobQuery {
    /// Only jobs in this state: `scheduled`, `blocked`, `ready`, `running`, `retry`, `done`, `dead` or `cancelled`.
    #[param(example = "retry")]
    state: Option<String>,
    /// Only jobs of this kind.
    #[param(example = "fetch_emails")]
    kind: Option<String>,
    /// Maximum number of items.
    #[param(minimum = 1, maximum = 500, default = 50)]
    limit: Option<u64>,
    /// `next_cursor` of the previous page.
    #[param(value_type = Option<String>, format = "uuid")]
    cursor: Option<JobId>,
}

/// A unit of background work.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Job)]
pub struct JobView {
    #[schema(value_type = String, format = "uuid")]
    id: JobId,
    #[schema(value_type = String, format = "uuid")]
    tenant_id: TenantId,
    #[schema(example = "fetch_emails")]
    kind: String,
    /// `critical`, `high`, `normal` or `low`.
    #[schema(example = "normal")]
    lane: &'static str,
    /// `scheduled` (not due yet), `blocked` (behind another job), `doomed` (about to be cancelled), `ready`, `running`,
    /// `retry` (failed, and retried when due), `done`, `dead` (failed for the last time) or `cancelled`.
    #[schema(example = "ready")]
    state: &'static str,
    #[schema(value_type = Object)]
    payload: serde_json::Value,
    /// Number of failed attempts.
    attempt: u64,
    #[schema(value_type = Option<String>, format = DateTime)]
    run_at: Option<jiff::Timestamp>,
    #[schema(value_type = String, format = DateTime)]
    created_at: jiff::Timestamp,
    #[schema(value_type = Option<String>, format = DateTime)]
    started_at: Option<jiff::Timestamp>,
    #[schema(value_type = Option<String>, format = DateTime)]
    ended_at: Option<jiff::Timestamp>,
    /// Why the job is dead or cancelled.
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

/// List jobs, newest first.
#[utoipa::path(get, path = "/v1/jobs", operation_id = "list_jobs", tag = "jobs", params(JobQuery), responses(
    (status = 200, description = "Matching jobs", body = Page<JobView>)))]
pub async fn list(
    access: ReadAccess,
    State(app): State<App>,
    Query(query): Query<JobQuery>,
) -> Result<Json<Page<JobView>>, Problem> {
    let state = query.state.as_deref().map(|state| {
        JobState::parse(state).ok_or_else(|| {
            Problem::invalid("state", "must be scheduled, blocked, ready, running, retry, done, dead or cancelled")
        })
    });
    let filter = JobFilter { state: state.transpose()?, kind: query.kind, tenant: access.tenant, fingerprint: None };
    job_page(&app, &filter, query.cursor, query.limit).await
}

async fn job_page(
    app: &App,
    filter: &JobFilter,
    after: Option<JobId>,
    limit: Option<u64>,
) -> Result<Json<Page<JobView>>, Problem> {
    let limit = page::limit(limit)?;
    let jobs = app.engine.store.system().list_jobs(filter, after, limit + 1).await?;
    Ok(Json(Page::cut(jobs, limit, |job| job.id).map(JobView::from)))
}

/// Get a job.
#[utoipa::path(get, path = "/v1/jobs/{id}", operation_id = "get_job", tag = "jobs", params(("id" = String, Path)), responses(
    (status = 200, description = "The job", body = JobView)))]
pub async fn get(access: ReadAccess, State(app): State<App>, Path(id): Path<JobId>) -> Result<Json<JobView>, Problem> {
    Ok(Json(find(access, &app, id).await?.into()))
}

pub async fn find(access: ReadAccess, app: &App, id: JobId) -> Result<JobRow, Problem> {
    let job = app.engine.store.system().find_job(id).await?;
    job.filter(|job| access.may_see(job.tenant_id)).ok_or_else(|| Problem::not_found("job"))
}

/// Explanation why a job is not running, or how it ended.
#[derive(Debug, Serialize, ToSchema)]
pub struct JobExplanation {
    #[schema(example = "ready")]
    state: &'static str,
    /// Reasons, as sentences.
    #[schema(example = json!(["It failed once and is tried again at 2026-01-31T08:15:00Z."]))]
    reasons: Vec<String>,
}

/// Explain why a job is not running.
#[utoipa::path(get, path = "/v1/jobs/{id}/why", operation_id = "why_job", tag = "jobs", params(("id" = String, Path)), responses(
    (status = 200, description = "State of the job and its reasons", body = JobExplanation)))]
pub async fn why(
    access: ReadAccess,
    State(app): State<App>,
    Path(id): Path<JobId>,
) -> Result<Json<JobExplanation>, Problem> {
    let job = find(access, &app, id).await?;
    // The job may have ended and been pruned meanwhile.
    let explained = app.engine.store.system().diagnose_job(id).await?.ok_or_else(|| Problem::not_found("job"))?;
    let reasons = explained.reasons.iter().map(store::sql::jobs::WaitReason::sentence).collect();
    Ok(Json(JobExplanation { state: job.state.as_str(), reasons }))
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct DeadLetterQuery {
    /// Only jobs of this kind.
    kind: Option<String>,
    /// Only dead letters with this error fingerprint.
    fingerprint: Option<String>,
    /// Maximum number of items.
    #[param(minimum = 1, maximum = 500, default = 50)]
    limit: Option<u64>,
    /// `next_cursor` of the previous page.
    #[param(value_type = Option<String>, format = "uuid")]
    cursor: Option<JobId>,
}

/// List dead letters, newest first: jobs that failed too often.
#[utoipa::path(get, path = "/v1/dead-letters", operation_id = "list_dead_letters", tag = "jobs", params(DeadLetterQuery), responses(
    (status = 200, description = "Matching dead letters", body = Page<JobView>)))]
pub async fn dead_letters(
    access: ReadAccess,
    State(app): State<App>,
    Query(query): Query<DeadLetterQuery>,
) -> Result<Json<Page<JobView>>, Problem> {
    let DeadLetterQuery { kind, fingerprint, limit, cursor } = query;
    let filter = JobFilter { state: Some(JobState::Dead), kind, tenant: access.tenant, fingerprint };
    job_page(&app, &filter, cursor, limit).await
}

/// A queue (lane) and its backlog.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Queue)]
pub struct QueueView {
    #[schema(example = "normal")]
    name: &'static str,
    /// Number of jobs that are ready to run.
    ready: u64,
    /// Age of the oldest ready job.
    oldest_seconds: f64,
}

/// List all queues and their backlog.
#[utoipa::path(get, path = "/v1/queues", operation_id = "list_queues", tag = "jobs", responses(
    (status = 200, description = "All queues with their backlog", body = Page<QueueView>)))]
pub async fn queues(_: Operator, State(app): State<App>) -> Result<Json<Page<QueueView>>, Problem> {
    let depths = app.engine.store.system().lane_depths().await?;
    Ok(Json(Page { items: depths.into_iter().map(QueueView::from).collect(), next_cursor: None }))
}

impl From<LaneDepth> for QueueView {
    fn from(depth: LaneDepth) -> Self {
        Self { name: depth.lane.as_str(), ready: depth.waiting, oldest_seconds: depth.oldest_micros as f64 / 1e6 }
    }
}

/// A job that runs on a schedule.
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

/// List all recurring jobs.
#[utoipa::path(get, path = "/v1/recurring", operation_id = "list_recurring", tag = "jobs", responses(
    (status = 200, description = "Recurring jobs", body = Page<RecurringView>)))]
pub async fn recurring(_: Operator, State(app): State<App>) -> Result<Json<Page<RecurringView>>, Problem> {
    let schedules = app.engine.store.system().list_schedules().await?;
    Ok(Json(Page { items: schedules.into_iter().map(RecurringView::from).collect(), next_cursor: None }))
}

impl From<Schedule> for RecurringView {
    fn from(schedule: Schedule) -> Self {
        Self {
            name: schedule.name,
            kind: schedule.kind,
            cron: schedule.cron,
            zone: schedule.zone,
            is_paused: schedule.is_paused,
            next_at: schedule.next_at,
            last_at: schedule.last_at,
        }
    }
}
