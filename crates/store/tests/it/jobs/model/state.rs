//! The model of the queue, in memory.

use std::collections::{BTreeMap, BTreeSet};

use domain::{JobId, Lane, TenantId, WorkerId};
use store::sql::jobs::{ClaimedJob, NewJob, OnConflict, StartTime};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ModelState {
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

impl ModelState {
    pub fn is_live(self) -> bool {
        !matches!(self, Self::Done | Self::Dead | Self::Cancelled)
    }

    pub fn text(self) -> String {
        format!("{self:?}").to_lowercase()
    }
}

#[derive(Debug, Clone)]
pub struct ModelJob {
    pub tenant: TenantId,
    pub kind: String,
    pub lane: Lane,
    pub payload: serde_json::Value,
    pub state: ModelState,
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
    /// It was cancelled while it ran.
    pub is_unwanted: bool,
    pub order: Option<(String, u64)>,
    pub is_behind: bool,
    pub parents: BTreeSet<JobId>,
}

pub type QueueKey = (TenantId, Lane, String);

#[derive(Debug, Default)]
pub struct Model {
    pub jobs: BTreeMap<JobId, ModelJob>,
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
pub enum ModelEnd {
    Done,
    Dead,
    Cancelled,
}

impl Model {
    /// Plain ones first, as the store does.
    pub fn enqueue(&mut self, tenant: TenantId, jobs: &[NewJob]) {
        let (plain, dependent): (Vec<&NewJob>, Vec<&NewJob>) =
            jobs.iter().partition(|job| job.unique.is_none() && job.order_key.is_none() && job.after.is_empty());
        for job in plain.into_iter().chain(dependent) {
            self.enqueue_one(tenant, job);
        }
    }

    fn enqueue_one(&mut self, tenant: TenantId, new: &NewJob) {
        let is_due = new.when == StartTime::Now;
        let parents: Vec<(JobId, ModelState)> = new
            .after
            .iter()
            .filter(|id: &&JobId| self.jobs.get(id).is_some_and(|job| job.tenant == tenant))
            .map(|id| (*id, self.jobs[id].state))
            .collect();
        let mut job = ModelJob {
            tenant,
            kind: new.kind.clone(),
            lane: new.lane,
            payload: new.payload.clone(),
            state: ModelState::Cancelled,
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
        if parents.iter().any(|(_, state)| matches!(state, ModelState::Dead | ModelState::Cancelled)) {
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
    fn line_up(&mut self, job: &mut ModelJob) {
        if let Some((key, _)) = job.order.clone() {
            job.is_behind = self.of_key(job.tenant, &key).next().is_some();
            self.numbers += 1;
            job.order = Some((key, self.numbers));
        }
        job.state = ModelState::Blocked;
        job.settle(self.now);
    }

    fn live_with_key(&self, tenant: TenantId, kind: &str, key: &str) -> Option<JobId> {
        let is_it = |job: &ModelJob| {
            job.state.is_live()
                && job.state != ModelState::Doomed
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

    pub fn holds(&self, claimed: &ClaimedJob) -> bool {
        self.jobs.get(&claimed.id).is_some_and(|job| job.state == ModelState::Running && job.token == claimed.token)
    }

    /// A job ends; one that was asked for again goes on under the id of its successor.
    pub fn end(&mut self, id: JobId, ending: ModelEnd, successor: Option<JobId>) {
        let now = self.now;
        let job = self.jobs.get_mut(&id).unwrap();
        let again = job.rerun.then_some(successor).flatten();
        let next = again.map(|_| ModelJob {
            state: ModelState::Ready,
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
            ModelEnd::Done => ModelState::Done,
            ModelEnd::Dead => ModelState::Dead,
            ModelEnd::Cancelled => ModelState::Cancelled,
        };
        let (tenant, order) = (job.tenant, job.order.clone());
        if let (Some(id), Some(next)) = (again, next) {
            self.jobs.insert(id, next);
        }
        for child in self.jobs.values_mut().filter(|job| job.state.is_live()) {
            if child.parents.remove(&id) {
                match ending {
                    ModelEnd::Done => child.settle(now),
                    _ if child.state == ModelState::Blocked => child.state = ModelState::Doomed,
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
            .filter(|(_, job)| job.worker == Some(worker) && job.state == ModelState::Running)
            .map(|(id, _)| *id)
            .collect();
        let is_alone = held.len() == 1;
        for id in held {
            let now = self.now;
            let job = self.jobs.get_mut(&id).unwrap();
            job.is_marked |= is_alone;
            if job.is_marked && job.abandoned + job.suspected.min(1) + 1 >= 3 {
                job.abandoned += 1;
                self.end(id, ModelEnd::Dead, successors.next());
                continue;
            }
            let (blamed, there) = if job.is_marked { (1, 0) } else { (0, 1) };
            job.abandoned += blamed;
            job.suspected += there;
            (job.state, job.rank, job.worker, job.is_marked) =
                (job.unless_unwanted(ModelState::Ready), now, None, false);
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
            if matches!(job.state, ModelState::Scheduled | ModelState::Retry) && job.is_due {
                (job.state, job.rank) = (ModelState::Ready, self.now);
            }
        }
    }

    /// What may be claimed, by queue and in order.
    pub fn claimable(&self) -> BTreeMap<QueueKey, Vec<(u64, JobId)>> {
        let mut queues: BTreeMap<QueueKey, Vec<(u64, JobId)>> = BTreeMap::new();
        for (id, job) in self.jobs.iter().filter(|(_, job)| job.state == ModelState::Ready) {
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

    pub fn running(&self, is_it: impl Fn(&ModelJob) -> bool) -> u64 {
        self.jobs.values().filter(|job| job.state == ModelState::Running && is_it(job)).count() as u64
    }
}

impl ModelJob {
    /// What becomes of it when its worker lets go.
    pub fn unless_unwanted(&mut self, state: ModelState) -> ModelState {
        // Enqueued again after that, it runs again.
        self.is_unwanted &= !self.rerun;
        if self.is_unwanted { ModelState::Doomed } else { state }
    }

    /// It does the work, unless it is about to be stopped.
    fn keep(&mut self) {
        self.rerun |= self.state == ModelState::Running && self.is_unwanted;
    }

    /// It is free when nothing holds it any more.
    fn settle(&mut self, now: u64) {
        if self.state == ModelState::Blocked && self.parents.is_empty() && !self.is_behind {
            (self.state, self.rank) = (if self.is_due { ModelState::Ready } else { ModelState::Scheduled }, now);
        }
    }

    fn merge(&mut self, lane: Lane, is_due: bool, now: u64) {
        self.lane = if lane.number() < self.lane.number() { lane } else { self.lane };
        self.rerun |= self.state == ModelState::Running;
        self.is_due |= self.state == ModelState::Blocked && is_due;
        if self.state == ModelState::Scheduled && is_due {
            (self.state, self.is_due, self.rank) = (ModelState::Ready, true, now);
        }
    }

    fn replace(&mut self, new: &NewJob, is_due: bool, now: u64) {
        (self.lane, self.payload) = (new.lane, new.payload.clone());
        if self.state == ModelState::Running {
            self.rerun = true;
            return;
        }
        self.is_due = is_due;
        if matches!(self.state, ModelState::Scheduled | ModelState::Ready | ModelState::Retry) {
            (self.state, self.rank) = (if is_due { ModelState::Ready } else { ModelState::Scheduled }, now);
        }
    }
}
