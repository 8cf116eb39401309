//! Kinds of waiting jobs that no live worker has registered. While versions run side by side, a process that knows the kind may
//! start at any moment; if none does for long, its jobs become dead letters that name it.

use std::time::Duration;

use domain::{JobId, TenantId};
use futures_util::{StreamExt, TryStreamExt, stream};

use super::finish::{MAX_CONCURRENT_COMMITS, finish_one};
use super::release::lock_key;
use super::{JobEnd, later};
use crate::failpoint::Effect;
use crate::sql::any;
use crate::{Dialect, StoreError, SystemStore, Unit, params};

/// Jobs that are read at once.
const JOBS_PER_READ: u64 = 500;

impl SystemStore {
    /// Makes dead letters of jobs that have been ready for so long, of kinds that no live worker has registered for so long.
    /// Returns how many of each kind. Only what calls of this have seen counts: while no process was there, nobody missed any.
    pub async fn give_up_unregistered_jobs(&self, patience: Duration) -> Result<Vec<(String, u64)>, StoreError> {
        self.record_unregistered_kinds().await?;
        let sql = format!(
            "select kind from unregistered_job_kinds where since <= (select {}) order by kind",
            later(self.store.dialect(), "$1")
        );
        let mut given_up = Vec::new();
        for row in self.query(sql, params![-millis(patience)]).await? {
            let kind: String = row.get(0)?;
            let jobs = self.dead_letter_jobs_of_kind(&kind, patience).await?;
            given_up.extend((jobs > 0).then_some((kind, jobs)));
        }
        if !given_up.is_empty() {
            self.store.notifications.notify_local();
        }
        Ok(given_up)
    }

    /// Records which kinds of waiting jobs no live worker has registered; those that were recorded before keep their time.
    async fn record_unregistered_kinds(&self) -> Result<(), StoreError> {
        let kinds: Vec<String> = self.list_kinds_without_worker().await?.into_iter().map(|(kind, _)| kind).collect();
        let others = match self.store.dialect() {
            // An empty list goes over as null.
            Dialect::Postgres => "not coalesce(kind = any($1), false)",
            Dialect::Sqlite => "kind not in (select value from json_each($1))",
        };
        let mut unit = Unit::default();
        unit.op(format!("delete from unregistered_job_kinds where {others}"), params![kinds.clone()]);
        for kind in kinds {
            unit.op(
                "insert into unregistered_job_kinds (kind, since) values ($1, mailroom_now()) on conflict do nothing",
                params![kind],
            );
        }
        self.commit(unit).await.map(drop)
    }

    async fn dead_letter_jobs_of_kind(&self, kind: &str, patience: Duration) -> Result<u64, StoreError> {
        // By queues, for which there is an index over ready jobs.
        let sql = "select j.tenant_id, j.id, j.order_key from job_queues q
                   join jobs j on j.tenant_id = q.tenant_id and j.lane = q.lane and j.kind = q.kind and j.state = 'ready'
                   where q.kind = $1 and q.waiting > 0 and j.position <= mailroom_micros() - $2 limit $3";
        let micros = i64::try_from(patience.as_micros()).unwrap_or(i64::MAX);
        let mut moved = 0;
        loop {
            let rows = self.query(sql, params![kind, micros, JOBS_PER_READ]).await?;
            let jobs: Vec<WaitingJob> = rows
                .iter()
                .map(|row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
                .collect::<Result<_, StoreError>>()?;
            let ended = stream::iter(jobs).map(|job| self.dead_letter_unregistered(kind, patience, job));
            let ended: u64 = ended
                .buffer_unordered(MAX_CONCURRENT_COMMITS)
                .try_fold(0, |sum, ended| async move { Ok(sum + ended) })
                .await?;
            moved += ended;
            // None: a process that knows the kind has started meanwhile.
            if ended == 0 {
                return Ok(moved);
            }
        }
    }

    async fn dead_letter_unregistered(
        &self,
        kind: &str,
        patience: Duration,
        (tenant, id, order_key): WaitingJob,
    ) -> Result<u64, StoreError> {
        let hours = patience.as_secs() / 3600;
        let reason =
            format!("no process has known the kind {kind} for {hours} hours; start one that does, then replay the job");
        let fingerprint = format!("unregistered {kind}");
        let end = JobEnd::Dead { reason: &reason, error_class: "unregistered", fingerprint: &fingerprint };
        let mut unit = Unit::default();
        if let Some(key) = &order_key {
            lock_key(&mut unit, tenant, key);
        }
        let job = (tenant, id, order_key.as_deref());
        let moved = finish_one(&mut unit, self.store.dialect(), job, end, STILL_UNREGISTERED, None);
        Ok(self.commit_at(Effect::ParkJob, unit).await?.changed(moved))
    }
}

/// Deletes these kinds, which a worker registers, from the unregistered ones.
pub(super) fn forget_unregistered(unit: &mut Unit, dialect: Dialect, kinds: &[String]) {
    if !kinds.is_empty() {
        let sql = format!("delete from unregistered_job_kinds where {}", any(dialect, "kind", 1));
        unit.op(sql, params![kinds.to_vec()]);
    }
}

/// Tenant, id and ordering key.
type WaitingJob = (TenantId, JobId, Option<String>);

/// Of a job `j`: it still waits for a worker of its kind.
const STILL_UNREGISTERED: &str =
    "j.state = 'ready' and exists (select 1 from unregistered_job_kinds u where u.kind = j.kind)";

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}
