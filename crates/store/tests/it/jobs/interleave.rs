//! No wake-up is lost: two calls at once, stepped through every order in which their statements can reach the database.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use domain::{JobId, Lane, SystemClock, TenantId, WorkerId};
use store::Store;
use store::failpoint::{Guard, VARIABLE};
use store::sql::jobs::{AfterFailure, Cancelling, Claimed, End, Failure, NewJob, OnConflict, Outcome, Share, Unique};
use store::testing::{Standing, Stepped, TestDatabase, Watcher, admin_url, migrated_postgres, run_sql};
use tokio_postgres::NoTls;

use super::moves::{claim, job};
use super::truth::assert_true;

type Call = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Two calls that are made at once, and what must be so in the end whoever was first.
struct Scene {
    calls: [Call; 2],
    expected: Box<dyn Fn(&Ended)>,
}

fn scene(
    left: impl Future<Output = ()> + Send + 'static,
    right: impl Future<Output = ()> + Send + 'static,
    expected: impl Fn(&Ended) + 'static,
) -> Scene {
    Scene { calls: [Box::pin(left), Box::pin(right)], expected: Box::new(expected) }
}

/// A tenant of its own for each order.
struct Place<'a> {
    db: &'a TestDatabase,
    store: Store,
    tenant: TenantId,
    worker: WorkerId,
    /// What the calls claimed.
    claimed: Arc<Mutex<Vec<Claimed>>>,
}

/// What became of the jobs.
struct Ended {
    runs: HashMap<JobId, u32>,
    states: HashMap<JobId, String>,
}

impl Ended {
    fn runs(&self, id: JobId) -> u32 {
        self.runs.get(&id).copied().unwrap_or(0)
    }

    fn state(&self, id: JobId) -> &str {
        self.states.get(&id).map_or("nowhere", String::as_str)
    }

    fn ran_once(&self, id: JobId) {
        assert_eq!((self.runs(id), self.state(id)), (1, "done"));
    }
}

fn successor() -> JobId {
    JobId::new(&SystemClock)
}

fn child_of(parents: &[&NewJob]) -> NewJob {
    NewJob { after: parents.iter().map(|parent| parent.id).collect(), ..job("b") }
}

fn keyed(kind: &str) -> NewJob {
    NewJob { order_key: Some("key".into()), ..job(kind) }
}

fn unique(policy: OnConflict) -> NewJob {
    NewJob { unique: Some(Unique { key: "only".into(), policy }), ..job("a") }
}

