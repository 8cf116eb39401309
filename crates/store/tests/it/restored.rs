//! What follows a restore: nobody misses an event by a number from before.

use domain::EventType;
use serde_json::json;
use store::sql::event_gaps::{EventLoss, MissedEvents};
use store::testing::{TestDatabase, on_each_database};
use store::{Dialect, StoreError, TenantStore, restored};

use crate::samples::tenant;

async fn emit(tenant: &TenantStore) -> u64 {
    let mut unit = tenant.write();
    unit.emit_event(EventType::SyncCompleted, None, json!({}));
    unit.commit().await.unwrap();
    head(tenant).await
}

async fn head(tenant: &TenantStore) -> u64 {
    tenant.list_events(0, 1000).await.unwrap().last().map_or(0, |event| event.seq)
}

async fn bring_back(db: &TestDatabase) {
    restored::mark(&db.location, "a backup").await.unwrap();
    db.store.migrate().await.unwrap();
}

async fn missed(tenant: &TenantStore, after: u64) -> Option<(EventLoss, u64)> {
    let missed = tenant.find_missed_events(after).await.unwrap();
    missed.map(|MissedEvents { loss, continue_after }| (loss, continue_after))
}

#[tokio::test]
async fn restored_counters_are_beyond_every_number() {
    on_each_database(|db| async move {
        let (acme, quiet) = (tenant(&db.store, "acme").await, tenant(&db.store, "quiet").await);
        for _ in 0..3 {
            emit(&acme).await;
        }

        bring_back(&db).await;

        for (tenant, last) in [(&acme, 3), (&quiet, 0)] {
            let event = tenant.list_events(last, 10).await.unwrap().remove(0);
            assert_eq!((event.kind.as_str(), event.data), ("installation.restored", json!({"after": last})));
            assert!(event.seq > 1_000_000_000_000, "{}", event.seq);
            let goes_on = Some((EventLoss::Restored, event.seq - 1));
            assert_eq!(missed(tenant, last).await, None);
            assert_eq!(missed(tenant, last + 1).await, goes_on);
            assert_eq!(missed(tenant, last + 1_000_000).await, goes_on);
            assert_eq!(missed(tenant, event.seq - 1).await, None);
            assert_eq!(missed(tenant, event.seq + 1).await, Some((EventLoss::NeverGiven, event.seq)));
            assert_eq!(emit(tenant).await, event.seq + 1);
        }
        let before = head(&acme).await;
        db.store.migrate().await.unwrap();
        assert_eq!(head(&acme).await, before, "it was moved once");

        bring_back(&db).await;
        assert!(head(&acme).await > before);
        assert_eq!(acme.list_events(before, 10).await.unwrap().len(), 1);
    })
    .await;
}

#[tokio::test]
async fn same_backup_restored_twice_repeats_no_number() {
    on_each_database(|db| async move {
        let acme = tenant(&db.store, "acme").await;
        emit(&acme).await;
        bring_back(&db).await;
        let lost = emit(&acme).await;

        // The backup of before, once more.
        db.run("delete from events where seq > 1").await;
        db.run("delete from event_gaps").await;
        db.run("update tenant_counters set event_seq = 1").await;
        bring_back(&db).await;

        assert!(head(&acme).await > lost);
        assert_eq!(missed(&acme, lost).await, Some((EventLoss::Restored, head(&acme).await - 1)));
    })
    .await;
}

#[tokio::test]
async fn pruned_events_are_missed_by_who_has_not_read_them() {
    on_each_database(|db| async move {
        let acme = tenant(&db.store, "acme").await;
        for _ in 0..3 {
            emit(&acme).await;
        }
        db.run("delete from events where seq < 3").await;

        assert_eq!(missed(&acme, 0).await, None, "to begin with what is there misses nothing");
        assert_eq!(missed(&acme, 1).await, Some((EventLoss::Pruned, 2)));
        assert_eq!(missed(&acme, 2).await, None);
        assert_eq!(missed(&acme, 3).await, None);
    })
    .await;
}

#[tokio::test]
async fn unfinished_restore_is_not_used() {
    on_each_database(|db| async move {
        let acme = tenant(&db.store, "acme").await;
        emit(&acme).await;
        restored::mark(&db.location, "a backup").await.unwrap();

        if db.store.dialect() == Dialect::Postgres {
            let refused = db.store.check_schema().await;
            assert!(
                matches!(&refused, Err(StoreError::Refused(why)) if why.contains("mailroom migrate")),
                "{refused:?}"
            );
        }
        // Every command does this with a SQLite file.
        db.store.migrate().await.unwrap();

        db.store.check_schema().await.unwrap();
        assert!(head(&acme).await > 1_000_000_000_000);
    })
    .await;
}
