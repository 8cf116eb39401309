//! Jobs of kinds that no live worker has registered.

use std::time::Duration;

use domain::{JobState, TenantId};
use store::sql::jobs::{NewJob, ReplayOptions};
use store::testing::{TestDatabase, on_each_database};

use super::diagnosis::worker;
use super::inspect::{enqueue_for, tenant};
use super::transitions::job;

const DAY: Duration = Duration::from_secs(24 * 3600);

async fn enqueue(db: &TestDatabase, tenant: TenantId, jobs: Vec<NewJob>) {
    enqueue_for(&db.store, tenant, jobs).await;
    db.store.system().count_arrivals().await.unwrap();
}

/// Searches as processes do now and then. Returns the kinds with given up jobs.
async fn search(db: &TestDatabase) -> Vec<(String, u64)> {
    db.store.system().give_up_unregistered_jobs(DAY).await.unwrap()
}

/// As if the kinds had been missing, and the jobs ready, since two days ago.
async fn let_two_days_pass(db: &TestDatabase) {
    let then = (db.store.clock().now() - jiff::SignedDuration::from_hours(48)).strftime("%Y-%m-%dT%H:%M:%S.000Z");
    db.run(&format!("update unregistered_job_kinds set since = '{then}'")).await;
    db.run("update jobs set position = position - 172800000000").await;
}

async fn state(db: &TestDatabase, job: &NewJob) -> JobState {
    db.store.system().find_job(job.id).await.unwrap().unwrap().state
}

#[tokio::test]
async fn kind_without_a_worker_becomes_a_dead_letter_by_name() {
    on_each_database(|db| async move {
        let (system, acme) = (db.store.system(), tenant(&db.store, "acme").await);
        worker(&db.store, &["known"]).await;
        let next = job("from_the_future");
        let (lost, known) = (NewJob { order_key: Some("k".into()), ..job("from_the_future") }, job("known"));
        enqueue(&db, acme, vec![lost.clone(), known.clone()]).await;
        assert_eq!(search(&db).await, []);
        let_two_days_pass(&db).await;
        enqueue(&db, acme, vec![next.clone()]).await;

        assert_eq!(search(&db).await, [("from_the_future".to_owned(), 1)]);

        let letter = system.find_job(lost.id).await.unwrap().unwrap();
        assert_eq!((letter.state, letter.error_class.as_deref()), (JobState::Dead, Some("unregistered")));
        let reason = letter.reason.unwrap();
        assert!(reason.contains("the kind from_the_future for 24 hours"), "{reason}");
        assert_eq!(state(&db, &known).await, JobState::Ready, "it only waits for long");
        assert_eq!(state(&db, &next).await, JobState::Ready, "it has its own day");
        assert_eq!(db.rows("select 1 from job_keys").await.len(), 0);

        assert!(system.replay_one(acme, lost.id, &ReplayOptions::default()).await.unwrap());
        assert_eq!(search(&db).await, []);
        assert_eq!(state(&db, &lost).await, JobState::Ready, "it waits for another day");
    })
    .await;
}

#[tokio::test]
async fn worker_that_knew_a_kind_restarts_its_wait() {
    on_each_database(|db| async move {
        let acme = tenant(&db.store, "acme").await;
        worker(&db.store, &["known"]).await;
        let newer = job("from_the_future");
        enqueue(&db, acme, vec![newer.clone()]).await;
        search(&db).await;
        let_two_days_pass(&db).await;

        // Old and new processes take turns during a roll-out.
        let new = worker(&db.store, &["known", "from_the_future"]).await;
        assert_eq!(search(&db).await, []);
        db.store.system().dismiss_worker(new).await.unwrap();

        assert_eq!(search(&db).await, []);
        assert_eq!(state(&db, &newer).await, JobState::Ready);
    })
    .await;
}
