//! The claim loop of one pool: prefetches a few more jobs than it has free slots, so that no slot waits for a commit.

use std::sync::Arc;
use std::time::{Duration, Instant};

use domain::{JobId, redact_for_log};
use store::StoreError;
use store::sql::jobs::ClaimedJob;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::prefetched::PrefetchedJobs;
use super::{Session, attempt};
use crate::{Pool, fair};

/// The largest claim: it stays well under 50 ms.
const MAX_CLAIM_JOBS: usize = 500;

/// Prefetched jobs should start within about this time.
const PREFETCH_WINDOW: Duration = Duration::from_millis(40);

/// How often prefetched jobs are checked for having waited too long.
const PREFETCH_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// The first delay after a claim that lost every queue to another worker. It doubles from time to time, up to a quarter of
/// a second.
const CONTENTION_RETRY_DELAY: Duration = Duration::from_millis(2);

/// Contention this often in a row is implausible: perhaps the waiting jobs are before the position where claims begin to
/// search.
const CONTENDED_CLAIMS_BEFORE_RESCAN: u32 = 5;

/// How often recent arrivals are counted without a notification, because one may be lost.
const COUNT_LATEST_INTERVAL: Duration = Duration::from_millis(250);

/// How often all arrivals are counted, not only recent ones.
const COUNT_ALL_INTERVAL: Duration = Duration::from_secs(5);

/// The result of a claim.
enum ClaimResult {
    Jobs(Vec<ClaimedJob>),
    /// No job may run now.
    Nothing,
    /// Other workers took the jobs that there were.
    Contended,
}

/// Claims and runs jobs until a stop; returns when no job of this pool runs any more.
pub(super) async fn run(session: &Arc<Session>, pool: Pool, slots: usize, mut stopped: watch::Receiver<bool>) {
    let kinds = session.work.kinds.names_of(pool);
    if kinds.is_empty() || slots == 0 {
        let _ = stopped.wait_for(|stopped| *stopped).await;
        return;
    }
    let mut tasks: JoinSet<Duration> = JoinSet::new();
    let mut prefetched = PrefetchedJobs::default();
    let mut prefetch = PrefetchPlanner::new(slots);
    let mut hints = session.store().watch_jobs();
    let poll = session.work.settings.poll;
    let mut next_claim_at = Instant::now();
    // A notification arrived while a claim was under way, which may have looked before the new jobs were there.
    let mut is_notified = false;
    let mut planner = ScanPlanner::default();
    let mut claiming = std::pin::pin!(None);
    while !*stopped.borrow() {
        while tasks.len() < slots
            && let Some((job, permit)) = prefetched.next(&session.suspect_permits)
        {
            tasks.spawn(attempt::run(session.clone(), Arc::new(job), permit));
        }
        let is_full = tasks.len() >= slots;
        let stuck = prefetched.take_stuck(is_full);
        if !stuck.is_empty() {
            // All slots are taken for longer than expected; another worker may have a free one.
            prefetch.record_duration(PREFETCH_CHECK_INTERVAL * 50);
            give_back(session, &stuck).await;
        }
        let free = prefetch.capacity(slots - tasks.len()).saturating_sub(prefetched.occupied_slots());
        if claiming.is_none() && next_claim_at <= Instant::now() && free * 2 > prefetch.capacity(0).max(1) {
            let scan = planner.next(std::mem::take(&mut is_notified));
            claiming.set(Some(claim(session, pool, &kinds, free, scan)));
        }
        tokio::select! {
            // A dropped sender is a stop as well.
            changed = stopped.changed() => if changed.is_err() { break },
            Some(took) = tasks.join_next(), if !tasks.is_empty() => prefetch.record_duration(took.unwrap_or_default()),
            claimed = async { claiming.as_mut().as_pin_mut().expect("only polled while there is one").await }, if claiming.is_some() => {
                claiming.set(None);
                planner.record(&claimed);
                next_claim_at = match claimed {
                    Ok(ClaimResult::Jobs(jobs)) => {
                        prefetched.extend(jobs);
                        Instant::now()
                    }
                    Ok(ClaimResult::Contended) => Instant::now() + planner.retry_delay().mul_f64(0.5 + session.work.random.next_fraction()),
                    Ok(ClaimResult::Nothing) if is_notified => Instant::now(),
                    Ok(ClaimResult::Nothing) => Instant::now() + poll,
                    Err(e) => {
                        tracing::warn!(error = redact_for_log(&e), "cannot claim jobs");
                        Instant::now() + poll.mul_f64(0.5 + session.work.random.next_fraction())
                    }
                };
            }
            Ok(()) = hints.changed() => {
                is_notified = true;
                next_claim_at = Instant::now();
            }
            Ok(permit) = session.suspect_permits.clone().acquire_owned(), if !is_full && prefetched.has_suspects() => prefetched.keep_permit(permit),
            () = tokio::time::sleep(PREFETCH_CHECK_INTERVAL), if !prefetched.is_empty() => {}
            () = tokio::time::sleep_until(next_claim_at.into()), if claiming.is_none() && next_claim_at > Instant::now() => {}
        }
    }
    // A claim under way may have been committed; its jobs go back with the rest.
    if let Some(claim) = claiming.as_mut().as_pin_mut()
        && let Ok(ClaimResult::Jobs(jobs)) = claim.await
    {
        prefetched.extend(jobs);
    }
    drain(session, tasks, &prefetched.take_all()).await;
}

