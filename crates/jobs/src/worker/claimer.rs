//! Keeps one pool busy: claims a little more than runs, so that no slot waits for a commit.

use std::sync::Arc;
use std::time::{Duration, Instant};

use domain::JobId;
use store::StoreError;
use store::sql::jobs::Claimed;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::waiting::Waiting;
use super::{Session, run};
use crate::{Pool, fair};

/// The most that is claimed at once: a claim stays well under 50 ms.
const MOST_AT_ONCE: usize = 500;

/// What is claimed beyond the free slots should be begun within about this time.
const AHEAD: Duration = Duration::from_millis(40);

/// How long what was claimed ahead may wait before somebody looks whether it is to go back.
const LOOK_AT_WAITING: Duration = Duration::from_secs(1);

/// Queues were there but somebody else was taking from them. It doubles from time to time, up to a quarter of a second.
const ANOTHER_IS_AT_IT: Duration = Duration::from_millis(2);

/// Nobody takes from a queue that often in a row: perhaps what waits stands where nobody looks.
const SUSPICIOUS: u32 = 5;

/// Nobody told of new jobs, so what was counted is what there is; but a message may be lost.
const COUNT_EVERY: Duration = Duration::from_millis(250);

/// How often everything that came is counted, not only what came lately.
const COUNT_ALL_EVERY: Duration = Duration::from_secs(5);

/// What a claim found.
enum Found {
    Jobs(Vec<Claimed>),
    /// Nothing that may run now.
    Nothing,
    /// Something, but it was just being taken.
    Contended,
}

/// Returns after a stop, when nothing of this pool runs any more.
pub(super) async fn run(session: &Arc<Session>, pool: Pool, slots: usize, mut stopped: watch::Receiver<bool>) {
    let kinds = session.work.kinds.names_of(pool);
    if kinds.is_empty() || slots == 0 {
        let _ = stopped.wait_for(|stopped| *stopped).await;
        return;
    }
    let mut tasks: JoinSet<Duration> = JoinSet::new();
    let mut waiting = Waiting::default();
    let mut pace = Pace::new(slots);
    let mut hints = session.store().watch_jobs();
    let poll = session.work.settings.poll;
    let mut look_at = Instant::now();
    // Somebody told of jobs while a claim was on its way, which may have looked before they came.
    let mut is_told = false;
    let mut look = Look::default();
    let mut claiming = std::pin::pin!(None);
    while !*stopped.borrow() {
        while tasks.len() < slots
            && let Some((job, turn)) = waiting.next(&session.suspects)
        {
            tasks.spawn(run::run(session.clone(), Arc::new(job), turn));
        }
        let is_full = tasks.len() >= slots;
        let stuck = waiting.take_stuck(is_full);
        if !stuck.is_empty() {
            // All slots are taken for longer than we thought; others may have free ones.
            pace.ended(LOOK_AT_WAITING * 50);
            give_back(session, &stuck).await;
        }
        let room = pace.wanted(slots - tasks.len()).saturating_sub(waiting.room_taken());
        if claiming.is_none() && look_at <= Instant::now() && room * 2 > pace.wanted(0).max(1) {
            let look = look.next(std::mem::take(&mut is_told));
            claiming.set(Some(claim(session, pool, &kinds, room, look)));
        }
        tokio::select! {
            // Whoever could stop us is gone: that is a stop as well.
            changed = stopped.changed() => if changed.is_err() { break },
            Some(ended) = tasks.join_next(), if !tasks.is_empty() => pace.ended(ended.unwrap_or_default()),
            found = async { claiming.as_mut().as_pin_mut().expect("only polled while there is one").await }, if claiming.is_some() => {
                claiming.set(None);
                look.found(&found);
                look_at = match found {
                    Ok(Found::Jobs(jobs)) => {
                        waiting.extend(jobs);
                        Instant::now()
                    }
                    Ok(Found::Contended) => Instant::now() + look.pause().mul_f64(0.5 + session.work.dice.fraction()),
                    Ok(Found::Nothing) if is_told => Instant::now(),
                    Ok(Found::Nothing) => Instant::now() + poll,
                    Err(e) => {
                        tracing::warn!("cannot claim jobs: {e}");
                        Instant::now() + poll.mul_f64(0.5 + session.work.dice.fraction())
                    }
                };
            }
            Ok(()) = hints.changed() => {
                is_told = true;
                look_at = Instant::now();
            }
            Ok(turn) = session.suspects.clone().acquire_owned(), if !is_full && waiting.has_suspects() => waiting.keep_turn(turn),
            () = tokio::time::sleep(LOOK_AT_WAITING), if !waiting.is_empty() => {}
            () = tokio::time::sleep_until(look_at.into()), if claiming.is_none() && look_at > Instant::now() => {}
        }
    }
    // A claim on its way may have been committed; what it holds goes back with the rest.
    if let Some(claim) = claiming.as_mut().as_pin_mut()
        && let Ok(Found::Jobs(jobs)) = claim.await
    {
        waiting.extend(jobs);
    }
    wind_up(session, tasks, &waiting.take_all()).await;
}

