//! One attempt at one job, and its settlement: done, retried, dead, throttled, cancelled or given back.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use domain::metrics as catalogue;
use domain::{MailboxId, TenantId, redact_for_log};
use futures_util::FutureExt;
use jiff::Timestamp;
use store::failpoint::Effect;
use store::sql::jobs::{AfterFailure, AttemptFailure, AttemptOutcome, ClaimedJob, JobEnd, StopReason};
use store::{Precondition, StorageFault, StoreError, TenantUnit};
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tracing::Instrument;

use super::{Session, back_off, claimer, is_transient};
use crate::kind::{Completion, JobContext, JobError, JobKind, Pool};
use crate::{RetryPolicy, retry, trace};

/// The longest stored error: enough to understand it, little enough to store a million of them.
const MAX_ERROR_MESSAGE_BYTES: usize = 4000;

/// The outcome of a job that was parked.
const PARKED: &str = "parked";

/// Jobs that wait for the database. A restart takes seconds, freeing a disk a person.
const DATABASE_RETRY: RetryPolicy =
    RetryPolicy { max_retries: u32::MAX, first_delay: Duration::from_secs(1), max_delay: Duration::from_secs(300) };

/// Claims after which a wait for the database grows no longer.
const MAX_COUNTED_CLAIMS: u64 = 30;

/// About half a minute, with growing delays; the session may end before.
const MAX_SETTLE_TRIES: u32 = 25;

/// How long a suspect keeps the permit. A job that kills its process does so soon; one that merely takes long must not
/// delay the other suspects.
const MAX_SUSPECT_PERMIT_HOLD: Duration = Duration::from_secs(10);

/// How an attempt ended.
enum AttemptEnd {
    Verdict(Completion),
    Error(JobError),
    Panicked(String),
    TimedOut(String),
    Stopped(StopReason),
}

/// The permit that a suspect needs to start.
pub(super) type SuspectPermit = OwnedSemaphorePermit;

/// Runs a job and settles it; returns how long that took. A suspect comes with its permit.
pub(super) async fn run(session: Arc<Session>, job: Arc<ClaimedJob>, permit: Option<SuspectPermit>) -> Duration {
    let begun = Instant::now();
    // Claims are limited to known kinds.
    let Some(kind) = session.work.kinds.find(&job.kind).cloned() else { return begun.elapsed() };
    let span = tracing::info_span!(
        "job",
        job.id = %job.id,
        job.kind = kind.name,
        tenant.id = tenant_of(&job).map(tracing::field::display),
        mailbox.id = mailbox_of(&job).map(tracing::field::display),
        trace.id = job.traceparent.as_deref().map(trace::trace_id),
    );
    metrics::histogram!(catalogue::JOBS_WAIT_SECONDS).record(job.waited_micros.max(0) as f64 / 1e6);
    async {
        match permit {
            Some(permit) => run_alone(&session, &kind, &job, permit).await,
            None => attempt_and_settle(&session, &kind, &job).await,
        }
    }
    .instrument(span)
    .await;
    begun.elapsed()
}

/// Runs a suspect: marked first, and without other suspects, so that the culprit is known if the process dies again.
async fn run_alone(session: &Arc<Session>, kind: &JobKind, job: &Arc<ClaimedJob>, permit: SuspectPermit) {
    match session.store().system().mark_started(job).await {
        Ok(true) => {
            let mut work = std::pin::pin!(attempt_and_settle(session, kind, job));
            if tokio::time::timeout(MAX_SUSPECT_PERMIT_HOLD, &mut work).await.is_err() {
                drop(permit);
                work.await;
            }
        }
        Ok(false) => session.untrack(job.id),
        Err(e) => {
            session.untrack(job.id);
            tracing::warn!(
                job.id = %job.id,
                job.kind = kind.name,
                tenant.id = tenant_of(job).map(tracing::field::display),
                error = redact_for_log(&e),
                "cannot start job"
            );
        }
    }
}

