//! Claims of jobs: the queues with ready jobs, the share to take of each, and the claim itself.
//!
//! The shares are planned from a plain read, outside of the database, so the plan may be outdated when it is carried out;
//! then the claim finds less, never anything that is not there.

use std::collections::HashMap;

use domain::{JobId, Lane, TenantId, WorkerId};
use jiff::Timestamp;
use serde::Serialize;

use crate::failpoint::Effect;
use crate::sql::any;
use crate::value::Value;
use crate::{Dialect, Row, StoreError, SystemStore, Unit, params};

/// A queue with ready jobs that is not paused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueCandidate {
    pub tenant: TenantId,
    pub lane: Lane,
    pub kind: String,
    pub waiting: u64,
    /// The virtual time of fair queueing: what the tenant has had of its share, in millionths of a job of weight 1.
    pub vtime: i64,
    pub weight: u64,
    /// How many more jobs of the tenant, and of the kind, may run. `None`: unlimited.
    pub tenant_room: Option<u64>,
    pub kind_room: Option<u64>,
}

/// The share of one queue in a claim.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ClaimShare {
    pub tenant: TenantId,
    pub lane: Lane,
    pub kind: String,
    pub take: u64,
    /// What one job costs its tenant, in millionths.
    pub cost: i64,
    /// The tenant's virtual time when the plan was made.
    pub vtime: i64,
    /// Whether the tenant or the kind has a limit, so that claims must go one after the other.
    pub is_limited: bool,
}

/// A job that a worker holds until it is finished, failed or returned.
#[derive(Debug, Clone)]
pub struct ClaimedJob {
    pub tenant: TenantId,
    pub id: JobId,
    pub kind: String,
    pub lane: Lane,
    pub payload: serde_json::Value,
    pub worker: WorkerId,
    pub token: u64,
    /// Attempts spent before this one.
    pub attempt: u64,
    pub traceparent: Option<String>,
    /// It ran in a process that died.
    pub is_suspect: bool,
    pub order_key: Option<String>,
    pub is_unique: bool,
    /// Its position in its queue.
    pub position: i64,
    /// How long it was ready.
    pub waited_micros: i64,
    pub created_at: Timestamp,
    /// What it costs its tenant, in millionths: less where the tenant has more weight.
    pub cost: i64,
}

/// What a job costs a tenant of weight 1.
pub const FULL_COST: i64 = 1_000_000;

/// Queues that are read per lane and claim.
const MAX_CANDIDATES_PER_LANE: u64 = 256;

impl SystemStore {
    /// Adds new jobs to the counts of their queues: a claim sees a job only after that. Does nothing where the database counts
    /// at once.
    pub async fn count_arrivals(&self) -> Result<(), StoreError> {
        self.count_arrivals_since(i64::MAX / 2).await
    }

    /// Counts only recent arrivals. Beside a snapshot that is hours old, all arrivals since are still stored, counted or not: a
    /// frequent caller reads the last of them, and all of them now and then.
    pub async fn count_recent_arrivals(&self) -> Result<(), StoreError> {
        self.count_arrivals_since(RECENT_ARRIVAL_MICROS).await
    }

    async fn count_arrivals_since(&self, micros_ago: i64) -> Result<(), StoreError> {
        if self.store.dialect() == Dialect::Sqlite {
            return Ok(());
        }
        loop {
            let mut unit = Unit::default();
            // Losing this in a crash loses nothing: the rows come back with the counts.
            unit.op("select set_config('synchronous_commit', 'off', true)", vec![]);
            let counted = unit.op_returning(COUNT_ARRIVALS, params![micros_ago, ARRIVALS_PER_COMMIT]);
            let committed = self.commit(unit).await?;
            let counted: u64 = committed.returned(counted).first().map_or(Ok(0), |row| row.get(0))?;
            if counted < ARRIVALS_PER_COMMIT {
                return Ok(());
            }
        }
    }

