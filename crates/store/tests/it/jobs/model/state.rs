//! The queue as it should be, in plain memory.

use std::collections::{BTreeMap, BTreeSet};

use domain::{JobId, Lane, TenantId, WorkerId};
use store::sql::jobs::{Claimed, NewJob, OnConflict, When};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    Scheduled,
    Blocked,
    Doomed,
    Ready,
    Running,
    Retry,
    Done,
    Dead,
    Cancelled,
}

impl State {
    pub fn is_live(self) -> bool {
        !matches!(self, Self::Done | Self::Dead | Self::Cancelled)
    }

    pub fn text(self) -> String {
        format!("{self:?}").to_lowercase()
    }
}

#[derive(Debug, Clone)]
pub struct Job {
    pub tenant: TenantId,
    pub kind: String,
    pub lane: Lane,
    pub payload: serde_json::Value,
    pub state: State,
    /// Whether its time has come.
    pub is_due: bool,
    /// The operation by which it became ready; those of one operation come in any order.
    pub rank: u64,
    pub token: u64,
    pub attempt: u64,
    pub abandoned: u64,
    pub suspected: u64,
    pub is_marked: bool,
    pub worker: Option<WorkerId>,
    pub unique: Option<String>,
    pub rerun: bool,
    /// Somebody wanted it to end while it ran.
    pub is_unwanted: bool,
    pub order: Option<(String, u64)>,
    pub is_behind: bool,
    pub parents: BTreeSet<JobId>,
}

pub type Queue = (TenantId, Lane, String);

#[derive(Debug, Default)]
pub struct Model {
    pub jobs: BTreeMap<JobId, Job>,
    /// Counts operations, and with them time.
    pub now: u64,
    numbers: u64,
    pub paused_tenants: BTreeSet<TenantId>,
    pub paused_kinds: BTreeSet<String>,
    pub paused_lanes: BTreeSet<u8>,
    pub tenant_limits: BTreeMap<TenantId, u64>,
    pub kind_limits: BTreeMap<String, u64>,
}

/// How a job ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    Done,
    Dead,
    Cancelled,
}

impl Model {
    /// Plain ones first, as the store does.
    pub fn enqueue(&mut self, tenant: TenantId, jobs: &[NewJob]) {
        let is_plain = |job: &&NewJob| job.unique.is_none() && job.order_key.is_none() && job.after.is_empty();
        for job in jobs.iter().filter(is_plain).chain(jobs.iter().filter(|job| !is_plain(job))) {
            self.enqueue_one(tenant, job);
        }
    }

    fn enqueue_one(&mut self, tenant: TenantId, new: &NewJob) {
        let is_due = new.when == When::Now;
        let of_tenant = |id: &&JobId| self.jobs.get(id).is_some_and(|job| job.tenant == tenant);
        let parents: Vec<(JobId, State)> =
            new.after.iter().filter(of_tenant).map(|id| (*id, self.jobs[id].state)).collect();
        let mut job = Job {
            tenant,
            kind: new.kind.clone(),
            lane: new.lane,
            payload: new.payload.clone(),
            state: State::Cancelled,
            is_due,
            rank: self.now,
            token: 0,
            attempt: 0,
            abandoned: 0,
            suspected: 0,
            is_marked: false,
            worker: None,
            unique: new.unique.as_ref().map(|unique| unique.key.clone()),
            rerun: false,
            is_unwanted: false,
            order: new.order_key.clone().map(|key| (key, 0)),
            is_behind: false,
            parents: parents.iter().filter(|(_, state)| state.is_live()).map(|(id, _)| *id).collect(),
        };
        if parents.iter().any(|(_, state)| matches!(state, State::Dead | State::Cancelled)) {
            job.parents.clear();
            self.jobs.insert(new.id, job);
            return;
        }
        if let Some(unique) = &new.unique
            && let Some(id) = self.live_with_key(tenant, &new.kind, &unique.key)
        {
            let now = self.now;
            let there = self.jobs.get_mut(&id).unwrap();
            match unique.policy {
                OnConflict::Keep => there.keep(),
                OnConflict::Merge => there.merge(new.lane, is_due, now),
                OnConflict::Replace => there.replace(new, is_due, now),
            }
            return;
        }
        self.line_up(&mut job);
        self.jobs.insert(new.id, job);
    }

