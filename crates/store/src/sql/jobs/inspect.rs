//! Queries about jobs: one, many, their attempts, and counts.

use std::collections::{BTreeMap, BTreeSet};

use domain::{JobId, JobState, Lane, TenantId, WorkerId};
use jiff::Timestamp;
use serde::Serialize;

use super::UnrunnableJobCounts;
use crate::value::Value;
use crate::{Dialect, Row, StoreError, SystemStore, params};

/// A job, live or finished, for people.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct JobRow {
    pub id: JobId,
    pub tenant_id: TenantId,
    pub kind: String,
    pub lane: Lane,
    pub state: JobState,
    pub payload: serde_json::Value,
    /// Attempts spent.
    pub attempt: u64,
    /// Deaths of processes that it caused, and for which it was a mere bystander.
    pub abandoned: u64,
    pub suspected: u64,
    pub run_at: Option<Timestamp>,
    pub created_at: Timestamp,
    pub started_at: Option<Timestamp>,
    pub ended_at: Option<Timestamp>,
    /// The name of the worker that runs it or ran it last.
    pub worker: Option<String>,
    pub unique_key: Option<String>,
    pub order_key: Option<String>,
    /// The number of jobs that it waits for.
    pub blockers: u64,
    /// Why it is dead or cancelled, or is to be cancelled.
    pub reason: Option<String>,
    /// Why it waits without having failed.
    pub wait_reason: Option<String>,
    pub error_class: Option<String>,
    pub fingerprint: Option<String>,
    pub traceparent: Option<String>,
}

impl JobRow {
    pub fn is_live(&self) -> bool {
        self.ended_at.is_none()
    }
}

/// A failed attempt.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AttemptRow {
    /// The fence token of its claim; a job's claims are numbered.
    pub token: u64,
    pub outcome: String,
    pub error_class: String,
    pub message: String,
    pub fingerprint: String,
    pub worker: Option<String>,
    pub started_at: Option<Timestamp>,
    pub ended_at: Timestamp,
}

/// A filter of jobs; `None` matches all.
#[derive(Debug, Clone, Default)]
pub struct JobFilter {
    pub state: Option<JobState>,
    pub kind: Option<String>,
    pub tenant: Option<TenantId>,
    /// The fingerprint of dead letters.
    pub fingerprint: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct JobGroup {
    pub state: JobState,
    pub lane: Lane,
    pub kind: String,
    pub count: u64,
}

/// A live worker.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WorkerRow {
    pub id: WorkerId,
    pub name: String,
    pub kinds: Vec<String>,
    pub running: u64,
    pub started_at: Timestamp,
    pub lease_until: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct JobStats {
    pub live: Vec<JobGroup>,
    pub finished: Vec<JobGroup>,
    pub workers: Vec<WorkerRow>,
    pub strays: UnrunnableJobCounts,
}

impl SystemStore {
    /// Finds a job of any tenant by its id.
    pub async fn find_job(&self, id: JobId) -> Result<Option<JobRow>, StoreError> {
        // PostgreSQL's keys begin with the tenant, so each tenant is probed; there are far fewer of those than of jobs.
        let of_any = match self.store.dialect() {
            Dialect::Postgres => format!("and j.tenant_id in (select id from {ALL_TENANTS} t)"),
            Dialect::Sqlite => String::new(),
        };
        for table in [JobTable::Live, JobTable::Finished] {
            let sql = format!("select {} from {} j where j.id = $1 {of_any}", columns(table), table.name());
            if let Some(row) = self.query_one(sql, params![id]).await? {
                return job(&row).map(Some);
            }
        }
        Ok(None)
    }

    /// Finds the job with a unique key: the live one, else the one that ended last.
    pub async fn find_unique_job(
        &self,
        tenant: TenantId,
        kind: &str,
        unique_key: &str,
    ) -> Result<Option<JobRow>, StoreError> {
        let wanted = "j.tenant_id = $1 and j.kind = $2 and j.unique_key = $3";
        let conditions = [
            // One that is about to be cancelled may have a successor.
            (JobTable::Live, format!("{wanted} order by case when j.state = 'doomed' then 1 else 0 end limit 1")),
            (JobTable::Finished, format!("{wanted} order by j.ended_at desc, j.id desc limit 1")),
        ];
        for (table, condition) in conditions {
            let sql = format!("select {} from {} j where {condition}", columns(table), table.name());
            if let Some(row) = self.query_one(sql, params![tenant, kind, unique_key]).await? {
                return job(&row).map(Some);
            }
        }
        Ok(None)
    }

