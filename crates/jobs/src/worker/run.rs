//! One attempt at one job, and what comes of it.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use store::failpoint::{self, Effect};
use store::sql::jobs::{AfterFailure, Claimed, End, Failure, NO_LONGER_HELD, Outcome, Stop};
use store::{StoreError, TenantUnit};
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tracing::Instrument;

use super::{Session, claimer, is_passing, pause};
use crate::kind::{Held, JobError, Kind, Pool, Verdict};
use crate::{retry, trace};

/// Enough to understand, little enough to keep a million of.
const MOST_MESSAGE: usize = 4000;

/// Half a minute, with growing pauses; the session may end before.
const MOST_TRIES: u32 = 25;

/// What takes its process down does so soon; one that merely takes long must not keep the other suspects waiting.
const SUSPECT_TURN: Duration = Duration::from_secs(10);

/// How an attempt ended.
enum Ended {
    Verdict(Verdict),
    Error(JobError),
    Panicked(String),
    TimedOut(String),
    Stopped(Stop),
}

/// The right of a suspect to begin.
pub(super) type Turn = OwnedSemaphorePermit;

/// How long it took. A suspect comes with its turn.
pub(super) async fn run(session: Arc<Session>, job: Arc<Claimed>, turn: Option<Turn>) -> Duration {
    let begun = Instant::now();
    // Claims ask for known kinds only.
    let Some(kind) = session.work.kinds.find(&job.kind).cloned() else { return begun.elapsed() };
    let trace = job.traceparent.as_deref().map(trace::id).unwrap_or_default();
    let span = tracing::info_span!("job", kind = kind.name, id = %job.id, trace);
    metrics::histogram!("mailroom_jobs_wait_seconds").record(job.waited_micros.max(0) as f64 / 1e6);
    async {
        match turn {
            Some(turn) => run_alone(&session, &kind, &job, turn).await,
            None => attempt_and_settle(&session, &kind, &job).await,
        }
    }
    .instrument(span)
    .await;
    begun.elapsed()
}

/// One that was around when a process died: marked first, and without other suspects, so that it is known whom to blame.
async fn run_alone(session: &Arc<Session>, kind: &Kind, job: &Arc<Claimed>, turn: Turn) {
    match session.store().system().mark_started(job).await {
        Ok(true) => {
            let mut work = std::pin::pin!(attempt_and_settle(session, kind, job));
            if tokio::time::timeout(SUSPECT_TURN, &mut work).await.is_err() {
                drop(turn);
                work.await;
            }
        }
        Ok(false) => session.let_go(job.id),
        Err(e) => {
            session.let_go(job.id);
            tracing::warn!("cannot begin: {e}");
        }
    }
}

async fn attempt_and_settle(session: &Arc<Session>, kind: &Kind, job: &Arc<Claimed>) {
    let (stop, stopped) = oneshot::channel();
    session.running.lock().expect("nobody panics while holding the list").insert(job.id, stop);
    let held = Held::new(job.clone(), session.store().clone());
    let ended = attempt(kind, &held, stopped).await;
    let is_settled = is_settled(&ended);
    settle(session, kind, job, ended).await;
    if is_settled {
        session.let_go(job.id);
    }
    session.running.lock().expect("nobody panics while holding the list").remove(&job.id);
}

/// Those that are to be completed with others are still held then.
fn is_settled(ended: &Ended) -> bool {
    !matches!(ended, Ended::Verdict(Verdict::Done))
}

async fn attempt(kind: &Kind, held: &Held, stopped: oneshot::Receiver<Stop>) -> Ended {
    let run = run_in_pool(kind, held.clone());
    let stopped = async {
        match stopped.await {
            Ok(why) => why,
            // The list is gone with the session.
            Err(_) => std::future::pending().await,
        }
    };
    tokio::select! {
        ended = run => ended,
        why = stopped => Ended::Stopped(why),
        message = time_runs_out(kind, held) => Ended::TimedOut(message),
    }
}

async fn run_in_pool(kind: &Kind, held: Held) -> Ended {
    let run = kind.run.clone();
    // A handler may panic before its first await as well.
    let run = AssertUnwindSafe(async move { run(held).await }).catch_unwind();
    let ended = match kind.pool {
        Pool::Io | Pool::Remote => run.await,
        Pool::Cpu => {
            // On a thread that may be busy for long; the runtime's own must not. It is not stopped by being given up.
            let runtime = tokio::runtime::Handle::current();
            match tokio::task::spawn_blocking(move || runtime.block_on(run)).await {
                Ok(ended) => ended,
                Err(e) => return Ended::Panicked(e.to_string()),
            }
        }
    };
    match ended {
        Ok(Ok(verdict)) => Ended::Verdict(verdict),
        Ok(Err(e)) => Ended::Error(e),
        Err(panic) => Ended::Panicked(panic_message(&*panic)),
    }
}

/// When the attempt takes too long, or shows no progress for too long.
async fn time_runs_out(kind: &Kind, held: &Held) -> String {
    let deadline = tokio::time::sleep(kind.deadline);
    let no_progress = async {
        let mut seen = held.progress_so_far();
        loop {
            tokio::time::sleep(kind.no_progress).await;
            let now = held.progress_so_far();
            if now == seen {
                return;
            }
            seen = now;
        }
    };
    tokio::select! {
        () = deadline => format!("not done after {:?}", kind.deadline),
        () = no_progress => format!("no progress for {:?}", kind.no_progress),
    }
}