    /// Last in the order of its key, and free when nothing holds it.
    fn line_up(&mut self, job: &mut Job) {
        if let Some((key, _)) = job.order.clone() {
            job.is_behind = self.of_key(job.tenant, &key).next().is_some();
            self.numbers += 1;
            job.order = Some((key, self.numbers));
        }
        job.state = State::Blocked;
        job.settle(self.now);
    }

    fn live_with_key(&self, tenant: TenantId, kind: &str, key: &str) -> Option<JobId> {
        let is_it = |job: &Job| {
            job.state.is_live()
                && job.state != State::Doomed
                && job.tenant == tenant
                && job.kind == kind
                && job.unique.as_deref() == Some(key)
        };
        self.jobs.iter().find(|(_, job)| is_it(job)).map(|(id, _)| *id)
    }

    fn of_key(&self, tenant: TenantId, key: &str) -> impl Iterator<Item = (u64, JobId)> {
        self.jobs.iter().filter_map(move |(id, job)| {
            let (of, number) = job.order.as_ref()?;
            (job.state.is_live() && job.tenant == tenant && of == key).then_some((*number, *id))
        })
    }

    pub fn holds(&self, claimed: &Claimed) -> bool {
        self.jobs.get(&claimed.id).is_some_and(|job| job.state == State::Running && job.token == claimed.token)
    }

    /// A job ends; one that was asked for again goes on under the id of its successor.
    pub fn end(&mut self, id: JobId, ending: Ending, successor: Option<JobId>) {
        let now = self.now;
        let job = self.jobs.get_mut(&id).unwrap();
        let again = job.rerun.then_some(successor).flatten();
        let next = again.map(|_| Job {
            state: State::Ready,
            is_due: true,
            rank: now,
            token: 0,
            attempt: 0,
            abandoned: 0,
            suspected: 0,
            is_marked: false,
            worker: None,
            rerun: false,
            is_unwanted: false,
            ..job.clone()
        });
        job.state = match ending {
            Ending::Done => State::Done,
            Ending::Dead => State::Dead,
            Ending::Cancelled => State::Cancelled,
        };
        let (tenant, order) = (job.tenant, job.order.clone());
        if let (Some(id), Some(next)) = (again, next) {
            self.jobs.insert(id, next);
        }
        for child in self.jobs.values_mut().filter(|job| job.state.is_live()) {
            if child.parents.remove(&id) {
                match ending {
                    Ending::Done => child.settle(now),
                    _ if child.state == State::Blocked => child.state = State::Doomed,
                    _ => {}
                }
            }
        }
        if let Some((key, _)) = order {
            let head = self.of_key(tenant, &key).min();
            if let Some((_, head)) = head {
                let head = self.jobs.get_mut(&head).unwrap();
                if head.is_behind {
                    head.is_behind = false;
                    head.settle(now);
                }
            }
        }
    }

    /// What a worker held goes back, or is parked, with a successor for each of those.
    pub fn take_back(&mut self, worker: WorkerId, successors: Vec<JobId>) {
        let mut successors = successors.into_iter();
        let held: Vec<JobId> = self
            .jobs
            .iter()
            .filter(|(_, job)| job.worker == Some(worker) && job.state == State::Running)
            .map(|(id, _)| *id)
            .collect();
        let is_alone = held.len() == 1;
        for id in held {
            let now = self.now;
            let job = self.jobs.get_mut(&id).unwrap();
            job.is_marked |= is_alone;
            if job.is_marked && job.abandoned + job.suspected.min(1) + 1 >= 3 {
                job.abandoned += 1;
                self.end(id, Ending::Dead, successors.next());
                continue;
            }
            let (blamed, there) = if job.is_marked { (1, 0) } else { (0, 1) };
            job.abandoned += blamed;
            job.suspected += there;
            (job.state, job.rank, job.worker, job.is_marked) = (job.unless_unwanted(State::Ready), now, None, false);
        }
    }

