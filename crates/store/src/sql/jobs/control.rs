//! What a person sets while everything runs: pauses, limits, shares; and the hand on a single job.

use domain::{JobId, JobState, Lane, PlanTier, TenantId};
use serde::Serialize;

use super::Replay;
use crate::failpoint::{self, Effect};
use crate::{Dialect, StoreError, SystemStore, Unit, params};

/// What can be paused as a whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    Lane(Lane),
    Kind(String),
    Tenant(TenantId),
}

/// A change of a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    Keep,
    AtMost(u64),
    Lifted,
}

/// What became of the wish to run a job now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum Retrying {
    /// It waited for its time; now it is ready.
    Due,
    /// It had ended; it starts again, with the same id.
    Replayed,
    /// There is nothing to hurry.
    Not { state: JobState },
}

impl SystemStore {
    /// Whether anything changed.
    pub async fn pause_jobs(&self, target: &Target) -> Result<bool, StoreError> {
        let mut unit = Unit::default();
        let (sql, params) = match target {
            Target::Lane(lane) => {
                ("update job_lanes set is_paused = true where lane = $1 and not is_paused", params![*lane])
            }
            Target::Kind(kind) => (
                "insert into job_kinds (kind, is_paused) values ($1, true)
                 on conflict (kind) do update set is_paused = true where not job_kinds.is_paused",
                params![kind],
            ),
            Target::Tenant(tenant) => (
                "insert into job_tenants (tenant_id, is_paused) values ($1, true)
                 on conflict (tenant_id) do update set is_paused = true where not job_tenants.is_paused",
                params![*tenant],
            ),
        };
        let paused = unit.op(sql, params);
        failpoint::before(Effect::PauseJobs);
        let committed = self.commit(unit).await?;
        failpoint::after(Effect::PauseJobs);
        Ok(committed.changed(paused) > 0)
    }

    /// Whether anything changed.
    pub async fn resume_jobs(&self, target: &Target) -> Result<bool, StoreError> {
        let mut unit = Unit::default();
        catch_up(&mut unit, target);
        let (sql, params) = match target {
            Target::Lane(lane) => {
                ("update job_lanes set is_paused = false where lane = $1 and is_paused", params![*lane])
            }
            Target::Kind(kind) => {
                ("update job_kinds set is_paused = false where kind = $1 and is_paused", params![kind])
            }
            Target::Tenant(tenant) => {
                ("update job_tenants set is_paused = false where tenant_id = $1 and is_paused", params![*tenant])
            }
        };
        let resumed = unit.op(sql, params);
        failpoint::before(Effect::ResumeJobs);
        let committed = self.commit(unit).await?;
        failpoint::after(Effect::ResumeJobs);
        Ok(committed.changed(resumed) > 0)
    }

    /// How many jobs of a tenant may run at once, and how many may wait before it is refused more.
    pub async fn limit_tenant(&self, tenant: TenantId, running: Limit, waiting: Limit) -> Result<(), StoreError> {
        let mut unit = Unit::default();
        catch_up(&mut unit, &Target::Tenant(tenant));
        unit.op("insert into job_tenants (tenant_id) values ($1) on conflict (tenant_id) do nothing", params![tenant]);
        for (column, limit) in [("most_running", running), ("most_waiting", waiting)] {
            if let Some(most) = limit.value() {
                unit.op(format!("update job_tenants set {column} = $2 where tenant_id = $1"), params![tenant, most]);
            }
        }
        self.set(unit).await
    }

    /// How many jobs of a kind may run at once, whosever they are.
    pub async fn limit_kind(&self, kind: &str, running: Limit) -> Result<(), StoreError> {
        let Some(most) = running.value() else { return Ok(()) };
        let mut unit = Unit::default();
        catch_up(&mut unit, &Target::Kind(kind.to_owned()));
        unit.op(
            "insert into job_kinds (kind, most_running) values ($1, $2)
             on conflict (kind) do update set most_running = excluded.most_running",
            params![kind, most],
        );
        self.set(unit).await
    }

    /// How large a share the tenants of a plan get, from 1 to 1000.
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
        failpoint::before(Effect::LimitJobs);
        self.commit(unit).await?;
        failpoint::after(Effect::LimitJobs);
        Ok(())
    }

    /// `false`: it is not live, or it is in that lane already. One that runs goes on; its next attempt is in that lane.
    pub async fn move_job(&self, tenant: TenantId, id: JobId, lane: Lane) -> Result<bool, StoreError> {
        let mut unit = Unit::default();
        let moved = unit
            .op("update jobs set lane = $3 where tenant_id = $1 and id = $2 and lane <> $3", params![tenant, id, lane]);
        failpoint::before(Effect::MoveJob);
        let committed = self.commit(unit).await?;
        failpoint::after(Effect::MoveJob);
        Ok(committed.changed(moved) > 0)
    }

    /// A job that waits for its time is due at once; one that is dead or was cancelled starts again. `None`: there is no
    /// such job.
    pub async fn retry_now(&self, id: JobId) -> Result<Option<Retrying>, StoreError> {
        let Some(job) = self.find_job(id).await? else { return Ok(None) };
        if matches!(job.state, JobState::Dead | JobState::Cancelled)
            && self.replay_one(job.tenant_id, id, &Replay::default()).await?
        {
            return Ok(Some(Retrying::Replayed));
        }
        let mut unit = Unit::default();
        let due = unit.op(
            "update jobs set state = 'ready', run_at = mailroom_now(), position = mailroom_micros()
             where tenant_id = $1 and id = $2 and state in ('scheduled', 'retry')",
            params![job.tenant_id, id],
        );
        failpoint::before(Effect::RetryJob);
        let committed = self.commit(unit).await?;
        failpoint::after(Effect::RetryJob);
        Ok(Some(match committed.changed(due) {
            0 => Retrying::Not { state: job.state },
            _ => Retrying::Due,
        }))
    }
}

impl Limit {
    /// `None`: as it is. `Some(None)`: none any more.
    fn value(self) -> Option<Option<u64>> {
        match self {
            Self::Keep => None,
            Self::AtMost(most) => Some(Some(most)),
            Self::Lifted => Some(None),
        }
    }
}

/// Who was held up begins where the others are: nobody saves up shares.
pub(crate) fn catch_up(unit: &mut Unit, target: &Target) {
    let (column, value) = match target {
        Target::Lane(lane) => ("lane", (*lane).into()),
        Target::Kind(kind) => ("kind", kind.into()),
        Target::Tenant(tenant) => ("tenant_id", (*tenant).into()),
    };
    let clock = "(select l.clock from job_lanes l where l.lane = job_queues.lane)";
    unit.op(format!("update job_queues set vtime = {clock} where {column} = $1 and vtime < {clock}"), vec![value]);
}

/// What runs for a tenant that is switched off does not get to end: whatever it has done by then is refused, and its worker
/// gives it back. Of what is claimed at the same moment, either the claim is waited for and seen here, or whoever claimed
/// it sees that the tenant is off.
pub(crate) fn disown_running(unit: &mut Unit, dialect: Dialect, tenant: TenantId) {
    if dialect == Dialect::Postgres {
        // Claims hold the queues that they take from.
        let queues = "select 1 from job_queues where tenant_id = $1 order by lane, kind for no key update";
        unit.op(queues, params![tenant]);
    }
    unit.op("update jobs set token = token + 1 where tenant_id = $1 and state = 'running'", params![tenant]);
}
