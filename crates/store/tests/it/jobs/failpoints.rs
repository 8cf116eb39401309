//! A process dies right before and right after each of its effects on the queue; the rows stay consistent, and the next
//! process ends every job once.

use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use domain::{JobId, Lane, SystemClock, TenantId, WorkerId};
use jiff::Timestamp;
use serde_json::json;
use store::failpoint::{Effect, VARIABLE};
use store::sql::jobs::{
    AfterFailure, AttemptFailure, AttemptOutcome, ClaimedJob, JobEnd, JobFilter, JobRetention, JobScope, LimitChange,
    NewJob, ReplayOptions,
};
use store::sql::schedules::{MissedPolicy, NewSchedule, OverlapPolicy};
use store::testing::{TestDatabase, on_each_database};
use store::{Dialect, Location, Store};
use uuid::Uuid;

use super::invariants::assert_invariants;
use super::transitions::{claim, job};

/// The variable with the database of the story; set only by the test that lets it die.
const DATABASE_VARIABLE: &str = "MAILROOM_TEST_STORY";

const HOUR: Duration = Duration::from_secs(3600);

fn id(n: u128) -> JobId {
    JobId(Uuid::from_u128((0x0199 << 112) | n))
}

fn numbered(n: u128, kind: &str) -> NewJob {
    NewJob { id: id(n), ..job(kind) }
}

fn keyed(n: u128) -> NewJob {
    NewJob { order_key: Some("key".into()), ..numbered(n, "b") }
}

fn after(n: u128, parent: u128) -> NewJob {
    NewJob { after: vec![id(parent)], ..numbered(n, "b") }
}

/// All jobs that are enqueued together at the beginning.
fn initial_jobs() -> Vec<NewJob> {
    vec![
        numbered(1, "a"),
        numbered(2, "a"),
        numbered(3, "a"),
        numbered(4, "a"),
        keyed(5),
        keyed(6),
        after(7, 1),
        after(8, 2),
        after(9, 8),
    ]
}

async fn register(store: &Store) -> WorkerId {
    store.system().register_worker("story", &[], HOUR).await.unwrap()
}

fn failure() -> AttemptFailure {
    AttemptFailure {
        outcome: AttemptOutcome::Failed,
        error_class: "x".into(),
        message: "x".into(),
        fingerprint: "x".into(),
    }
}

/// Everything that is done to the queue, in an order in which each of it has something to do.
async fn run_all_queue_operations(db: &TestDatabase) {
    let (store, system, tenant) = (&db.store, db.store.system(), TenantId::SYSTEM);
    let mut unit = system.write_for(tenant);
    unit.enqueue(initial_jobs());
    unit.commit().await.unwrap();
    system.pause_jobs(&JobScope::Tenant(tenant)).await.unwrap();
    system.resume_jobs(&JobScope::Tenant(tenant)).await.unwrap();
    system.limit_tenant(tenant, LimitChange::AtMost(100), LimitChange::Keep).await.unwrap();
    system.move_job(tenant, id(3), Lane::High).await.unwrap();

    let worker = register(store).await;
    let held = claim(store, worker, 10).await;
    let find = |n| held.iter().find(|job: &&ClaimedJob| job.id == id(n)).unwrap();
    system.mark_started(find(1)).await.unwrap();
    system.finish_done(&[find(1).clone()], || id(100)).await.unwrap();
    system.fail_job(find(2), &failure(), AfterFailure::Dead, id(101)).await.unwrap();
    while system.cancel_doomed_jobs().await.unwrap() > 0 {}
    system.fail_job(find(3), &failure(), AfterFailure::RetryIn(Duration::ZERO), id(102)).await.unwrap();
    db.run(&format!("update jobs set run_at = {}", past(db))).await;
    system.promote_due_jobs().await.unwrap();
    system.fail_job(find(4), &failure(), AfterFailure::RetryIn(HOUR), id(103)).await.unwrap();
    system.retry_now(id(4)).await.unwrap();
    let mut unit = system.write_for(tenant);
    unit.finish(find(5), JobEnd::Done, id(104));
    unit.commit().await.unwrap();
    let held = claim(store, worker, 10).await;
    system.return_jobs(worker, &held.iter().map(|job| job.id).collect::<Vec<_>>()).await.unwrap();
    // Its process dies with it until it is parked.
    for _ in 0..3 {
        let worker = register(store).await;
        for job in claim(store, worker, 10).await {
            if job.id == id(6) {
                system.mark_started(&job).await.unwrap();
            }
        }
        die(db).await;
        system.reclaim_abandoned_jobs(|| JobId::new(&SystemClock)).await.unwrap();
    }
    system.replay_dead(&JobFilter::default(), &ReplayOptions::default()).await.unwrap();
    lead(db).await;
    db.run(&format!("update finished_jobs set ended_at = {} where state = 'cancelled'", past(db))).await;
    system.discard_one(tenant, id(6)).await.unwrap();
    system.prune_jobs(JobRetention { finished: HOUR, dead: HOUR }).await.unwrap();
}

