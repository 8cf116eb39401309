//! Messages that failed before schema 15, when nothing asked for them again.

use domain::{MailboxId, Provider, SystemClock};
use store::sql::mailboxes::NewMailbox;
use store::testing::on_each_database;

use crate::older_schemas::set_back;
use crate::samples::tenant;

#[tokio::test]
async fn older_failed_messages_are_queued_once_more() {
    on_each_database(|db| async move {
        let acme = tenant(&db.store, "acme").await;
        let mut unit = acme.write();
        for (address, provider) in [("box", Provider::Imap), ("files", Provider::Files)] {
            unit.add_mailbox(NewMailbox {
                id: MailboxId::new(&SystemClock),
                provider,
                address: address.to_owned(),
                settings: serde_json::json!({}).into(),
                secret_ref: None,
                since: None,
            });
        }
        unit.commit().await.unwrap();
        for state in ["failed", "gone", "processed"] {
            db.run(&format!(
                "insert into ledger (mailbox_id, provider_message_id, tenant_id, state, reason, first_seen_at)
                 select id, address || ' {state}', tenant_id, '{state}', 'it was said', created_at from mailboxes"
            ))
            .await;
        }
        set_back(&db, 14).await;

        assert_eq!(db.second_store().migrate().await.unwrap(), ["trust"]);

        let queued = db.rows("select provider_message_id from ledger where state = 'queued' and reason is null").await;
        let queued: Vec<String> = queued.iter().map(|row| row.get(0).unwrap()).collect();
        assert_eq!(queued, ["box failed"], "an import is repeated by a person");
        let mailboxes = db.store.system().list_mailboxes_without_fetches(None).await.unwrap();
        assert_eq!(mailboxes.len(), 1, "and requested");
    })
    .await;
}
