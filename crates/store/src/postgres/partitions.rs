//! Partitions by receive time; what they are and how they come about is in migrations/each_time/3_partitions.

use std::sync::Mutex;

use uuid::Uuid;

use super::Postgres;
use crate::{Scope, StoreError, Unit, Value, params};

/// Ranges of ids that have a partition, as far as this process has seen. They are never taken away while it runs.
#[derive(Debug, Default)]
pub(super) struct Known(Mutex<Vec<(Uuid, Uuid)>>);

/// Each try waits 0.3 s for the locks. Upkeep has time; who brings mail has not, and the default partition takes it.
const UPKEEP_TRIES: u64 = 60;
const INGEST_TRIES: u64 = 2;

/// Makes what is missing for today, and empties the default partition into partitions of its own. Cheap when there is
/// nothing to do.
pub(crate) async fn upkeep(db: &Postgres) -> Result<(), StoreError> {
    make(db, Vec::new(), UPKEEP_TRIES).await
}

/// Makes partitions for emails that are about to be recorded, so that they need not be moved later.
pub(super) async fn prepare(db: &Postgres, emails: &[Uuid]) -> Result<(), StoreError> {
    if db.partitions.without(emails).is_empty() {
        return Ok(());
    }
    db.partitions.learn(db).await?;
    let missing = db.partitions.without(emails);
    if missing.is_empty() {
        return Ok(());
    }
    make(db, missing, INGEST_TRIES).await?;
    db.partitions.learn(db).await
}

async fn make(db: &Postgres, expected: Vec<Uuid>, tries: u64) -> Result<(), StoreError> {
    let missing = "select 1 from mailroom_missing_partitions(coalesce($1::uuid[], '{}')) limit 1";
    if db.query(Scope::System, missing, &[Value::from(expected.clone())]).await?.is_empty() {
        return Ok(());
    }
    let mut unit = Unit::default();
    unit.op("select mailroom_upkeep_partitions(coalesce($1::uuid[], '{}'), $2::int)", params![expected, tries]);
    db.commit(Scope::System, &unit).await.map(drop)
}

impl Known {
    /// Those that would go to the default partition.
    fn without(&self, emails: &[Uuid]) -> Vec<Uuid> {
        let ranges = self.0.lock().expect("nobody panics with the list in hand");
        let is_covered = |id: &Uuid| ranges.iter().any(|(from, to)| from <= id && id < to);
        emails.iter().filter(|id| !is_covered(id)).copied().collect()
    }

    async fn learn(&self, db: &Postgres) -> Result<(), StoreError> {
        let rows = db.query(Scope::System, "select from_id, to_id from mailroom_partitions()", &[]).await?;
        let ranges = rows.iter().map(|row| Ok((row.get::<Option<Uuid>>(0)?.unwrap_or(Uuid::nil()), row.get(1)?)));
        *self.0.lock().expect("nobody panics with the list in hand") = ranges.collect::<Result<_, StoreError>>()?;
        Ok(())
    }
}
