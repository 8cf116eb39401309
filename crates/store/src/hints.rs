//! "There may be work": told within a process at once, and to other processes by PostgreSQL's NOTIFY; on SQLite they see
//! that the file has changed. Only ever a hint: whoever misses one finds the work by looking.

use tokio::sync::watch;

use crate::{Database, Store, StoreError};

#[derive(Debug)]
pub(crate) struct Hints {
    /// Jobs were added here, which others should hear of.
    here: watch::Sender<u64>,
    /// Jobs were added somewhere.
    anywhere: watch::Sender<u64>,
}

impl Default for Hints {
    fn default() -> Self {
        Self { here: watch::Sender::new(0), anywhere: watch::Sender::new(0) }
    }
}

impl Hints {
    pub fn jobs_added_here(&self) {
        self.here.send_modify(|count| *count += 1);
        self.jobs_added();
    }

    fn jobs_added(&self) {
        self.anywhere.send_modify(|count| *count += 1);
    }
}

impl Store {
    /// Changes whenever jobs were added, here or, while somebody runs [`Store::listen_for_jobs`], elsewhere.
    pub fn watch_jobs(&self) -> watch::Receiver<u64> {
        self.hints.anywhere.subscribe()
    }

    /// Something ended that others of this process may have waited for.
    pub fn look_for_jobs(&self) {
        self.hints.jobs_added();
    }

    /// Changes whenever jobs were added by this process.
    pub fn watch_own_jobs(&self) -> watch::Receiver<u64> {
        self.hints.here.subscribe()
    }

    /// Tells other processes that there are jobs; on SQLite they see it themselves. PostgreSQL lets one transaction at a time do that, so it is never part
    /// of a unit.
    pub async fn tell_of_jobs(&self) -> Result<(), StoreError> {
        match &*self.database {
            Database::Sqlite(_) => Ok(()),
            Database::Postgres(db) => db.notify().await,
        }
    }

    /// Hears of jobs that others add, until the connection ends. On SQLite whatever others change counts.
    pub async fn listen_for_jobs(&self) -> Result<(), StoreError> {
        match &*self.database {
            Database::Sqlite(db) => db.listen(|| self.hints.jobs_added()).await,
            Database::Postgres(db) => db.listen(|| self.hints.jobs_added()).await,
        }
    }
}
