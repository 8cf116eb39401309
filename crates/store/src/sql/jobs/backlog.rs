//! The backlog: how much waits and for how long, without counting jobs: `job_queues` has a row per tenant, lane and kind. And
//! stray jobs, which nothing will ever run.

use std::time::Duration;

use domain::{Lane, TenantId};
use serde::Serialize;

use crate::sql::any;
use crate::{Dialect, Row, StoreError, SystemStore, Value, params};

/// The backlog of a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct LaneDepth {
    pub lane: Lane,
    pub waiting: u64,
    /// How long the first of them has been ready.
    pub oldest_micros: u64,
}

/// The backlog of one tenant in a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct TenantDepth {
    pub tenant_id: TenantId,
    pub lane: Lane,
    pub waiting: u64,
    pub oldest_micros: u64,
}

/// Limits of a tenant's backlog beyond which producers of its jobs should hold back. Jobs that cannot run do not count,
/// because their tenant or kind is paused or at its limit, or no live worker knows their kind: to wait would not help.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BacklogLimits {
    pub slow_waiting: u64,
    pub stop_waiting: u64,
    pub slow_age: Duration,
    pub stop_age: Duration,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum BacklogVerdict {
    Slow { why: String },
    Stop { why: String },
}

impl BacklogVerdict {
    pub fn is_slow(&self) -> bool {
        matches!(self, Self::Slow { .. })
    }

    pub fn why(&self) -> &str {
        match self {
            Self::Slow { why } | Self::Stop { why } => why,
        }
    }
}

/// A tenant whose backlog is beyond a limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TenantBacklog {
    pub tenant: TenantId,
    pub verdict: BacklogVerdict,
}

/// Counts of jobs that nothing will run. Each must be 0, apart from moments: a sweep resolves the last two within seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct UnrunnableJobCounts {
    /// Blocked, but not by as many jobs as they record.
    pub blocked: u64,
    /// Queues with ready jobs whose count is zero.
    pub uncounted: u64,
    /// Running on a worker that is gone.
    pub orphaned: u64,
    /// To be cancelled because a parent failed.
    pub doomed: u64,
}

impl UnrunnableJobCounts {
    pub fn total(&self) -> u64 {
        self.blocked + self.uncounted + self.orphaned + self.doomed
    }
}

impl SystemStore {
    /// Returns the backlog of every lane, also of empty ones.
    pub async fn lane_depths(&self) -> Result<Vec<LaneDepth>, StoreError> {
        let depths = self.depths("true", params![]).await?;
        Ok(Lane::ALL.into_iter().map(|lane| sum(lane, &depths)).collect())
    }

    /// Returns the backlogs of tenants that have one.
    pub async fn tenant_depths(&self) -> Result<Vec<TenantDepth>, StoreError> {
        self.depths("true", params![]).await
    }

    /// Lists the tenants of whom a lane should not take as many jobs as usual. One tenant's backlog holds up no other.
    pub async fn list_backlogs(&self, lane: Lane, limits: &BacklogLimits) -> Result<Vec<TenantBacklog>, StoreError> {
        let kinds: Vec<String> = self.list_registered_kinds().await?.into_iter().collect();
        let can_run = format!("{CAN_MOVE} and {}", any(self.store.dialect(), "q.kind", 1));
        let depths = self.depths(&can_run, params![kinds]).await?;
        let depths = depths.into_iter().filter(|depth| depth.lane == lane);
        Ok(depths
            .filter_map(|depth| Some(TenantBacklog { tenant: depth.tenant_id, verdict: check_limits(depth, limits)? }))
            .collect())
    }

    pub async fn count_dead_letters(&self) -> Result<u64, StoreError> {
        self.number("select count(*) from finished_jobs where state = 'dead'").await
    }

    /// Lists the kinds of waiting jobs that no running worker handles, with the number of those jobs. A newer version may
    /// have enqueued them, so they are left alone for a day; see [`SystemStore::give_up_unregistered_jobs`].
    pub async fn list_kinds_without_worker(&self) -> Result<Vec<(String, u64)>, StoreError> {
        let known = self.list_registered_kinds().await?;
        let sql =
            "select kind, cast(sum(waiting) as bigint) from job_queues where waiting > 0 group by kind order by kind";
        let rows = self.query(sql, vec![]).await?;
        let waiting =
            rows.iter().map(|row| Ok((row.get(0)?, row.get(1)?))).collect::<Result<Vec<(String, u64)>, _>>()?;
        Ok(waiting.into_iter().filter(|(kind, _)| !known.contains(kind)).collect())
    }

    /// Looks at every queue and at every job that is blocked or runs.
    pub async fn count_strays(&self) -> Result<UnrunnableJobCounts, StoreError> {
        Ok(UnrunnableJobCounts {
            blocked: self.number(BLOCKED).await?,
            uncounted: self.number(&uncounted(self.store.dialect())).await?,
            orphaned: self.number(ORPHANED).await?,
            doomed: self.number("select count(*) from jobs where state = 'doomed'").await?,
        })
    }

    async fn number(&self, sql: &str) -> Result<u64, StoreError> {
        self.query_one(sql, vec![]).await?.map_or(Ok(0), |row| row.get(0))
    }

