//! Periodic maintenance of the queue by every worker: makes due jobs ready, takes back jobs of dead workers, cancels
//! children of failed jobs, and notifies other processes of new jobs.

use std::time::{Duration, Instant};

use domain::metrics as catalogue;
use domain::redact_for_log;
use store::{Store, StoreError};

use super::Session;

/// NOTIFY serialises commits, so many hints become one.
const JOB_HINT_INTERVAL: Duration = Duration::from_millis(20);

/// The delay before listening again after a lost connection.
const LISTEN_RETRY_DELAY: Duration = Duration::from_secs(1);

const RECONCILE_INTERVAL: Duration = Duration::from_secs(5);

/// How often kinds are looked for that no process knows: often enough to see one of a short roll-out.
const UNREGISTERED_INTERVAL: Duration = Duration::from_secs(300);

/// How long jobs wait for a process that knows their kind: longer than old and new versions run side by side.
const UNREGISTERED_PATIENCE: Duration = Duration::from_secs(24 * 3600);

/// Runs the maintenance; never returns.
pub(super) async fn run(session: &Session) {
    tokio::join!(maintain(session), announce_new_jobs(session.store()), listen(session.store()));
}

async fn maintain(session: &Session) {
    let poll = session.work.settings.poll;
    let mut reconciled_at = Instant::now();
    let mut searched_at = Instant::now();
    loop {
        if reconciled_at.elapsed() > RECONCILE_INTERVAL {
            reconciled_at = Instant::now();
            reconcile(session).await;
        }
        if searched_at.elapsed() > UNREGISTERED_INTERVAL {
            searched_at = Instant::now();
            give_up_unregistered(session.store()).await;
        }
        let next = match maintain_once(session).await {
            Ok(next) => next,
            Err(e) => {
                tracing::warn!(error = redact_for_log(&e), "queue maintenance failed");
                None
            }
        };
        tokio::time::sleep(next.unwrap_or(poll).clamp(Duration::from_millis(5), poll)).await;
    }
}

/// Gives back jobs that the database lists as running here and that do not run here.
async fn reconcile(session: &Session) {
    match session.store().system().return_unknown_jobs(session.worker, &session.tracked()).await {
        Ok(0) => {}
        Ok(jobs) => tracing::warn!(jobs, "gave back jobs that do not run here"),
        Err(e) => tracing::warn!(error = redact_for_log(&e), "cannot reconcile running jobs with the database"),
    }
}

/// Makes dead letters of jobs that no process has known for a day.
async fn give_up_unregistered(store: &Store) {
    match store.system().give_up_unregistered_jobs(UNREGISTERED_PATIENCE).await {
        Ok(given_up) => {
            for (kind, jobs) in given_up {
                tracing::warn!(job.kind = kind, jobs, "gave up jobs of a kind that no process knows");
            }
        }
        Err(e) => tracing::warn!(error = redact_for_log(&e), "cannot look for kinds that no process knows"),
    }
}

/// Runs the maintenance once; returns how long until the next job is due.
async fn maintain_once(session: &Session) -> Result<Option<Duration>, StoreError> {
    let system = session.store().system();
    while system.promote_due_jobs().await? {}
    let abandoned = system.reclaim_abandoned_jobs(|| session.new_id()).await?;
    if abandoned.workers > 0 {
        let (workers, returned, parked) = (abandoned.workers, abandoned.returned, abandoned.parked);
        tracing::warn!(workers, returned, parked, "took back jobs of dead workers");
        metrics::counter!(catalogue::JOBS_ABANDONED).increment(returned + parked);
    }
    while system.cancel_doomed_jobs().await? > 0 {}
    system.time_until_next_due().await
}

async fn announce_new_jobs(store: &Store) {
    let mut added = store.watch_local_jobs();
    while added.changed().await.is_ok() {
        if let Err(e) = store.notify_other_processes().await {
            tracing::debug!(error = redact_for_log(&e), "workers not notified of new jobs; they poll");
        }
        tokio::time::sleep(JOB_HINT_INTERVAL).await;
    }
    std::future::pending::<()>().await;
}

async fn listen(store: &Store) {
    loop {
        if let Err(e) = store.listen_for_jobs().await {
            tracing::debug!(error = redact_for_log(&e), "lost the notifications of new jobs");
        }
        tokio::time::sleep(LISTEN_RETRY_DELAY).await;
        store.wake_workers(); // notifications may have been missed meanwhile
    }
}
