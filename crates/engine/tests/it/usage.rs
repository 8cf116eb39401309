//! What a tenant uses of its providers, and when what waits will be here.

use domain::{MailboxId, MailboxSettings, PlanTier, Provider, SystemClock};
use engine::accounts::usage::{self, FORECAST_STILL_LISTING};
use outbound::CallSettings;
use store::TenantStore;
use store::sql::mailboxes::NewMailbox;
use store::testing::on_each_database;

/// Mailboxes, their backlog, and why its end is unknown.
async fn used(store: &TenantStore) -> (u64, u64, Option<Option<&'static str>>) {
    let usage = usage::of_tenant(store, None, &CallSettings::default()).await.unwrap().remove(0);
    (usage.mailboxes, usage.backlog, usage.backfill.map(|backfill| backfill.unknown))
}

#[tokio::test]
async fn inactive_mailboxes_have_no_backlog() {
    on_each_database(|db| async move {
        let tenant = db.store.system().create_tenant("acme", PlanTier::Standard).await.unwrap().unwrap().id;
        let store = db.store.tenant(tenant);
        let mut mailboxes = Vec::new();
        for name in ["stays", "leaves"] {
            let id = MailboxId::new(&SystemClock);
            let mut unit = store.write();
            unit.add_mailbox(NewMailbox {
                id,
                provider: Provider::Gmail,
                address: format!("{name}@acme.test"),
                settings: MailboxSettings::default(),
                secret_ref: None,
                since: None,
            });
            unit.commit().await.unwrap();
            db.run(&format!(
                "insert into ledger (tenant_id, mailbox_id, provider_message_id, state, first_seen_at)
                 values ('{tenant}', '{id}', '{name}', 'queued', mailroom_now())"
            ))
            .await;
            mailboxes.push(id);
        }
        let [stays, leaves] = [mailboxes[0], mailboxes[1]];
        db.run("update mailboxes set state = 'active'").await;
        db.run(&format!("update sync_states set is_history_done = true where mailbox_id = '{stays}'")).await;
        assert_eq!(used(&store).await, (2, 2, Some(Some(FORECAST_STILL_LISTING))), "one is still being listed");

        for state in ["paused", "needs_reauth", "disconnected"] {
            db.run(&format!("update mailboxes set state = '{state}' where id = '{leaves}'")).await;
            assert_eq!(used(&store).await, (1, 1, None), "{state}");
        }
        db.run(&format!("update mailboxes set state = 'active', is_active = false where id = '{leaves}'")).await;
        assert_eq!(used(&store).await, (1, 1, None), "somebody has left");
    })
    .await;
}
