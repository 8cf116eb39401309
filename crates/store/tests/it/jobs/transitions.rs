//! Enqueue, claim, finish, fail.

use std::time::Duration;

use domain::{JobId, JobState, Lane, SystemClock, TenantId, WorkerId};
use store::Store;
use store::sql::jobs::{
    AfterFailure, AttemptFailure, AttemptOutcome, ClaimShare, ClaimedJob, JobEnd, NewJob, OnConflict, StartTime,
    UniqueKey,
};
use store::testing::on_each_database;

/// A job with an ordering key.
pub fn keyed(kind: &str) -> NewJob {
    NewJob { order_key: Some("k".into()), ..job(kind) }
}

pub fn job(kind: &str) -> NewJob {
    NewJob {
        id: JobId::new(&SystemClock),
        kind: kind.to_owned(),
        lane: Lane::Normal,
        payload: serde_json::json!({"n": 1}),
        when: StartTime::Now,
        unique: None,
        order_key: None,
        after: Vec::new(),
        traceparent: None,
    }
}

pub async fn enqueue(store: &Store, jobs: Vec<NewJob>) {
    let mut unit = store.system().write_for(TenantId::SYSTEM);
    unit.enqueue(jobs);
    unit.commit().await.unwrap();
}

/// Everything that may be claimed, at most `most` of each queue.
pub async fn claim(store: &Store, worker: WorkerId, most: u64) -> Vec<ClaimedJob> {
    let system = store.system();
    system.count_arrivals().await.unwrap();
    let candidates = system.list_queue_candidates(&["a".to_owned(), "b".to_owned()]).await.unwrap();
    let shares: Vec<ClaimShare> = candidates
        .iter()
        .map(|candidate: &store::sql::jobs::QueueCandidate| ClaimShare {
            tenant: candidate.tenant,
            lane: candidate.lane,
            kind: candidate.kind.clone(),
            take: most,
            cost: 1_000_000,
            vtime: candidate.vtime,
            is_limited: candidate.tenant_room.is_some() || candidate.kind_room.is_some(),
        })
        .collect();
    if shares.is_empty() {
        return Vec::new();
    }
    system.claim_jobs(worker, &shares).await.unwrap()
}

async fn worker(store: &Store) -> WorkerId {
    store.system().register_worker("test", &["a".to_owned()], Duration::from_secs(60)).await.unwrap()
}

fn successor() -> JobId {
    JobId::new(&SystemClock)
}

#[tokio::test]
async fn job_is_claimed_once_and_finished_once() {
    on_each_database(|db| async move {
        let worker = worker(&db.store).await;
        enqueue(&db.store, vec![job("a"), job("a"), job("b")]).await;

        let claimed = claim(&db.store, worker, 10).await;
        assert_eq!(claimed.len(), 3);
        assert!(claim(&db.store, worker, 10).await.is_empty());
        assert_eq!(db.store.system().finish_done(&claimed, successor).await.unwrap().len(), 3);
        assert!(db.store.system().finish_done(&claimed, successor).await.unwrap().is_empty());
    })
    .await;
}

#[tokio::test]
async fn failed_job_is_retried_and_finally_dies() {
    on_each_database(|db| async move {
        let (worker, system) = (worker(&db.store).await, db.store.system());
        enqueue(&db.store, vec![job("a")]).await;
        let failure = AttemptFailure {
            outcome: AttemptOutcome::Failed,
            error_class: "io".into(),
            message: "no".into(),
            fingerprint: "f".into(),
        };

        let first = claim(&db.store, worker, 1).await.remove(0);
        assert!(system.fail_job(&first, &failure, AfterFailure::RetryIn(Duration::ZERO), successor()).await.unwrap());
        assert!(claim(&db.store, worker, 1).await.is_empty());
        system.promote_due_jobs().await.unwrap();
        let second = claim(&db.store, worker, 1).await.remove(0);

        assert_eq!((second.attempt, second.token), (1, 2));
        assert!(!system.fail_job(&first, &failure, AfterFailure::Dead, successor()).await.unwrap());
        assert!(system.fail_job(&second, &failure, AfterFailure::Dead, successor()).await.unwrap());
        assert!(claim(&db.store, worker, 1).await.is_empty());
    })
    .await;
}

