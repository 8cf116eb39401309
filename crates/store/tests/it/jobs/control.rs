//! Pauses, limits, shares, and the hand on a single job.

use std::time::Duration;

use domain::{JobState, Lane, PlanTier, TenantId};
use store::sql::jobs::{
    CancelOutcome, ClaimedJob, JobEnd, JobScope, LimitChange, NewJob, OnConflict, RetryOutcome, StartTime, StopReason,
    UniqueKey,
};
use store::testing::on_each_database;
use store::{Precondition, Store, StoreError, TenantUnit};

use super::diagnosis::{kill, new_id, worker};
use super::inspect::{enqueue_for, tenant};
use super::transitions::{claim, enqueue, job};

#[tokio::test]
async fn paused_jobs_are_kept_and_not_claimed() {
    on_each_database(|db| async move {
        let (system, acme) = (db.store.system(), tenant(&db.store, "acme").await);
        let worker = worker(&db.store, &["a"]).await;
        enqueue_for(&db.store, acme, vec![job("a")]).await;

        for target in [JobScope::Lane(Lane::Normal), JobScope::Kind("a".into()), JobScope::Tenant(acme)] {
            system.pause_jobs(&target).await.unwrap();
            assert!(claim(&db.store, worker, 10).await.is_empty(), "{target:?}");
            system.resume_jobs(&target).await.unwrap();
            let claimed = claim(&db.store, worker, 10).await;
            assert_eq!(claimed.len(), 1, "{target:?}");
            system.return_jobs(worker, &[claimed[0].id]).await.unwrap();
        }
    })
    .await;
}

#[tokio::test]
async fn paused_tenant_saves_up_no_share() {
    on_each_database(|db| async move {
        let (system, held, other) =
            (db.store.system(), tenant(&db.store, "held").await, tenant(&db.store, "other").await);
        let worker = worker(&db.store, &["a"]).await;
        enqueue_for(&db.store, held, vec![job("a"), job("a")]).await;
        enqueue_for(&db.store, other, (0..12).map(|_| job("a")).collect()).await;
        let vtime = async |of: TenantId| {
            let candidates = system.list_queue_candidates(&["a".to_owned()]).await.unwrap();
            candidates.iter().find(|candidate| candidate.tenant == of).unwrap().vtime
        };

        for target in [JobScope::Tenant(held), JobScope::Kind("a".into()), JobScope::Lane(Lane::Normal)] {
            system.pause_jobs(&JobScope::Tenant(held)).await.unwrap();
            // The second claim moves the lane's clock to where the first has left the tenant.
            claim(&db.store, worker, 1).await;
            claim(&db.store, worker, 1).await;
            system.pause_jobs(&target).await.unwrap();
            system.resume_jobs(&target).await.unwrap();
            system.resume_jobs(&JobScope::Tenant(held)).await.unwrap();
            let (mine, theirs) = (vtime(held).await, vtime(other).await);
            assert!(mine > 0 && theirs - mine <= 1_000_000, "{target:?}: {mine} {theirs}");
        }
        system.set_tenant_active(held, false).await.unwrap();
        claim(&db.store, worker, 1).await;
        claim(&db.store, worker, 1).await;
        system.set_tenant_active(held, true).await.unwrap();
        assert!(vtime(other).await - vtime(held).await <= 1_000_000);
    })
    .await;
}

