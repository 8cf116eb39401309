//! Notifications that jobs were added: within a process by a channel, to other processes by PostgreSQL's NOTIFY; on SQLite
//! they poll for changes of the file. Only a hint: a worker that misses one finds the job by polling.

use tokio::sync::watch;

use crate::{Database, Store, StoreError};

#[derive(Debug)]
pub(crate) struct JobNotifications {
    /// Counts jobs added by this process, of which other processes must be notified.
    here: watch::Sender<u64>,
    /// Counts jobs added by any process.
    anywhere: watch::Sender<u64>,
}

impl Default for JobNotifications {
    fn default() -> Self {
        Self { here: watch::Sender::new(0), anywhere: watch::Sender::new(0) }
    }
}

impl JobNotifications {
    pub fn notify_local(&self) {
        self.here.send_modify(|count| *count += 1);
        self.jobs_added();
    }

    fn jobs_added(&self) {
        self.anywhere.send_modify(|count| *count += 1);
    }
}

impl Store {
    /// Returns a receiver that changes whenever jobs were added by this process or, while [`Store::listen_for_jobs`] runs,
    /// by another one.
    pub fn watch_jobs(&self) -> watch::Receiver<u64> {
        self.notifications.anywhere.subscribe()
    }

    /// Lets the workers of this process look for jobs, because a limit or lease has become free.
    pub fn wake_workers(&self) {
        self.notifications.jobs_added();
    }

    /// Returns a receiver that changes whenever this process has added jobs.
    pub fn watch_local_jobs(&self) -> watch::Receiver<u64> {
        self.notifications.here.subscribe()
    }

    /// Notifies other processes of jobs; on SQLite they see it themselves. PostgreSQL lets one transaction at a time notify,
    /// so it is never part of a unit.
    pub async fn notify_other_processes(&self) -> Result<(), StoreError> {
        match &*self.database {
            Database::Sqlite(_) => Ok(()),
            Database::Postgres(db) => db.notify().await,
        }
    }

    /// Listens for jobs that other processes add, until the connection ends. On SQLite any change by another process counts.
    pub async fn listen_for_jobs(&self) -> Result<(), StoreError> {
        match &*self.database {
            Database::Sqlite(db) => db.listen(|| self.notifications.jobs_added()).await,
            Database::Postgres(db) => db.listen(|| self.notifications.jobs_added()).await,
        }
    }
}
