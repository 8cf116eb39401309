//! A legal hold keeps what the tenant has, whatever is done and however closely it is set before that.

use store::sql::tenants::Tenant;
use store::testing::wait::wait_until;
use store::testing::{migrated_postgres, on_each_database};
use store::{Location, Precondition, Store, StoreError, TenantStore};
use tempfile::tempdir;
use tokio_postgres::NoTls;

use crate::samples::{blobs, email, mailbox, record, tenant, time};

const HOLD: &str = "update tenants set hold_reason = 'a lawsuit'";
const LIFT: &str = "update tenants set hold_reason = null";

/// Stores one email, and returns its id.
async fn store_email(acme: &TenantStore) -> domain::EmailId {
    let folder = tempdir().unwrap();
    let email = email(mailbox(acme).await.id, "red apple", time("2026-01-02T00:00:00Z"));
    let id = email.id;
    record(acme, &blobs(&folder), vec![email]).await.unwrap();
    id
}

async fn discard(acme: &TenantStore, id: domain::EmailId) -> Result<(), StoreError> {
    let mut unit = acme.write();
    unit.discard_email(id);
    unit.commit().await.map(drop)
}

async fn set_hold(store: &Store, name: &str) -> Result<(), StoreError> {
    let system = store.system();
    let before = system.find_tenant(name).await?.unwrap();
    let after = Tenant { hold_reason: Some("a lawsuit".into()), ..before.changed_at(system.now().await?) };
    system.change_tenant(&before, &after).await
}

#[tokio::test]
async fn held_tenants_mail_is_not_soft_deleted() {
    on_each_database(|db| async move {
        let acme = tenant(&db.store, "acme").await;
        let id = store_email(&acme).await;
        db.run(HOLD).await;

        let refused = discard(&acme, id).await;

        assert!(matches!(refused, Err(StoreError::Precondition(Precondition::TenantHeld))), "{refused:?}");
        assert!(acme.has_live_email(id).await.unwrap());
        assert!(acme.list_events(0, 10).await.unwrap().iter().all(|event| event.kind != "email.deleted"));
        db.run(LIFT).await;
        discard(&acme, id).await.unwrap();
        assert!(!acme.has_live_email(id).await.unwrap());
    })
    .await;
}

#[tokio::test]
async fn held_tenants_blobs_are_not_deleted() {
    on_each_database(|db| async move {
        let acme = tenant(&db.store, "acme").await;
        let id = store_email(&acme).await;
        acme.purge_emails(&[id]).await.unwrap();
        let collector = db.store.system().collector(acme.id);
        assert_eq!(collector.mark_unreferenced_blobs().await.unwrap(), 1);
        db.run(HOLD).await;
        let cutoff = collector.cutoff(jiff::SignedDuration::ZERO).await.unwrap();

        let refused = collector.delete_blobs(cutoff).await;

        assert!(matches!(refused, Err(StoreError::Precondition(Precondition::TenantHeld))), "{refused:?}");
        db.run(LIFT).await;
        assert_eq!(collector.delete_blobs(cutoff).await.unwrap(), (1, 1));
    })
    .await;
}

#[tokio::test]
async fn held_tenants_events_are_not_pruned() {
    on_each_database(|db| async move {
        let acme = tenant(&db.store, "acme").await;
        discard(&acme, store_email(&acme).await).await.unwrap();
        let (system, end) = (db.store.system(), time("2100-01-01T00:00:00Z"));
        let before = acme.list_events(0, 10).await.unwrap();
        assert!(!before.is_empty());
        db.run(HOLD).await;

        assert!(!system.prune_events(acme.id, end, 100).await.unwrap());

        assert_eq!(acme.list_events(0, 10).await.unwrap(), before);
        db.run(LIFT).await;
        system.prune_events(acme.id, end, 100).await.unwrap();
        assert_eq!(acme.list_events(0, 10).await.unwrap(), []);
    })
    .await;
}

/// On SQLite there is one writer: a hold comes before a purge, or after it.
#[tokio::test(flavor = "multi_thread")]
async fn hold_waits_for_a_purge_that_is_under_way() {
    let db = migrated_postgres().await;
    let acme = tenant(&db.store, "acme").await;
    let id = store_email(&acme).await;
    let Location::Postgres { url, .. } = &db.location else { unreachable!("it is a PostgreSQL") };
    let (mut client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client.batch_execute("set role mailroom_system").await.unwrap();
    // The purge gets as far as its recipients, long after it has looked for a hold.
    let holding = client.transaction().await.unwrap();
    holding.batch_execute("select 1 from email_recipients for update").await.unwrap();
    let waiting = "select 1 from pg_locks where not granted and pid in (
                       select pid from pg_stat_activity where datname = current_database())";

    let purging = tokio::spawn(async move { acme.purge_emails(&[id]).await });
    wait_until("the purge waits", async || db.rows(waiting).await.len() == 1).await;
    let store = db.store.clone();
    let holds = tokio::spawn(async move { set_hold(&store, "acme").await });
    wait_until("the hold waits, or is set", async || holds.is_finished() || db.rows(waiting).await.len() == 2).await;

    assert!(!holds.is_finished(), "the hold was set, and then an email was purged");
    holding.rollback().await.unwrap();
    assert_eq!(purging.await.unwrap().unwrap(), 1);
    holds.await.unwrap().unwrap();
}
