//! Completes jobs that wrote nothing, as many together as have come while the last commit was on its way.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use domain::JobId;
use store::sql::jobs::Claimed;
use tokio::sync::mpsc;

use super::{Session, pause};

/// As many as keep a commit well under 50 ms.
const BATCH: usize = 1000;

/// Half a minute, with growing pauses; the session may end before.
const MOST_TRIES: u32 = 25;

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
    let finished = loop {
        match session.store().system().finish_done(jobs, || session.new_id()).await {
            Ok(finished) => break finished,
            // Whatever it is, it may pass; and if not, they are given back as what we do not know of.
            Err(e) if tries >= MOST_TRIES => {
                tracing::error!("cannot complete {} jobs: {e}", jobs.len());
                break Vec::new();
            }
            Err(_) => {
                tries += 1;
                pause(tries, &*session.work.dice).await;
            }
        }
    };
    count(jobs, &finished);
    for job in jobs {
        session.let_go(job.id);
    }
    if session.limits.are_there() {
        session.store().look_for_jobs();
    }
}

fn count(jobs: &[Claimed], finished: &[JobId]) {
    let finished: HashSet<&JobId> = finished.iter().collect();
    let mut kinds: HashMap<(&str, &'static str), u64> = HashMap::new();
    for job in jobs {
        let outcome = if finished.contains(&job.id) { "done" } else { "lost" };
        *kinds.entry((&job.kind, outcome)).or_default() += 1;
    }
    for ((kind, outcome), jobs) in kinds {
        metrics::counter!("mailroom_jobs_finished_total", "kind" => kind.to_owned(), "outcome" => outcome)
            .increment(jobs);
    }
}