/// What a panic said.
pub fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "a panic without a message".to_owned())
}

async fn settle(session: &Arc<Session>, kind: &Kind, job: &Arc<Claimed>, ended: Ended) {
    match ended {
        // Counted by the completer.
        Ended::Verdict(Verdict::Done) => session.complete_later(job.clone()).await,
        Ended::Verdict(Verdict::Commit(unit)) => commit(session, kind, job, unit).await,
        Ended::Error(JobError::Throttled(delay)) => persist(session, kind, job, Settled::Throttled(delay)).await,
        Ended::Error(JobError::Failed { class, message }) => {
            fail(session, kind, job, Outcome::Failed, class, &message).await;
        }
        Ended::Error(JobError::Fatal { class, message }) => {
            let failure = failure(kind, Outcome::Failed, class, &message);
            persist(session, kind, job, Settled::Dead(failure)).await;
        }
        Ended::Panicked(message) => fail(session, kind, job, Outcome::Panicked, "panic", &message).await,
        Ended::TimedOut(message) => fail(session, kind, job, Outcome::TimedOut, "timeout", &message).await,
        Ended::Stopped(Stop::Cancel(reason)) => persist(session, kind, job, Settled::Cancelled(reason)).await,
        Ended::Stopped(Stop::TenantOff) => {
            claimer::give_back(session, &[job.id]).await;
            count(kind, "given_back");
        }
    }
}

/// What the handler wrote and the job's completion: one commit.
async fn commit(session: &Arc<Session>, kind: &Kind, job: &Arc<Claimed>, mut unit: TenantUnit) {
    unit.finish(job, End::Done, session.new_id());
    let unit = unit.ready();
    let mut tries = 0;
    loop {
        failpoint::before(Effect::CommitJob);
        let committed = unit.commit().await;
        failpoint::after(Effect::CommitJob);
        match committed {
            Ok(_) => return count(kind, "done"),
            // Also when the commit before this one did happen and only its answer was lost.
            Err(StoreError::Precondition(NO_LONGER_HELD)) => return count(kind, "lost"),
            Err(e) if is_passing(&e) => {
                tries += 1;
                pause(tries, &*session.work.dice).await;
            }
            Err(e) => return fail(session, kind, job, Outcome::Failed, "store", &e.to_string()).await,
        }
    }
}

async fn fail(session: &Session, kind: &Kind, job: &Claimed, outcome: Outcome, class: &str, message: &str) {
    let failure = failure(kind, outcome, class, message);
    let settled = match kind.retry.delay(job.attempt, &*session.work.dice) {
        Some(delay) => Settled::Retry(failure, delay),
        None => Settled::Dead(failure),
    };
    persist(session, kind, job, settled).await;
}

fn failure(kind: &Kind, outcome: Outcome, class: &str, message: &str) -> Failure {
    let mut message = message.to_owned();
    message.truncate(message.floor_char_boundary(MOST_MESSAGE));
    let fingerprint = retry::fingerprint(kind.name, class, &message);
    Failure { outcome, error_class: class.to_owned(), message, fingerprint }
}

/// What becomes of a job that is not done.
enum Settled {
    Retry(Failure, Duration),
    Dead(Failure),
    Throttled(Duration),
    Cancelled(String),
}

impl Settled {
    fn name(&self) -> &'static str {
        match self {
            Self::Retry(..) => "retry",
            Self::Dead(_) => "dead",
            Self::Throttled(_) => "throttled",
            Self::Cancelled(_) => "cancelled",
        }
    }

    /// `false`: the job was not ours any more.
    async fn write(&self, session: &Session, job: &Claimed) -> Result<bool, StoreError> {
        let (system, id) = (session.store().system(), session.new_id());
        match self {
            Self::Retry(failure, delay) => system.fail_job(job, failure, AfterFailure::RetryIn(*delay), id).await,
            Self::Dead(failure) => system.fail_job(job, failure, AfterFailure::Dead, id).await,
            Self::Throttled(delay) => system.throttle_job(job, *delay).await,
            Self::Cancelled(reason) => system.end_cancelled(job, reason, id).await,
        }
    }
}

/// Until the database has taken it, or the session ends.
async fn persist(session: &Session, kind: &Kind, job: &Claimed, settled: Settled) {
    if let Settled::Retry(failure, _) | Settled::Dead(failure) = &settled {
        let (attempt, class) = (job.attempt + 1, failure.error_class.as_str());
        tracing::warn!(attempt, class, outcome = settled.name(), "a job failed");
    }
    let mut tries = 0;
    loop {
        match settled.write(session, job).await {
            Ok(true) => return count(kind, settled.name()),
            Ok(false) => return count(kind, "lost"),
            // It is given back as one that we do not know of.
            Err(e) if tries >= MOST_TRIES => return tracing::error!("cannot settle a job: {e}"),
            Err(_) => {
                tries += 1;
                pause(tries, &*session.work.dice).await;
            }
        }
    }
}

fn count(kind: &Kind, outcome: &'static str) {
    metrics::counter!("mailroom_jobs_finished_total", "kind" => kind.name, "outcome" => outcome).increment(1);
}
