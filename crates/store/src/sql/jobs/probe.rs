//! For tests and benchmarks: what the built-in job `probe` leaves behind, and a long history.

use domain::{JobId, TenantId};

use super::Claimed;
use crate::{Dialect, Row, StoreError, SystemStore, TenantUnit, Unit, params};

impl TenantUnit {
    pub fn record_probe(&mut self, job: &Claimed) {
        self.unit.op(
            "insert into probe_effects (tenant_id, job_id, token, at) values ($1, $2, $3, mailroom_now())",
            params![job.tenant, job.id, job.token],
        );
    }
}

impl SystemStore {
    /// As if so many jobs had been done.
    pub async fn fill_finished_jobs(&self, tenant: TenantId, jobs: u64) -> Result<(), StoreError> {
        const AT_ONCE: u64 = 100_000;
        // Ids that grow, as those of jobs do.
        let (numbers, id) = match self.store.dialect() {
            Dialect::Postgres => (
                "generate_series(1, $2) as n",
                "(lpad(to_hex((extract(epoch from clock_timestamp()) * 1000000)::bigint), 16, '0')
                  || left(md5(random()::text), 16))::uuid",
            ),
            Dialect::Sqlite => (
                "(with recursive n(n) as (select 1 union all select n + 1 from n where n < $2) select n from n)",
                "printf('%016x', mailroom_micros()) || lower(hex(randomblob(8)))",
            ),
        };
        let mut left = jobs;
        while left > 0 {
            let now = left.min(AT_ONCE);
            let mut unit = Unit::default();
            unit.op(
                format!(
                    "insert into finished_jobs (id, tenant_id, kind, lane, state, payload, token, attempt, abandoned,
                                                created_at, started_at, ended_at)
                     select {id}, $1, 'noop', 2, 'done', '{{}}', 1, 0, 0, mailroom_now(), mailroom_now(), mailroom_now()
                     from {numbers}"
                ),
                params![tenant, now],
            );
            self.commit(unit).await?;
            left -= now;
        }
        Ok(())
    }

    /// Every effect of every probe: whose, which, and by which token.
    pub async fn list_probe_effects(&self) -> Result<Vec<(TenantId, JobId, u64)>, StoreError> {
        let sql = "select tenant_id, job_id, token from probe_effects order by at";
        let effect = |row: &Row| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
        self.query(sql, vec![]).await?.iter().map(effect).collect()
    }
}
