//! Completes jobs that wrote nothing, in batches: all that finished while the last commit was under way.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use domain::metrics as catalogue;
use domain::{JobId, redact_for_log};
use store::sql::jobs::ClaimedJob;
use tokio::sync::mpsc;

use super::{Session, back_off};

/// The largest batch: its commit stays well under 50 ms.
const MAX_COMPLETION_BATCH_JOBS: usize = 1000;

/// About half a minute, with growing delays; the session may end before.
const MAX_COMPLETION_TRIES: u32 = 25;

/// Completes jobs until the channel is closed and everything is committed.
pub(super) async fn run(session: Arc<Session>, mut completions: mpsc::Receiver<Arc<ClaimedJob>>) {
    let mut batch = Vec::with_capacity(MAX_COMPLETION_BATCH_JOBS);
    while completions.recv_many(&mut batch, MAX_COMPLETION_BATCH_JOBS).await > 0 {
        let jobs: Vec<ClaimedJob> = batch.drain(..).map(Arc::unwrap_or_clone).collect();
        complete(&session, &jobs).await;
    }
}

async fn complete(session: &Session, jobs: &[ClaimedJob]) {
    let mut tries = 0;
    let finished = loop {
        match session.store().system().finish_done(jobs, || session.new_id()).await {
            Ok(finished) => break finished,
            // Any error may be transient; if not, reconciliation gives the jobs back.
            Err(e) if tries >= MAX_COMPLETION_TRIES => {
                tracing::error!(error = redact_for_log(&e), jobs = jobs.len(), "cannot complete jobs");
                break Vec::new();
            }
            Err(_) => {
                tries += 1;
                back_off(tries, &*session.work.random).await;
            }
        }
    };
    count_outcomes(jobs, &finished);
    for job in jobs {
        session.untrack(job.id);
    }
    if session.limits.any() {
        session.store().wake_workers();
    }
}

fn count_outcomes(jobs: &[ClaimedJob], finished: &[JobId]) {
    let finished: HashSet<&JobId> = finished.iter().collect();
    let mut kinds: HashMap<(&str, &'static str), u64> = HashMap::new();
    for job in jobs {
        let outcome = if finished.contains(&job.id) { "done" } else { "lost" };
        *kinds.entry((&job.kind, outcome)).or_default() += 1;
    }
    for ((kind, outcome), jobs) in kinds {
        metrics::counter!(catalogue::JOBS_FINISHED, "kind" => kind.to_owned(), "outcome" => outcome).increment(jobs);
    }
}