#[tokio::test]
async fn deactivated_tenants_running_jobs_go_back_unspent() {
    on_each_database(|db| async move {
        let (system, off) = (db.store.system(), tenant(&db.store, "off").await);
        let on = tenant(&db.store, "on").await;
        let worker = worker(&db.store, &["a"]).await;
        let stop_requests = async || system.renew_worker(worker, Duration::from_secs(60)).await.unwrap();
        for tenant in [off, on] {
            enqueue_for(&db.store, tenant, vec![job("a")]).await;
        }
        // The system's own, which is no tenant: it erases those that are off.
        enqueue(&db.store, vec![job("a")]).await;
        let claimed = claim(&db.store, worker, 10).await;
        let held = claimed.iter().find(|job| job.tenant == off).unwrap();
        let is_refused = async |guard: fn(&mut TenantUnit, &ClaimedJob)| {
            let mut unit = db.store.tenant(off).write();
            guard(&mut unit, held);
            matches!(unit.commit().await, Err(StoreError::Precondition(Precondition::JobNotHeld)))
        };
        assert!(!is_refused(TenantUnit::guard_job).await);
        assert!(claimed.len() == 3 && stop_requests().await.is_empty());

        assert!(system.set_tenant_active(off, false).await.unwrap());

        assert!(is_refused(TenantUnit::guard_job).await);
        assert!(is_refused(|unit, job| unit.finish(job, JobEnd::Done, new_id())).await);
        assert!(system.finish_done(std::slice::from_ref(held), new_id).await.unwrap().is_empty());
        let stops = stop_requests().await;
        assert_eq!(
            stops.iter().map(|stop| (stop.id, &stop.why)).collect::<Vec<_>>(),
            [(held.id, &StopReason::TenantOff)]
        );
        assert_eq!(system.return_jobs(worker, &[held.id]).await.unwrap(), 1);
        assert!(stop_requests().await.is_empty() && claim(&db.store, worker, 10).await.is_empty());

        assert!(system.set_tenant_active(off, true).await.unwrap());
        let again = claim(&db.store, worker, 10).await;
        assert_eq!(again.iter().map(|job| (job.id, job.attempt)).collect::<Vec<_>>(), [(held.id, 0)]);
    })
    .await;
}

#[tokio::test]
async fn limits_are_set_and_lifted_separately() {
    on_each_database(|db| async move {
        let (system, acme) = (db.store.system(), tenant(&db.store, "acme").await);
        let worker = worker(&db.store, &["a"]).await;
        enqueue_for(&db.store, acme, (0..6).map(|_| job("a")).collect()).await;
        system.limit_tenant(acme, LimitChange::AtMost(2), LimitChange::AtMost(4)).await.unwrap();
        system.limit_tenant(acme, LimitChange::Keep, LimitChange::AtMost(3)).await.unwrap();

        assert_eq!(claim(&db.store, worker, 10).await.len(), 2);
        let admitted = async || {
            let mut unit = system.write_for(acme);
            unit.admit(1);
            unit.enqueue(vec![job("b")]);
            unit.commit().await
        };
        assert!(matches!(admitted().await, Err(StoreError::Precondition(Precondition::TooManyWaitingJobs))));
        system.limit_tenant(acme, LimitChange::Unlimited, LimitChange::Unlimited).await.unwrap();
        admitted().await.unwrap();
        system.limit_kind("a", LimitChange::AtMost(2)).await.unwrap();
        let claimed = claim(&db.store, worker, 10).await;
        assert_eq!(claimed.iter().map(|job| job.kind.as_str()).collect::<Vec<_>>(), ["b"]);
        system.limit_kind("a", LimitChange::Unlimited).await.unwrap();
        assert_eq!(claim(&db.store, worker, 10).await.len(), 4);
    })
    .await;
}

#[tokio::test]
async fn plan_weight_takes_effect_at_once() {
    on_each_database(|db| async move {
        let (system, acme) = (db.store.system(), tenant(&db.store, "acme").await);
        enqueue_for(&db.store, acme, vec![job("a")]).await;
        system.count_arrivals().await.unwrap();

        system.set_weight(PlanTier::Standard, 7).await.unwrap();

        assert_eq!(system.list_queue_candidates(&["a".to_owned()]).await.unwrap()[0].weight, 7);
        assert!(system.set_weight(PlanTier::Standard, 0).await.is_err());
    })
    .await;
}

#[tokio::test]
async fn moved_job_takes_its_count_along() {
    on_each_database(|db| async move {
        let system = db.store.system();
        let worker = worker(&db.store, &["a"]).await;
        let (ready, waiting) = (job("a"), NewJob { when: StartTime::In(Duration::from_secs(600)), ..job("a") });
        enqueue(&db.store, vec![ready.clone(), waiting.clone()]).await;

        assert!(system.move_job(TenantId::SYSTEM, ready.id, Lane::Critical).await.unwrap());
        assert!(!system.move_job(TenantId::SYSTEM, ready.id, Lane::Critical).await.unwrap());
        assert!(system.move_job(TenantId::SYSTEM, waiting.id, Lane::Low).await.unwrap());
        assert!(!system.move_job(TenantId::SYSTEM, new_id(), Lane::Low).await.unwrap());

        let waits: Vec<u64> = system.lane_depths().await.unwrap().iter().map(|depth| depth.waiting).collect();
        assert_eq!(waits, [1, 0, 0, 0]);
        let claimed = claim(&db.store, worker, 10).await;
        assert_eq!(claimed.iter().map(|job| (job.id, job.lane)).collect::<Vec<_>>(), [(ready.id, Lane::Critical)]);
    })
    .await;
}

