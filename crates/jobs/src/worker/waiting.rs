//! What was claimed and not begun.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use domain::JobId;
use store::sql::jobs::Claimed;
use tokio::sync::Semaphore;

use super::run::Turn;

/// What was claimed ahead and not begun after this long goes back.
const STUCK: Duration = Duration::from_secs(1);

/// Suspects go back much later: whoever takes them lets them wait for turns as well, and they are the first that the next
/// claim finds, so that giving them back often is work for nothing.
const SUSPECTS_STUCK: Duration = Duration::from_secs(30);

/// So many suspects wait here without being in anybody's way: what ten processes leave that die, a few megabytes. Beyond,
/// they count as jobs that wait for a slot, so that memory stays bounded.
const MOST_SUSPECTS: usize = 5000;

/// Jobs in their order, and apart from them those that were around when a process died: these need a turn besides a slot,
/// and the others go past them meanwhile.
#[derive(Debug)]
pub(super) struct Waiting {
    jobs: VecDeque<Claimed>,
    suspects: VecDeque<Claimed>,
    /// For the next suspect.
    turn: Option<Turn>,
    begun_at: Instant,
    suspect_begun_at: Instant,
}

impl Default for Waiting {
    fn default() -> Self {
        let now = Instant::now();
        Self { jobs: VecDeque::new(), suspects: VecDeque::new(), turn: None, begun_at: now, suspect_begun_at: now }
    }
}

impl Waiting {
    pub fn extend(&mut self, claimed: Vec<Claimed>) {
        if self.suspects.is_empty() {
            self.suspect_begun_at = Instant::now(); // nobody has waited yet
        }
        let (suspects, jobs): (Vec<Claimed>, Vec<Claimed>) = claimed.into_iter().partition(|job| job.is_suspect);
        self.suspects.extend(suspects);
        self.jobs.extend(jobs);
    }

    /// Who begins when a slot is free: a suspect if it can have the turn, or else it might wait for as long as others come.
    pub fn next(&mut self, turns: &Arc<Semaphore>) -> Option<(Claimed, Option<Turn>)> {
        if !self.suspects.is_empty()
            && let Some(turn) = self.turn.take().or_else(|| turns.clone().try_acquire_owned().ok())
        {
            (self.begun_at, self.suspect_begun_at) = (Instant::now(), Instant::now());
            return Some((self.suspects.pop_front()?, Some(turn)));
        }
        let job = self.jobs.pop_front()?;
        self.begun_at = Instant::now();
        Some((job, None))
    }

    /// Kept until [`Waiting::next`], so that nobody else takes it meanwhile.
    pub fn keep_turn(&mut self, turn: Turn) {
        self.turn = Some(turn);
    }

    /// What has waited for a slot for too long, while all are taken.
    pub fn take_stuck(&mut self, is_full: bool) -> Vec<JobId> {
        let mut stuck = Vec::new();
        if is_full && self.begun_at.elapsed() > STUCK {
            stuck.extend(self.jobs.drain(..).map(|job| job.id));
        }
        if is_full && self.suspect_begun_at.elapsed() > SUSPECTS_STUCK {
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

    /// How much less there is to claim.
    pub fn room_taken(&self) -> usize {
        self.jobs.len() + self.suspects.len().saturating_sub(MOST_SUSPECTS)
    }
}