async fn attempt_and_settle(session: &Arc<Session>, kind: &JobKind, job: &Arc<ClaimedJob>) {
    let (stop, stopped) = oneshot::channel();
    session.running.lock().expect("no thread panics while it holds the list").insert(job.id, stop);
    let context = JobContext::new(job.clone(), session.store().clone());
    let ended = attempt(kind, &context, stopped).await;
    let is_batched = is_completed_in_batch(&ended);
    settle(session, kind, job, ended).await;
    if !is_batched {
        session.untrack(job.id);
    }
    session.running.lock().expect("no thread panics while it holds the list").remove(&job.id);
}

/// Returns whether the job is settled later, by the completer, and tracked until then.
fn is_completed_in_batch(ended: &AttemptEnd) -> bool {
    matches!(ended, AttemptEnd::Verdict(Completion::Done))
}

async fn attempt(kind: &JobKind, context: &JobContext, stopped: oneshot::Receiver<StopReason>) -> AttemptEnd {
    let run = run_in_pool(kind, context.clone());
    let stopped = async {
        match stopped.await {
            Ok(why) => why,
            // The sender was dropped with the session.
            Err(_) => std::future::pending().await,
        }
    };
    tokio::select! {
        ended = run => ended,
        why = stopped => AttemptEnd::Stopped(why),
        message = wait_for_timeout(kind, context) => AttemptEnd::TimedOut(message),
    }
}

async fn run_in_pool(kind: &JobKind, context: JobContext) -> AttemptEnd {
    let run = kind.run.clone();
    // A handler may panic before its first await as well.
    let run = AssertUnwindSafe(async move { run(context).await }).catch_unwind();
    let ended = match kind.pool {
        Pool::Io | Pool::Remote => run.await,
        Pool::Cpu => {
            // On a thread that may be busy for long; the runtime's own must not be. Dropping the future does not stop it.
            let runtime = tokio::runtime::Handle::current();
            match tokio::task::spawn_blocking(move || runtime.block_on(run)).await {
                Ok(ended) => ended,
                Err(e) => return AttemptEnd::Panicked(e.to_string()),
            }
        }
    };
    match ended {
        Ok(Ok(verdict)) => AttemptEnd::Verdict(verdict),
        Ok(Err(e)) => AttemptEnd::Error(e),
        Err(panic) => AttemptEnd::Panicked(panic_message(&*panic)),
    }
}