    async fn depths(&self, condition: &str, params: Vec<Value>) -> Result<Vec<TenantDepth>, StoreError> {
        let sql = format!(
            "with counts as ({})
             select c.tenant_id, c.lane, cast(sum(c.waiting) as bigint), cast(mailroom_micros() as bigint) - min(c.first)
             from (select q.tenant_id, q.lane, q.kind, q.waiting,
                          (select j.position from jobs j
                           where j.tenant_id = q.tenant_id and j.lane = q.lane and j.kind = q.kind and j.state = 'ready'
                             and j.position >= q.head order by j.position limit 1) as first
                   from counts q where q.waiting > 0 and {condition}) c
             group by c.tenant_id, c.lane order by c.lane, c.tenant_id",
            counts(self.store.dialect())
        );
        self.query(sql, params)
            .await?
            .iter()
            .map(|row: &Row| {
                Ok(TenantDepth {
                    tenant_id: row.get(0)?,
                    lane: row.get(1)?,
                    waiting: row.get(2)?,
                    // The clock that made the position may have been a little ahead of the one that reads it.
                    oldest_micros: row.get::<Option<i64>>(3)?.map_or(0, |age| u64::try_from(age).unwrap_or(0)),
                })
            })
            .collect()
    }
}

/// Returns the query for depths by tenant, lane and kind, with arrivals that are not counted yet, and the head of each queue.
fn counts(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::Postgres => {
            "select tenant_id, lane, kind, sum(waiting) as waiting, coalesce(min(head), 0) as head
             from (select tenant_id, lane, kind, waiting, head from job_queues where waiting <> 0
                   union all
                   select tenant_id, lane, kind, change, case when change > 0 then oldest end from job_arrivals) both_of
             group by tenant_id, lane, kind"
        }
        Dialect::Sqlite => "select tenant_id, lane, kind, waiting, 0 as head from job_queues where waiting > 0",
    }
}

/// Of a queue `q`: it is neither paused nor at a limit.
const CAN_MOVE: &str = "
    not exists (select 1 from job_lanes l where l.lane = q.lane and l.is_paused)
    and not exists (select 1 from tenants n where n.id = q.tenant_id and not n.is_active)
    and not exists (select 1 from job_tenants t where t.tenant_id = q.tenant_id and (t.is_paused or t.most_running <=
        (select count(*) from jobs r where r.state = 'running' and r.tenant_id = t.tenant_id)))
    and not exists (select 1 from job_kinds k where k.kind = q.kind and (k.is_paused or k.most_running <=
        (select count(*) from jobs r where r.state = 'running' and r.kind = k.kind)))";

/// Jobs whose blocker count does not match their live parents and the job before them in the order of their key.
const BLOCKED: &str = "
    select count(*) from jobs j where j.state = 'blocked' and j.parked_on is null and (
        j.blockers <= 0
        or j.blockers <> case when j.is_behind then 1 else 0 end + (
            select count(*) from job_edges e join jobs p on p.tenant_id = e.tenant_id and p.id = e.parent_id
            where e.tenant_id = j.tenant_id and e.child_id = j.id)
        or (j.is_behind and not exists (
            select 1 from jobs h
            where h.tenant_id = j.tenant_id and h.order_key = j.order_key and h.order_number < j.order_number)))";

const ORPHANED: &str = "
    select count(*) from jobs j where j.state = 'running'
    and not exists (select 1 from job_workers w where w.id = j.worker and w.gone_at is null)";

fn uncounted(dialect: Dialect) -> String {
    let ready = "exists (select 1 from jobs j where j.tenant_id = q.tenant_id and j.lane = q.lane and j.kind = q.kind
                             and j.state = 'ready')";
    match dialect {
        Dialect::Postgres => format!(
            "with arrived as (
                 select tenant_id, lane, kind, sum(change) as change from job_arrivals group by tenant_id, lane, kind)
             select count(*) from job_queues q
             left join arrived a on a.tenant_id = q.tenant_id and a.lane = q.lane and a.kind = q.kind
             where (q.waiting > 0 and not q.is_active) or (q.waiting + coalesce(a.change, 0) <= 0 and {ready})"
        ),
        Dialect::Sqlite => format!("select count(*) from job_queues q where q.waiting <= 0 and {ready}"),
    }
}

fn sum(lane: Lane, depths: &[TenantDepth]) -> LaneDepth {
    let depths = depths.iter().filter(|depth| depth.lane == lane);
    depths.fold(LaneDepth { lane, waiting: 0, oldest_micros: 0 }, |sum, depth| LaneDepth {
        lane,
        waiting: sum.waiting + depth.waiting,
        oldest_micros: sum.oldest_micros.max(depth.oldest_micros),
    })
}

fn check_limits(depth: TenantDepth, limits: &BacklogLimits) -> Option<BacklogVerdict> {
    if let Some(why) = excess(depth, limits.stop_waiting, limits.stop_age) {
        return Some(BacklogVerdict::Stop { why });
    }
    excess(depth, limits.slow_waiting, limits.slow_age).map(|why| BacklogVerdict::Slow { why })
}

/// Returns which of the limits a backlog reaches, as a sentence.
fn excess(depth: TenantDepth, max_waiting: u64, max_age: Duration) -> Option<String> {
    let (lane, waiting) = (depth.lane.as_str(), depth.waiting);
    let age = Duration::from_micros(depth.oldest_micros);
    if waiting >= max_waiting {
        return Some(format!("{waiting} jobs wait in lane {lane}, limit {max_waiting}"));
    }
    (age >= max_age)
        .then(|| format!("the oldest job in lane {lane} has waited {} s, limit {} s", age.as_secs(), max_age.as_secs()))
}
