//! Jobs that were claimed ahead and not started yet.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use domain::JobId;
use store::sql::jobs::ClaimedJob;
use tokio::sync::Semaphore;

use super::attempt::SuspectPermit;

/// Prefetched jobs go back to the queue if no job started for this long.
const MAX_PREFETCH_WAIT: Duration = Duration::from_secs(1);

/// Suspects go back much later: they wait for a permit in any process, and the next claim finds them first, so that giving
/// them back often achieves nothing.
const MAX_SUSPECT_WAIT: Duration = Duration::from_secs(30);

/// As many suspects as ten dying processes leave, a few megabytes, wait here without reducing claims. Beyond that they
/// count as prefetched jobs, so that memory stays bounded.
const MAX_UNCOUNTED_SUSPECTS: usize = 5000;

/// Prefetched jobs in order, and separately the suspects: jobs that were running when a process died. A suspect needs a
/// permit besides a slot, and other jobs overtake it meanwhile.
#[derive(Debug)]
pub(super) struct PrefetchedJobs {
    jobs: VecDeque<ClaimedJob>,
    suspects: VecDeque<ClaimedJob>,
    /// The permit for the next suspect.
    permit: Option<SuspectPermit>,
    last_start_at: Instant,
    last_suspect_start_at: Instant,
}

impl Default for PrefetchedJobs {
    fn default() -> Self {
        let now = Instant::now();
        Self {
            jobs: VecDeque::new(),
            suspects: VecDeque::new(),
            permit: None,
            last_start_at: now,
            last_suspect_start_at: now,
        }
    }
}

impl PrefetchedJobs {
    pub fn extend(&mut self, claimed: Vec<ClaimedJob>) {
        if self.suspects.is_empty() {
            self.last_suspect_start_at = Instant::now(); // none has waited yet
        }
        let (suspects, jobs): (Vec<ClaimedJob>, Vec<ClaimedJob>) = claimed.into_iter().partition(|job| job.is_suspect);
        self.suspects.extend(suspects);
        self.jobs.extend(jobs);
    }

    /// Returns the job that starts in a free slot: a suspect if the permit is free, since otherwise new jobs could delay it
    /// for ever.
    pub fn next(&mut self, permits: &Arc<Semaphore>) -> Option<(ClaimedJob, Option<SuspectPermit>)> {
        if !self.suspects.is_empty()
            && let Some(permit) = self.permit.take().or_else(|| permits.clone().try_acquire_owned().ok())
        {
            (self.last_start_at, self.last_suspect_start_at) = (Instant::now(), Instant::now());
            return Some((self.suspects.pop_front()?, Some(permit)));
        }
        let job = self.jobs.pop_front()?;
        self.last_start_at = Instant::now();
        Some((job, None))
    }

    /// Keeps the permit for [`PrefetchedJobs::next`], so that no other pool takes it meanwhile.
    pub fn keep_permit(&mut self, permit: SuspectPermit) {
        self.permit = Some(permit);
    }

    /// Removes and returns the jobs that have waited too long while all slots are taken.
    pub fn take_stuck(&mut self, is_full: bool) -> Vec<JobId> {
        let mut stuck = Vec::new();
        if is_full && self.last_start_at.elapsed() > MAX_PREFETCH_WAIT {
            stuck.extend(self.jobs.drain(..).map(|job| job.id));
        }
        if is_full && self.last_suspect_start_at.elapsed() > MAX_SUSPECT_WAIT {
            stuck.extend(self.suspects.drain(..).map(|job| job.id));
        }
        stuck
    }

    pub fn take_all(&mut self) -> Vec<JobId> {
        self.jobs.drain(..).chain(self.suspects.drain(..)).map(|job| job.id).collect()
    }

    pub fn is_empty(&self) -> bool {
        self.jobs.is_empty() && self.suspects.is_empty()
    }

    pub fn has_suspects(&self) -> bool {
        !self.suspects.is_empty()
    }

    /// Returns how many jobs a claim must leave out for those waiting here.
    pub fn occupied_slots(&self) -> usize {
        self.jobs.len() + self.suspects.len().saturating_sub(MAX_UNCOUNTED_SUSPECTS)
    }
}