/// Waits until the attempt exceeds its deadline or goes too long without progress; returns which.
async fn wait_for_timeout(kind: &JobKind, context: &JobContext) -> String {
    let deadline = tokio::time::sleep(kind.deadline);
    let no_progress = async {
        let mut seen = context.progress_count();
        loop {
            tokio::time::sleep(kind.no_progress).await;
            let now = context.progress_count();
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

/// Returns the message of a panic.
pub fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "a panic without a message".to_owned())
}

async fn settle(session: &Arc<Session>, kind: &JobKind, job: &Arc<ClaimedJob>, ended: AttemptEnd) {
    match ended {
        // Counted by the completer.
        AttemptEnd::Verdict(Completion::Done) => session.complete_later(job.clone()).await,
        AttemptEnd::Verdict(Completion::Commit(mut unit)) => {
            unit.finish(job, JobEnd::Done, session.new_id());
            commit(session, kind, job, unit, "done").await;
        }
        AttemptEnd::Verdict(Completion::Park { mut unit, on, reason }) => {
            unit.park(job, &on, &reason);
            commit(session, kind, job, unit, PARKED).await;
        }
        AttemptEnd::Verdict(Completion::GiveUp { mut unit, class, message }) => {
            let failure = failure(kind, AttemptOutcome::Failed, class, &message);
            log_failure(job, &failure, None);
            unit.give_up(job, &failure, session.new_id());
            commit(session, kind, job, unit, "dead").await;
        }
        AttemptEnd::Error(JobError::Deferred(delay)) => {
            record_settlement(session, kind, job, Settlement::Deferred(delay, None)).await;
        }
        AttemptEnd::Error(JobError::Waiting { delay, reason }) => {
            record_settlement(session, kind, job, Settlement::Deferred(delay, Some(reason))).await;
        }
        AttemptEnd::Error(JobError::Storage { fault: StorageFault::Certain, message }) => {
            wait_for_database(session, kind, job, &message).await;
        }
        AttemptEnd::Error(JobError::Storage { fault: StorageFault::Possible, message }) => {
            fail(session, kind, job, AttemptOutcome::Failed, "storage", &message).await;
        }
        AttemptEnd::Error(JobError::Failed { class, message }) => {
            fail(session, kind, job, AttemptOutcome::Failed, class, &message).await;
        }
        AttemptEnd::Error(JobError::Fatal { class, message }) => {
            let failure = failure(kind, AttemptOutcome::Failed, class, &message);
            record_settlement(session, kind, job, Settlement::Dead(failure)).await;
        }
        AttemptEnd::Panicked(message) => fail(session, kind, job, AttemptOutcome::Panicked, "panic", &message).await,
        AttemptEnd::TimedOut(message) => fail(session, kind, job, AttemptOutcome::TimedOut, "timeout", &message).await,
        AttemptEnd::Stopped(StopReason::Cancel(reason)) => {
            record_settlement(session, kind, job, Settlement::Cancelled(reason)).await;
        }
        AttemptEnd::Stopped(StopReason::TenantOff) => {
            claimer::give_back(session, &[job.id]).await;
            count(kind, "given_back");
        }
    }
}

/// Commits the handler's unit together with what it says of the job: `outcome`.
async fn commit(
    session: &Arc<Session>,
    kind: &JobKind,
    job: &Arc<ClaimedJob>,
    unit: TenantUnit,
    outcome: &'static str,
) {
    let unit = unit.seal();
    let mut tries = 0;
    loop {
        let committed = unit.commit_at(Effect::CommitJob).await;
        match committed {
            Ok(_) => return count(kind, outcome),
            // Also when the previous commit succeeded and only its reply was lost.
            Err(StoreError::Precondition(Precondition::JobNotHeld)) => return count(kind, "lost"),
            // Put back, it is cancelled with the reason that was given for it.
            Err(StoreError::Precondition(Precondition::JobCancelled)) => {
                return record_settlement(session, kind, job, Settlement::Deferred(Duration::ZERO, None)).await;
            }
            // What it would wait for is over.
            Err(StoreError::Precondition(_)) if outcome == PARKED => {
                return record_settlement(session, kind, job, Settlement::Deferred(Duration::ZERO, None)).await;
            }
            Err(e) if is_transient(&e) => {
                tries += 1;
                back_off(tries, &*session.work.random).await;
            }
            Err(e) if e.storage_fault() == Some(StorageFault::Certain) => {
                return wait_for_database(session, kind, job, &e.to_string()).await;
            }
            Err(e) => return fail(session, kind, job, AttemptOutcome::Failed, "store", &e.to_string()).await,
        }
    }
}

/// Defers a job for a database that is away or full, each time for longer.
async fn wait_for_database(session: &Session, kind: &JobKind, job: &ClaimedJob, message: &str) {
    tracing::warn!(job.id = %job.id, job.kind = job.kind, error = redact_for_log(message), "job waits for the database");
    let claims = job.token.saturating_sub(1).min(MAX_COUNTED_CLAIMS);
    let delay = DATABASE_RETRY.delay(claims, &*session.work.random).unwrap_or(DATABASE_RETRY.max_delay);
    let reason = "the database is away or full".to_owned();
    record_settlement(session, kind, job, Settlement::Deferred(delay, Some(reason))).await;
}

async fn fail(
    session: &Session,
    kind: &JobKind,
    job: &ClaimedJob,
    outcome: AttemptOutcome,
    class: &str,
    message: &str,
) {
    let failure = failure(kind, outcome, class, message);
    let settlement = match kind.retry.delay(job.attempt, &*session.work.random) {
        Some(delay) => Settlement::Retry(failure, delay),
        None => Settlement::Dead(failure),
    };
    record_settlement(session, kind, job, settlement).await;
}

fn failure(kind: &JobKind, outcome: AttemptOutcome, class: &str, message: &str) -> AttemptFailure {
    let mut message = message.to_owned();
    message.truncate(message.floor_char_boundary(MAX_ERROR_MESSAGE_BYTES));
    let fingerprint = retry::fingerprint(kind.name, class, &message);
    AttemptFailure { outcome, error_class: class.to_owned(), message, fingerprint }
}

/// How a job that is not done is recorded.
enum Settlement {
    Retry(AttemptFailure, Duration),
    Dead(AttemptFailure),
    /// With the reason, if people should see one.
    Deferred(Duration, Option<String>),
    Cancelled(String),
}

impl Settlement {
    fn name(&self) -> &'static str {
        match self {
            Self::Retry(..) => "retry",
            Self::Dead(_) => "dead",
            Self::Deferred(..) => "throttled",
            Self::Cancelled(_) => "cancelled",
        }
    }

    /// Writes it; returns `false` if this worker does not hold the job any more.
    async fn write(&self, session: &Session, job: &ClaimedJob) -> Result<bool, StoreError> {
        let (system, id) = (session.store().system(), session.new_id());
        match self {
            Self::Retry(failure, delay) => system.fail_job(job, failure, AfterFailure::RetryIn(*delay), id).await,
            Self::Dead(failure) => system.fail_job(job, failure, AfterFailure::Dead, id).await,
            Self::Deferred(delay, reason) => system.defer_job(job, *delay, reason.as_deref()).await,
            Self::Cancelled(reason) => system.end_cancelled(job, reason, id).await,
        }
    }
}

