//! Two calls that are made at once, stepped through every order in which their statements can reach the database.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use domain::{JobId, Lane, SystemClock, TenantId, WorkerId};
use store::Store;
use store::sql::jobs::{AfterFailure, Cancelling, Claimed, End, Failure, NewJob, OnConflict, Outcome, Share, Unique};
use store::testing::{Standing, Stepped, TestDatabase, Watcher, migrated_postgres, run_sql};

use super::super::moves::{claim, job};
use super::super::truth::assert_true;

pub type Call = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Two calls that are made at once, and what must be so in the end whoever was first.
pub struct Scene {
    pub calls: [Call; 2],
    pub expected: Box<dyn Fn(&Ended)>,
}

pub fn scene(
    left: impl Future<Output = ()> + Send + 'static,
    right: impl Future<Output = ()> + Send + 'static,
    expected: impl Fn(&Ended) + 'static,
) -> Scene {
    Scene { calls: [Box::pin(left), Box::pin(right)], expected: Box::new(expected) }
}

/// A tenant of its own for each order.
pub struct Place<'a> {
    pub db: &'a TestDatabase,
    pub store: Store,
    pub tenant: TenantId,
    pub worker: WorkerId,
    /// What the calls claimed.
    pub claimed: Arc<Mutex<Vec<Claimed>>>,
}

/// What became of the jobs.
pub struct Ended {
    pub runs: HashMap<JobId, u32>,
    /// In which order they ran.
    pub order: Vec<JobId>,
    pub states: HashMap<JobId, String>,
}

impl Ended {
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
    NewJob { unique: Some(Unique { key: "only".into(), policy }), ..job("a") }
}

