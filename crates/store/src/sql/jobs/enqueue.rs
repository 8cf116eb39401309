//! Enqueues jobs, always in a unit with the rows that they depend on.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::time::Duration;

use domain::{JobId, Lane};
use jiff::Timestamp;

use super::later;
use super::release::drop_idle_key;
use crate::failpoint::{self, Guard};
use crate::sql::any;
use crate::unit::{Insert, InsertBatching};
use crate::value::ColumnType;
use crate::{Dialect, Precondition, TenantUnit, params};

/// A job to enqueue: its payload is JSON, its kind is text.
#[derive(Debug, Clone)]
pub struct NewJob {
    pub id: JobId,
    pub kind: String,
    pub lane: Lane,
    pub payload: serde_json::Value,
    pub when: StartTime,
    pub unique: Option<UniqueKey>,
    /// Jobs of a tenant with the same ordering key run strictly one after the other, in the order they were added.
    pub order_key: Option<String>,
    /// Its parents: it runs when all of these are done, and is cancelled when one of them fails.
    pub after: Vec<JobId>,
    /// The trace that it belongs to, as in the W3C's `traceparent` header.
    pub traceparent: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartTime {
    Now,
    At(Timestamp),
    In(Duration),
}

/// At most one live job of a tenant and kind has this key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UniqueKey {
    pub key: String,
    pub policy: OnConflict,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnConflict {
    /// The existing job stays; this one is dropped.
    Keep,
    /// The existing job gets this one's payload; a running one is followed by another.
    Replace,
    /// The existing job becomes as urgent and as early as this one; a running one is followed by another.
    Merge,
}

impl NewJob {
    fn is_plain(&self) -> bool {
        self.unique.is_none() && self.order_key.is_none() && self.after.is_empty()
    }

    /// Returns whether it is due now, and merges with an existing job.
    fn is_plain_merge(&self) -> bool {
        let is_merged = self.unique.as_ref().is_some_and(|unique| unique.policy == OnConflict::Merge);
        is_merged && self.when == StartTime::Now && self.order_key.is_none() && self.after.is_empty()
    }

    fn unique_key(&self) -> Option<String> {
        self.unique.as_ref().map(|unique| unique.key.clone())
    }

    fn times(&self) -> (Option<Timestamp>, Option<u64>) {
        match self.when {
            StartTime::Now => (None, None),
            StartTime::At(time) => (Some(time), None),
            StartTime::In(delay) => (None, Some(u64::try_from(delay.as_millis()).unwrap_or(u64::MAX))),
        }
    }
}

const COLUMNS: &[(&str, ColumnType)] = &[
    ("id", ColumnType::Uuid),
    ("tenant_id", ColumnType::Uuid),
    ("kind", ColumnType::Text),
    ("lane", ColumnType::Int),
    ("at", ColumnType::Time),
    ("delay", ColumnType::Int),
    ("payload", ColumnType::Json),
    ("traceparent", ColumnType::Text),
    ("ordinal", ColumnType::Int),
];

const MERGED_COLUMNS: &[(&str, ColumnType)] = &[
    ("id", ColumnType::Uuid),
    ("tenant_id", ColumnType::Uuid),
    ("kind", ColumnType::Text),
    ("lane", ColumnType::Int),
    ("payload", ColumnType::Json),
    ("traceparent", ColumnType::Text),
    ("unique_key", ColumnType::Text),
    ("ordinal", ColumnType::Int),
];

/// From so many jobs on, counting them here is faster than by the trigger.
const COUNT_IN_BULK_FROM_JOBS: usize = 16;

impl TenantUnit {
    /// Adds jobs, which exist from the commit of this unit on.
    pub fn enqueue(&mut self, jobs: Vec<NewJob>) {
        self.enqueues |= !jobs.is_empty();
        let (plain, dependent): (Vec<_>, Vec<_>) = jobs.into_iter().partition(NewJob::is_plain);
        let (now, later): (Vec<_>, Vec<_>) = plain.into_iter().partition(|job| job.when == StartTime::Now);
        if self.store.dialect() == Dialect::Sqlite && now.len() >= COUNT_IN_BULK_FROM_JOBS {
            self.enqueue_counted(now);
        } else if !now.is_empty() {
            self.enqueue_plain(now);
        }
        if !later.is_empty() {
            self.enqueue_plain(later);
        }
        // SQLite prepares each statement once, so one by one is as fast. If other jobs are between them, their order counts.
        if self.store.dialect() == Dialect::Postgres
            && dependent.len() > 1
            && dependent.iter().all(NewJob::is_plain_merge)
        {
            return self.enqueue_merged(dependent);
        }
        for job in dependent {
            self.enqueue_dependent(job);
        }
    }