/// Records the settlement, with retries until it is written or the session ends.
async fn record_settlement(session: &Session, kind: &JobKind, job: &ClaimedJob, settlement: Settlement) {
    match &settlement {
        Settlement::Retry(failure, delay) => log_failure(job, failure, Some(session.store().clock().now() + *delay)),
        Settlement::Dead(failure) => log_failure(job, failure, None),
        Settlement::Deferred(..) | Settlement::Cancelled(_) => {}
    }
    let mut tries = 0;
    loop {
        match settlement.write(session, job).await {
            Ok(true) => return count(kind, settlement.name()),
            Ok(false) => return count(kind, "lost"),
            // Reconciliation gives the job back.
            Err(e) if tries >= MAX_SETTLE_TRIES => {
                tracing::error!(
                    job.id = %job.id,
                    job.kind = kind.name,
                    tenant.id = tenant_of(job).map(tracing::field::display),
                    error = redact_for_log(&e),
                    "cannot settle job"
                );
                return;
            }
            Err(_) => {
                tries += 1;
                back_off(tries, &*session.work.random).await;
            }
        }
    }
}

/// Logs a failed attempt: the job with its tenant and mailbox, the cause, and when it is retried.
fn log_failure(job: &ClaimedJob, failure: &AttemptFailure, retry_at: Option<Timestamp>) {
    tracing::warn!(
        job.id = %job.id,
        job.kind = job.kind,
        tenant.id = tenant_of(job).map(tracing::field::display),
        mailbox.id = mailbox_of(job).map(tracing::field::display),
        attempt = job.attempt + 1,
        class = failure.error_class,
        outcome = if retry_at.is_some() { "retry" } else { "dead" },
        retry_at = retry_at.map(tracing::field::display),
        error = redact_for_log(&failure.message),
        "job failed"
    );
}

/// Returns the tenant that a job works on: its own, or for a job of the system the field `tenant` of the payload.
fn tenant_of(job: &ClaimedJob) -> Option<TenantId> {
    if job.tenant != TenantId::SYSTEM {
        return Some(job.tenant);
    }
    job.payload.get("tenant")?.as_str()?.parse().ok()
}

