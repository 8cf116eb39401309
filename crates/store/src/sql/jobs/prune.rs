//! Prunes old job history, in batches.

use std::time::Duration;

use domain::{JobId, TenantId};
use serde::Serialize;

use super::dead_letters::delete_finished;
use super::later;
use crate::failpoint::Effect;
use crate::{Row, StoreError, SystemStore, Unit, Value};

/// How long finished jobs are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JobRetention {
    /// Done and cancelled jobs, and workers that are gone.
    pub finished: Duration,
    /// Dead letters, which people may want to replay.
    pub dead: Duration,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct PruneReport {
    pub jobs: u64,
    pub workers: u64,
    /// Counters of empty queues.
    pub queues: u64,
    /// There may be more to prune.
    pub is_more: bool,
}

/// As many as fit well into one commit.
const PRUNE_BATCH_JOBS: u64 = 5000;

impl SystemStore {
    /// Prunes one batch of each. Call it again while there is more.
    pub async fn prune_jobs(&self, keep: JobRetention) -> Result<PruneReport, StoreError> {
        let finished = self.prune_finished("state <> 'dead'", keep.finished).await?;
        let dead = self.prune_finished("state = 'dead'", keep.dead).await?;
        let mut unit = Unit::default();
        let workers = unit.op(
            format!(
                "delete from job_workers where gone_at < {}
                 and not exists (select 1 from jobs j where j.worker = job_workers.id and j.state = 'running')",
                later(self.store.dialect(), "$1")
            ),
            vec![back(keep.finished)],
        );
        // Behind its lane's clock, where it would begin again anyway.
        let queues = unit.op(
            "delete from job_queues where waiting = 0
             and vtime <= (select l.clock from job_lanes l where l.lane = job_queues.lane)
             and not exists (select 1 from jobs j where j.tenant_id = job_queues.tenant_id and j.lane = job_queues.lane
                             and j.kind = job_queues.kind and j.state = 'ready')",
            vec![],
        );
        let committed = self.commit_at(Effect::PruneQueues, unit).await?;
        Ok(PruneReport {
            jobs: finished + dead,
            workers: committed.changed(workers),
            queues: committed.changed(queues),
            is_more: finished.max(dead) >= PRUNE_BATCH_JOBS,
        })
    }

    async fn prune_finished(&self, condition: &str, keep: Duration) -> Result<u64, StoreError> {
        let old = format!("ended_at < (select {})", later(self.store.dialect(), "$1"));
        let sql = format!("select tenant_id, id from finished_jobs where {old} and {condition} limit $2");
        let rows = self.query(sql, vec![back(keep), PRUNE_BATCH_JOBS.into()]).await?;
        let jobs: Vec<(TenantId, JobId)> =
            rows.iter().map(|row: &Row| Ok((row.get(0)?, row.get(1)?))).collect::<Result<_, StoreError>>()?;
        if jobs.is_empty() {
            return Ok(0);
        }
        let mut unit = Unit::default();
        let deleted = delete_finished(&mut unit, self.store.dialect(), &jobs, condition);
        let committed = self.commit_at(Effect::PruneJobs, unit).await?;
        Ok(committed.changed(deleted))
    }
}

/// Returns a negative number of milliseconds.
fn back(duration: Duration) -> Value {
    Value::Int(-i64::try_from(duration.as_millis()).unwrap_or(i64::MAX))
}