    /// Lists jobs, the newest first. `after` is the last one of the page before.
    pub async fn list_jobs(
        &self,
        filter: &JobFilter,
        after: Option<JobId>,
        limit: u64,
    ) -> Result<Vec<JobRow>, StoreError> {
        // By id, because a job that ends between the two queries is in both; the finished row is the newer one.
        let mut jobs = BTreeMap::new();
        for table in [JobTable::Live, JobTable::Finished] {
            if filter.state.is_some_and(|state| table.holds(state)) || filter.state.is_none() {
                let page = self.list_from(table, filter, after, limit).await?;
                jobs.extend(page.into_iter().map(|job| (job.id, job)));
            }
        }
        Ok(jobs.into_values().rev().take(usize::try_from(limit).unwrap_or(usize::MAX)).collect())
    }

    async fn list_from(
        &self,
        table: JobTable,
        filter: &JobFilter,
        after: Option<JobId>,
        limit: u64,
    ) -> Result<Vec<JobRow>, StoreError> {
        let mut conditions = JobConditions::of(filter);
        if let Some(after) = after {
            conditions.add("j.id <", after);
        }
        let (wanted, columns, name) = (conditions.text(), columns(table), table.name());
        let mut params = conditions.params;
        params.push(limit.into());
        let limit = format!("limit ${}", params.len());
        let sql = match self.store.dialect() {
            // The key begins with the tenant: the newest of each are found by it, and the newest of those are the page.
            Dialect::Postgres => format!(
                "select {columns} from (
                    select p.tenant_id, p.id from {ALL_TENANTS} t cross join lateral (
                        select j.tenant_id, j.id from {name} j where j.tenant_id = t.id and {wanted}
                        order by j.id desc {limit}) p
                    order by p.id desc {limit}) page
                 join {name} j on j.tenant_id = page.tenant_id and j.id = page.id"
            ),
            Dialect::Sqlite => format!("select {columns} from {name} j where {wanted} order by j.id desc {limit}"),
        };
        self.query(sql, params).await?.iter().map(job).collect()
    }

    /// Lists the failed attempts of a job, oldest first.
    pub async fn list_attempts(&self, tenant: TenantId, id: JobId) -> Result<Vec<AttemptRow>, StoreError> {
        let sql = "select a.token, a.outcome, a.error_class, a.message, a.fingerprint,
                          (select name from job_workers w where w.id = a.worker), a.started_at, a.ended_at
                   from job_attempts a where a.tenant_id = $1 and a.job_id = $2 order by a.token";
        self.query(sql, params![tenant, id]).await?.iter().map(attempt).collect()
    }

    /// Counts every row, finished ones too: for people, not for frequent calls.
    pub async fn job_stats(&self) -> Result<JobStats, StoreError> {
        Ok(JobStats {
            live: self.groups("jobs").await?,
            finished: self.groups("finished_jobs").await?,
            workers: self.list_workers().await?,
            strays: self.count_strays().await?,
        })
    }

    async fn groups(&self, table: &str) -> Result<Vec<JobGroup>, StoreError> {
        let sql = format!(
            "select state, lane, kind, count(*) from {table} group by state, lane, kind order by lane, kind, state"
        );
        let group =
            |row: &Row| Ok(JobGroup { state: row.get(0)?, lane: row.get(1)?, kind: row.get(2)?, count: row.get(3)? });
        self.query(sql, vec![]).await?.iter().map(group).collect()
    }

    /// Lists the kinds that live workers handle.
    pub(super) async fn list_registered_kinds(&self) -> Result<BTreeSet<String>, StoreError> {
        let rows = self.query(format!("select w.kinds from job_workers w where {IS_ALIVE}"), vec![]).await?;
        let handled = rows.iter().map(|row: &Row| Ok(kinds(&row.get(0)?))).collect::<Result<Vec<_>, StoreError>>()?;
        Ok(handled.into_iter().flatten().collect())
    }

    /// Lists the live workers.
    pub async fn list_workers(&self) -> Result<Vec<WorkerRow>, StoreError> {
        let sql = format!(
            "select w.id, w.name, w.kinds,
                    (select count(*) from jobs j where j.worker = w.id and j.state = 'running'), w.started_at, w.lease_until
             from job_workers w where {IS_ALIVE} order by w.name, w.id"
        );
        self.query(sql, vec![])
            .await?
            .iter()
            .map(|row: &Row| {
                Ok(WorkerRow {
                    id: row.get(0)?,
                    name: row.get(1)?,
                    kinds: kinds(&row.get(2)?),
                    running: row.get(3)?,
                    started_at: row.get(4)?,
                    lease_until: row.get(5)?,
                })
            })
            .collect()
    }
}

