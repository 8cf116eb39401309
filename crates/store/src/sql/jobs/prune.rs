//! History that is old enough leaves, in batches.

use std::time::Duration;

use domain::{JobId, TenantId};
use serde::Serialize;

use super::dead::delete_finished;
use super::later;
use crate::failpoint::{self, Effect};
use crate::{Row, StoreError, SystemStore, Unit, Value};

/// How long what ended is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeepFor {
    /// Done and cancelled jobs, and processes that are gone.
    pub finished: Duration,
    /// Dead letters: somebody may want to replay them.
    pub dead: Duration,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Pruned {
    pub jobs: u64,
    pub workers: u64,
    /// Counts of queues in which nothing waits.
    pub queues: u64,
    /// There may be more that is old enough.
    pub is_more: bool,
}

/// As many as fit well into one commit.
const BATCH: u64 = 5000;

impl SystemStore {
    /// One batch of each. Call it again while there is more.
    pub async fn prune_jobs(&self, keep: KeepFor) -> Result<Pruned, StoreError> {
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
        failpoint::before(Effect::PruneQueues);
        let committed = self.commit(unit).await?;
        failpoint::after(Effect::PruneQueues);
        Ok(Pruned {
            jobs: finished + dead,
            workers: committed.changed(workers),
            queues: committed.changed(queues),
            is_more: finished.max(dead) >= BATCH,
        })
    }

    async fn prune_finished(&self, condition: &str, keep: Duration) -> Result<u64, StoreError> {
        let old = format!("ended_at < (select {})", later(self.store.dialect(), "$1"));
        let sql = format!("select tenant_id, id from finished_jobs where {old} and {condition} limit $2");
        let rows = self.query(sql, vec![back(keep), BATCH.into()]).await?;
        let key = |row: &Row| Ok((row.get(0)?, row.get(1)?));
        let jobs: Vec<(TenantId, JobId)> = rows.iter().map(key).collect::<Result<_, StoreError>>()?;
        if jobs.is_empty() {
            return Ok(0);
        }
        let mut unit = Unit::default();
        let deleted = delete_finished(&mut unit, self.store.dialect(), &jobs, condition);
        failpoint::before(Effect::PruneJobs);
        let committed = self.commit(unit).await?;
        failpoint::after(Effect::PruneJobs);
        Ok(committed.changed(deleted))
    }
}

/// So many milliseconds ago.
fn back(duration: Duration) -> Value {
    Value::Int(-i64::try_from(duration.as_millis()).unwrap_or(i64::MAX))
}