    /// Refuses the unit when with so many more this tenant would exceed its limit of waiting jobs.
    pub fn admit(&mut self, jobs: u64) {
        let unfolded = match self.store.dialect() {
            Dialect::Postgres => "+ (select coalesce(sum(change), 0) from job_arrivals where tenant_id = $1)",
            Dialect::Sqlite => "",
        };
        let sql = format!(
            "select 1 where (select coalesce(sum(waiting), 0) from job_queues where tenant_id = $1) {unfolded} + $2
                <= coalesce((select most_waiting from job_tenants where tenant_id = $1), 9223372036854775807)"
        );
        self.unit.op_returning_exactly(1, Precondition::TooManyWaitingJobs, sql, params![self.tenant, jobs]);
    }

    /// Adds jobs that are all ready, so that they can be counted here, once per queue, instead of one by one by the trigger.
    fn enqueue_counted(&mut self, jobs: Vec<NewJob>) {
        self.unit.op("insert into job_counting (queue) values ('enqueue')", vec![]);
        let mut queues: BTreeMap<(Lane, &str), u64> = BTreeMap::new();
        for job in &jobs {
            *queues.entry((job.lane, &job.kind)).or_default() += 1;
        }
        for ((lane, kind), count) in queues {
            self.unit.op(
                "insert into job_queues (tenant_id, lane, kind, waiting, vtime)
                 values ($1, $2, $3, $4,
                         coalesce((select min(vtime) from job_queues where lane = $2 and kind = $3 and waiting > 0),
                                  (select clock from job_lanes where lane = $2)))
                 on conflict (tenant_id, lane, kind) do update set waiting = waiting + excluded.waiting,
                    vtime = case when waiting > 0 then vtime else max(vtime, excluded.vtime) end",
                params![self.tenant, lane, kind, count],
            );
        }
        self.enqueue_plain(jobs);
        self.unit.op("delete from job_counting", vec![]);
    }

    fn enqueue_plain(&mut self, jobs: Vec<NewJob>) {
        let rows = jobs.into_iter().enumerate().map(|(ordinal, job)| {
            let (at, delay) = job.times();
            params![job.id, self.tenant, job.kind, job.lane, at, delay, job.payload, job.traceparent, ordinal]
        });
        let rows = rows.collect();
        let run_at = run_at(self.store.dialect(), "u.at", "u.delay", "n.now");
        self.unit.insert(Insert {
            into: "jobs (id, tenant_id, kind, lane, state, position, run_at, payload, traceparent, created_at)".into(),
            columns: COLUMNS,
            rows,
            select: format!(
                "u.id, u.tenant_id, u.kind, u.lane, case when {run_at} > n.now then 'scheduled' else 'ready' end,
                 n.micros + u.ordinal, {run_at}, u.payload, u.traceparent, n.now"
            )
            .into(),
            join_where: "cross join (select mailroom_now() as now, mailroom_micros() as micros) n",
            on_conflict: "".into(),
            batching: InsertBatching::Many,
        });
    }