    /// Resets the heads of queues. Claims skip what is before the head, which is the position of the first waiting job, so there
    /// is nothing before it, unless the database's clock went back: a claim that finds nothing where jobs wait reads the whole
    /// queue.
    pub async fn reset_queue_heads(&self, shares: &[ClaimShare]) -> Result<(), StoreError> {
        if self.store.dialect() == Dialect::Sqlite {
            return Ok(());
        }
        let mut unit = Unit::default();
        unit.op(
            "update job_queues set head = 0 where (tenant_id, lane, kind) in (
                 select * from unnest($1::uuid[], $2::int2[], $3::text[]))",
            vec![
                list_of(shares, |share| share.tenant.into()),
                list_of(shares, |share| share.lane.into()),
                list_of(shares, |share| share.kind.as_str().into()),
            ],
        );
        self.commit(unit).await.map(drop)
    }

    /// Lists for each lane the queues of these kinds that have had least of their share.
    pub async fn list_queue_candidates(&self, kinds: &[String]) -> Result<Vec<QueueCandidate>, StoreError> {
        let rows =
            self.query(candidates(self.store.dialect()), params![kinds.to_vec(), MAX_CANDIDATES_PER_LANE]).await?;
        rows.iter().map(candidate).collect()
    }

    pub async fn claim_jobs(&self, worker: WorkerId, shares: &[ClaimShare]) -> Result<Vec<ClaimedJob>, StoreError> {
        let mut unit = Unit::default();
        let ops = match self.store.dialect() {
            Dialect::Postgres => claim_postgres(&mut unit, worker, shares),
            Dialect::Sqlite => claim_sqlite(&mut unit, worker, shares),
        };
        let committed = self.commit_at(Effect::ClaimJobs, unit).await?;
        let jobs: Result<Vec<ClaimedJob>, StoreError> =
            ops.into_iter().flat_map(|op| committed.returned(op)).map(claimed).collect();
        let mut jobs = jobs?;
        let costs: HashMap<(Lane, TenantId), i64> = shares.iter().map(|s| ((s.lane, s.tenant), s.cost)).collect();
        for job in &mut jobs {
            job.cost = costs.get(&(job.lane, job.tenant)).copied().unwrap_or(FULL_COST);
        }
        // The rows come in any order.
        jobs.sort_by_key(|job| (job.lane, job.position));
        Ok(jobs)
    }
}

/// Age of recent arrivals, in microseconds. Older ones are counted when all of them are.
const RECENT_ARRIVAL_MICROS: i64 = 10_000_000;

/// As many as fit well into one commit.
const ARRIVALS_PER_COMMIT: u64 = 10_000;

/// `$1` is how old they may be, `$2` how many are counted.
const COUNT_ARRIVALS: &str = "
    with taken as (
        delete from job_arrivals where ctid = any(array(
            select ctid from job_arrivals where at >= (select mailroom_micros() - $1::int8)
            order by at limit $2::int8 for update skip locked))
        returning tenant_id, lane, kind, change, oldest),
    summed as (
        select tenant_id, lane, kind, sum(change)::bigint as change,
               coalesce(min(oldest) filter (where change > 0), 9223372036854775807) as oldest
        from taken group by tenant_id, lane, kind),
    at_work as (select lane, kind, min(vtime) as vtime from job_queues where is_active group by lane, kind),
    counted as (
    insert into job_queues as q (tenant_id, lane, kind, waiting, vtime, head, is_active)
    select s.tenant_id, s.lane, s.kind, s.change, coalesce(w.vtime, l.clock), s.oldest, s.change > 0
    from summed s join job_lanes l on l.lane = s.lane left join at_work w on w.lane = s.lane and w.kind = s.kind
    -- Always in this order, so that two who count do not wait for each other.
    order by s.tenant_id, s.lane, s.kind
    on conflict (tenant_id, lane, kind) do update set
        waiting = q.waiting + excluded.waiting,
        is_active = q.waiting + excluded.waiting > 0,
        -- Who comes back from a rest begins where the last of those is that have work of this kind, or else at the lane's
        -- clock: nobody saves up shares.
        vtime = case when q.waiting > 0 then q.vtime else greatest(q.vtime, excluded.vtime) end,
        head = least(q.head, excluded.head))
    select count(*) from taken";

fn list_of(shares: &[ClaimShare], value: fn(&ClaimShare) -> Value) -> Value {
    Value::List(shares.iter().map(value).collect())
}

/// Returns the query for candidates: `$1` are the kinds, `$2` how many. PostgreSQL's is in migrations/each_time/5_claim_jobs.
fn candidates(dialect: Dialect) -> String {
    if dialect == Dialect::Postgres {
        return "select * from mailroom_job_candidates($1::text[], $2::int8)".to_owned();
    }
    // Only what has a limit is counted, and never more runs than there are workers.
    let tenant_room = "case when t.most_running is null then null
                  else t.most_running - (select count(*) from jobs j where j.state = 'running' and j.tenant_id = q.tenant_id) end";
    let kind_room = "case when k.most_running is null then null
                  else k.most_running - (select count(*) from jobs j where j.state = 'running' and j.kind = q.kind) end";
    let kinds = any(dialect, "q.kind", 1);
    format!(
        "select tenant_id, lane, kind, waiting, vtime, weight, tenant_room, kind_room from (
          select *, row_number() over (
              -- Who is at a limit takes no place from others, though its share stays small and it comes first.
              partition by lane, coalesce(tenant_room, 1) > 0 and coalesce(kind_room, 1) > 0
              order by vtime, tenant_id, kind) as place
          from (
            select q.tenant_id, q.lane, q.kind, q.waiting, q.vtime, coalesce(w.weight, 1) as weight,
                   {tenant_room} as tenant_room, {kind_room} as kind_room
            from job_queues q
            join job_lanes l on l.lane = q.lane and not l.is_paused
            left join job_tenants t on t.tenant_id = q.tenant_id
            left join job_kinds k on k.kind = q.kind
            left join tenants n on n.id = q.tenant_id
            left join job_weights w on w.plan_tier = n.plan_tier
            where q.waiting > 0 and {kinds}
              and not coalesce(t.is_paused, false) and not coalesce(k.is_paused, false) and coalesce(n.is_active, true)
          ) open
        ) placed where place <= $2"
    )
}

