//! What every worker does for all, now and then: jobs become due, jobs of dead workers come back, children of failed jobs
//! are cancelled, other processes hear of new jobs.

use std::time::{Duration, Instant};

use store::{Store, StoreError};

use super::Session;

/// NOTIFY makes commits wait for each other, so many hints become one.
const HINT_EVERY: Duration = Duration::from_millis(20);

/// How long to wait before listening again: whatever ended it may pass.
const LISTEN_AGAIN: Duration = Duration::from_secs(1);

const COMPARE_EVERY: Duration = Duration::from_secs(5);

/// Never ends by itself.
pub(super) async fn run(session: &Session) {
    tokio::join!(look_after(session), tell(session.store()), listen(session.store()));
}

async fn look_after(session: &Session) {
    let poll = session.work.settings.poll;
    let mut compared_at = Instant::now();
    loop {
        if compared_at.elapsed() > COMPARE_EVERY {
            compared_at = Instant::now();
            compare(session).await;
        }
        let next = match pass(session).await {
            Ok(next) => next,
            Err(e) => {
                tracing::warn!("upkeep of jobs: {e}");
                None
            }
        };
        tokio::time::sleep(next.unwrap_or(poll).clamp(Duration::from_millis(5), poll)).await;
    }
}

/// What the database thinks that we run, and we do not.
async fn compare(session: &Session) {
    match session.store().system().give_back_unknown(session.worker, &session.held()).await {
        Ok(0) => {}
        Ok(jobs) => tracing::warn!(jobs, "jobs that this worker did not know of are given back"),
        Err(e) => tracing::warn!("cannot compare what runs here with what the database says: {e}"),
    }
}

/// How long until the next job is due.
async fn pass(session: &Session) -> Result<Option<Duration>, StoreError> {
    let system = session.store().system();
    while system.ready_due_jobs().await? {}
    let abandoned = system.take_back_abandoned(|| session.new_id()).await?;
    if abandoned.workers > 0 {
        let (workers, returned, parked) = (abandoned.workers, abandoned.returned, abandoned.parked);
        tracing::warn!(workers, returned, parked, "workers died; what they held is back");
        metrics::counter!("mailroom_jobs_abandoned_total").increment(returned + parked);
    }
    while system.cancel_doomed_jobs().await? > 0 {}
    system.next_due().await
}

async fn tell(store: &Store) {
    let mut added = store.watch_own_jobs();
    while added.changed().await.is_ok() {
        if let Err(e) = store.tell_of_jobs().await {
            tracing::debug!("others will find the new jobs by looking: {e}");
        }
        tokio::time::sleep(HINT_EVERY).await;
    }
    std::future::pending::<()>().await;
}

async fn listen(store: &Store) {
    loop {
        if let Err(e) = store.listen_for_jobs().await {
            tracing::debug!("not told of new jobs for a while: {e}");
        }
        tokio::time::sleep(LISTEN_AGAIN).await;
        store.look_for_jobs(); // what was told meanwhile was not heard
    }
}