fn enqueue(place: &Place<'_>, jobs: Vec<NewJob>) -> impl Future<Output = ()> + Send + 'static {
    let mut unit = place.store.system().write_for(place.tenant);
    unit.enqueue(jobs);
    async move { drop(unit.commit().await.unwrap()) }
}

/// By the path for many, when its outcome is good.
fn finish(place: &Place<'_>, job: &Claimed) -> impl Future<Output = ()> + Send + 'static {
    let (system, jobs) = (place.store.system(), vec![job.clone()]);
    async move { assert_eq!(system.finish_done(&jobs, successor).await.unwrap().len(), 1) }
}

/// As part of a unit of the handler's.
fn finish_in_unit(place: &Place<'_>, job: &Claimed) -> impl Future<Output = ()> + Send + 'static {
    let mut unit = place.store.system().write_for(place.tenant);
    unit.finish(job, End::Done, successor());
    async move { drop(unit.commit().await.unwrap()) }
}

fn kill(place: &Place<'_>, job: &Claimed) -> impl Future<Output = ()> + Send + 'static {
    let (system, job) = (place.store.system(), job.clone());
    let failure =
        Failure { outcome: Outcome::Failed, error_class: "x".into(), message: "x".into(), fingerprint: "x".into() };
    async move { assert!(system.fail_job(&job, &failure, AfterFailure::Dead, successor()).await.unwrap()) }
}

/// Whatever answer is right.
fn cancel(place: &Place<'_>, id: JobId, wanted: &'static [Cancelling]) -> impl Future<Output = ()> + Send + 'static {
    let (system, tenant) = (place.store.system(), place.tenant);
    async move {
        let answer = system.cancel_job(tenant, id, "not wanted").await.unwrap();
        assert!(wanted.contains(&answer), "{answer:?}");
    }
}

/// Everything of the tenant's in this lane.
fn take_all(place: &Place<'_>, lane: Lane) -> impl Future<Output = ()> + Send + 'static {
    let share = Share { tenant: place.tenant, lane, kind: "a".into(), take: 10, cost: 1, vtime: 0, is_limited: false };
    let (system, worker, claimed) = (place.store.system(), place.worker, place.claimed.clone());
    async move {
        let taken = system.claim(worker, &[share]).await.unwrap();
        claimed.lock().unwrap().extend(taken);
    }
}

impl Place<'_> {
    async fn running<const N: usize>(&self, jobs: [&NewJob; N]) -> [Claimed; N] {
        enqueue(self, jobs.map(Clone::clone).into()).await;
        let claimed = claim(&self.store, self.worker, 10).await;
        jobs.map(|job| claimed.iter().find(|claimed| claimed.id == job.id).expect("it can be claimed").clone())
    }

    /// Works until nothing is left to do, and tells what was done.
    async fn ended(&self) -> Ended {
        let mut runs: HashMap<JobId, u32> = HashMap::new();
        let system = self.store.system();
        let mut claimed = std::mem::take(&mut *self.claimed.lock().unwrap());
        loop {
            for job in &claimed {
                *runs.entry(job.id).or_default() += 1;
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
        Ended { runs, states: states.iter().map(|row| (row.get(0).unwrap(), row.get(1).unwrap())).collect() }
    }
}

/// One order: at each point at which more than one can go on, which of them did, of how many.
async fn run(calls: [Call; 2], wanted: &[usize], watcher: &Watcher) -> (Vec<(usize, usize)>, bool) {
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
        order.push((choice, ready.len()));
        let next = &mut calls[ready[choice]];
        next.let_go_on();
        // Before anybody asks whether the other still waits for it.
        next.standing(watcher).await;
    }
}

/// The next order after this one, as choices; none when this was the last.
fn after(mut order: Vec<(usize, usize)>) -> Option<Vec<usize>> {
    while let Some((choice, of)) = order.pop() {
        if choice + 1 < of {
            order.push((choice + 1, of));
            return Some(order.into_iter().map(|(choice, _)| choice).collect());
        }
    }
    None
}

async fn every_interleaving(name: &str, make: impl AsyncFn(&Place<'_>) -> Scene) {
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
        let Scene { calls, expected } = make(&place).await;

        let (order, is_deadlock) = run(calls, &wanted, &watcher).await;

        let when = format!("{name}, order {order:?}");
        assert_true(&db, &when).await;
        let ended = place.ended().await;
        assert_true(&db, &when).await;
        assert_eq!(count(&db, "select count(*) from jobs").await, 0, "{when}: something never ends");
        naming(&when, || expected(&ended));
        orders += 1;
        deadlocks += u32::from(is_deadlock);
        next = after(order);
    }
    tell(&format!("{name}: {orders} orders, {deadlocks} of them deadlocks that were sent again"));
    assert!(orders > 1, "there was only one order, so this proves nothing");
}

#[expect(clippy::print_stdout, reason = "how much was tried is worth knowing")]
fn tell(text: &str) {
    println!("{text}");
}

/// Names the order in which an expectation failed.
fn naming(when: &str, check: impl FnOnce()) {
    if let Err(e) = std::panic::catch_unwind(std::panic::AssertUnwindSafe(check)) {
        tell(when);
        std::panic::resume_unwind(e);
    }
}

async fn count(db: &TestDatabase, sql: &str) -> u64 {
    db.rows(sql).await[0].get(0).unwrap()
}

#[tokio::test]
async fn a_child_comes_while_its_parent_ends() {
    every_interleaving("child | finish", async |place| {
        let parent = job("a");
        let [held] = place.running([&parent]).await;
        let child = child_of(&[&parent]);
        let id = child.id;
        scene(enqueue(place, vec![child]), finish(place, &held), move |ended| ended.ran_once(id))
    })
    .await;
    every_interleaving("child | finish in a unit", async |place| {
        let parent = job("a");
        let [held] = place.running([&parent]).await;
        let child = child_of(&[&parent]);
        let id = child.id;
        scene(enqueue(place, vec![child]), finish_in_unit(place, &held), move |ended| ended.ran_once(id))
    })
    .await;
}

#[tokio::test]
async fn a_child_comes_while_its_parent_dies() {
    every_interleaving("child | death", async |place| {
        let parent = job("a");
        let [held] = place.running([&parent]).await;
        let child = child_of(&[&parent]);
        let id = child.id;
        scene(enqueue(place, vec![child]), kill(place, &held), move |ended| {
            assert_eq!((ended.runs(id), ended.state(id)), (0, "cancelled"));
        })
    })
    .await;
}

#[tokio::test]
async fn another_of_an_ordering_key_comes_while_the_first_ends() {
    every_interleaving("key | finish", async |place| {
        let first = keyed("a");
        let [held] = place.running([&first]).await;
        let next = keyed("a");
        let id = next.id;
        scene(enqueue(place, vec![next]), finish(place, &held), move |ended| ended.ran_once(id))
    })
    .await;
}

#[tokio::test]
async fn another_of_an_ordering_key_comes_while_the_first_is_cancelled() {
    every_interleaving("key | cancel", async |place| {
        let (first, next) = (keyed("a"), keyed("a"));
        enqueue(place, vec![first.clone()]).await;
        let id = next.id;
        let cancelled = cancel(place, first.id, &[Cancelling::Cancelled]);
        scene(enqueue(place, vec![next]), cancelled, move |ended| ended.ran_once(id))
    })
    .await;
}

#[tokio::test]
async fn two_parents_end_at_once() {
    every_interleaving("finish | finish", async |place| {
        let (one, two) = (job("a"), job("a"));
        let [first, second] = place.running([&one, &two]).await;
        let child = child_of(&[&one, &two]);
        let id = child.id;
        enqueue(place, vec![child]).await;
        scene(finish(place, &first), finish_in_unit(place, &second), move |ended| ended.ran_once(id))
    })
    .await;
}

#[tokio::test]
async fn one_parent_ends_and_the_other_dies() {
    every_interleaving("finish | death", async |place| {
        let (one, two) = (job("a"), job("a"));
        let [first, second] = place.running([&one, &two]).await;
        let child = child_of(&[&one, &two]);
        let id = child.id;
        enqueue(place, vec![child]).await;
        scene(finish(place, &first), kill(place, &second), move |ended| {
            assert_eq!((ended.runs(id), ended.state(id)), (0, "cancelled"));
        })
    })
    .await;
}

#[tokio::test]
async fn the_parent_and_the_head_of_the_key_end_at_once() {
    every_interleaving("finish parent | finish head", async |place| {
        let (parent, head) = (job("a"), keyed("a"));
        let [first, second] = place.running([&parent, &head]).await;
        let child = NewJob { order_key: Some("key".into()), ..child_of(&[&parent]) };
        let id = child.id;
        enqueue(place, vec![child]).await;
        scene(finish(place, &first), finish(place, &second), move |ended| ended.ran_once(id))
    })
    .await;
}

#[tokio::test]
async fn a_job_is_asked_for_again_while_it_ends() {
    for policy in [OnConflict::Merge, OnConflict::Replace, OnConflict::Keep] {
        every_interleaving(&format!("{policy:?} | finish"), async |place| {
            let first = unique(policy);
            let [held] = place.running([&first]).await;
            let again = enqueue(place, vec![unique(policy)]);
            scene(again, finish(place, &held), move |ended| {
                // Kept: it is the one that ends, or a new one.
                let others: u32 = ended.runs.values().sum();
                assert!(others == 1 || (policy == OnConflict::Keep && others == 0), "{others} runs after the first");
            })
        })
        .await;
    }
}

#[tokio::test]
async fn two_ask_for_a_unique_job_at_once() {
    every_interleaving("merge | merge", async |place| {
        let [one, two] = [unique(OnConflict::Merge), unique(OnConflict::Merge)];
        scene(enqueue(place, vec![one]), enqueue(place, vec![two]), |ended| {
            assert_eq!(ended.runs.values().sum::<u32>(), 1);
        })
    })
    .await;
}

#[tokio::test]
async fn a_child_is_cancelled_while_its_parent_ends() {
    every_interleaving("cancel | finish", async |place| {
        let parent = job("a");
        let [held] = place.running([&parent]).await;
        let child = child_of(&[&parent]);
        let id = child.id;
        enqueue(place, vec![child]).await;
        let cancelled = cancel(place, id, &[Cancelling::Cancelled]);
        scene(cancelled, finish(place, &held), move |ended| {
            assert_eq!((ended.runs(id), ended.state(id)), (0, "cancelled"));
        })
    })
    .await;
}

#[tokio::test]
async fn a_job_is_cancelled_while_it_is_claimed() {
    every_interleaving("cancel | claim", async |place| {
        let one = job("a");
        let id = one.id;
        enqueue(place, vec![one]).await;
        place.store.system().count_arrivals().await.unwrap();
        let cancelled = cancel(place, id, &[Cancelling::Cancelled, Cancelling::Asked]);
        scene(cancelled, take_all(place, Lane::Normal), move |ended| {
            assert_eq!(ended.runs(id) == 0, ended.state(id) == "cancelled");
        })
    })
    .await;
}

/// Whoever changes a job holds its row, and a claim goes round it; but it must find it later.
#[tokio::test]
async fn a_waiting_job_is_changed_while_others_are_claimed() {
    every_interleaving("merge | claim", async |place| {
        let (one, two) = (unique(OnConflict::Merge), job("a"));
        let ids = [one.id, two.id];
        enqueue(place, vec![one]).await;
        enqueue(place, vec![two]).await;
        place.store.system().count_arrivals().await.unwrap();
        let again = enqueue(place, vec![unique(OnConflict::Merge)]);
        scene(again, take_all(place, Lane::Normal), move |ended| {
            ended.ran_once(ids[1]);
            assert!(ended.runs(ids[0]) >= 1);
        })
    })
    .await;
    every_interleaving("child | claim", async |place| {
        let (one, two) = (job("a"), job("a"));
        let child = child_of(&[&one]);
        let ids = [one.id, two.id, child.id];
        enqueue(place, vec![one, two]).await;
        place.store.system().count_arrivals().await.unwrap();
        scene(enqueue(place, vec![child]), take_all(place, Lane::Normal), move |ended| {
            ids.iter().for_each(|id| ended.ran_once(*id));
        })
    })
    .await;
}

#[tokio::test]
async fn two_claim_at_once() {
    every_interleaving("claim | claim", async |place| {
        let jobs = vec![job("a"), job("a")];
        let ids: Vec<JobId> = jobs.iter().map(|job| job.id).collect();
        enqueue(place, jobs).await;
        place.store.system().count_arrivals().await.unwrap();
        scene(take_all(place, Lane::Normal), take_all(place, Lane::Normal), move |ended| {
            ids.iter().for_each(|id| ended.ran_once(*id));
        })
    })
    .await;
}

#[tokio::test]
async fn what_has_come_is_counted_while_it_is_claimed() {
    every_interleaving("count | claim", async |place| {
        let (early, late) = (job("a"), job("a"));
        let ids = [early.id, late.id];
        enqueue(place, vec![early]).await;
        place.store.system().count_arrivals().await.unwrap();
        enqueue(place, vec![late]).await;
        let system = place.store.system();
        let counted = async move { system.count_arrivals().await.unwrap() };
        scene(counted, take_all(place, Lane::Normal), move |ended| ids.iter().for_each(|id| ended.ran_once(*id)))
    })
    .await;
}

#[tokio::test]
async fn a_job_ends_while_it_is_taken_back() {
    every_interleaving("finish | take back", async |place| {
        let dead = place.store.system().register_worker("dead", &[], Duration::ZERO).await.unwrap();
        let one = job("a");
        let id = one.id;
        enqueue(place, vec![one]).await;
        let held = claim(&place.store, dead, 10).await;
        let (system, other) = (place.store.system(), place.store.system());
        let finished = async move { drop(system.finish_done(&held, successor).await.unwrap()) };
        let taken = async move {
            other.take_back_abandoned().await.unwrap();
        };
        scene(finished, taken, move |ended| assert!(ended.runs(id) <= 1 && ended.state(id) == "done"))
    })
    .await;
}

/// A claim sees jobs as they were when it began, but its queue as it is when it locks it. In between a job with an early
/// place may have come back.
#[tokio::test]
async fn a_job_comes_back_while_a_claim_begins() {
    let db = migrated_postgres().await;
    let store::Location::Postgres { url, .. } = &db.location else { unreachable!() };
    // Claims stop between the two while somebody holds this lock.
    let stop = "create function stop_claims() returns boolean language plpgsql as $$ begin
                    if current_query() like '%locked as%' then perform pg_advisory_xact_lock_shared(4711); end if;
                    return true;
                end $$;
                grant execute on function stop_claims to mailroom_system;
                create policy stop_claims on job_queues as restrictive to mailroom_system using (stop_claims())";
    run_sql(url, stop).await.unwrap();
    let (holder, connection) = tokio_postgres::connect(&admin_url(url), NoTls).await.unwrap();
    tokio::spawn(connection);
    let worker = db.store.system().register_worker("test", &[], Duration::from_secs(3600)).await.unwrap();
    let tenant = TenantId::SYSTEM;
    let place = Place { db: &db, store: db.store.clone(), tenant, worker, claimed: Arc::default() };
    let [early] = place.running([&job("a")]).await;
    enqueue(&place, vec![job("a"), job("a")]).await;
    place.store.system().count_arrivals().await.unwrap();

    holder.batch_execute("select pg_advisory_lock(4711)").await.unwrap();
    let claiming = tokio::spawn(take_all(&place, Lane::Normal));
    let waiting = "select count(*) from pg_locks where locktype = 'advisory' and not granted";
    while count(&db, waiting).await == 0 {
        tokio::task::yield_now().await;
    }
    place.store.system().give_back(worker, &[early.id]).await.unwrap();
    place.store.system().count_arrivals().await.unwrap();
    holder.batch_execute("select pg_advisory_unlock(4711)").await.unwrap();
    claiming.await.unwrap();

    assert_true(&db, "after the claim").await;
    let ended = place.ended().await;
    assert_eq!(ended.runs.values().copied().collect::<Vec<_>>(), [1, 1, 1]);
}

/// The same tests in a process in which something is left out.
#[test]
fn without_the_locks_and_tokens_these_tests_fail() {
    let teeth = [
        (Guard::ParentLock, "interleave::a_child_comes_while_its_parent_ends", "not so: "),
        (Guard::KeyLock, "interleave::another_of_an_ordering_key_comes_while_the_first_ends", "not so: "),
        (Guard::JobToken, "model::the_queue_does_what_a_simple_model_does", "the shortest operations that show it"),
    ];
    for (guard, test, said) in teeth {
        let program = std::env::current_exe().unwrap();
        let outcome = std::process::Command::new(program)
            .args(["--exact", &format!("jobs::{test}"), "--nocapture"])
            .env(VARIABLE, format!("off={}", guard.name()))
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&outcome.stderr);
        assert!(!outcome.status.success() && text.contains(said), "{guard:?} guards nothing: {text}");
    }
}