#[tokio::test]
async fn retry_now_runs_waiting_and_ended_jobs() {
    on_each_database(|db| async move {
        let system = db.store.system();
        let worker = worker(&db.store, &["a"]).await;
        let later = NewJob { when: StartTime::In(Duration::from_secs(600)), ..job("a") };
        enqueue(&db.store, vec![later.clone()]).await;

        assert_eq!(system.retry_now(later.id).await.unwrap(), Some(RetryOutcome::Due));
        assert_eq!(system.retry_now(later.id).await.unwrap(), Some(RetryOutcome::Not { state: JobState::Ready }));
        assert_eq!(system.retry_now(new_id()).await.unwrap(), None);
        kill(&db.store, worker, later.id).await;
        assert_eq!(system.retry_now(later.id).await.unwrap(), Some(RetryOutcome::Replayed));
        let cancelled = system.cancel_job(TenantId::SYSTEM, later.id, "not wanted").await.unwrap();
        assert_eq!(cancelled, CancelOutcome::Cancelled);
        assert_eq!(system.retry_now(later.id).await.unwrap(), Some(RetryOutcome::Replayed));
        let claimed = claim(&db.store, worker, 10).await;
        assert_eq!((claimed[0].id, claimed[0].attempt, claimed[0].token), (later.id, 0, 2));
        system.finish_done(&claimed, new_id).await.unwrap();
        assert_eq!(system.retry_now(later.id).await.unwrap(), Some(RetryOutcome::Not { state: JobState::Done }));
    })
    .await;
}

/// A unit that ends a running job and lets the next one go on with this number.
fn continuing(store: &Store, running: &ClaimedJob, number: u32) -> TenantUnit {
    let mut unit = store.system().write_for(running.tenant);
    unit.enqueue_continuation(running, numbered(number));
    unit.finish(running, JobEnd::Done, new_id());
    unit
}

fn numbered(number: u32) -> NewJob {
    let unique = Some(UniqueKey { key: "k".to_owned(), policy: OnConflict::Replace });
    NewJob { unique, payload: serde_json::json!({"number": number}), ..job("a") }
}

#[tokio::test]
async fn job_continues_until_it_is_cancelled() {
    on_each_database(|db| async move {
        let system = db.store.system();
        let worker = worker(&db.store, &["a"]).await;
        assert!(system.find_unique_job(TenantId::SYSTEM, "a", "k").await.unwrap().is_none());
        enqueue(&db.store, vec![numbered(1)]).await;

        let running = claim(&db.store, worker, 1).await.remove(0);
        continuing(&db.store, &running, 2).commit().await.unwrap();
        let found = system.find_unique_job(TenantId::SYSTEM, "a", "k").await.unwrap().unwrap();
        assert_eq!((found.state, &found.payload["number"]), (JobState::Ready, &2.into()));
        assert_ne!(found.id, running.id);

        let running = claim(&db.store, worker, 1).await.remove(0);
        let cancelled = system.cancel_job(TenantId::SYSTEM, running.id, "not wanted").await.unwrap();
        assert_eq!(cancelled, CancelOutcome::Requested);
        let refused = continuing(&db.store, &running, 3).commit().await;
        assert!(matches!(refused, Err(StoreError::Precondition(Precondition::JobCancelled))), "{refused:?}");

        assert!(system.end_cancelled(&running, "not wanted", new_id()).await.unwrap());
        let ended = system.find_unique_job(TenantId::SYSTEM, "a", "k").await.unwrap().unwrap();
        assert_eq!((ended.id, ended.state), (running.id, JobState::Cancelled));
    })
    .await;
}