/// What a leader does.
async fn lead(db: &TestDatabase) {
    let system = db.store.system();
    let token = system.acquire_lease("leader", "me", HOUR).await.unwrap().unwrap();
    assert!(system.renew_lease("leader", "me", token, HOUR).await.unwrap());
    let schedule = NewSchedule {
        name: "nightly".into(),
        tenant: TenantId::SYSTEM,
        kind: "a".into(),
        lane: Lane::Low,
        payload: json!({}),
        cron: "0 2 * * *".into(),
        zone: "UTC".into(),
        missed: MissedPolicy::RunOnce,
        overlap: OverlapPolicy::Skip,
    };
    let (first, second): (Timestamp, Timestamp) =
        ("2026-01-01T02:00:00Z".parse().unwrap(), "2026-01-02T02:00:00Z".parse().unwrap());
    system.put_schedule(&schedule, first).await.unwrap();
    system.pause_schedule(TenantId::SYSTEM, "nightly").await.unwrap();
    system.resume_schedule(TenantId::SYSTEM, "nightly", first).await.unwrap();
    let schedule = system.find_schedule(TenantId::SYSTEM, "nightly").await.unwrap().unwrap();
    assert!(system.fire_schedule(&schedule, second, Some(numbered(10, "a")), None).await.unwrap());
    assert!(!system.fire_schedule(&schedule, second, Some(numbered(11, "a")), None).await.unwrap());
    system.release_lease("leader", "me", token).await.unwrap();
}

fn past(db: &TestDatabase) -> &'static str {
    match db.store.dialect() {
        Dialect::Postgres => "'2020-01-01T00:00:00Z'::timestamptz",
        Dialect::Sqlite => "'2020-01-01T00:00:00.000Z'",
    }
}

async fn die(db: &TestDatabase) {
    db.run(&format!("update job_workers set lease_until = {} where gone_at is null", past(db))).await;
}

/// What another process does after one that died.
async fn recover(db: &TestDatabase) {
    let system = db.store.system();
    db.run_all(&["delete from job_tenants", "delete from job_kinds", "update job_lanes set is_paused = false"]).await;
    die(db).await;
    system.reclaim_abandoned_jobs(|| JobId::new(&SystemClock)).await.unwrap();
    db.run(&format!("update jobs set run_at = {}", past(db))).await;
    let worker = register(&db.store).await;
    loop {
        while system.cancel_doomed_jobs().await.unwrap() > 0 {}
        system.promote_due_jobs().await.unwrap();
        let held = claim(&db.store, worker, 10).await;
        if held.is_empty() {
            return;
        }
        assert_eq!(system.finish_done(&held, || id(200)).await.unwrap().len(), held.len());
    }
}

async fn assert_whole(db: &TestDatabase, what: &str) {
    assert_invariants(db, what).await;
    recover(db).await;
    assert_invariants(db, what).await;
    assert!(db.rows("select id, state, blockers from jobs").await.is_empty(), "{what}: something never ends");
    let ended: Vec<JobId> =
        db.rows("select id from finished_jobs order by id").await.iter().map(|row| row.get(0).unwrap()).collect();
    // 6 is discarded and 8 and 9 are pruned in the end; the eleventh never was, its time was used.
    let always = [1, 2, 3, 4, 5, 7].map(id);
    assert!(ended.is_empty() || always.iter().all(|id| ended.contains(id)), "{what}: {ended:?}");
    assert!(!ended.contains(&id(11)), "{what}: a time was used twice");
}

/// Runs the story unbroken on both databases, or, in a process of its own, until it dies.
#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "set by the other test here")]
async fn queue_story_ends_consistent() {
    match std::env::var(DATABASE_VARIABLE) {
        Ok(place) => run_all_queue_operations(&open(&place)).await,
        Err(_) => {
            on_each_database(|db| async move {
                run_all_queue_operations(&db).await;
                assert_whole(&db, "unbroken").await;
            })
            .await;
        }
    }
}

fn open(place: &str) -> TestDatabase {
    let location = match place.strip_prefix("postgres:") {
        Some(_) => Location::Postgres { url: place.to_owned(), connections: 2 },
        None => Location::Sqlite { path: place.into(), connections: 2 },
    };
    TestDatabase { store: Store::open(&location, Arc::new(SystemClock)).unwrap(), location }
}

async fn clear(db: &TestDatabase) {
    let mut tables =
        vec!["jobs", "finished_jobs", "job_edges", "job_keys", "job_attempts", "job_queues", "job_tenants"];
    tables.extend(["job_kinds", "job_workers", "job_schedules", "leases"]);
    tables.extend((db.store.dialect() == Dialect::Postgres).then_some("job_arrivals"));
    let delete: Vec<String> = tables.iter().map(|table| format!("delete from {table}")).collect();
    db.run_all(&delete.iter().map(String::as_str).collect::<Vec<_>>()).await;
}

#[tokio::test]
async fn crash_at_any_failpoint_loses_no_job() {
    on_each_database(|db| async move {
        let place = match &db.location {
            Location::Postgres { url, .. } => url.clone(),
            Location::Sqlite { path, .. } => path.to_str().unwrap().to_owned(),
        };
        // A worker's own commit is in `jobs`; the tests with real workers die there.
        for effect in Effect::QUEUE.iter().filter(|effect| **effect != Effect::CommitJob) {
            for moment in ["before", "after"] {
                clear(&db).await;
                let failpoint = format!("{moment}:{}=crash", effect.name());
                let died = Command::new(std::env::current_exe().unwrap())
                    .args(["--exact", "jobs::failpoints::queue_story_ends_consistent", "--nocapture"])
                    .env(VARIABLE, &failpoint)
                    .env(DATABASE_VARIABLE, &place)
                    .output()
                    .unwrap();
                let said = String::from_utf8_lossy(&died.stderr);
                assert!(died.status.code().is_none(), "{failpoint} was never reached: {said}");
                assert_whole(&db, &failpoint).await;
            }
        }
    })
    .await;
}