/// Gives back jobs that were not started, and waits for running ones as long as the grace period lasts.
async fn drain(session: &Session, mut tasks: JoinSet<Duration>, prefetched: &[JobId]) {
    give_back(session, prefetched).await;
    let all = async { while tasks.join_next().await.is_some() {} };
    if tokio::time::timeout(session.work.settings.grace, all).await.is_ok() {
        return;
    }
    // Not waited for: a thread that computes cannot be stopped. The fence token refuses what it still writes.
    tasks.abort_all();
    let running = std::mem::take(&mut *session.running.lock().expect("no thread panics while it holds the list"));
    let ids: Vec<JobId> = running.into_keys().collect();
    tracing::warn!(jobs = ids.len(), "gave back jobs that were still running at shutdown");
    give_back(session, &ids).await;
}

/// Returns claimed jobs to the queue without spending an attempt.
pub(super) async fn give_back(session: &Session, jobs: &[JobId]) {
    if jobs.is_empty() {
        return;
    }
    if let Err(e) = session.store().system().return_jobs(session.worker, jobs).await {
        tracing::warn!(
            error = redact_for_log(&e),
            jobs = jobs.len(),
            "cannot give jobs back; the next reconciliation will"
        );
    }
    for job in jobs {
        session.untrack(*job);
    }
}

/// How thoroughly the next claim searches.
#[derive(Debug, Clone, Copy)]
struct ClaimScan {
    counts: ArrivalCount,
    /// Whether queues are searched from their start.
    is_rescan: bool,
}

/// Which new jobs are counted before a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ArrivalCount {
    All,
    Latest,
    Nothing,
}

/// Decides by the results of the last claims how thoroughly to search next.
#[derive(Default)]
struct ScanPlanner {
    counted_all: Option<Instant>,
    counted: Option<Instant>,
    contended: u32,
}

impl ScanPlanner {
    fn next(&mut self, is_notified: bool) -> ClaimScan {
        let counts = if is_due(self.counted_all, COUNT_ALL_INTERVAL) {
            self.counted_all = Some(Instant::now());
            ArrivalCount::All
        } else if is_notified || is_due(self.counted, COUNT_LATEST_INTERVAL) {
            ArrivalCount::Latest
        } else {
            ArrivalCount::Nothing
        };
        if counts != ArrivalCount::Nothing {
            self.counted = Some(Instant::now());
        }
        ClaimScan {
            counts,
            is_rescan: self.contended > 0 && self.contended.is_multiple_of(CONTENDED_CLAIMS_BEFORE_RESCAN),
        }
    }

    fn record(&mut self, claimed: &Result<ClaimResult, StoreError>) {
        self.contended = if matches!(claimed, Ok(ClaimResult::Contended)) { self.contended + 1 } else { 0 };
    }

    fn retry_delay(&self) -> Duration {
        CONTENTION_RETRY_DELAY * (1 << (self.contended / CONTENDED_CLAIMS_BEFORE_RESCAN).min(7))
    }
}

fn is_due(last: Option<Instant>, interval: Duration) -> bool {
    last.is_none_or(|last| last.elapsed() > interval)
}

/// Claims up to `most` jobs by fair shares.
async fn claim(
    session: &Session,
    pool: Pool,
    kinds: &[String],
    most: usize,
    scan: ClaimScan,
) -> Result<ClaimResult, StoreError> {
    let system = session.store().system();
    match scan.counts {
        ArrivalCount::All => system.count_arrivals().await?,
        ArrivalCount::Latest => system.count_recent_arrivals().await?,
        ArrivalCount::Nothing => {}
    }
    let mut candidates = system.list_queue_candidates(kinds).await?;
    if candidates.is_empty() && scan.counts == ArrivalCount::Nothing {
        system.count_recent_arrivals().await?;
        candidates = system.list_queue_candidates(kinds).await?;
    }
    let has_limits = candidates.iter().any(|c| c.tenant_room.is_some() || c.kind_room.is_some());
    session.limits.record(pool, has_limits);
    let shares = fair::plan_shares(&candidates, most as u64);
    if shares.is_empty() {
        return Ok(ClaimResult::Nothing);
    }
    if scan.is_rescan {
        system.reset_queue_heads(&shares).await?;
    }
    let jobs = system.claim_jobs(session.worker, &shares).await?;
    session.track(&jobs);
    let jobs = fair::interleave_tenants(jobs);
    Ok(if jobs.is_empty() { ClaimResult::Contended } else { ClaimResult::Jobs(jobs) })
}

/// Decides how many jobs to prefetch: the shorter jobs are, the more.
struct PrefetchPlanner {
    slots: usize,
    /// A moving average of how long a job takes; nothing is prefetched before the first one has ended.
    seconds: Option<f64>,
}

impl PrefetchPlanner {
    fn new(slots: usize) -> Self {
        Self { slots, seconds: None }
    }

    fn record_duration(&mut self, took: Duration) {
        let took = took.as_secs_f64();
        self.seconds = Some(self.seconds.map_or(took, |seconds| seconds + (took - seconds) / 50.0));
    }

    /// Returns how many jobs may be claimed while `free` slots are free.
    fn capacity(&self, free: usize) -> usize {
        let ahead =
            self.seconds.map_or(0.0, |seconds| self.slots as f64 * PREFETCH_WINDOW.as_secs_f64() / seconds.max(1e-6));
        (free + ahead as usize).min(MAX_CLAIM_JOBS)
    }
}