/// Of `job_workers w`: neither gone nor expired.
pub(super) const IS_ALIVE: &str = "w.gone_at is null and w.lease_until > (select mailroom_now())";

/// A table of all owners of jobs: the tenants and the system.
const ALL_TENANTS: &str = "(select id from tenants union all select '00000000-0000-0000-0000-000000000000')";

/// The table that a job is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum JobTable {
    Live,
    Finished,
}

impl JobTable {
    fn name(self) -> &'static str {
        match self {
            Self::Live => "jobs",
            Self::Finished => "finished_jobs",
        }
    }

    fn holds(self, state: JobState) -> bool {
        let is_over = matches!(state, JobState::Done | JobState::Dead | JobState::Cancelled);
        is_over == (self == Self::Finished)
    }
}

/// Returns the same columns for both tables; those that a table lacks are null.
fn columns(table: JobTable) -> String {
    let (run_at, ended_at, suspected, keys, reasons) = match table {
        JobTable::Live => (
            "j.run_at",
            "null",
            "j.suspected",
            "j.unique_key, j.order_key, j.blockers",
            "j.cancel_reason, null, null, j.wait_reason",
        ),
        JobTable::Finished => {
            ("null", "j.ended_at", "0", "null, null, 0", "j.reason, j.error_class, j.fingerprint, null")
        }
    };
    format!(
        "j.id, j.tenant_id, j.kind, j.lane, j.state, j.payload, j.attempt, j.abandoned, {suspected}, {run_at}, j.created_at,
         j.started_at, {ended_at}, (select name from job_workers w where w.id = j.worker), {keys}, {reasons}, j.traceparent"
    )
}

/// Conditions on a table of jobs that is called `j`, and their values.
#[derive(Debug, Default)]
pub(super) struct JobConditions {
    texts: Vec<String>,
    pub params: Vec<Value>,
}

impl JobConditions {
    pub fn of(filter: &JobFilter) -> Self {
        let mut conditions = Self::default();
        let JobFilter { state, kind, tenant, fingerprint } = filter;
        state.iter().for_each(|state| conditions.add("j.state =", *state));
        kind.iter().for_each(|kind| conditions.add("j.kind =", kind));
        tenant.iter().for_each(|tenant| conditions.add("j.tenant_id =", *tenant));
        fingerprint.iter().for_each(|fingerprint| conditions.add("j.fingerprint =", fingerprint));
        conditions
    }

    /// Adds a condition; `comparison` is followed by the value.
    pub fn add(&mut self, comparison: &str, value: impl Into<Value>) {
        self.params.push(value.into());
        self.texts.push(format!("{comparison} ${}", self.params.len()));
    }

    pub fn text(&self) -> String {
        if self.texts.is_empty() { "true".to_owned() } else { self.texts.join(" and ") }
    }
}

fn kinds(value: &serde_json::Value) -> Vec<String> {
    let list = value.as_array().into_iter().flatten();
    list.filter_map(|kind| kind.as_str().map(str::to_owned)).collect()
}

fn job(row: &Row) -> Result<JobRow, StoreError> {
    Ok(JobRow {
        id: row.get(0)?,
        tenant_id: row.get(1)?,
        kind: row.get(2)?,
        lane: row.get(3)?,
        state: row.get(4)?,
        payload: row.get(5)?,
        attempt: row.get(6)?,
        abandoned: row.get(7)?,
        suspected: row.get(8)?,
        run_at: row.get(9)?,
        created_at: row.get(10)?,
        started_at: row.get(11)?,
        ended_at: row.get(12)?,
        worker: row.get(13)?,
        unique_key: row.get(14)?,
        order_key: row.get(15)?,
        // Never below zero; if it ever were, that is a stray and no reason to show nothing.
        blockers: u64::try_from(row.get::<i64>(16)?).unwrap_or(0),
        reason: row.get(17)?,
        error_class: row.get(18)?,
        fingerprint: row.get(19)?,
        wait_reason: row.get(20)?,
        traceparent: row.get(21)?,
    })
}

fn attempt(row: &Row) -> Result<AttemptRow, StoreError> {
    Ok(AttemptRow {
        token: row.get(0)?,
        outcome: row.get(1)?,
        error_class: row.get(2)?,
        message: row.get(3)?,
        fingerprint: row.get(4)?,
        worker: row.get(5)?,
        started_at: row.get(6)?,
        ended_at: row.get(7)?,
    })
}