    /// It starts again, without parents, and its token goes on. Not while another has its unique key.
    pub fn replay(&mut self, id: JobId) -> bool {
        let mut job = self.jobs[&id].clone();
        if let Some(key) = &job.unique
            && let Some(there) = self.live_with_key(job.tenant, &job.kind, key)
        {
            self.jobs.get_mut(&there).unwrap().keep();
            return false;
        }
        (job.is_due, job.rank, job.worker) = (true, self.now, None);
        (job.attempt, job.abandoned, job.suspected, job.is_marked) = (0, 0, 0, false);
        (job.rerun, job.is_behind, job.is_unwanted) = (false, false, false);
        job.parents.clear();
        self.line_up(&mut job);
        self.jobs.insert(id, job);
        true
    }

    pub fn ready_due(&mut self) {
        for job in self.jobs.values_mut() {
            if matches!(job.state, State::Scheduled | State::Retry) && job.is_due {
                (job.state, job.rank) = (State::Ready, self.now);
            }
        }
    }

    /// What may be claimed, by queue and in order.
    pub fn claimable(&self) -> BTreeMap<Queue, Vec<(u64, JobId)>> {
        let mut queues: BTreeMap<Queue, Vec<(u64, JobId)>> = BTreeMap::new();
        for (id, job) in self.jobs.iter().filter(|(_, job)| job.state == State::Ready) {
            let is_paused = self.paused_tenants.contains(&job.tenant)
                || self.paused_kinds.contains(&job.kind)
                || self.paused_lanes.contains(&(job.lane as u8));
            if !is_paused {
                queues.entry((job.tenant, job.lane, job.kind.clone())).or_default().push((job.rank, *id));
            }
        }
        queues.values_mut().for_each(|queue| queue.sort_unstable());
        queues
    }

    pub fn running(&self, is_it: impl Fn(&Job) -> bool) -> u64 {
        self.jobs.values().filter(|job| job.state == State::Running && is_it(job)).count() as u64
    }
}

impl Job {
    /// What becomes of it when its worker lets go.
    pub fn unless_unwanted(&mut self, state: State) -> State {
        // Who asked for it after that gets it.
        self.is_unwanted &= !self.rerun;
        if self.is_unwanted { State::Doomed } else { state }
    }

    /// It does the work, unless it is about to be stopped.
    fn keep(&mut self) {
        self.rerun |= self.state == State::Running && self.is_unwanted;
    }

    /// It is free when nothing holds it any more.
    fn settle(&mut self, now: u64) {
        if self.state == State::Blocked && self.parents.is_empty() && !self.is_behind {
            (self.state, self.rank) = (if self.is_due { State::Ready } else { State::Scheduled }, now);
        }
    }

    fn merge(&mut self, lane: Lane, is_due: bool, now: u64) {
        self.lane = if lane.number() < self.lane.number() { lane } else { self.lane };
        self.rerun |= self.state == State::Running;
        self.is_due |= self.state == State::Blocked && is_due;
        if self.state == State::Scheduled && is_due {
            (self.state, self.is_due, self.rank) = (State::Ready, true, now);
        }
    }

    fn replace(&mut self, new: &NewJob, is_due: bool, now: u64) {
        (self.lane, self.payload) = (new.lane, new.payload.clone());
        if self.state == State::Running {
            self.rerun = true;
            return;
        }
        self.is_due = is_due;
        if matches!(self.state, State::Scheduled | State::Ready | State::Retry) {
            (self.state, self.rank) = (if is_due { State::Ready } else { State::Scheduled }, now);
        }
    }
}