/// Gives back what was not begun, and waits for the rest as long as may be.
async fn wind_up(session: &Session, mut tasks: JoinSet<Duration>, waiting: &[JobId]) {
    give_back(session, waiting).await;
    let all = async { while tasks.join_next().await.is_some() {} };
    if tokio::time::timeout(session.work.settings.grace, all).await.is_ok() {
        return;
    }
    // Not waited for: a thread that computes cannot be stopped. What it still writes is refused.
    tasks.abort_all();
    let running = std::mem::take(&mut *session.running.lock().expect("nobody panics while holding the list"));
    let ids: Vec<JobId> = running.into_keys().collect();
    tracing::warn!(jobs = ids.len(), "jobs were still running and are given back");
    give_back(session, &ids).await;
}

pub(super) async fn give_back(session: &Session, jobs: &[JobId]) {
    if jobs.is_empty() {
        return;
    }
    if let Err(e) = session.store().system().give_back(session.worker, jobs).await {
        tracing::warn!("cannot give jobs back, they come back later: {e}");
    }
    for job in jobs {
        session.let_go(*job);
    }
}

/// How thoroughly to look.
#[derive(Debug, Clone, Copy)]
struct Thoroughly {
    counts: Counts,
    from_the_start: bool,
}

/// What to count before a claim looks at the queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Counts {
    All,
    Latest,
    Nothing,
}

/// What the last claims found, and so how to look next.
#[derive(Default)]
struct Look {
    counted_all: Option<Instant>,
    counted: Option<Instant>,
    contended: u32,
}

impl Look {
    fn next(&mut self, is_told: bool) -> Thoroughly {
        let is_over = |then: Option<Instant>, every| then.is_none_or(|then: Instant| then.elapsed() > every);
        let counts = if is_over(self.counted_all, COUNT_ALL_EVERY) {
            self.counted_all = Some(Instant::now());
            Counts::All
        } else if is_told || is_over(self.counted, COUNT_EVERY) {
            Counts::Latest
        } else {
            Counts::Nothing
        };
        if counts != Counts::Nothing {
            self.counted = Some(Instant::now());
        }
        Thoroughly { counts, from_the_start: self.contended > 0 && self.contended.is_multiple_of(SUSPICIOUS) }
    }

    fn found(&mut self, found: &Result<Found, StoreError>) {
        self.contended = if matches!(found, Ok(Found::Contended)) { self.contended + 1 } else { 0 };
    }

    fn pause(&self) -> Duration {
        ANOTHER_IS_AT_IT * (1 << (self.contended / SUSPICIOUS).min(7))
    }
}

async fn claim(
    session: &Session,
    pool: Pool,
    kinds: &[String],
    most: usize,
    look: Thoroughly,
) -> Result<Found, StoreError> {
    let system = session.store().system();
    match look.counts {
        Counts::All => system.count_arrivals().await?,
        Counts::Latest => system.count_latest_arrivals().await?,
        Counts::Nothing => {}
    }
    let mut candidates = system.list_candidates(kinds).await?;
    if candidates.is_empty() && look.counts == Counts::Nothing {
        system.count_latest_arrivals().await?;
        candidates = system.list_candidates(kinds).await?;
    }
    let has_limits = candidates.iter().any(|c| c.tenant_room.is_some() || c.kind_room.is_some());
    session.limits.saw(pool, has_limits);
    let shares = fair::plan(&candidates, most as u64);
    if shares.is_empty() {
        return Ok(Found::Nothing);
    }
    if look.from_the_start {
        system.look_from_the_start(&shares).await?;
    }
    let jobs = system.claim(session.worker, &shares).await?;
    session.hold(&jobs);
    let jobs = fair::in_turns(jobs);
    Ok(if jobs.is_empty() { Found::Contended } else { Found::Jobs(jobs) })
}

/// How far ahead to claim: the quicker jobs are, the more.
struct Pace {
    slots: usize,
    /// A moving average of how long a job takes; nothing is claimed ahead before one has ended.
    seconds: Option<f64>,
}

impl Pace {
    fn new(slots: usize) -> Self {
        Self { slots, seconds: None }
    }

    fn ended(&mut self, took: Duration) {
        let took = took.as_secs_f64();
        self.seconds = Some(self.seconds.map_or(took, |seconds| seconds + (took - seconds) / 50.0));
    }

    fn wanted(&self, free: usize) -> usize {
        let ahead = self.seconds.map_or(0.0, |seconds| self.slots as f64 * AHEAD.as_secs_f64() / seconds.max(1e-6));
        (free + ahead as usize).min(MOST_AT_ONCE)
    }
}
