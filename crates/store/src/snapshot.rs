//! The database as it is at one moment, as a file: what a backup keeps.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use crate::postgres::dump;
use crate::{Database, Store, StoreError, SystemStore, params};

/// Told how far a copy has come: so much, of so much.
pub type Watch = dyn Fn(u64, u64) + Send + Sync;

/// What is in the file, read from the file itself or from the very moment that it shows.
#[derive(Debug, Clone)]
pub struct Snapshot {
    pub schema_version: u32,
    /// When the database got its first schema, in its own words: two that differ in this are not the same Mailroom.
    pub origin: String,
    /// The objects without which the rows of this snapshot name bytes that are nowhere.
    pub packs: Vec<LivePack>,
}

#[derive(Debug, Clone)]
pub struct LivePack {
    pub object_key: String,
    pub size_bytes: u64,
}

impl Store {
    /// Fills the file `to`, which must be empty, without keeping anybody from writing. Making it durable is the caller's. A PostgreSQL is dumped by its own `pg_dump`, under the login of `dump_url`.
    pub async fn snapshot(&self, to: &Path, dump_url: Option<&str>, watch: Arc<Watch>) -> Result<Snapshot, StoreError> {
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
    /// Whether a pack is still in use; one that is not was collected, and its object with it.
    pub async fn is_live(&self, object_key: &str) -> Result<bool, StoreError> {
        let sql = "select 1 from packs where object_key = $1 and state = 'live'";
        Ok(self.query_one(sql, params![object_key]).await?.is_some())
    }
}

/// Puts a dump into an empty PostgreSQL: all of it, or nothing. The lock is held until that is decided, even when this
/// process is killed meanwhile.
pub async fn restore_dump(url: &str, from: &Path, lock: File) -> Result<(), StoreError> {
    dump::restore(url, from, lock).await
}
