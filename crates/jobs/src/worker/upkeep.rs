//! What every worker does for all, now and then: jobs become due, jobs of dead workers come back, children of failed jobs
//! are cancelled, other processes hear of new jobs.

use std::time::Duration;

use jiff::Timestamp;
use store::{Store, StoreError};

use super::Session;

/// NOTIFY makes commits wait for each other, so many hints become one.
const HINT_EVERY: Duration = Duration::from_millis(20);

/// Never ends by itself.
pub(super) async fn run(session: &Session) {
    tokio::join!(look_after(session), tell(session.store()), listen(session.store(), session.work.settings.poll));
}

async fn look_after(session: &Session) {
    let poll = session.work.settings.poll;
    loop {
        let next = match pass(session).await {
            Ok(next) => next,
            Err(e) => {
                tracing::warn!("upkeep of jobs: {e}");
                None
            }
        };
        let until_due = next.map(|due| until(session.store(), due)).unwrap_or(poll);
        tokio::time::sleep(until_due.clamp(Duration::from_millis(1), poll)).await;
    }
}

/// When the next job is due.
async fn pass(session: &Session) -> Result<Option<Timestamp>, StoreError> {
    let system = session.store().system();
    while system.ready_due_jobs().await? {}
    let abandoned = system.take_back_abandoned().await?;
    if abandoned.workers > 0 {
        let (workers, returned, parked) = (abandoned.workers, abandoned.returned, abandoned.parked);
        tracing::warn!(workers, returned, parked, "workers died; what they held is back");
        metrics::counter!("mailroom_jobs_abandoned_total").increment(returned + parked);
    }
    while system.cancel_doomed_jobs().await? > 0 {}
    Ok(system.next_due().await?.map(|(due, _)| due))
}

fn until(store: &Store, due: Timestamp) -> Duration {
    due.duration_since(store.clock().now()).try_into().unwrap_or(Duration::ZERO)
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

async fn listen(store: &Store, pause: Duration) {
    loop {
        if let Err(e) = store.listen_for_jobs().await {
            tracing::debug!("not told of new jobs for a while: {e}");
        }
        tokio::time::sleep(pause).await;
    }
}
