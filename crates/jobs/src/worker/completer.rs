//! Completes jobs that wrote nothing, as many together as have come while the last commit was on its way.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use store::sql::jobs::Claimed;
use tokio::sync::mpsc;

use super::{Session, is_passing, pause};

/// As many as keep a commit well under 50 ms.
const BATCH: usize = 1000;

/// Ends when nobody can send any more and all is committed.
pub(super) async fn run(session: Arc<Session>, mut completions: mpsc::Receiver<Arc<Claimed>>) {
    let mut batch = Vec::with_capacity(BATCH);
    while completions.recv_many(&mut batch, BATCH).await > 0 {
        let jobs: Vec<Claimed> = batch.drain(..).map(Arc::unwrap_or_clone).collect();
        complete(&session, &jobs).await;
    }
}

async fn complete(session: &Session, jobs: &[Claimed]) {
    let mut tries = 0;
    loop {
        match session.store().system().finish_done(jobs, || session.new_id()).await {
            Ok(finished) => {
                let lost = jobs.len() - finished.len();
                if lost > 0 {
                    tracing::warn!(lost, "jobs went to another worker before they were completed here");
                }
                count(jobs, lost);
                if session.has_limits.load(Ordering::Relaxed) {
                    session.store().look_for_jobs();
                }
                return;
            }
            Err(e) if is_passing(&e) => {
                tries += 1;
                pause(tries, &*session.work.dice).await;
            }
            // Their lease runs out with ours and they are run again.
            Err(e) => {
                tracing::error!("cannot complete {} jobs: {e}", jobs.len());
                return;
            }
        }
    }
}

fn count(jobs: &[Claimed], lost: usize) {
    let mut kinds: std::collections::HashMap<&str, u64> = std::collections::HashMap::new();
    for job in jobs {
        *kinds.entry(&job.kind).or_default() += 1;
    }
    for (kind, done) in kinds {
        metrics::counter!("mailroom_jobs_finished_total", "kind" => kind.to_owned(), "outcome" => "done")
            .increment(done);
    }
    metrics::counter!("mailroom_jobs_lost_total").increment(lost as u64);
}