pub(crate) const CLAIMED_COLUMNS: &str =
    "tenant_id, id, kind, lane, payload, token, attempt, traceparent, suspected > 0,
    order_key, unique_key is not null, mailroom_micros() - position, created_at, worker, position";

fn claim_postgres(unit: &mut Unit, worker: WorkerId, shares: &[ClaimShare]) -> Vec<crate::unit::OpId> {
    let is_limited = shares.iter().any(|share| share.is_limited);
    if is_limited {
        // The next statement counts running jobs, and sees the claims of those that held this lock before.
        unit.op("select pg_advisory_xact_lock(hashtextextended('mailroom job limits', 0))", vec![]);
    }
    let params = vec![
        worker.into(),
        list_of(shares, |share| share.tenant.into()),
        list_of(shares, |share| share.lane.into()),
        list_of(shares, |share| share.kind.as_str().into()),
        list_of(shares, |share| share.take.into()),
        list_of(shares, |share| share.cost.into()),
        list_of(shares, |share| share.vtime.into()),
        is_limited.into(),
    ];
    let claim = "mailroom_claim_jobs($1, $2::uuid[], $3::int8[], $4::text[], $5::int8[], $6::int8[], $7::int8[], $8)";
    vec![unit.op_returning(format!("select {CLAIMED_COLUMNS} from {claim}"), params)]
}

/// Claims by three statements per queue; the second advances the virtual time by what the first took.
fn claim_sqlite(unit: &mut Unit, worker: WorkerId, shares: &[ClaimShare]) -> Vec<crate::unit::OpId> {
    let tenant_room = room_sql("job_tenants where tenant_id = $2", "tenant_id = $2");
    let kind_room = room_sql("job_kinds where kind = $4", "kind = $4");
    let claim = format!(
        "update jobs set state = 'running', token = token + 1, worker = $1, started_at = mailroom_now(), rerun = 0
         where id in (select id from jobs where tenant_id = $2 and lane = $3 and kind = $4 and state = 'ready'
                      order by position, id limit min($5, {tenant_room}, {kind_room}))
         returning {CLAIMED_COLUMNS}"
    );
    let mut claims = Vec::with_capacity(shares.len());
    for share in shares {
        let params = params![worker, share.tenant, share.lane, share.kind.as_str(), share.take];
        claims.push(unit.op_returning(claim.clone(), params));
        unit.op(
            "update job_queues set vtime = max(vtime, $4) + changes() * $3 where tenant_id = $1 and lane = $2",
            params![share.tenant, share.lane, share.cost, share.vtime],
        );
        unit.op("update job_lanes set clock = max(clock, $2) where lane = $1", params![share.lane, share.vtime]);
    }
    claims
}

/// Returns the SQL of how many more jobs may run under a limit; without a limit, as many as are asked for.
fn room_sql(limit: &str, running: &str) -> String {
    format!(
        "coalesce((select max(0, most_running - (select count(*) from jobs where state = 'running' and {running})) from {limit}), $5)"
    )
}

/// Reads how many more may run; below zero counts as none.
fn room(row: &Row, column: usize) -> Result<Option<u64>, StoreError> {
    Ok(row.get::<Option<i64>>(column)?.map(|room| u64::try_from(room).unwrap_or(0)))
}

fn candidate(row: &Row) -> Result<QueueCandidate, StoreError> {
    Ok(QueueCandidate {
        tenant: row.get(0)?,
        lane: row.get(1)?,
        kind: row.get(2)?,
        waiting: row.get(3)?,
        vtime: row.get(4)?,
        weight: row.get(5)?,
        tenant_room: room(row, 6)?,
        kind_room: room(row, 7)?,
    })
}

pub(crate) fn claimed(row: &Row) -> Result<ClaimedJob, StoreError> {
    Ok(ClaimedJob {
        tenant: row.get(0)?,
        id: row.get(1)?,
        kind: row.get(2)?,
        lane: row.get(3)?,
        payload: row.get(4)?,
        token: row.get(5)?,
        attempt: row.get(6)?,
        traceparent: row.get(7)?,
        is_suspect: row.get(8)?,
        order_key: row.get(9)?,
        is_unique: row.get(10)?,
        waited_micros: row.get(11)?,
        created_at: row.get(12)?,
        worker: row.get(13)?,
        position: row.get(14)?,
        cost: FULL_COST,
    })
}
