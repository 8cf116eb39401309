//! For benchmarks: what it would cost to take jobs in the order they came, whosever they are. No worker does so.

use domain::{JobId, Lane, TenantId, WorkerId};

use super::Claimed;
use super::claim::{CLAIMED, claimed};
use crate::sql::any;
use crate::{Dialect, StoreError, SystemStore, Unit, Value, params};

/// Where a claim in plain order begins to look, so that it does not meet again what the last one took.
#[derive(Debug, Clone, Copy, Default)]
pub struct Head(Option<(Lane, i64)>);

impl Head {
    fn after(self, taken: impl Iterator<Item = (Lane, i64)>) -> Self {
        Self(taken.max().or(self.0))
    }

    fn values(self) -> (Lane, i64) {
        self.0.unwrap_or((Lane::Critical, 0))
    }
}

/// The index that fair claims need, kept while there is another in its place.
#[derive(Debug)]
pub struct FairIndex(String);

/// A job taken without asking anything about it.
#[derive(Debug, Clone, Copy)]
pub struct BareJob {
    pub tenant: TenantId,
    pub id: JobId,
}

impl SystemStore {
    /// An index for plain order in place of that for shares, so that neither pays for the other's. For when nothing waits.
    pub async fn order_plainly(&self) -> Result<FairIndex, StoreError> {
        let definition = match self.store.dialect() {
            Dialect::Postgres => "select indexdef from pg_indexes where indexname = 'jobs_ready'",
            Dialect::Sqlite => "select sql from sqlite_master where name = 'jobs_ready'",
        };
        let row = self.query_one(definition, vec![]).await?;
        let fair = row.ok_or_else(|| StoreError::other("there is no index jobs_ready"))?.get(0)?;
        let plain = "create index jobs_plain on jobs (lane, position, id, kind) where state = 'ready'";
        self.change_schema(&["drop index jobs_ready", plain]).await?;
        Ok(FairIndex(fair))
    }

    pub async fn order_fairly(&self, index: &FairIndex) -> Result<(), StoreError> {
        self.change_schema(&["drop index jobs_plain", &index.0]).await
    }

    /// The first so many in the order of lanes and of time. Tokens, workers and counts are kept as by a fair claim.
    pub async fn claim_plainly(
        &self,
        worker: WorkerId,
        kinds: &[String],
        most: u64,
        head: &mut Head,
    ) -> Result<Vec<Claimed>, StoreError> {
        let dialect = self.store.dialect();
        let condition = format!("and {}", any(dialect, "kind", 5));
        let (lane, position) = head.values();
        let mut unit = Unit::default();
        let taken = unit.op_returning(
            format!("{} returning {CLAIMED}", take(dialect, &condition)),
            params![worker, most, lane, position, kinds.to_vec()],
        );
        let committed = self.commit(unit).await?;
        let mut jobs = committed.returned(taken).iter().map(claimed).collect::<Result<Vec<_>, _>>()?;
        jobs.sort_by_key(|job| (job.lane, job.position));
        *head = head.after(jobs.iter().map(|job| (job.lane, job.position)));
        Ok(jobs)
    }

    /// The same for whatever kind, and without reading what the jobs are about.
    pub async fn claim_bare(&self, worker: WorkerId, most: u64, head: &mut Head) -> Result<Vec<BareJob>, StoreError> {
        let (lane, position) = head.values();
        let mut unit = Unit::default();
        let taken = unit.op_returning(
            format!("{} returning tenant_id, id, lane, position", take(self.store.dialect(), "")),
            params![worker, most, lane, position],
        );
        let committed = self.commit(unit).await?;
        let (mut jobs, mut places) = (Vec::new(), Vec::new());
        for row in committed.returned(taken) {
            jobs.push(BareJob { tenant: row.get(0)?, id: row.get(1)? });
            places.push((row.get(2)?, row.get(3)?));
        }
        *head = head.after(places.into_iter());
        Ok(jobs)
    }

    /// Moves them to the finished ones, whoever holds them and whatever waits for them.
    pub async fn finish_bare(&self, jobs: &[BareJob]) -> Result<u64, StoreError> {
        let columns = "id, tenant_id, kind, lane, state, payload, traceparent, token, worker, attempt, abandoned,
            created_at, started_at, ended_at";
        let values = columns.replace(" state,", " 'done',").replace("ended_at", "mailroom_now()");
        let ids = Value::List(jobs.iter().map(|job| job.id.into()).collect());
        let mut unit = Unit::default();
        let moved = match self.store.dialect() {
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
        Ok(self.commit(unit).await?.changed(moved))
    }

    /// As if nothing had ever been done.
    pub async fn forget_finished_jobs(&self) -> Result<(), StoreError> {
        let all = match self.store.dialect() {
            Dialect::Postgres => "truncate finished_jobs",
            Dialect::Sqlite => "delete from finished_jobs",
        };
        self.change_schema(&[all]).await
    }

    /// The system owns the tables.
    async fn change_schema(&self, statements: &[&str]) -> Result<(), StoreError> {
        let mut unit = Unit::default();
        for sql in statements {
            unit.op(*sql, vec![]);
        }
        self.commit(unit).await.map(drop)
    }
}

/// `$1` is the worker, `$2` how many, `$3` and `$4` where to begin.
fn take(dialect: Dialect, condition: &str) -> String {
    let first = |column: &str| {
        format!(
            "select {column} from jobs where state = 'ready' and (lane, position) >= ($3, $4) {condition}
             order by lane, position, id limit $2"
        )
    };
    let rows = match dialect {
        Dialect::Postgres => format!("ctid = any(array({} for update skip locked))", first("ctid")),
        Dialect::Sqlite => format!("id in ({})", first("id")),
    };
    format!(
        "update jobs set state = 'running', token = token + 1, worker = $1, started_at = mailroom_now(), rerun = false
         where {rows}"
    )
}
