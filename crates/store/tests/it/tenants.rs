use domain::{ApiKeyId, PlanTier, Sha256};
use store::sql::keys::NewApiKey;
use store::testing::on_each_database;

use crate::samples::tenant;

#[tokio::test]
async fn tenant_is_found_by_name_and_id() {
    on_each_database(|db| async move {
        let system = db.store.system();
        let made = system.create_tenant("acme", PlanTier::Vip).await.unwrap().unwrap();

        assert_eq!(system.find_tenant("acme").await.unwrap().unwrap().id, made.id);
        assert_eq!(system.find_tenant(&made.id.to_string()).await.unwrap().unwrap().plan_tier, PlanTier::Vip);
        assert!(system.find_tenant("nobody").await.unwrap().is_none());
        assert!(system.create_tenant("acme", PlanTier::Standard).await.unwrap().is_none());
        assert_eq!(system.list_tenants().await.unwrap().len(), 1);
    })
    .await;
}

#[tokio::test]
async fn deactivating_changes_the_version_once() {
    on_each_database(|db| async move {
        let system = db.store.system();
        let made = system.create_tenant("acme", PlanTier::Standard).await.unwrap().unwrap();

        assert!(system.set_tenant_active(made.id, false).await.unwrap());
        assert!(!system.set_tenant_active(made.id, false).await.unwrap());

        let read = system.find_tenant("acme").await.unwrap().unwrap();
        assert_eq!((read.is_active, read.version), (false, 2));
    })
    .await;
}

#[tokio::test]
async fn api_key_is_revoked_once() {
    on_each_database(|db| async move {
        let (acme, other) = (tenant(&db.store, "acme").await, tenant(&db.store, "other").await);
        let id = ApiKeyId::new(db.store.clock());
        let scopes = vec!["read".to_owned()];
        let created_at = db.store.system().now().await.unwrap();
        let key_hash = Sha256::of(b"secret");
        let key = NewApiKey { id, name: "ci", key_hash, scopes: &scopes, expires_at: None, created_at };
        acme.create_api_key(key).await.unwrap();

        let listed = acme.list_api_keys().await.unwrap();

        assert_eq!((listed[0].name.as_str(), &listed[0].scopes), ("ci", &scopes));
        assert!(!other.revoke_api_key(id).await.unwrap());
        assert!(acme.revoke_api_key(id).await.unwrap());
        assert!(!acme.revoke_api_key(id).await.unwrap());
        assert!(acme.list_api_keys().await.unwrap()[0].revoked_at.is_some());
    })
    .await;
}

#[tokio::test]
async fn concurrent_callers_get_the_same_mailbox() {
    on_each_database(|db| async move {
        let acme = tenant(&db.store, "acme").await;

        let (a, b) = tokio::join!(acme.ensure_files_mailbox("me@acme.test"), acme.ensure_files_mailbox("me@acme.test"));

        assert_eq!(a.unwrap().id, b.unwrap().id);
        assert_eq!(acme.list_mailboxes().await.unwrap().len(), 1);
    })
    .await;
}

#[tokio::test]
async fn database_clock_is_readable() {
    on_each_database(|db| async move {
        let apart = db.store.system().now().await.unwrap().duration_since(db.store.clock().now());

        assert!(apart.abs() < jiff::SignedDuration::from_hours(1), "{apart}");
    })
    .await;
}
