//! Dead letters: grouped, replayed, thrown away.

use domain::{JobId, JobState, TenantId};
use serde_json::json;
use store::Store;
use store::sql::jobs::{AfterFailure, AttemptFailure, JobFilter, JobRow, NewJob, ReplayOptions};
use store::testing::on_each_database;

use super::diagnosis::{failure, new_id, worker};
use super::inspect::{enqueue_for, tenant};
use super::transitions::{claim, job};

/// So many dead letters with this fingerprint.
async fn letters(store: &Store, tenant: TenantId, kind: &str, fingerprint: &str, count: usize) -> Vec<JobId> {
    let worker = worker(store, &["a", "b"]).await;
    let jobs: Vec<NewJob> = (0..count).map(|_| job(kind)).collect();
    let ids = jobs.iter().map(|job| job.id).collect();
    enqueue_for(store, tenant, jobs).await;
    for job in claim(store, worker, 100).await {
        let failure = AttemptFailure { fingerprint: fingerprint.into(), ..failure() };
        assert!(store.system().fail_job(&job, &failure, AfterFailure::Dead, new_id()).await.unwrap());
    }
    ids
}

fn of(fingerprint: &str) -> JobFilter {
    JobFilter { fingerprint: Some(fingerprint.into()), ..JobFilter::default() }
}

#[tokio::test]
async fn dead_letters_are_grouped_by_fingerprint() {
    on_each_database(|db| async move {
        let (system, acme) = (db.store.system(), tenant(&db.store, "acme").await);
        letters(&db.store, acme, "a", "f", 3).await;
        letters(&db.store, TenantId::SYSTEM, "b", "g", 1).await;

        let groups = system.list_dead_groups(&JobFilter::default()).await.unwrap();

        let groups_seen: Vec<_> =
            groups.iter().map(|group| (group.kind.as_str(), group.fingerprint.as_str(), group.count)).collect();
        assert_eq!(groups_seen, [("a", "f", 3), ("b", "g", 1)]);
        assert_eq!((groups[0].sample.as_deref(), groups[0].error_class.as_deref()), (Some("no"), Some("io")));
        assert!(groups[0].first_at <= groups[0].last_at);
        let of_acme = JobFilter { tenant: Some(acme), ..JobFilter::default() };
        assert_eq!(system.list_dead_groups(&of_acme).await.unwrap().len(), 1);
        assert_eq!(system.count_dead_letters().await.unwrap(), 4);
    })
    .await;
}

#[tokio::test]
async fn replayed_job_keeps_id_history_and_token() {
    on_each_database(|db| async move {
        let (system, acme) = (db.store.system(), tenant(&db.store, "acme").await);
        let worker = worker(&db.store, &["a"]).await;
        let id = letters(&db.store, acme, "a", "f", 1).await[0];
        let replay = ReplayOptions { payload: Some(json!({"n": 2})), ..ReplayOptions::default() };

        assert!(system.replay_one(acme, id, &replay).await.unwrap());
        assert!(!system.replay_one(acme, id, &replay).await.unwrap());

        let claimed = claim(&db.store, worker, 10).await;
        assert_eq!(claimed.len(), 1);
        assert_eq!((claimed[0].id, claimed[0].token, claimed[0].attempt), (id, 2, 0));
        assert_eq!(claimed[0].payload, json!({"n": 2}));
        assert_eq!(system.list_attempts(acme, id).await.unwrap().len(), 1);
        assert_eq!(system.count_dead_letters().await.unwrap(), 0);
        system.finish_done(&claimed, new_id).await.unwrap();
        assert!(!system.replay_one(acme, id, &replay).await.unwrap(), "what is done is not replayed");
    })
    .await;
}

#[tokio::test]
async fn replay_takes_only_matching_dead_letters() {
    on_each_database(|db| async move {
        let (system, acme) = (db.store.system(), tenant(&db.store, "acme").await);
        let ours = letters(&db.store, acme, "a", "f", 3).await;
        letters(&db.store, TenantId::SYSTEM, "b", "g", 2).await;

        let none = JobFilter { kind: Some("b".into()), ..of("f") };
        assert_eq!(system.replay_dead(&none, &ReplayOptions::default()).await.unwrap(), 0);
        assert_eq!(system.replay_dead(&of("f"), &ReplayOptions::default()).await.unwrap(), 3);

        let ready = JobFilter { state: Some(JobState::Ready), ..JobFilter::default() };
        let mut replayed: Vec<JobId> =
            system.list_jobs(&ready, None, 10).await.unwrap().iter().map(|job| job.id).collect();
        replayed.sort();
        let mut ours = ours;
        ours.sort();
        assert_eq!(replayed, ours);
        assert_eq!(system.count_dead_letters().await.unwrap(), 2);
    })
    .await;
}

#[tokio::test]
async fn rated_replay_is_spread_over_time() {
    on_each_database(|db| async move {
        let (system, acme) = (db.store.system(), tenant(&db.store, "acme").await);
        letters(&db.store, acme, "a", "f", 5).await;

        let replay = ReplayOptions { per_second: Some(0.01), ..ReplayOptions::default() };
        assert_eq!(system.replay_dead(&JobFilter::default(), &replay).await.unwrap(), 5);

        let mut jobs = system.list_jobs(&JobFilter::default(), None, 10).await.unwrap();
        jobs.sort_by_key(|job| job.run_at);
        assert_eq!(jobs.iter().filter(|job| job.state == JobState::Ready).count(), 1);
        assert_eq!(jobs.iter().filter(|job| job.state == JobState::Scheduled).count(), 4);
        let first = jobs[0].run_at.unwrap();
        let after = |job: &JobRow| job.run_at.unwrap().duration_since(first).as_secs_f64();
        // SQLite reads the clock for each row.
        let seconds: Vec<i64> = jobs.iter().map(|job| (after(job) / 10.0).round() as i64 * 10).collect();
        assert_eq!(seconds, [0, 100, 200, 300, 400]);
    })
    .await;
}

#[tokio::test]
async fn discard_removes_job_and_attempts() {
    on_each_database(|db| async move {
        let (system, acme) = (db.store.system(), tenant(&db.store, "acme").await);
        let ids = letters(&db.store, acme, "a", "f", 3).await;
        letters(&db.store, TenantId::SYSTEM, "b", "g", 1).await;

        assert!(system.discard_one(acme, ids[0]).await.unwrap());
        assert!(!system.discard_one(acme, ids[0]).await.unwrap());
        assert_eq!(system.discard_dead(&of("f")).await.unwrap(), 2);

        for id in ids {
            assert!(system.find_job(id).await.unwrap().is_none());
            assert!(system.list_attempts(acme, id).await.unwrap().is_empty());
        }
        assert_eq!(system.count_dead_letters().await.unwrap(), 1);
    })
    .await;
}

#[tokio::test]
async fn concurrent_replays_make_no_job_twice() {
    on_each_database(|db| async move {
        let (system, acme) = (db.store.system(), tenant(&db.store, "acme").await);
        letters(&db.store, acme, "a", "f", 50).await;
        let (filter, replay) = (JobFilter::default(), ReplayOptions::default());

        let (one, two, gone) = tokio::join!(
            system.replay_dead(&filter, &replay),
            system.replay_dead(&filter, &replay),
            system.discard_dead(&filter)
        );

        assert_eq!(one.unwrap() + two.unwrap() + gone.unwrap(), 50);
    })
    .await;
}