pub fn enqueue(place: &Place<'_>, jobs: Vec<NewJob>) -> impl Future<Output = ()> + Send + 'static {
    let mut unit = place.store.system().write_for(place.tenant);
    unit.enqueue(jobs);
    async move { drop(unit.commit().await.unwrap()) }
}

/// By the path for many, when its outcome is good.
pub fn finish(place: &Place<'_>, job: &Claimed) -> impl Future<Output = ()> + Send + 'static {
    let (system, jobs) = (place.store.system(), vec![job.clone()]);
    async move { assert_eq!(system.finish_done(&jobs, successor).await.unwrap().len(), 1) }
}

/// As part of a unit of the handler's.
pub fn finish_in_unit(place: &Place<'_>, job: &Claimed) -> impl Future<Output = ()> + Send + 'static {
    let mut unit = place.store.system().write_for(place.tenant);
    unit.finish(job, End::Done, successor());
    async move { drop(unit.commit().await.unwrap()) }
}

pub fn kill(place: &Place<'_>, job: &Claimed) -> impl Future<Output = ()> + Send + 'static {
    let (system, job) = (place.store.system(), job.clone());
    let failure =
        Failure { outcome: Outcome::Failed, error_class: "x".into(), message: "x".into(), fingerprint: "x".into() };
    async move { assert!(system.fail_job(&job, &failure, AfterFailure::Dead, successor()).await.unwrap()) }
}

/// Whatever answer is right.
pub fn cancel(
    place: &Place<'_>,
    id: JobId,
    wanted: &'static [Cancelling],
) -> impl Future<Output = ()> + Send + 'static {
    let (system, tenant) = (place.store.system(), place.tenant);
    async move {
        let answer = system.cancel_job(tenant, id, "not wanted").await.unwrap();
        assert!(wanted.contains(&answer), "{answer:?}");
    }
}

/// Everything of the tenant's in this lane.
pub fn take_all(place: &Place<'_>, lane: Lane) -> impl Future<Output = ()> + Send + 'static {
    let share = Share { tenant: place.tenant, lane, kind: "a".into(), take: 10, cost: 1, vtime: 0, is_limited: false };
    let (system, worker, claimed) = (place.store.system(), place.worker, place.claimed.clone());
    async move {
        let taken = system.claim(worker, &[share]).await.unwrap();
        claimed.lock().unwrap().extend(taken);
    }
}

impl Place<'_> {
    pub async fn running<const N: usize>(&self, jobs: [&NewJob; N]) -> [Claimed; N] {
        enqueue(self, jobs.map(Clone::clone).into()).await;
        let claimed = claim(&self.store, self.worker, 10).await;
        jobs.map(|job| claimed.iter().find(|claimed| claimed.id == job.id).expect("it can be claimed").clone())
    }

    /// Works until nothing is left to do, and tells what was done.
    pub async fn ended(&self) -> Ended {
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
        Ended { runs, order, states: states.iter().map(|row| (row.get(0).unwrap(), row.get(1).unwrap())).collect() }
    }
}

/// One order: at each point at which more than one can go on, which of them did, of how many.
pub async fn run(calls: [Call; 2], wanted: &[usize], watcher: &Watcher) -> (Vec<(usize, usize)>, bool) {
    let mut calls = calls.map(Stepped::start);
    let mut order = Vec::new();
    loop {
        let mut standings = [Standing::Ended; 2];
        for (standing, call) in standings.iter_mut().zip(&mut calls) {
            *standing = call.standing(watcher).await;
        }
        let ready: Vec<usize> = (0..2).filter(|n| standings[*n] == Standing::AtGate).collect();
        if ready.is_empty() {
            if standings == [Standing::Ended; 2] {
                return (order, false);
            }
            if standings == [Standing::Locked; 2] {
                // A deadlock: the server ends one of them, which is then sent again.
                for call in &mut calls {
                    call.set_free();
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
            // Last time both could go on here: one waits for somebody else, a vacuum perhaps, who will soon be done.
            tokio::time::sleep(Duration::from_millis(1)).await;
            continue;
        }
        order.push((choice, ready.len()));
        let next = &mut calls[ready[choice]];
        next.let_go_on();
        // Before anybody asks whether the other still waits for it.
        next.standing(watcher).await;
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

pub async fn every_interleaving(name: &str, make: impl AsyncFn(&Place<'_>) -> Scene) {
    each_order(name, async |place, wanted, watcher| {
        let Scene { calls, expected } = make(place).await;

        let (order, is_deadlock) = run(calls, wanted, watcher).await;

        let (db, when) = (place.db, format!("{name}, order {order:?}"));
        assert_true(db, &when).await;
        let ended = place.ended().await;
        assert_true(db, &when).await;
        assert_eq!(count(db, "select count(*) from jobs").await, 0, "{when}: something never ends");
        naming(&when, || expected(&ended));
        (order, is_deadlock)
    })
    .await;
}

/// Until all were tried; each tells which it was.
pub async fn each_order(
    name: &str,
    try_one: impl AsyncFn(&Place<'_>, &[usize], &Watcher) -> (Vec<(usize, usize)>, bool),
) {
    let db = migrated_postgres().await;
    let store::Location::Postgres { url, .. } = &db.location else { unreachable!() };
    let base = url.rsplit('/').next().unwrap();
    run_sql(url, &format!("alter database {base} set deadlock_timeout = '20ms'")).await.unwrap();
    // Opened after that, so that it holds for its connections.
    let store = db.second_store();
    let watcher = Watcher::of(&db.location).await;
    let worker = store.system().register_worker("test", &[], Duration::from_secs(3600)).await.unwrap();
    let (mut orders, mut deadlocks, mut next) = (0, 0, Some(Vec::new()));
    while let Some(wanted) = next {
        let tenant = TenantId::new(&SystemClock);
        let place = Place { db: &db, store: store.clone(), tenant, worker, claimed: Arc::default() };
        let (order, is_deadlock) = try_one(&place, &wanted, &watcher).await;
        orders += 1;
        deadlocks += u32::from(is_deadlock);
        next = after(order);
    }
    tell(&format!("{name}: {orders} orders, {deadlocks} of them deadlocks that were sent again"));
    assert!(orders > 1, "there was only one order, so this proves nothing");
}

#[expect(clippy::print_stdout, reason = "how much was tried is worth knowing")]
pub fn tell(text: &str) {
    println!("{text}");
}

/// Names the order in which an expectation failed.
pub fn naming(when: &str, check: impl FnOnce()) {
    if let Err(e) = std::panic::catch_unwind(std::panic::AssertUnwindSafe(check)) {
        tell(when);
        std::panic::resume_unwind(e);
    }
}

pub async fn count(db: &TestDatabase, sql: &str) -> u64 {
    db.rows(sql).await[0].get(0).unwrap()
}