/// Returns the mailbox that a job works on: by convention it is the field `mailbox` of the payload.
fn mailbox_of(job: &ClaimedJob) -> Option<MailboxId> {
    job.payload.get("mailbox")?.as_str()?.parse().ok()
}

fn count(kind: &JobKind, outcome: &'static str) {
    metrics::counter!(catalogue::JOBS_FINISHED, "kind" => kind.name, "outcome" => outcome).increment(1);
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::Mutex;

    use domain::{JobId, Lane, WorkerId};
    use serde_json::{Value, json};
    use uuid::Uuid;

    use super::*;

    fn job(tenant: TenantId, payload: Value) -> ClaimedJob {
        ClaimedJob {
            tenant,
            id: JobId(Uuid::from_u128(7)),
            kind: "fetch_emails".to_owned(),
            lane: Lane::Normal,
            payload,
            worker: WorkerId(Uuid::nil()),
            token: 1,
            attempt: 2,
            traceparent: None,
            is_suspect: false,
            order_key: None,
            is_unique: false,
            position: 0,
            waited_micros: 0,
            created_at: Timestamp::UNIX_EPOCH,
            cost: 0,
        }
    }

    fn failed(message: &str) -> AttemptFailure {
        let (error_class, fingerprint) = ("io".to_owned(), String::new());
        AttemptFailure { outcome: AttemptOutcome::Failed, error_class, message: message.to_owned(), fingerprint }
    }

    #[derive(Clone, Default)]
    struct LogBuffer(Arc<Mutex<Vec<u8>>>);

    impl Write for LogBuffer {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    /// Returns the one line that is logged, as the service writes it.
    fn logged(log: impl FnOnce()) -> Value {
        let buffer = LogBuffer::default();
        let writer = buffer.clone();
        let lines = tracing_subscriber::fmt().json().flatten_event(true).with_writer(move || writer.clone());
        tracing::subscriber::with_default(lines.finish(), log);
        let bytes = buffer.0.lock().unwrap().clone();
        serde_json::from_slice(&bytes).unwrap()
    }

    #[test]
    fn failure_is_logged_with_job_tenant_and_cause() {
        let (tenant, mailbox) = (TenantId(Uuid::from_u128(1)), MailboxId(Uuid::from_u128(2)));
        let job = job(tenant, json!({"mailbox": mailbox, "messages": ["1"]}));
        let retry_at = "2026-05-01T10:30:00Z".parse().unwrap();

        let line =
            logged(|| log_failure(&job, &failed("no route\nto ann@acme.test, password=hunter2"), Some(retry_at)));

        let expected = json!({
            "message": "job failed",
            "level": "WARN",
            "job.id": job.id,
            "job.kind": "fetch_emails",
            "tenant.id": tenant,
            "mailbox.id": mailbox,
            "attempt": 3,
            "class": "io",
            "outcome": "retry",
            "retry_at": "2026-05-01T10:30:00Z",
            "error": "no route\\nto ***@***, password=***",
        });
        for (field, value) in expected.as_object().unwrap() {
            assert_eq!(&line[field], value, "{field} in {line}");
        }
    }

    #[test]
    fn system_job_is_logged_with_the_tenant_of_its_payload() {
        let tenant = TenantId(Uuid::from_u128(1));

        let line = logged(|| log_failure(&job(TenantId::SYSTEM, json!({"tenant": tenant})), &failed("x"), None));

        assert_eq!(line["tenant.id"], json!(tenant));
    }

    #[test]
    fn dead_system_job_is_logged_without_absent_fields() {
        let line = logged(|| log_failure(&job(TenantId::SYSTEM, json!({})), &failed(&"x ".repeat(500)), None));

        assert_eq!(line["outcome"], "dead");
        assert_eq!(line["error"].as_str().unwrap().chars().count(), 300);
        for absent in ["tenant.id", "mailbox.id", "retry_at"] {
            assert_eq!(line.get(absent), None, "{line}");
        }
    }
}
