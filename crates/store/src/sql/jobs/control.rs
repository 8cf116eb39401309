//! Controls for operators: pauses, limits, weights; and changes of a single job.

use domain::{JobId, JobState, Lane, PlanTier, TenantId};
use serde::Serialize;

use super::ReplayOptions;
use crate::failpoint::Effect;
use crate::{Dialect, StoreError, SystemStore, Unit, params};

/// The jobs that a pause applies to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JobScope {
    Lane(Lane),
    Kind(String),
    Tenant(TenantId),
}

/// A change of a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LimitChange {
    Keep,
    AtMost(u64),
    Unlimited,
}

/// The result of running a job now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum RetryOutcome {
    /// It was not due; now it is ready.
    Due,
    /// It had ended; it starts again, with the same id.
    Replayed,
    /// It is in a state in which this changes nothing.
    Not { state: JobState },
}

impl SystemStore {
    /// Pauses jobs; returns whether anything changed.
    pub async fn pause_jobs(&self, target: &JobScope) -> Result<bool, StoreError> {
        let mut unit = Unit::default();
        let (sql, params) = match target {
            JobScope::Lane(lane) => {
                ("update job_lanes set is_paused = true where lane = $1 and not is_paused", params![*lane])
            }
            JobScope::Kind(kind) => (
                "insert into job_kinds (kind, is_paused) values ($1, true)
                 on conflict (kind) do update set is_paused = true where not job_kinds.is_paused",
                params![kind],
            ),
            JobScope::Tenant(tenant) => (
                "insert into job_tenants (tenant_id, is_paused) values ($1, true)
                 on conflict (tenant_id) do update set is_paused = true where not job_tenants.is_paused",
                params![*tenant],
            ),
        };
        let paused = unit.op(sql, params);
        let committed = self.commit_at(Effect::PauseJobs, unit).await?;
        Ok(committed.changed(paused) > 0)
    }

    /// Resumes jobs; returns whether anything changed.
    pub async fn resume_jobs(&self, target: &JobScope) -> Result<bool, StoreError> {
        let mut unit = Unit::default();
        catch_up_shares(&mut unit, target);
        let (sql, params) = match target {
            JobScope::Lane(lane) => {
                ("update job_lanes set is_paused = false where lane = $1 and is_paused", params![*lane])
            }
            JobScope::Kind(kind) => {
                ("update job_kinds set is_paused = false where kind = $1 and is_paused", params![kind])
            }
            JobScope::Tenant(tenant) => {
                ("update job_tenants set is_paused = false where tenant_id = $1 and is_paused", params![*tenant])
            }
        };
        let resumed = unit.op(sql, params);
        let committed = self.commit_at(Effect::ResumeJobs, unit).await?;
        Ok(committed.changed(resumed) > 0)
    }

    /// Sets how many jobs of a tenant may run at once, and how many may wait before more are refused.
    pub async fn limit_tenant(
        &self,
        tenant: TenantId,
        running: LimitChange,
        waiting: LimitChange,
    ) -> Result<(), StoreError> {
        let mut unit = Unit::default();
        catch_up_shares(&mut unit, &JobScope::Tenant(tenant));
        unit.op("insert into job_tenants (tenant_id) values ($1) on conflict (tenant_id) do nothing", params![tenant]);
        for (column, limit) in [("most_running", running), ("most_waiting", waiting)] {
            if let Some(most) = limit.value() {
                unit.op(format!("update job_tenants set {column} = $2 where tenant_id = $1"), params![tenant, most]);
            }
        }
        self.set(unit).await
    }

    /// Sets how many jobs of a kind may run at once, over all tenants.
    pub async fn limit_kind(&self, kind: &str, running: LimitChange) -> Result<(), StoreError> {
        let Some(most) = running.value() else { return Ok(()) };
        let mut unit = Unit::default();
        catch_up_shares(&mut unit, &JobScope::Kind(kind.to_owned()));
        unit.op(
            "insert into job_kinds (kind, most_running) values ($1, $2)
             on conflict (kind) do update set most_running = excluded.most_running",
            params![kind, most],
        );
        self.set(unit).await
    }

