//! Formats jobs for people and programs.

use std::collections::HashMap;

use domain::{JobId, TenantId};
use jiff::Timestamp;
use serde_json::json;
use store::Store;
use store::sql::jobs::{AttemptRow, JobFilter, JobRow};
use terminal::{Failure, Output, one_line};

use crate::app;

/// Name of the owner of Mailroom's own jobs.
const SYSTEM_OWNER: &str = "system";

/// Finds the tenant that an option names; `system` is Mailroom itself, unless a tenant has that name.
pub async fn find_owner(store: &Store, name: &str) -> Result<TenantId, Failure> {
    match app::find_tenant(store, name).await {
        Ok(tenant) => Ok(tenant.id),
        Err(_) if name == SYSTEM_OWNER || name.parse() == Ok(TenantId::SYSTEM) => Ok(TenantId::SYSTEM),
        Err(e) => Err(e),
    }
}

/// Names of all tenants.
#[derive(Debug)]
pub struct TenantNames(HashMap<TenantId, String>);

impl TenantNames {
    pub async fn load(store: &Store) -> Result<Self, Failure> {
        let tenants = store.system().list_tenants().await?;
        let system = (TenantId::SYSTEM, SYSTEM_OWNER.to_owned());
        Ok(Self(tenants.into_iter().map(|tenant| (tenant.id, tenant.name)).chain([system]).collect()))
    }

    pub fn name(&self, id: TenantId) -> String {
        self.0.get(&id).map_or_else(|| id.to_string(), |name| one_line(name, 30))
    }
}

/// Prints jobs, newest first, one per line.
pub async fn print_jobs(
    store: &Store,
    filter: &JobFilter,
    after: Option<JobId>,
    limit: u64,
    out: Output,
) -> Result<(), Failure> {
    let jobs = store.system().list_jobs(filter, after, limit).await?;
    if out.json {
        return jobs.iter().try_for_each(|job| out.object(job));
    }
    if jobs.is_empty() {
        return out.line("No jobs match.");
    }
    let tenant_names = TenantNames::load(store).await?;
    let rows = jobs.iter().map(|job| {
        [
            job.id.to_string(),
            job.kind.clone(),
            tenant_names.name(job.tenant_id),
            job.lane.as_str().to_owned(),
            job.state.as_str().to_owned(),
            job.attempt.to_string(),
            format_time(job.ended_at.or(job.run_at).unwrap_or(job.created_at)),
            one_line(job.reason.as_deref().unwrap_or_default(), 60),
        ]
    });
    let rows: Vec<[String; 8]> = rows.collect();
    out.table(["id", "kind", "tenant", "lane", "state", "attempts", "due or ended", "reason"], &rows)?;
    match jobs.last() {
        Some(last) if jobs.len() as u64 == limit => out.line(&format!("More: --after {}", last.id)),
        _ => Ok(()),
    }
}

/// Prints one job with its failed attempts.
pub async fn print_job(store: &Store, job: &JobRow, out: Output) -> Result<(), Failure> {
    let attempts = store.system().list_attempts(job.tenant_id, job.id).await?;
    if out.json {
        return out.object(&json!({"job": job, "attempts": attempts}));
    }
    let tenant_names = TenantNames::load(store).await?;
    out.line(&job_line(job, &tenant_names))?;
    let details = [
        ("payload", Some(one_line(&job.payload.to_string(), 2000))),
        ("created", Some(format_time(job.created_at))),
        ("due", job.run_at.map(format_time)),
        ("started", job.started_at.map(format_time)),
        ("ended", job.ended_at.map(format_time)),
        ("worker", text(&job.worker)),
        ("failed attempts", number(job.attempt)),
        ("processes it crashed", number(job.abandoned)),
        ("processes that crashed while it ran", number(job.suspected)),
        ("unique key", text(&job.unique_key)),
        ("ordering key", text(&job.order_key)),
        ("waits for", number(job.blockers)),
        ("reason", text(&job.reason)),
        ("error class", text(&job.error_class)),
        ("fingerprint", text(&job.fingerprint)),
        ("trace", text(&job.traceparent)),
    ];
    for (name, value) in details {
        if let Some(value) = value {
            out.line(&format!("  {name}: {value}"))?;
        }
    }
    if attempts.is_empty() {
        return Ok(());
    }
    let rows: Vec<[String; 5]> = attempts.iter().map(attempt).collect();
    out.table(["ended", "outcome", "class", "worker", "message"], &rows)
}

fn number(number: u64) -> Option<String> {
    (number > 0).then(|| number.to_string())
}

fn text(text: &Option<String>) -> Option<String> {
    text.as_deref().map(|text| one_line(text, 2000))
}

fn attempt(attempt: &AttemptRow) -> [String; 5] {
    [
        format_time(attempt.ended_at),
        attempt.outcome.clone(),
        one_line(&attempt.error_class, 30),
        one_line(attempt.worker.as_deref().unwrap_or_default(), 40),
        one_line(&attempt.message, 200),
    ]
}

pub fn job_line(job: &JobRow, tenant_names: &TenantNames) -> String {
    let (kind, state, lane) = (&job.kind, job.state.as_str(), job.lane.as_str());
    format!("Job {} ({kind} of {}, lane {lane}): {state}", job.id, tenant_names.name(job.tenant_id))
}

/// Formats a time to the second.
pub fn format_time(time: Timestamp) -> String {
    format!("{time:.0}")
}