    /// Adds a job with a key or with parents: what it depends on is locked first.
    fn enqueue_dependent(&mut self, job: NewJob) {
        let dialect = self.store.dialect();
        let tenant = self.tenant;
        if !job.after.is_empty() {
            // Waits for a parent that is just ending, and for one that is just replayed or pruned; the statements below see
            // the result.
            let parents = any(dialect, "id", 2);
            if !failpoint::is_off(Guard::ParentLock) {
                if dialect == Dialect::Postgres {
                    let sql = format!("select id from finished_jobs where tenant_id = $1 and {parents} for share");
                    self.unit.op(sql, params![tenant, job.after.clone()]);
                }
                let sql = format!("update jobs set has_children = true where tenant_id = $1 and {parents}");
                self.unit.op(sql, params![tenant, job.after.clone()]);
            }
            let sql = format!(
                "insert into job_edges (tenant_id, parent_id, child_id)
                 select tenant_id, id, $3 from jobs where tenant_id = $1 and {parents}"
            );
            self.unit.op(sql, params![tenant, job.after.clone(), job.id]);
        }
        if let Some(key) = &job.order_key {
            self.unit.op(
                "insert into job_keys (tenant_id, order_key, last_number) values ($1, $2, 1)
                 on conflict (tenant_id, order_key) do update set last_number = job_keys.last_number + 1",
                params![tenant, key],
            );
        }
        self.insert_dependent(&job);
        if !job.after.is_empty() {
            self.insert_cancelled(&job);
            // It may have been dropped for its unique key.
            self.unit.op(
                "delete from job_edges where tenant_id = $1 and child_id = $2
                 and not exists (select 1 from jobs where tenant_id = $1 and id = $2)",
                params![tenant, job.id],
            );
        }
        if let Some(key) = &job.order_key
            && (job.unique.is_some() || !job.after.is_empty())
        {
            // The same for the key, of which it may have been the only one.
            drop_idle_key(&mut self.unit, tenant, key);
        }
        match job.unique.as_ref().map(|unique| unique.policy) {
            None => {}
            Some(OnConflict::Keep) => self.keep(&job),
            Some(OnConflict::Merge) => self.merge(&job),
            Some(OnConflict::Replace) => self.replace(&job),
        }
    }

    /// Keeps the existing job, unless it is just being stopped: then another follows it.
    fn keep(&mut self, job: &NewJob) {
        let sql = format!(
            "update jobs set rerun = true
             where {EXISTING_JOB} and state = 'running' and cancel_reason is not null and not {}",
            failed_parent(self.store.dialect(), "$1", 5)
        );
        self.unit.op(sql, params![self.tenant, &job.kind, job.unique_key(), job.id, job.after.clone()]);
    }

