//! Settings of mailboxes and tenants: read, inherited, and kept whatever they are.

use std::time::Duration;

use domain::{MailboxSettings, TenantSettings};
use serde_json::{Value, json};
use store::TenantStore;
use store::sql::mailboxes::Mailbox;
use store::sql::tenants::Tenant;
use store::testing::{TestDatabase, on_each_database};

use crate::samples::tenant;
use crate::sync;

async fn stores(db: &TestDatabase, table: &str, settings: &Value) {
    db.run(&format!("update {table} set settings = '{settings}'")).await;
}

async fn only_mailbox(store: &TenantStore) -> Mailbox {
    store.list_mailboxes().await.unwrap().remove(0)
}

#[tokio::test]
async fn interval_by_sql_agrees_with_inheritance() {
    on_each_database(|db| async move {
        let store = db.store.tenant(tenant(&db.store, "acme").await.id);
        sync::mailbox(&store, "me@acme.test").await;
        let own = [json!({}), json!({"interval_seconds": 60}), json!({"interval_seconds": 2_592_000})];
        let invalid =
            [json!(0), json!(-5), json!(1.5), json!("60"), json!("often"), json!(null), json!([60]), json!(true)];
        let large = [json!(2_592_001), json!(1_u64 << 40), json!(u64::MAX)];
        let invalid = invalid.into_iter().chain(large).map(|value| json!({"interval_seconds": value}));
        let mailboxes: Vec<Value> = own.into_iter().chain(invalid).collect();
        for tenants in [json!({}), json!({"interval_seconds": 900}), json!({"interval_seconds": "often"})] {
            stores(&db, "tenants", &tenants).await;
            for mailboxes in &mailboxes {
                stores(&db, "mailboxes", mailboxes).await;

                let due = db.store.system().list_due_mailboxes(10, &[]).await.unwrap().remove(0);

                let in_force = only_mailbox(&store).await.settings_in_force().interval_seconds;
                assert_eq!(due.every, in_force.map(Duration::from_secs), "{mailboxes} of {tenants}");
                db.store.system().list_sync_lags(Duration::from_secs(300)).await.unwrap();
            }
        }
    })
    .await;
}

#[tokio::test]
async fn mailbox_inherits_what_it_does_not_set() {
    on_each_database(|db| async move {
        let store = db.store.tenant(tenant(&db.store, "acme").await.id);
        sync::mailbox(&store, "me@acme.test").await;
        stores(&db, "mailboxes", &json!({"folders": ["INBOX"], "bytes_per_day": 0})).await;
        let defaults = json!({"folders": ["Taxes"], "exclude": ["Spam"], "interval_seconds": 900, "bytes_per_day": 7});
        stores(&db, "tenants", &defaults).await;

        let in_force = only_mailbox(&store).await.settings_in_force();

        assert_eq!((in_force.folders, in_force.exclude), (vec!["INBOX".to_owned()], vec!["Spam".to_owned()]));
        assert_eq!((in_force.interval_seconds, in_force.bytes_per_day), (Some(900), Some(0)));
        let found = store.find_mailbox("me@acme.test").await.unwrap().unwrap();
        assert_eq!(found.settings, MailboxSettings::from(json!({"folders": ["INBOX"], "bytes_per_day": 0})));
        assert_eq!(store.tenant_settings().await.unwrap(), TenantSettings::from(defaults));
    })
    .await;
}

#[tokio::test]
async fn unreadable_settings_do_not_stop_a_listing() {
    on_each_database(|db| async move {
        let store = db.store.tenant(tenant(&db.store, "acme").await.id);
        sync::mailbox(&store, "me@acme.test").await;
        let odd = json!({"interval_seconds": "often", "folders": ["INBOX"], "colour": {"of": "tomorrow"}});
        stores(&db, "mailboxes", &odd).await;
        stores(&db, "tenants", &json!(["no", "object"])).await;

        let read = only_mailbox(&store).await;

        assert_eq!(
            (read.settings.interval_seconds, read.settings.folders.as_deref()),
            (None, Some(&["INBOX".into()][..]))
        );
        let mut unit = store.write();
        unit.change_mailbox(read.id, MailboxSettings { bytes_per_day: Some(1), ..read.settings }, None);
        unit.commit().await.unwrap();
        let mut expected = odd;
        expected["bytes_per_day"] = json!(1);
        assert_eq!(Value::from(only_mailbox(&store).await.settings), expected, "what was not read is kept");
    })
    .await;
}

#[tokio::test]
async fn tenant_settings_survive_other_changes() {
    on_each_database(|db| async move {
        let system = db.store.system();
        let acme = tenant(&db.store, "acme").await;
        stores(&db, "tenants", &json!({"backfill": "30d", "colour": 7})).await;
        let before = system.find_tenant("acme").await.unwrap().unwrap();
        let settings = TenantSettings { interval_seconds: Some(60), ..before.settings.clone() };
        let after = Tenant { settings, ..before.changed_at(system.now().await.unwrap()) };
        system.change_tenant(&before, &after).await.unwrap();

        assert!(system.set_tenant_active(acme.id, false).await.unwrap());

        let read = system.find_tenant("acme").await.unwrap().unwrap();
        assert_eq!(Value::from(read.settings), json!({"backfill": "30d", "interval_seconds": 60, "colour": 7}));
    })
    .await;
}
