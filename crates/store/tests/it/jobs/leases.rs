//! Fenced leases.

use std::time::Duration;

use domain::TenantId;
use store::testing::on_each_database;
use store::{Precondition, StoreError};

use super::transitions::job;

const LONG: Duration = Duration::from_secs(600);

#[tokio::test]
async fn lease_token_grows_with_every_holder() {
    on_each_database(|db| async move {
        let system = db.store.system();
        let acquire = async |holder: &str, duration| system.acquire_lease("l", holder, duration).await.unwrap();

        assert_eq!(acquire("one", LONG).await, Some(1));
        assert_eq!(acquire("two", LONG).await, None);
        assert_eq!(system.acquire_lease("other", "two", LONG).await.unwrap(), Some(1));
        assert!(system.renew_lease("l", "one", 1, LONG).await.unwrap());
        assert!(!system.renew_lease("l", "two", 1, LONG).await.unwrap());
        assert_eq!(system.find_lease_holder("l").await.unwrap().as_deref(), Some("one"));

        system.release_lease("l", "two", 1).await.unwrap();
        assert_eq!(acquire("two", LONG).await, None);
        system.release_lease("l", "one", 1).await.unwrap();
        assert_eq!(acquire("two", Duration::ZERO).await, Some(2));
        assert!(!system.renew_lease("l", "one", 1, LONG).await.unwrap());
        assert_eq!(acquire("three", LONG).await, Some(3), "it had run out");
    })
    .await;
}

#[tokio::test]
async fn stale_leases_are_pruned_by_prefix() {
    on_each_database(|db| async move {
        let system = db.store.system();
        for name in ["grant:a", "grant:b", "grant:held", "scheduler"] {
            system.acquire_lease(name, "one", LONG).await.unwrap().unwrap();
        }
        db.run("update leases set until = '2026-01-01T00:00:00.000Z' where name <> 'grant:held'").await;
        let before = "2026-01-02T00:00:00Z".parse().unwrap();

        assert!(system.prune_leases("grant:", before, 1).await.unwrap(), "there is more");
        assert!(!system.prune_leases("grant:", before, 10).await.unwrap());
        let left = db.rows("select name from leases order by name").await;
        let left: Vec<String> = left.iter().map(|row| row.get(0).unwrap()).collect();
        assert_eq!(left, ["grant:held", "scheduler"]);
    })
    .await;
}

#[tokio::test]
async fn contended_lease_has_one_winner() {
    on_each_database(|db| async move {
        let system = db.store.system();
        let tries = (0..8).map(|n| {
            let system = system.clone();
            tokio::spawn(async move { system.acquire_lease("l", &format!("holder {n}"), LONG).await.unwrap() })
        });

        let mut tokens = Vec::new();
        for one in tries.collect::<Vec<_>>() {
            tokens.extend(one.await.unwrap());
        }

        assert_eq!(tokens, [1]);
    })
    .await;
}

#[tokio::test]
async fn former_leaseholder_writes_nothing() {
    on_each_database(|db| async move {
        let system = db.store.system();
        let old = system.acquire_lease("l", "one", Duration::ZERO).await.unwrap().unwrap();
        let write = async |token: u64| {
            let mut unit = system.write_for(TenantId::SYSTEM);
            unit.guard_lease("l", token);
            unit.enqueue(vec![job("a")]);
            unit.commit().await.map(drop)
        };

        write(old).await.unwrap();
        let new = system.acquire_lease("l", "two", LONG).await.unwrap().unwrap();

        assert!(matches!(write(old).await, Err(StoreError::Precondition(Precondition::LeaseTakenOver))));
        write(new).await.unwrap();
        assert_eq!(system.lane_depths().await.unwrap()[2].waiting, 2);
    })
    .await;
}
