//! Claims in FIFO order, whichever tenants the jobs belong to: what the fair claim of workers is compared with. No worker
//! claims like this.

use domain::{JobId, Lane, TenantId, WorkerId};

use super::run_statements;
use crate::sql::any;
use crate::sql::jobs::ClaimedJob;
use crate::sql::jobs::claim::{CLAIMED_COLUMNS, claimed};
use crate::{Dialect, StoreError, SystemStore, Unit, Value, params};

/// Where the next FIFO claim begins to look, so that it does not meet again what the last one took.
#[derive(Debug, Clone, Copy, Default)]
pub struct FifoCursor(Option<(Lane, i64)>);

impl FifoCursor {
    fn after(self, claimed: impl Iterator<Item = (Lane, i64)>) -> Self {
        Self(claimed.max().or(self.0))
    }

    fn values(self) -> (Lane, i64) {
        self.0.unwrap_or((Lane::Critical, 0))
    }
}

/// The definition of the index that fair claims need, kept while the FIFO index is in its place.
#[derive(Debug)]
pub struct FairIndexDefinition(String);

/// A job that was claimed without reading what it is about.
#[derive(Debug, Clone, Copy)]
pub struct JobRef {
    pub tenant: TenantId,
    pub id: JobId,
}

/// Puts an index for FIFO order in place of that for fair shares, so that neither pays for the other's. For an empty
/// queue.
pub async fn use_fifo_index(system: &SystemStore) -> Result<FairIndexDefinition, StoreError> {
    let definition = match system.store.dialect() {
        Dialect::Postgres => "select indexdef from pg_indexes where indexname = 'jobs_ready'",
        Dialect::Sqlite => "select sql from sqlite_master where name = 'jobs_ready'",
    };
    let row = system.query_one(definition, vec![]).await?;
    let fair = row.ok_or_else(|| StoreError::other("there is no index jobs_ready"))?.get(0)?;
    let plain = "create index jobs_plain on jobs (lane, position, id, kind) where state = 'ready'";
    run_statements(system, &["drop index jobs_ready", plain]).await?;
    Ok(FairIndexDefinition(fair))
}

/// Undoes [`use_fifo_index`].
pub async fn restore_fair_index(system: &SystemStore, index: &FairIndexDefinition) -> Result<(), StoreError> {
    run_statements(system, &["drop index jobs_plain", &index.0]).await
}

/// Claims the first `most` jobs by lane and time. Tokens, workers and counts are kept as by a fair claim.
pub async fn claim_fifo(
    system: &SystemStore,
    worker: WorkerId,
    kinds: &[String],
    most: u64,
    cursor: &mut FifoCursor,
) -> Result<Vec<ClaimedJob>, StoreError> {
    let dialect = system.store.dialect();
    let condition = format!("and {}", any(dialect, "kind", 5));
    let (lane, position) = cursor.values();
    let mut unit = Unit::default();
    let taken = unit.op_returning(
        format!("{} returning {CLAIMED_COLUMNS}", claim_sql(dialect, &condition)),
        params![worker, most, lane, position, kinds.to_vec()],
    );
    let committed = system.commit(unit).await?;
    let mut jobs = committed.returned(taken).iter().map(claimed).collect::<Result<Vec<_>, _>>()?;
    jobs.sort_by_key(|job| (job.lane, job.position));
    *cursor = cursor.after(jobs.iter().map(|job| (job.lane, job.position)));
    Ok(jobs)
}

/// Claims like [`claim_fifo`], but jobs of every kind, and without reading what they are about.
pub async fn claim_ids(
    system: &SystemStore,
    worker: WorkerId,
    most: u64,
    cursor: &mut FifoCursor,
) -> Result<Vec<JobRef>, StoreError> {
    let (lane, position) = cursor.values();
    let mut unit = Unit::default();
    let taken = unit.op_returning(
        format!("{} returning tenant_id, id, lane, position", claim_sql(system.store.dialect(), "")),
        params![worker, most, lane, position],
    );
    let committed = system.commit(unit).await?;
    let (mut jobs, mut positions) = (Vec::new(), Vec::new());
    for row in committed.returned(taken) {
        jobs.push(JobRef { tenant: row.get(0)?, id: row.get(1)? });
        positions.push((row.get(2)?, row.get(3)?));
    }
    *cursor = cursor.after(positions.into_iter());
    Ok(jobs)
}

/// Moves jobs to the finished ones without checking which worker holds them and what waits for them.
pub async fn finish_unchecked(system: &SystemStore, jobs: &[JobRef]) -> Result<u64, StoreError> {
    let columns = "id, tenant_id, kind, lane, state, payload, traceparent, token, worker, attempt, abandoned,
            created_at, started_at, ended_at";
    let values = columns.replace(" state,", " 'done',").replace("ended_at", "mailroom_now()");
    let ids = Value::List(jobs.iter().map(|job| job.id.into()).collect());
    let mut unit = Unit::default();
    let moved = match system.store.dialect() {
        Dialect::Postgres => unit.op(
            format!(
                "with gone as (
                    delete from jobs where ctid = any(array(
                        select f.row from unnest($1::uuid[], $2::uuid[]) as g (tenant_id, id) cross join lateral (
                            select j.ctid as row from jobs j where j.tenant_id = g.tenant_id and j.id = g.id offset 0) f))
                    returning *)
                 insert into finished_jobs ({columns}) select {values} from gone"
            ),
            vec![Value::List(jobs.iter().map(|job| job.tenant.into()).collect()), ids],
        ),
        Dialect::Sqlite => {
            let given = any(Dialect::Sqlite, "id", 1);
            unit.op(
                format!("insert into finished_jobs ({columns}) select {values} from jobs where {given}"),
                vec![ids.clone()],
            );
            unit.op(format!("delete from jobs where {given}"), vec![ids])
        }
    };
    Ok(system.commit(unit).await?.changed(moved))
}

/// Returns the statement of a claim: `$1` is the worker, `$2` how many, `$3` and `$4` where to begin.
fn claim_sql(dialect: Dialect, condition: &str) -> String {
    let row = match dialect {
        Dialect::Postgres => "ctid",
        Dialect::Sqlite => "id",
    };
    let first = format!(
        "select {row} from jobs where state = 'ready' and (lane, position) >= ($3, $4) {condition}
         order by lane, position, id limit $2"
    );
    let rows = match dialect {
        Dialect::Postgres => format!("ctid = any(array({first} for update skip locked))"),
        Dialect::Sqlite => format!("id in ({first})"),
    };
    format!(
        "update jobs set state = 'running', token = token + 1, worker = $1, started_at = mailroom_now(), rerun = false
         where {rows}"
    )
}
