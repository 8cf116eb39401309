//! Takes snapshots of the database in a file, and restores those of a PostgreSQL.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use crate::postgres::dump;
use crate::snapshot::{ProgressCallback, Snapshot};
use crate::{Database, Store, StoreError, SystemStore, params};

impl Store {
    /// Fills the file `to`, which must be empty, without blocking writers. Making it durable is up to the caller. A
    /// PostgreSQL is dumped by its own `pg_dump`, under the login of `dump_url`.
    pub async fn snapshot(
        &self,
        to: &Path,
        dump_url: Option<&str>,
        watch: Arc<ProgressCallback>,
    ) -> Result<Snapshot, StoreError> {
        match (&*self.database, dump_url) {
            (Database::Sqlite(db), _) => db.snapshot(to, watch).await,
            (Database::Postgres(_), Some(url)) => dump::take(url, to).await,
            (Database::Postgres(_), None) => {
                Err(StoreError::Misconfigured("a PostgreSQL needs a login to be dumped by".into()))
            }
        }
    }
}

impl SystemStore {
    /// Returns whether a pack is still in use; one that is not was collected, and its object with it.
    pub async fn is_live_object(&self, object_key: &str) -> Result<bool, StoreError> {
        let sql = "select 1 from packs where object_key = $1 and state = 'live'";
        Ok(self.query_one(sql, params![object_key]).await?.is_some())
    }
}

/// Restores a dump into an empty PostgreSQL: all of it, or nothing. The lock is held until that is decided, even when this
/// process is killed meanwhile.
pub async fn restore_dump(url: &str, from: &Path, lock: File) -> Result<(), StoreError> {
    dump::restore(url, from, lock).await
}
