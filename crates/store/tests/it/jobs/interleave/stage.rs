//! Steps two concurrent calls through every order in which their statements can reach the database.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use domain::{JobId, Lane, SystemClock, TenantId, WorkerId};
use store::Store;
use store::sql::jobs::{
    AfterFailure, AttemptFailure, AttemptOutcome, CancelOutcome, ClaimShare, ClaimedJob, JobEnd, NewJob, OnConflict,
    UniqueKey,
};
use store::testing::{CallProgress, LockWatcher, SteppedCall, TestDatabase, migrated_postgres, run_sql};

use super::super::invariants::assert_invariants;
use super::super::transitions::{claim, job};

pub type BoxedCall = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Two concurrent calls, and what must hold in the end whichever was first.
pub struct CallPair {
    pub calls: [BoxedCall; 2],
    pub expected: Box<dyn Fn(&JobResults)>,
}

pub fn call_pair(
    left: impl Future<Output = ()> + Send + 'static,
    right: impl Future<Output = ()> + Send + 'static,
    expected: impl Fn(&JobResults) + 'static,
) -> CallPair {
    CallPair { calls: [Box::pin(left), Box::pin(right)], expected: Box::new(expected) }
}

/// The trial of one order, with a tenant of its own.
pub struct OrderTrial<'a> {
    pub db: &'a TestDatabase,
    pub store: Store,
    pub tenant: TenantId,
    pub worker: WorkerId,
    /// The jobs that the calls claimed.
    pub claimed: Arc<Mutex<Vec<ClaimedJob>>>,
}

/// How often and in which order jobs ran, and their states in the end.
pub struct JobResults {
    pub runs: HashMap<JobId, u32>,
    /// In which order they ran.
    pub order: Vec<JobId>,
    pub states: HashMap<JobId, String>,
}

impl JobResults {
    pub fn runs(&self, id: JobId) -> u32 {
        self.runs.get(&id).copied().unwrap_or(0)
    }

    pub fn state(&self, id: JobId) -> &str {
        self.states.get(&id).map_or("nowhere", String::as_str)
    }

    pub fn ran_once(&self, id: JobId) {
        assert_eq!((self.runs(id), self.state(id)), (1, "done"));
    }
}

pub fn successor() -> JobId {
    JobId::new(&SystemClock)
}

pub fn child_of(parents: &[&NewJob]) -> NewJob {
    NewJob { after: parents.iter().map(|parent| parent.id).collect(), ..job("b") }
}

pub fn keyed(kind: &str) -> NewJob {
    NewJob { order_key: Some("key".into()), ..job(kind) }
}

pub fn unique(policy: OnConflict) -> NewJob {
    NewJob { unique: Some(UniqueKey { key: "only".into(), policy }), ..job("a") }
}

