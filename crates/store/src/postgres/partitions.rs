//! Partitions by receive time; what they are and how they come about is in migrations/each_time/3_partitions.

use std::sync::Mutex;

use uuid::Uuid;

use super::Postgres;
use crate::{Scope, StoreError, Unit, Value, params};

/// Ranges of ids that have a partition, as far as this process has seen. Partitions are never removed while it runs.
#[derive(Debug, Default)]
pub(super) struct KnownPartitions(Mutex<Vec<(Uuid, Uuid)>>);

/// Each attempt waits 0.3 s for the locks. Upkeep has time; an ingest has not, and the default partition takes its mail.
const UPKEEP_LOCK_ATTEMPTS: u64 = 60;
const INGEST_LOCK_ATTEMPTS: u64 = 2;

/// Makes today's missing partitions, and moves the rows of the default partition into partitions of their own. Cheap when
/// there is nothing to do.
pub(crate) async fn upkeep(db: &Postgres) -> Result<(), StoreError> {
    make_partitions(db, Vec::new(), UPKEEP_LOCK_ATTEMPTS).await
}

/// Makes partitions for emails that are about to be recorded, so that they need not be moved later.
pub(super) async fn prepare(db: &Postgres, emails: &[Uuid]) -> Result<(), StoreError> {
    if db.partitions.uncovered(emails).is_empty() {
        return Ok(());
    }
    db.partitions.refresh(db).await?;
    let missing = db.partitions.uncovered(emails);
    if missing.is_empty() {
        return Ok(());
    }
    make_partitions(db, missing, INGEST_LOCK_ATTEMPTS).await?;
    db.partitions.refresh(db).await
}

async fn make_partitions(db: &Postgres, expected: Vec<Uuid>, tries: u64) -> Result<(), StoreError> {
    let missing = "select 1 from mailroom_missing_partitions(coalesce($1::uuid[], '{}')) limit 1";
    if db.query(Scope::System, missing, &[Value::from(expected.clone())]).await?.is_empty() {
        return Ok(());
    }
    let mut unit = Unit::default();
    unit.op("select mailroom_upkeep_partitions(coalesce($1::uuid[], '{}'), $2::int)", params![expected, tries]);
    db.commit(Scope::System, &unit).await.map(drop)
}

impl KnownPartitions {
    /// Returns the emails that would go to the default partition.
    fn uncovered(&self, emails: &[Uuid]) -> Vec<Uuid> {
        let ranges = self.0.lock().expect("no thread panics while it holds the list");
        emails.iter().filter(|id| !ranges.iter().any(|(from, to)| from <= *id && *id < to)).copied().collect()
    }

    async fn refresh(&self, db: &Postgres) -> Result<(), StoreError> {
        let rows = db.query(Scope::System, "select from_id, to_id from mailroom_partitions()", &[]).await?;
        let ranges = rows.iter().map(|row| Ok((row.get::<Option<Uuid>>(0)?.unwrap_or(Uuid::nil()), row.get(1)?)));
        *self.0.lock().expect("no thread panics while it holds the list") =
            ranges.collect::<Result<_, StoreError>>()?;
        Ok(())
    }
}
