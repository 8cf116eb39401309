//! How jobs look to people and to programs.

use std::collections::HashMap;

use domain::{JobId, TenantId};
use jiff::Timestamp;
use serde_json::json;
use store::Store;
use store::sql::jobs::{AttemptRow, JobFilter, JobRow};

use crate::app;
use crate::failure::Failure;
use crate::output::{Output, one_line};

/// What the owner of Mailroom's own jobs is called.
const SYSTEM: &str = "system";

/// The tenant that an option names; `system` is Mailroom itself, unless a tenant is called so.
pub async fn owner(store: &Store, name: &str) -> Result<TenantId, Failure> {
    match app::tenant(store, name).await {
        Ok(tenant) => Ok(tenant.id),
        Err(_) if name == SYSTEM || name.parse() == Ok(TenantId::SYSTEM) => Ok(TenantId::SYSTEM),
        Err(e) => Err(e),
    }
}

/// Names of tenants.
#[derive(Debug)]
pub struct Owners(HashMap<TenantId, String>);

impl Owners {
    pub async fn load(store: &Store) -> Result<Self, Failure> {
        let tenants = store.system().list_tenants().await?;
        let system = (TenantId::SYSTEM, SYSTEM.to_owned());
        Ok(Self(tenants.into_iter().map(|tenant| (tenant.id, tenant.name)).chain([system]).collect()))
    }

    pub fn name(&self, id: TenantId) -> String {
        self.0.get(&id).map_or_else(|| id.to_string(), |name| one_line(name, 30))
    }
}

/// Newest first, a line each.
pub async fn listed(
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
    let owners = Owners::load(store).await?;
    let row = |job: &JobRow| {
        [
            job.id.to_string(),
            job.kind.clone(),
            owners.name(job.tenant_id),
            job.lane.as_str().to_owned(),
            job.state.as_str().to_owned(),
            job.attempt.to_string(),
            when(job.ended_at.or(job.run_at).unwrap_or(job.created_at)),
            one_line(job.reason.as_deref().unwrap_or_default(), 60),
        ]
    };
    let rows: Vec<[String; 8]> = jobs.iter().map(row).collect();
    out.table(["id", "kind", "tenant", "lane", "state", "tries", "due or ended", "reason"], &rows)?;
    match jobs.last() {
        Some(last) if jobs.len() as u64 == limit => out.line(&format!("More: --after {}", last.id)),
        _ => Ok(()),
    }
}

/// One job with everything that went wrong.
pub async fn show_job(store: &Store, job: &JobRow, out: Output) -> Result<(), Failure> {
    let attempts = store.system().list_attempts(job.tenant_id, job.id).await?;
    if out.json {
        return out.object(&json!({"job": job, "attempts": attempts}));
    }
    let owners = Owners::load(store).await?;
    out.line(&line_of(job, &owners))?;
    let time = |time: Option<Timestamp>| time.map(when);
    let number = |number: u64| (number > 0).then(|| number.to_string());
    let text = |text: &Option<String>| text.as_deref().map(|text| one_line(text, 2000));
    let details = [
        ("payload", Some(one_line(&job.payload.to_string(), 2000))),
        ("made", time(Some(job.created_at))),
        ("due", time(job.run_at)),
        ("started", time(job.started_at)),
        ("ended", time(job.ended_at)),
        ("worker", text(&job.worker)),
        ("attempts spent", number(job.attempt)),
        ("processes it took down", number(job.abandoned)),
        ("processes that died around it", number(job.suspected)),
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

fn attempt(attempt: &AttemptRow) -> [String; 5] {
    [
        when(attempt.ended_at),
        attempt.outcome.clone(),
        one_line(&attempt.error_class, 30),
        one_line(attempt.worker.as_deref().unwrap_or_default(), 40),
        one_line(&attempt.message, 200),
    ]
}

pub fn line_of(job: &JobRow, owners: &Owners) -> String {
    let (kind, state, lane) = (&job.kind, job.state.as_str(), job.lane.as_str());
    format!("Job {} ({kind} of {}, lane {lane}): {state}", job.id, owners.name(job.tenant_id))
}

/// To the second, as people read it.
pub fn when(time: Timestamp) -> String {
    format!("{time:.0}")
}
