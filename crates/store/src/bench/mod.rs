//! SQL that only benchmarks and the demo run: what they compare with, fill in and check. These are functions under the
//! feature `bench`, which only `lab` enables: no handle of the product can do any of it.

mod fifo;
mod mail_copies;
mod placements;

use domain::TenantId;
use jiff::Timestamp;

pub use fifo::{
    FairIndexDefinition, FifoCursor, JobRef, claim_fifo, claim_ids, finish_unchecked, restore_fair_index,
    use_fifo_index,
};
pub use mail_copies::copy_mail;
pub use placements::{StoredPlacement, count_live_emails, list_stored_placements};

use crate::postgres::{self, Postgres};
use crate::{Dialect, StoreError, SystemStore, Unit, params};

/// Rows of one commit when a long history is made up.
const HISTORY_BATCH: u64 = 100_000;

/// Makes up a history: as if so many jobs had been done.
pub async fn insert_finished_jobs(system: &SystemStore, tenant: TenantId, jobs: u64) -> Result<(), StoreError> {
    // Ids that grow, as those of jobs do.
    let (numbers, id) = match system.store.dialect() {
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
        let batch = left.min(HISTORY_BATCH);
        let mut unit = Unit::default();
        unit.op(
            format!(
                "insert into finished_jobs (id, tenant_id, kind, lane, state, payload, token, attempt, abandoned,
                                            created_at, started_at, ended_at)
                 select {id}, $1, 'noop', 2, 'done', '{{}}', 1, 0, 0, mailroom_now(), mailroom_now(), mailroom_now()
                 from {numbers}"
            ),
            params![tenant, batch],
        );
        system.commit(unit).await?;
        left -= batch;
    }
    Ok(())
}

/// Empties the history: as if nothing had ever been done.
pub async fn truncate_finished_jobs(system: &SystemStore) -> Result<(), StoreError> {
    let all = match system.store.dialect() {
        Dialect::Postgres => "truncate finished_jobs",
        Dialect::Sqlite => "delete from finished_jobs",
    };
    run_statements(system, &[all]).await
}

/// Makes every mailbox due now, but for those of one tenant, and returns how many those are.
pub async fn make_mailboxes_due(system: &SystemStore, except: Option<TenantId>) -> Result<u64, StoreError> {
    let mut unit = Unit::default();
    let due = unit.op(
        "update sync_states set next_sync_at = mailroom_now() where tenant_id <> $1",
        params![except.unwrap_or(TenantId::SYSTEM)],
    );
    Ok(system.commit(unit).await?.changed(due))
}

/// Lists when each mailbox was last synced successfully.
pub async fn list_last_syncs(system: &SystemStore) -> Result<Vec<(TenantId, Timestamp)>, StoreError> {
    let sql = "select tenant_id, last_sync_at from sync_states where last_sync_at is not null";
    system.query(sql, vec![]).await?.iter().map(|row| Ok((row.get(0)?, row.get(1)?))).collect()
}

/// Returns whether any job is ready, running or about to be.
pub async fn has_pending_jobs(system: &SystemStore) -> Result<bool, StoreError> {
    let sql = "select 1 from jobs where state <> 'scheduled' limit 1";
    Ok(system.query_one(sql, vec![]).await?.is_some())
}

/// While it lives, PostgreSQL keeps every row that was there when it began, as it does for a forgotten transaction.
#[derive(Debug)]
pub struct PinnedSnapshot(#[expect(dead_code, reason = "held, not used")] deadpool_postgres::Object);

/// Begins a transaction that pins the current snapshot.
pub async fn pin_snapshot(url: &str) -> Result<PinnedSnapshot, StoreError> {
    let client = Postgres::open(url, 1)?.client().await?;
    let begin = "begin isolation level repeatable read; select count(*) from pg_class";
    client.batch_execute(begin).await.map_err(postgres::error)?;
    Ok(PinnedSnapshot(client))
}

/// Runs statements as the system, which owns the tables.
async fn run_statements(system: &SystemStore, statements: &[&str]) -> Result<(), StoreError> {
    let mut unit = Unit::default();
    for sql in statements {
        unit.op(*sql, vec![]);
    }
    system.commit(unit).await.map(drop)
}
