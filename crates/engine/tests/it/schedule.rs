//! Which mailboxes are looked at, and when.

use std::time::Duration;

use domain::{MailboxId, PlanTier, Provider, SystemClock, TenantId};
use engine::schedule::{self, BACKLOG, Rhythm, Ticked};
use jobs::{Dice, SystemDice};
use serde_json::{Value, json};
use store::sql::mailboxes::NewMailbox;
use store::testing::{TestDatabase, on_each_database};

#[derive(Debug)]
struct Always(u64);

impl Dice for Always {
    fn bits(&self) -> u64 {
        self.0
    }
}

async fn mailbox(db: &TestDatabase, tenant: TenantId, address: &str, settings: Value) -> MailboxId {
    let id = MailboxId::new(&SystemClock);
    let mut unit = db.store.tenant(tenant).write();
    unit.add_mailbox(NewMailbox {
        id,
        provider: Provider::Scripted,
        address: address.into(),
        settings,
        secret_ref: None,
        since: None,
    });
    unit.commit().await.unwrap();
    id
}

const HOUR: Duration = Duration::from_secs(3600);
const HOURLY: Rhythm = Rhythm { usual: HOUR, seldom: HOUR };

#[tokio::test]
async fn each_mailbox_is_asked_for_once_and_is_due_again_after_its_own_time() {
    on_each_database(|db| async move {
        let system = db.store.system();
        let acme = system.create_tenant("acme", PlanTier::Standard).await.unwrap().unwrap().id;
        let often = mailbox(&db, acme, "1@acme.test", json!({"interval_seconds": 60})).await;
        mailbox(&db, acme, "2@acme.test", json!({})).await;

        let asked = Ticked::Asked { mailboxes: 2, is_more: false };
        assert_eq!(schedule::tick(&db.store, &HOURLY, &Always(0)).await.unwrap(), asked);
        let nothing = Ticked::Asked { mailboxes: 0, is_more: false };
        assert_eq!(schedule::tick(&db.store, &HOURLY, &Always(0)).await.unwrap(), nothing);
        assert_eq!(db.rows("select 1 from jobs where kind = 'sync_mailbox'").await.len(), 2);

        let state = db.store.tenant(acme).find_sync(often).await.unwrap().unwrap();
        let next = state.next_sync_at.unwrap() - system.now().await.unwrap();
        assert!((50.0..=54.0).contains(&next.total(jiff::Unit::Second).unwrap()), "{next}: nine tenths of a minute");

        // Asked for again while it waits, it is still one job.
        system.make_mailboxes_due(None).await.unwrap();
        assert_eq!(schedule::tick(&db.store, &HOURLY, &SystemDice).await.unwrap(), asked);
        assert_eq!(db.rows("select 1 from jobs where kind = 'sync_mailbox'").await.len(), 2);
    })
    .await;
}

#[tokio::test]
async fn what_is_switched_off_is_not_looked_at() {
    on_each_database(|db| async move {
        let system = db.store.system();
        let acme = system.create_tenant("acme", PlanTier::Standard).await.unwrap().unwrap().id;
        let off = mailbox(&db, acme, "1@acme.test", json!({})).await;
        mailbox(&db, acme, "2@acme.test", json!({})).await;
        db.run(&format!("update mailboxes set is_active = false where id = '{off}'")).await;
        assert_eq!(system.list_due_mailboxes(10).await.unwrap().len(), 1);

        system.set_tenant_active(acme, false).await.unwrap();
        let nothing = Ticked::Asked { mailboxes: 0, is_more: false };
        assert_eq!(schedule::tick(&db.store, &HOURLY, &SystemDice).await.unwrap(), nothing);
    })
    .await;
}

#[tokio::test]
async fn when_too_much_waits_nothing_is_added() {
    on_each_database(|db| async move {
        let system = db.store.system();
        let acme = system.create_tenant("acme", PlanTier::Standard).await.unwrap().unwrap().id;
        mailbox(&db, acme, "1@acme.test", json!({})).await;
        let other = system.create_tenant("other", PlanTier::Standard).await.unwrap().unwrap().id;
        let counted = BACKLOG.stop_waiting + 1;
        db.run(&match db.store.dialect() {
            store::Dialect::Postgres => format!(
                "insert into job_queues (tenant_id, lane, kind, waiting, is_active) values ('{other}', 2, 'x', {counted}, true)"
            ),
            store::Dialect::Sqlite => {
                format!("insert into job_queues (tenant_id, lane, kind, waiting) values ('{other}', 2, 'x', {counted})")
            }
        })
        .await;

        let ticked = schedule::tick(&db.store, &HOURLY, &SystemDice).await.unwrap();

        assert!(matches!(&ticked, Ticked::HeldBack(why) if why.contains("jobs wait in lane normal")), "{ticked:?}");
        assert!(db.rows("select 1 from jobs").await.is_empty());
    })
    .await;
}
