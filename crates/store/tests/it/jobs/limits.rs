//! How much may run, and how much may wait.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use domain::{JobId, Lane, SystemClock, TenantId, WorkerId};
use store::sql::jobs::NewJob;
use store::testing::{TestDatabase, migrated_postgres, on_each_database};
use store::{Precondition, Store, StoreError};

use super::invariants::assert_invariants;
use super::transitions::{claim, job};

async fn worker(store: &Store) -> WorkerId {
    store.system().register_worker("test", &[], Duration::from_secs(3600)).await.unwrap()
}

async fn enqueue(store: &Store, tenant: TenantId, jobs: Vec<NewJob>) {
    let mut unit = store.system().write_for(tenant);
    unit.enqueue(jobs);
    unit.commit().await.unwrap();
}

fn successor() -> JobId {
    JobId::new(&SystemClock)
}

async fn running(db: &TestDatabase, of: &str) -> u64 {
    db.rows(&format!("select count(*) from jobs where state = 'running' and {of}")).await[0].get(0).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_hold_under_concurrent_claims() {
    let db = migrated_postgres().await;
    let tenants = [(); 3].map(|()| TenantId::new(&SystemClock));
    for tenant in tenants {
        enqueue(&db.store, tenant, (0..40).map(|n| job(if n % 2 == 0 { "a" } else { "b" })).collect()).await;
    }
    db.run(&format!("insert into job_tenants (tenant_id, most_running) values ('{}', 3)", tenants[0])).await;
    db.run("insert into job_kinds (kind, most_running) values ('b', 4)").await;
    let (done, most_of_tenant, most_of_kind) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));

    let claimer = async || {
        let store = db.second_store();
        let worker = worker(&store).await;
        while done.load(Ordering::Relaxed) < 120 {
            let claimed = claim(&store, worker, 5).await;
            let of_tenant = running(&db, &format!("tenant_id = '{}'", tenants[0])).await;
            most_of_tenant.fetch_max(of_tenant, Ordering::Relaxed);
            most_of_kind.fetch_max(running(&db, "kind = 'b'").await, Ordering::Relaxed);
            let finished = store.system().finish_done(&claimed, successor).await.unwrap();
            assert_eq!(finished.len(), claimed.len());
            done.fetch_add(finished.len() as u64, Ordering::Relaxed);
        }
    };
    tokio::join!(claimer(), claimer(), claimer(), claimer());

    assert_eq!((most_of_tenant.into_inner(), most_of_kind.into_inner()), (3, 4), "as many as may, and no more");
    assert_invariants(&db, "after all claims").await;
}

#[tokio::test]
async fn limit_lets_the_oldest_through() {
    on_each_database(|db| async move {
        let tenants = [(); 5].map(|()| TenantId::new(&SystemClock));
        let jobs = tenants.map(|_| (0..50).map(|_| job("a")).collect::<Vec<_>>());
        for (tenant, jobs) in tenants.iter().zip(&jobs) {
            enqueue(&db.store, *tenant, jobs.clone()).await;
            db.run(&format!("insert into job_tenants (tenant_id, most_running) values ('{tenant}', 7)")).await;
        }
        let worker = worker(&db.store).await;

        for round in 0..5 {
            let claimed = claim(&db.store, worker, 50).await;
            for (tenant, jobs) in tenants.iter().zip(&jobs) {
                let mut taken: Vec<JobId> =
                    claimed.iter().filter(|job| job.tenant == *tenant).map(|job| job.id).collect();
                let mut oldest: Vec<JobId> = jobs[round * 7..][..7].iter().map(|job| job.id).collect();
                taken.sort();
                oldest.sort();
                assert_eq!(taken, oldest, "round {round}");
            }
            db.store.system().finish_done(&claimed, successor).await.unwrap();
        }
    })
    .await;
}

/// Their share stays small while they wait, so they stand first for as long as it takes.
#[tokio::test]
async fn tenants_at_their_limit_do_not_hide_others() {
    on_each_database(|db| async move {
        let worker = worker(&db.store).await;
        for _ in 0..300 {
            let tenant = TenantId::new(&SystemClock);
            enqueue(&db.store, tenant, vec![job("a"), job("a")]).await;
            db.run(&format!("insert into job_tenants (tenant_id, most_running) values ('{tenant}', 1)")).await;
        }
        while !claim(&db.store, worker, 1).await.is_empty() {}
        assert_eq!(running(&db, "true").await, 300);
        db.run("update job_lanes set clock = 1000000000").await;

        let late = NewJob { lane: Lane::Normal, ..job("a") };
        enqueue(&db.store, TenantId::SYSTEM, vec![late.clone()]).await;

        let claimed = claim(&db.store, worker, 1).await;
        assert_eq!(claimed.iter().map(|job| job.id).collect::<Vec<_>>(), [late.id]);
    })
    .await;
}

#[tokio::test]
async fn full_backlog_refuses_more_jobs() {
    on_each_database(|db| async move {
        let tenant = TenantId::new(&SystemClock);
        db.run(&format!("insert into job_tenants (tenant_id, most_waiting) values ('{tenant}', 3)")).await;
        let admit = async |store: &Store| {
            let mut unit = store.tenant(tenant).write();
            unit.admit(2);
            unit.enqueue(vec![job("a"), job("b")]);
            unit.commit().await.map(drop)
        };

        admit(&db.store).await.unwrap();
        let refused = admit(&db.store).await;
        assert!(matches!(refused, Err(StoreError::Precondition(Precondition::TooManyWaitingJobs))), "{refused:?}");
        // Whether or not they are counted already.
        db.store.system().count_arrivals().await.unwrap();
        let refused = admit(&db.store).await;
        assert!(matches!(refused, Err(StoreError::Precondition(Precondition::TooManyWaitingJobs))), "{refused:?}");
        assert_eq!(db.rows("select count(*) from jobs").await[0].get::<u64>(0).unwrap(), 2, "nothing of it happened");

        let worker = worker(&db.store).await;
        assert_eq!(claim(&db.store, worker, 1).await.len(), 2);
        admit(&db.store).await.unwrap();
    })
    .await;
}
