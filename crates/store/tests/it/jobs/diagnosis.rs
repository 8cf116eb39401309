//! "Why is this not running?": every answer, brought about.

use std::time::Duration;

use domain::{JobId, JobState, Lane, SystemClock, WorkerId};
use store::Store;
use store::sql::jobs::{
    AfterFailure, AttemptFailure, AttemptOutcome, ClaimedJob, JobScope, LimitChange, NewJob, StartTime, WaitReason,
};
use store::testing::on_each_database;

use super::inspect::{enqueue_for, tenant};
use super::transitions::{claim, job, keyed};

pub async fn worker(store: &Store, kinds: &[&str]) -> WorkerId {
    let kinds: Vec<String> = kinds.iter().map(|kind| (*kind).to_owned()).collect();
    store.system().register_worker("test", &kinds, Duration::from_secs(60)).await.unwrap()
}

pub fn failure() -> AttemptFailure {
    AttemptFailure {
        outcome: AttemptOutcome::Failed,
        error_class: "io".into(),
        message: "no".into(),
        fingerprint: "f".into(),
    }
}

pub fn new_id() -> JobId {
    JobId::new(&SystemClock)
}

/// Tried again in ten minutes.
pub async fn fail(store: &Store, job: &ClaimedJob) {
    let retry = AfterFailure::RetryIn(Duration::from_secs(600));
    assert!(store.system().fail_job(job, &failure(), retry, new_id()).await.unwrap());
}

/// A job that can be claimed, or waits for its next try, fails for good.
pub async fn kill(store: &Store, worker: WorkerId, id: JobId) {
    store.system().retry_now(id).await.unwrap();
    let claimed = claim(store, worker, 100).await;
    for job in &claimed {
        if job.id == id {
            assert!(store.system().fail_job(job, &failure(), AfterFailure::Dead, new_id()).await.unwrap());
        } else {
            store.system().return_jobs(worker, &[job.id]).await.unwrap();
        }
    }
    assert_eq!(store.system().find_job(id).await.unwrap().unwrap().state, JobState::Dead);
}

async fn reasons(store: &Store, id: JobId) -> Vec<WaitReason> {
    let explanation = store.system().diagnose_job(id).await.unwrap().unwrap();
    for reason in &explanation.reasons {
        assert!(reason.sentence().ends_with('.'), "{reason:?}");
    }
    explanation.reasons
}

#[tokio::test]
async fn waiting_job_says_what_it_waits_for() {
    on_each_database(|db| async move {
        let acme = tenant(&db.store, "acme").await;
        let (first, second) = (job("a"), job("a"));
        let later = NewJob { when: StartTime::In(Duration::from_secs(600)), ..job("a") };
        let child = NewJob { after: vec![first.id, later.id], ..job("a") };
        enqueue_for(&db.store, acme, vec![first.clone(), second.clone(), later.clone(), child.clone()]).await;
        let (head, behind, last) = (keyed("b"), keyed("b"), keyed("b"));
        enqueue_for(&db.store, acme, vec![head.clone(), behind, last.clone()]).await;

        assert_eq!(reasons(&db.store, first.id).await, [WaitReason::NoWorker { kind: "a".into() }]);
        let worker = worker(&db.store, &["a", "b"]).await;
        assert_eq!(reasons(&db.store, second.id).await, [WaitReason::BehindOthers { jobs: 1 }]);
        assert!(matches!(reasons(&db.store, later.id).await[..], [WaitReason::NotDue { failures: 0, .. }]));
        let mut parents = vec![first.id, later.id];
        parents.sort();
        assert_eq!(reasons(&db.store, child.id).await, [WaitReason::AfterParents { parents }]);
        assert_eq!(
            reasons(&db.store, last.id).await,
            [WaitReason::BehindKey { key: "k".into(), head: head.id, ahead: 2 }]
        );

        let claimed = claim(&db.store, worker, 1).await;
        let running = claimed.iter().find(|job| job.id == first.id).unwrap();
        let is_running =
            |why: &[WaitReason]| matches!(why, [WaitReason::Running { worker: Some(name), .. }] if name == "test");
        assert!(is_running(&reasons(&db.store, first.id).await));
        fail(&db.store, running).await;
        let why = reasons(&db.store, first.id).await;
        assert!(matches!(why[..], [WaitReason::NotDue { failures: 1, .. }]), "{why:?}");
        kill(&db.store, worker, first.id).await;
        let why = reasons(&db.store, first.id).await;
        assert!(
            matches!(&why[..], [WaitReason::Finished { state: JobState::Dead, reason: Some(no), .. }] if no == "no")
        );
        assert_eq!(reasons(&db.store, child.id).await, [WaitReason::Doomed]);
        assert!(db.store.system().diagnose_job(new_id()).await.unwrap().is_none());
    })
    .await;
}

#[tokio::test]
async fn manual_settings_come_first_in_a_diagnosis() {
    on_each_database(|db| async move {
        let (system, acme) = (db.store.system(), tenant(&db.store, "acme").await);
        let worker = worker(&db.store, &["a"]).await;
        let waiting = job("a");
        enqueue_for(&db.store, acme, vec![job("a"), waiting.clone()]).await;
        assert_eq!(claim(&db.store, worker, 1).await.len(), 1);
        let busy = WaitReason::LaneBusy { lane: Lane::Normal, running: 1 };
        assert_eq!(reasons(&db.store, waiting.id).await, [busy]);

        for (target, why) in [
            (JobScope::Lane(Lane::Normal), WaitReason::LanePaused { lane: Lane::Normal }),
            (JobScope::Kind("a".into()), WaitReason::KindPaused { kind: "a".into() }),
            (JobScope::Tenant(acme), WaitReason::TenantPaused),
        ] {
            assert!(system.pause_jobs(&target).await.unwrap());
            assert!(!system.pause_jobs(&target).await.unwrap());
            assert_eq!(reasons(&db.store, waiting.id).await, [why]);
            assert!(system.resume_jobs(&target).await.unwrap());
            assert!(!system.resume_jobs(&target).await.unwrap());
        }
        system.set_tenant_active(acme, false).await.unwrap();
        assert_eq!(reasons(&db.store, waiting.id).await, [WaitReason::TenantInactive]);
        system.set_tenant_active(acme, true).await.unwrap();
        system.limit_tenant(acme, LimitChange::AtMost(1), LimitChange::Keep).await.unwrap();
        assert_eq!(reasons(&db.store, waiting.id).await, [WaitReason::TenantAtLimit { running: 1, most: 1 }]);
        system.limit_tenant(acme, LimitChange::Unlimited, LimitChange::Keep).await.unwrap();
        system.limit_kind("a", LimitChange::AtMost(1)).await.unwrap();
        let at_limit = WaitReason::KindAtLimit { kind: "a".into(), running: 1, most: 1 };
        assert_eq!(reasons(&db.store, waiting.id).await, [at_limit]);
    })
    .await;
}