pub fn enqueue(trial: &OrderTrial<'_>, jobs: Vec<NewJob>) -> impl Future<Output = ()> + Send + 'static {
    let mut unit = trial.store.system().write_for(trial.tenant);
    unit.enqueue(jobs);
    async move { drop(unit.commit().await.unwrap()) }
}

/// By the path for many, when its outcome is good.
pub fn finish(trial: &OrderTrial<'_>, job: &ClaimedJob) -> impl Future<Output = ()> + Send + 'static {
    let (system, jobs) = (trial.store.system(), vec![job.clone()]);
    async move { assert_eq!(system.finish_done(&jobs, successor).await.unwrap().len(), 1) }
}

/// As part of a unit of the handler's.
pub fn finish_in_unit(trial: &OrderTrial<'_>, job: &ClaimedJob) -> impl Future<Output = ()> + Send + 'static {
    let mut unit = trial.store.system().write_for(trial.tenant);
    unit.finish(job, JobEnd::Done, successor());
    async move { drop(unit.commit().await.unwrap()) }
}

pub fn kill(trial: &OrderTrial<'_>, job: &ClaimedJob) -> impl Future<Output = ()> + Send + 'static {
    let (system, job) = (trial.store.system(), job.clone());
    let failure = AttemptFailure {
        outcome: AttemptOutcome::Failed,
        error_class: "x".into(),
        message: "x".into(),
        fingerprint: "x".into(),
    };
    async move { assert!(system.fail_job(&job, &failure, AfterFailure::Dead, successor()).await.unwrap()) }
}

/// Whatever answer is right.
pub fn cancel(
    trial: &OrderTrial<'_>,
    id: JobId,
    wanted: &'static [CancelOutcome],
) -> impl Future<Output = ()> + Send + 'static {
    let (system, tenant) = (trial.store.system(), trial.tenant);
    async move {
        let answer = system.cancel_job(tenant, id, "not wanted").await.unwrap();
        assert!(wanted.contains(&answer), "{answer:?}");
    }
}

/// Everything of the tenant's in this lane.
pub fn take_all(trial: &OrderTrial<'_>, lane: Lane) -> impl Future<Output = ()> + Send + 'static {
    let share =
        ClaimShare { tenant: trial.tenant, lane, kind: "a".into(), take: 10, cost: 1, vtime: 0, is_limited: false };
    let (system, worker, claimed) = (trial.store.system(), trial.worker, trial.claimed.clone());
    async move {
        let taken = system.claim_jobs(worker, &[share]).await.unwrap();
        claimed.lock().unwrap().extend(taken);
    }
}

impl OrderTrial<'_> {
    pub async fn running<const N: usize>(&self, jobs: [&NewJob; N]) -> [ClaimedJob; N] {
        enqueue(self, jobs.map(Clone::clone).into()).await;
        let claimed = claim(&self.store, self.worker, 10).await;
        jobs.map(|job| claimed.iter().find(|claimed| claimed.id == job.id).expect("it can be claimed").clone())
    }

    /// Works until nothing is left to do, and returns what was done.
    pub async fn ended(&self) -> JobResults {
        let (mut runs, mut order) = (HashMap::<JobId, u32>::new(), Vec::new());
        let system = self.store.system();
        let mut claimed = std::mem::take(&mut *self.claimed.lock().unwrap());
        loop {
            for job in &claimed {
                *runs.entry(job.id).or_default() += 1;
                order.push(job.id);
            }
            system.finish_done(&claimed, successor).await.unwrap();
            while system.cancel_doomed_jobs().await.unwrap() > 0 {}
            claimed = claim(&self.store, self.worker, 10).await;
            if claimed.is_empty() {
                break;
            }
        }
        let sql = format!("select id, state from jobs where tenant_id = '{}'", self.tenant);
        let sql = format!("{sql} union all {}", sql.replace("from jobs", "from finished_jobs"));
        let states = self.db.rows(&sql).await;
        JobResults {
            runs,
            order,
            states: states.iter().map(|row| (row.get(0).unwrap(), row.get(1).unwrap())).collect(),
        }
    }
}

/// Runs one order. Returns, for each point at which more than one can go on, which of them did, of how many.
pub async fn run(calls: [BoxedCall; 2], wanted: &[usize], watcher: &LockWatcher) -> (Vec<(usize, usize)>, bool) {
    let mut calls = calls.map(SteppedCall::start);
    let mut order = Vec::new();
    loop {
        let mut progresses = [CallProgress::Ended; 2];
        for (progress, call) in progresses.iter_mut().zip(&mut calls) {
            *progress = call.progress(watcher).await;
        }
        let ready: Vec<usize> = (0..2).filter(|n| progresses[*n] == CallProgress::AtGate).collect();
        if ready.is_empty() {
            if progresses == [CallProgress::Ended; 2] {
                return (order, false);
            }
            if progresses == [CallProgress::Locked; 2] {
                // A deadlock: the server ends one of them, which is then sent again.
                for call in &mut calls {
                    call.run_freely();
                }
                for call in &mut calls {
                    call.end().await;
                }
                return (order, true);
            }
            tokio::task::yield_now().await; // the other has only just ended
            continue;
        }
        let choice = wanted.get(order.len()).copied().unwrap_or(0);
        if choice >= ready.len() {
            // Last time both could go on here: one waits for another session, a vacuum perhaps, which will soon be done.
            tokio::time::sleep(Duration::from_millis(1)).await;
            continue;
        }
        order.push((choice, ready.len()));
        let next = &mut calls[ready[choice]];
        next.step();
        // Before the other is checked for waiting on it.
        next.progress(watcher).await;
    }
}

/// The next order after this one, as choices; none when this was the last.
pub fn after(mut order: Vec<(usize, usize)>) -> Option<Vec<usize>> {
    while let Some((choice, of)) = order.pop() {
        if choice + 1 < of {
            order.push((choice + 1, of));
            return Some(order.into_iter().map(|(choice, _)| choice).collect());
        }
    }
    None
}

pub async fn every_interleaving(name: &str, make: impl AsyncFn(&OrderTrial<'_>) -> CallPair) {
    each_order(name, async |trial, wanted, watcher| {
        let CallPair { calls, expected } = make(trial).await;

        let (order, is_deadlock) = run(calls, wanted, watcher).await;

        let (db, when) = (trial.db, format!("{name}, order {order:?}"));
        assert_invariants(db, &when).await;
        let ended = trial.ended().await;
        assert_invariants(db, &when).await;
        assert_eq!(count(db, "select count(*) from jobs").await, 0, "{when}: something never ends");
        naming(&when, || expected(&ended));
        (order, is_deadlock)
    })
    .await;
}

/// Every check reads all rows: without this, trials would take longer and longer.
const TRIALS_UNTIL_EMPTIED: u32 = 20;

/// Tries every order; each trial returns which it was.
pub async fn each_order(
    name: &str,
    try_one: impl AsyncFn(&OrderTrial<'_>, &[usize], &LockWatcher) -> (Vec<(usize, usize)>, bool),
) {
    let db = migrated_postgres().await;
    let store::Location::Postgres { url, .. } = &db.location else { unreachable!() };
    let base = url.rsplit('/').next().unwrap();
    run_sql(url, &format!("alter database {base} set deadlock_timeout = '20ms'")).await.unwrap();
    // Opened after that, so that it holds for its connections.
    let store = db.second_store();
    let watcher = LockWatcher::of(&db.location).await;
    let worker = store.system().register_worker("test", &[], Duration::from_secs(3600)).await.unwrap();
    let (mut orders, mut deadlocks, mut next) = (0, 0, Some(Vec::new()));
    while let Some(wanted) = next {
        if orders % TRIALS_UNTIL_EMPTIED == 0 {
            run_sql(url, "truncate jobs, job_edges, job_keys, job_queues, job_arrivals, job_attempts, finished_jobs")
                .await
                .unwrap();
        }
        let tenant = TenantId::new(&SystemClock);
        let trial = OrderTrial { db: &db, store: store.clone(), tenant, worker, claimed: Arc::default() };
        let (order, is_deadlock) = try_one(&trial, &wanted, &watcher).await;
        orders += 1;
        deadlocks += u32::from(is_deadlock);
        next = after(order);
    }
    print_line(&format!("{name}: {orders} orders, {deadlocks} of them deadlocks that were sent again"));
    assert!(orders > 1, "there was only one order, so this proves nothing");
}

#[expect(clippy::print_stdout, reason = "how much was tried is worth knowing")]
pub fn print_line(text: &str) {
    println!("{text}");
}

/// Names the order in which an expectation failed.
pub fn naming(when: &str, check: impl FnOnce()) {
    if let Err(e) = std::panic::catch_unwind(std::panic::AssertUnwindSafe(check)) {
        print_line(when);
        std::panic::resume_unwind(e);
    }
}

pub async fn count(db: &TestDatabase, sql: &str) -> u64 {
    db.rows(sql).await[0].get(0).unwrap()
}