#[tokio::test]
async fn children_need_every_parent_to_succeed() {
    on_each_database(|db| async move {
        let (worker, system) = (worker(&db.store).await, db.store.system());
        let (one, two) = (job("a"), job("a"));
        let mut child = job("b");
        child.after = vec![one.id, two.id];
        let mut late = job("b");
        let parents = vec![one.id];
        enqueue(&db.store, vec![one, two, child.clone()]).await;

        let claimed = claim(&db.store, worker, 10).await;
        assert_eq!(claimed.len(), 2);
        assert_eq!(system.finish_done(&claimed[..1], successor).await.unwrap().len(), 1);
        assert!(claim(&db.store, worker, 10).await.is_empty());
        system.finish_done(&claimed[1..], successor).await.unwrap();
        late.after = parents;
        enqueue(&db.store, vec![late]).await;
        let children = claim(&db.store, worker, 10).await;
        assert_eq!(children.len(), 2);

        let mut grandchild = job("b");
        grandchild.after = vec![child.id];
        let mut below = job("b");
        below.after = vec![grandchild.id];
        enqueue(&db.store, vec![grandchild, below]).await;
        let failing = children.iter().find(|job| job.id == child.id).unwrap();
        let mut unit = system.write_for(TenantId::SYSTEM);
        unit.finish(failing, JobEnd::Dead { reason: "no", error_class: "x", fingerprint: "y" }, successor());
        unit.commit().await.unwrap();
        assert_eq!(system.cancel_doomed_jobs().await.unwrap(), 1);
        assert_eq!(system.cancel_doomed_jobs().await.unwrap(), 1);
        assert_eq!(JobState::Dead.as_str(), "dead");
    })
    .await;
}

#[tokio::test]
async fn jobs_of_one_ordering_key_run_in_sequence() {
    on_each_database(|db| async move {
        let (worker, system) = (worker(&db.store).await, db.store.system());
        let jobs = [keyed("a"), keyed("a"), keyed("a")];
        let ids: Vec<JobId> = jobs.iter().map(|job| job.id).collect();
        enqueue(&db.store, jobs.into()).await;

        for id in ids {
            let claimed = claim(&db.store, worker, 10).await;
            assert_eq!(claimed.iter().map(|job| job.id).collect::<Vec<_>>(), [id]);
            system.finish_done(&claimed, successor).await.unwrap();
        }
    })
    .await;
}

#[tokio::test]
async fn merge_during_a_run_causes_another_run() {
    on_each_database(|db| async move {
        let (worker, system) = (worker(&db.store).await, db.store.system());
        let sync =
            || NewJob { unique: Some(UniqueKey { key: "mailbox".into(), policy: OnConflict::Merge }), ..job("a") };
        enqueue(&db.store, vec![sync()]).await;
        enqueue(&db.store, vec![sync(), NewJob { lane: Lane::High, ..sync() }]).await;

        let first = claim(&db.store, worker, 10).await;
        assert_eq!((first.len(), first[0].lane), (1, Lane::High));
        enqueue(&db.store, vec![sync(), sync()]).await;
        assert!(claim(&db.store, worker, 10).await.is_empty());
        system.finish_done(&first, successor).await.unwrap();
        let second = claim(&db.store, worker, 10).await;
        assert_eq!(second.len(), 1);
        system.finish_done(&second, successor).await.unwrap();
        assert!(claim(&db.store, worker, 10).await.is_empty());
    })
    .await;
}

#[tokio::test]
async fn poison_job_is_parked_and_bystanders_are_not() {
    on_each_database(|db| async move {
        let system = db.store.system();
        enqueue(&db.store, vec![job("a"), job("a")]).await;
        let mut poison = None;

        for death in 1..=3 {
            let worker = worker(&db.store).await;
            let claimed = claim(&db.store, worker, 10).await;
            let guilty = poison.get_or_insert(claimed[0].id);
            for job in &claimed {
                assert_eq!(job.is_suspect, death > 1, "death {death}");
                if job.id == *guilty && death > 1 {
                    assert!(system.mark_started(job).await.unwrap());
                }
            }
            db.run("update job_workers set lease_until = started_at").await;
            let abandoned = system.reclaim_abandoned_jobs(|| JobId::new(&SystemClock)).await.unwrap();
            assert_eq!(
                (abandoned.returned, abandoned.parked),
                if death < 3 { (2, 0) } else { (1, 1) },
                "death {death}"
            );
        }
    })
    .await;
}

#[tokio::test]
async fn jobs_unknown_to_their_worker_go_back() {
    on_each_database(|db| async move {
        let (worker, system) = (worker(&db.store).await, db.store.system());
        enqueue(&db.store, vec![job("a"), job("a")]).await;
        let claimed = claim(&db.store, worker, 10).await;
        let known = [claimed[0].id];
        assert_eq!(system.return_unknown_jobs(worker, &known).await.unwrap(), 0, "the answer may be on its way");

        let past = match db.store.dialect() {
            store::Dialect::Postgres => "mailroom_now() - interval '1 minute'",
            store::Dialect::Sqlite => "'2020-01-01T00:00:00.000Z'",
        };
        db.run(&format!("update jobs set started_at = {past}")).await;
        assert_eq!(system.return_unknown_jobs(worker, &known).await.unwrap(), 1);
        assert_eq!(claim(&db.store, worker, 10).await.iter().map(|job| job.id).collect::<Vec<_>>(), [claimed[1].id]);
        db.run(&format!("update jobs set started_at = {past}")).await;
        assert_eq!(system.return_unknown_jobs(worker, &[]).await.unwrap(), 2);
    })
    .await;
}
