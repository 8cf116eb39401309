//! Schedules: each time is used once.

use std::time::Duration;

use domain::{Lane, TenantId};
use jiff::Timestamp;
use serde_json::json;
use store::sql::jobs::{JobFilter, NewJob, OnConflict, UniqueKey};
use store::sql::schedules::{LeaseToken, MissedPolicy, NewSchedule, OverlapPolicy, Schedule};
use store::testing::on_each_database;
use store::{Precondition, StoreError, SystemStore};

use super::transitions::job;

fn nightly(cron: &str) -> NewSchedule {
    NewSchedule {
        name: "nightly".into(),
        tenant: TenantId::SYSTEM,
        kind: "a".into(),
        lane: Lane::Low,
        payload: json!({"n": 1}),
        cron: cron.into(),
        zone: "Europe/Berlin".into(),
        missed: MissedPolicy::RunOnce,
        overlap: OverlapPolicy::Skip,
    }
}

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

async fn get(system: &SystemStore) -> Schedule {
    system.find_schedule(TenantId::SYSTEM, "nightly").await.unwrap().unwrap()
}

async fn count(system: &SystemStore) -> usize {
    system.list_jobs(&JobFilter::default(), None, 100).await.unwrap().len()
}

#[tokio::test]
async fn redefined_schedule_keeps_pause_and_next_time() {
    on_each_database(|db| async move {
        let system = db.store.system();
        let (first, second) = (at("2030-01-01T01:00:00Z"), at("2030-01-02T01:00:00Z"));
        system.put_schedule(&nightly("0 2 * * *"), first).await.unwrap();
        assert!(system.pause_schedule(TenantId::SYSTEM, "nightly").await.unwrap());
        assert!(!system.pause_schedule(TenantId::SYSTEM, "nightly").await.unwrap());

        let changed = NewSchedule { payload: json!({"n": 2}), overlap: OverlapPolicy::Queue, ..nightly("0 2 * * *") };
        system.put_schedule(&changed, second).await.unwrap();
        let kept = get(&system).await;
        assert_eq!((kept.is_paused, kept.next_at, kept.overlap), (true, first, OverlapPolicy::Queue));
        assert_eq!(kept.payload, json!({"n": 2}));

        system.put_schedule(&nightly("0 3 * * *"), second).await.unwrap();
        assert_eq!(get(&system).await.next_at, second);
        assert!(system.resume_schedule(TenantId::SYSTEM, "nightly", first).await.unwrap());
        assert!(!system.resume_schedule(TenantId::SYSTEM, "nightly", second).await.unwrap());
        let resumed = get(&system).await;
        assert_eq!((resumed.is_paused, resumed.next_at), (false, first));
        assert_eq!(system.list_schedules().await.unwrap(), [resumed]);
        assert!(system.remove_schedule(TenantId::SYSTEM, "nightly").await.unwrap());
        assert!(!system.pause_schedule(TenantId::SYSTEM, "nightly").await.unwrap());
    })
    .await;
}

#[tokio::test]
async fn schedule_fires_once_across_instances() {
    on_each_database(|db| async move {
        let system = db.store.system();
        let slot = at("2026-01-01T01:00:00Z");
        system.put_schedule(&nightly("0 2 * * *"), slot).await.unwrap();
        assert!(system.list_due_schedules(slot - Duration::from_secs(1)).await.unwrap().is_empty());
        let due = system.list_due_schedules(slot).await.unwrap().remove(0);

        let tries = (0..8).map(|_| {
            let (system, due) = (system.clone(), due.clone());
            tokio::spawn(async move {
                let next = at("2026-01-02T01:00:00Z");
                system.fire_schedule(&due, next, Some(job("a")), None).await.unwrap()
            })
        });
        let mut fired = 0;
        for one in tries.collect::<Vec<_>>() {
            fired += u32::from(one.await.unwrap());
        }

        assert_eq!((fired, count(&system).await), (1, 1));
        let after = get(&system).await;
        assert_eq!(after.next_at, at("2026-01-02T01:00:00Z"));
        assert!(after.last_at.is_some() && after.last_job.is_some());
        assert!(!system.fire_schedule(&due, slot, None, None).await.unwrap());
    })
    .await;
}

#[tokio::test]
async fn former_leaseholder_fires_no_schedule() {
    on_each_database(|db| async move {
        let system = db.store.system();
        system.put_schedule(&nightly("0 2 * * *"), at("2026-01-01T01:00:00Z")).await.unwrap();
        let (due, next) = (get(&system).await, at("2026-01-02T01:00:00Z"));
        let old = system.acquire_lease("scheduler", "one", Duration::ZERO).await.unwrap().unwrap();
        system.acquire_lease("scheduler", "two", Duration::from_secs(60)).await.unwrap().unwrap();

        let lease = Some(LeaseToken { name: "scheduler", token: old });
        let fired = system.fire_schedule(&due, next, Some(job("a")), lease).await;

        assert!(matches!(fired, Err(StoreError::Precondition(Precondition::LeaseTakenOver))));
        assert_eq!((get(&system).await, count(&system).await), (due.clone(), 0));
        system.pause_schedule(TenantId::SYSTEM, "nightly").await.unwrap();
        assert!(!system.fire_schedule(&due, next, Some(job("a")), None).await.unwrap());
    })
    .await;
}

#[tokio::test]
async fn dropped_run_is_not_remembered() {
    on_each_database(|db| async move {
        let system = db.store.system();
        system.put_schedule(&nightly("0 2 * * *"), at("2030-01-01T01:00:00Z")).await.unwrap();
        let schedule = get(&system).await;
        let unique = Some(UniqueKey { key: "recurring:nightly".into(), policy: OnConflict::Keep });
        let keyed = || NewJob { unique: unique.clone(), ..job("a") };
        let (first, second) = (keyed(), keyed());
        let id = first.id;

        assert!(system.run_schedule(&schedule, first).await.unwrap());
        assert!(!system.run_schedule(&schedule, second).await.unwrap());

        let after = get(&system).await;
        assert_eq!((after.last_job, after.next_at), (Some(id), schedule.next_at));
        assert_eq!(count(&system).await, 1);
    })
    .await;
}