    /// Sets the weight of a plan's tenants in fair claims, from 1 to 1000.
    pub async fn set_weight(&self, plan: PlanTier, weight: u64) -> Result<(), StoreError> {
        let mut unit = Unit::default();
        unit.op(
            "insert into job_weights (plan_tier, weight) values ($1, $2)
             on conflict (plan_tier) do update set weight = excluded.weight",
            params![plan, weight],
        );
        self.set(unit).await
    }

    async fn set(&self, unit: Unit) -> Result<(), StoreError> {
        self.commit_at(Effect::LimitJobs, unit).await?;
        Ok(())
    }

    /// Moves a job to another lane. Returns `false` if it is not live, or in that lane already. A running job goes on; its next
    /// attempt is in that lane.
    pub async fn move_job(&self, tenant: TenantId, id: JobId, lane: Lane) -> Result<bool, StoreError> {
        let mut unit = Unit::default();
        let moved = unit
            .op("update jobs set lane = $3 where tenant_id = $1 and id = $2 and lane <> $3", params![tenant, id, lane]);
        let committed = self.commit_at(Effect::MoveJob, unit).await?;
        Ok(committed.changed(moved) > 0)
    }

    /// Runs a job now: one that is not due becomes ready; one that is dead or cancelled starts again. Returns `None` if there is
    /// no such job.
    pub async fn retry_now(&self, id: JobId) -> Result<Option<RetryOutcome>, StoreError> {
        let Some(job) = self.find_job(id).await? else { return Ok(None) };
        if matches!(job.state, JobState::Dead | JobState::Cancelled)
            && self.replay_one(job.tenant_id, id, &ReplayOptions::default()).await?
        {
            return Ok(Some(RetryOutcome::Replayed));
        }
        let mut unit = Unit::default();
        let due = unit.op(
            "update jobs set state = 'ready', run_at = mailroom_now(), position = mailroom_micros()
             where tenant_id = $1 and id = $2 and state in ('scheduled', 'retry')",
            params![job.tenant_id, id],
        );
        let committed = self.commit_at(Effect::RetryJob, unit).await?;
        Ok(Some(match committed.changed(due) {
            0 => RetryOutcome::Not { state: job.state },
            _ => RetryOutcome::Due,
        }))
    }
}

impl LimitChange {
    /// Returns the new limit. `None`: unchanged. `Some(None)`: no limit.
    fn value(self) -> Option<Option<u64>> {
        match self {
            Self::Keep => None,
            Self::AtMost(most) => Some(Some(most)),
            Self::Unlimited => Some(None),
        }
    }
}

/// Moves the virtual time of queues that were paused to that of the others, so that they have saved up no share.
pub(crate) fn catch_up_shares(unit: &mut Unit, target: &JobScope) {
    let (column, value) = match target {
        JobScope::Lane(lane) => ("lane", (*lane).into()),
        JobScope::Kind(kind) => ("kind", kind.into()),
        JobScope::Tenant(tenant) => ("tenant_id", (*tenant).into()),
    };
    let clock = "(select l.clock from job_lanes l where l.lane = job_queues.lane)";
    unit.op(format!("update job_queues set vtime = {clock} where {column} = $1 and vtime < {clock}"), vec![value]);
}

/// Revokes the running jobs of a deactivated tenant: their tokens grow, so that their results are refused and their workers
/// return them. Of a concurrent claim, either it is waited for and seen here, or its worker sees that the tenant is inactive.
pub(crate) fn revoke_running_jobs(unit: &mut Unit, dialect: Dialect, tenant: TenantId) {
    if dialect == Dialect::Postgres {
        // Claims hold the queues that they take from.
        let queues = "select 1 from job_queues where tenant_id = $1 order by lane, kind for no key update";
        unit.op(queues, params![tenant]);
    }
    unit.op("update jobs set token = token + 1 where tenant_id = $1 and state = 'running'", params![tenant]);
}