    /// Does what [`TenantUnit::enqueue_dependent`] does, for many by a few statements.
    fn enqueue_merged(&mut self, jobs: Vec<NewJob>) {
        // One statement cannot change a row twice, and units that lock the same rows do so in the same order.
        let mut by_key: BTreeMap<(String, Option<String>), NewJob> = BTreeMap::new();
        for job in jobs {
            match by_key.entry((job.kind.clone(), job.unique_key())) {
                Entry::Vacant(place) => drop(place.insert(job)),
                Entry::Occupied(mut first) => first.get_mut().lane = first.get().lane.min(job.lane),
            }
        }
        self.unit.insert(Insert {
            into: "jobs (id, tenant_id, kind, lane, state, position, run_at, payload, traceparent, unique_key, created_at)"
                .into(),
            columns: MERGED_COLUMNS,
            rows: by_key.values().enumerate().map(|(ordinal, job): (usize, &NewJob)| {
            let (payload, trace) = (job.payload.clone(), job.traceparent.clone());
            params![job.id, self.tenant, &job.kind, job.lane, payload, trace, job.unique_key(), ordinal]
        }).collect(),
            select: "u.id, u.tenant_id, u.kind, u.lane, 'ready', n.micros + u.ordinal, n.now, u.payload, u.traceparent,
                     u.unique_key, n.now"
                .into(),
            join_where: "cross join (select mailroom_now() as now, mailroom_micros() as micros) n",
            on_conflict: LOCK_EXISTING_JOB.into(),
            batching: InsertBatching::Many,
        });
        let mut lanes: BTreeMap<Lane, Vec<NewJob>> = BTreeMap::new();
        for job in by_key.into_values() {
            lanes.entry(job.lane).or_default().push(job);
        }
        for (lane, jobs) in lanes {
            let kinds: Vec<&str> = jobs.iter().map(|job| &*job.kind).collect();
            let keys: Vec<String> = jobs.iter().filter_map(NewJob::unique_key).collect();
            let ids: Vec<JobId> = jobs.iter().map(|job| job.id).collect();
            // They are locked by now, so their ctids are stable; and they are found by the key alone, whatever the outdated
            // statistics of a table that fills and empties all the time.
            let sql = format!(
                "update jobs set {} where ctid = any(array(
                     select f.row from unnest($2::text[], $3::text[], $4::uuid[]) as g (kind, unique_key, id)
                     cross join lateral (
                         select j.ctid as row, j.id from jobs j where j.tenant_id = $1 and j.kind = g.kind
                         and j.unique_key = g.unique_key and j.state <> 'doomed' offset 0) f
                     where f.id <> g.id))",
                merged(Dialect::Postgres, "mailroom_now()", "$5")
            );
            self.unit.op(sql, params![self.tenant, kinds, keys, ids, lane]);
        }
    }

    fn merge(&mut self, job: &NewJob) {
        let dialect = self.store.dialect();
        let run_at = run_at(dialect, "$5", "$6", "mailroom_now()");
        let sql = format!(
            "update jobs set {} where {EXISTING_JOB} and not {}",
            merged(dialect, &run_at, "$7"),
            failed_parent(dialect, "$1", 8)
        );
        let (at, delay) = job.times();
        let after = job.after.clone();
        self.unit.op(sql, params![self.tenant, &job.kind, job.unique_key(), job.id, at, delay, job.lane, after]);
    }

    fn replace(&mut self, job: &NewJob) {
        let run_at = run_at(self.store.dialect(), "$5", "$6", "mailroom_now()");
        let is_free = "state in ('scheduled', 'ready', 'retry')";
        let sql = format!(
            "update jobs set payload = $8, traceparent = $9, lane = $7, rerun = (rerun or state = 'running'),
                run_at = case when state <> 'running' then {run_at} else run_at end,
                position = case when {is_free} then mailroom_micros() else position end,
                state = case when {is_free} then case when {run_at} > mailroom_now() then 'scheduled' else 'ready' end
                             else state end
             where {EXISTING_JOB} and not {}",
            failed_parent(self.store.dialect(), "$1", 10)
        );
        let (at, delay) = job.times();
        let (payload, trace, after) = (job.payload.clone(), job.traceparent.clone(), job.after.clone());
        let key = job.unique_key();
        let params = params![self.tenant, &job.kind, key, job.id, at, delay, job.lane, payload, trace, after];
        self.unit.op(sql, params);
    }

    fn insert_dependent(&mut self, job: &NewJob) {
        let dialect = self.store.dialect();
        let run_at = run_at(dialect, "$5", "$6", "mailroom_now()");
        let on_conflict = match job.unique {
            Some(_) => LOCK_EXISTING_JOB,
            None => "",
        };
        let failed_parent = failed_parent(dialect, "$2", 11);
        let sql = format!(
            "insert into jobs (id, tenant_id, kind, lane, run_at, payload, traceparent, unique_key, order_key,
                               order_number, is_behind, blockers, position, created_at, state)
             select $1, $2, $3, $4, b.run_at, $7, $8, $9, $10,
                    (select last_number from job_keys where tenant_id = $2 and order_key = $10),
                    b.is_behind, b.parents + case when b.is_behind then 1 else 0 end, mailroom_micros(), mailroom_now(),
                    case when b.is_behind or b.parents > 0 then 'blocked'
                         when b.run_at > mailroom_now() then 'scheduled' else 'ready' end
             from (select {run_at} as run_at,
                          exists (select 1 from jobs where tenant_id = $2 and order_key = $10) as is_behind,
                          (select count(*) from job_edges where tenant_id = $2 and child_id = $1) as parents) b
             where not {failed_parent}
             {on_conflict}"
        );
        let (at, delay) = job.times();
        self.unit.op(
            sql,
            params![
                job.id,
                self.tenant,
                &job.kind,
                job.lane,
                at,
                delay,
                job.payload.clone(),
                job.traceparent.clone(),
                job.unique_key(),
                job.order_key.clone(),
                job.after.clone()
            ],
        );
    }

    /// Adds a job as cancelled, if a parent failed before.
    fn insert_cancelled(&mut self, job: &NewJob) {
        let sql = format!(
            "insert into finished_jobs (id, tenant_id, kind, lane, state, payload, traceparent, token, attempt, abandoned,
                                        reason, unique_key, order_key, created_at, ended_at)
             select $1, $2, $3, $4, 'cancelled', $5, $6, 0, 0, 0, $7, $9, $10, mailroom_now(), mailroom_now() where {}",
            failed_parent(self.store.dialect(), "$2", 8)
        );
        let (payload, trace) = (job.payload.clone(), job.traceparent.clone());
        let (after, unique, order) = (job.after.clone(), job.unique_key(), job.order_key.clone());
        let reason = super::PARENT_FAILED;
        let params = params![job.id, self.tenant, &job.kind, job.lane, payload, trace, reason, after, unique, order];
        self.unit.op(sql, params);
    }
}

/// The existing job with the unique key.
const EXISTING_JOB: &str = "tenant_id = $1 and kind = $2 and unique_key = $3 and id <> $4 and state <> 'doomed'";

/// Changes nothing, but locks the existing job, so that it cannot end before the next statements.
const LOCK_EXISTING_JOB: &str =
    "on conflict (tenant_id, kind, unique_key) where unique_key is not null and state <> 'doomed'
    do update set unique_key = excluded.unique_key";

/// Returns the update that makes the existing job as urgent and as early. Not one that failed or was deferred: it waits out
/// its delay.
fn merged(dialect: Dialect, run_at: &str, lane: &str) -> String {
    let least = match dialect {
        Dialect::Postgres => "least",
        Dialect::Sqlite => "min",
    };
    let is_waiting = "state in ('scheduled', 'blocked')";
    let becomes_ready = format!("state = 'scheduled' and {run_at} <= mailroom_now()");
    format!(
        "lane = {least}(lane, {lane}), rerun = (rerun or state = 'running'),
         run_at = case when {is_waiting} then {least}(run_at, {run_at}) else run_at end,
         position = case when {becomes_ready} then mailroom_micros() else position end,
         state = case when {becomes_ready} then 'ready' else state end"
    )
}

/// Returns the condition that a parent failed: such a job is cancelled at once, and changes no other.
fn failed_parent(dialect: Dialect, tenant: &str, parents: usize) -> String {
    let parents = any(dialect, "id", parents);
    format!(
        "exists (select 1 from finished_jobs where tenant_id = {tenant} and {parents} and state in ('dead', 'cancelled'))"
    )
}

fn run_at(dialect: Dialect, at: &str, delay: &str, now: &str) -> String {
    match dialect {
        // With types, because both may be null.
        Dialect::Postgres => {
            format!("coalesce({at}::timestamptz, {now} + {delay}::int8 * interval '1 millisecond', {now})")
        }
        Dialect::Sqlite => format!("coalesce({at}, {}, {now})", later(dialect, delay)),
    }
}
