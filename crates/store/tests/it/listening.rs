//! Leases on mailboxes that processes listen to.

use std::collections::HashSet;
use std::time::Duration;

use domain::{MailboxId, MailboxSettings, Provider, SystemClock};
use store::sql::mailboxes::NewMailbox;
use store::sql::sync::ListenDemand;
use store::testing::{TestDatabase, on_each_database};

use crate::samples::tenant;

const LEASE: Duration = Duration::from_secs(60);
const PROVIDERS: &[Provider] = &[Provider::Imap];

async fn mailboxes(db: &TestDatabase, name: &str, provider: Provider, count: u32) -> Vec<MailboxId> {
    let store = db.store.tenant(tenant(&db.store, name).await.id);
    let mut ids = Vec::new();
    let mut unit = store.write();
    for n in 0..count {
        let id = MailboxId::new(&SystemClock);
        let (address, settings) = (format!("{n}@{name}.test"), MailboxSettings::default());
        unit.add_mailbox(NewMailbox { id, provider, address, settings, secret_ref: None, since: None });
        ids.push(id);
    }
    unit.commit().await.unwrap();
    db.run("update mailboxes set state = 'active'").await;
    ids
}

#[tokio::test]
async fn listeners_acquire_disjoint_mailboxes() {
    on_each_database(|db| async move {
        let system = db.store.system();
        let there: HashSet<_> = mailboxes(&db, "acme", Provider::Imap, 30)
            .await
            .into_iter()
            .chain(mailboxes(&db, "beta", Provider::Imap, 10).await)
            .collect();
        mailboxes(&db, "gamma", Provider::Gmail, 3).await;

        let names: Vec<String> = (0..8).map(|n| format!("process-{n}")).collect();
        let taken =
            futures_util::future::join_all(names.iter().map(|me| system.acquire_listening(me, PROVIDERS, 20, LEASE)))
                .await;
        let taken: Vec<_> = taken.into_iter().flat_map(Result::unwrap).map(|((_, mailbox), _)| mailbox).collect();
        assert_eq!(taken.iter().collect::<HashSet<_>>().len(), taken.len(), "one was given twice");
        let rest = system.acquire_listening("rest", PROVIDERS, 100, LEASE).await.unwrap();
        let all: HashSet<_> = taken.into_iter().chain(rest.iter().map(|((_, mailbox), _)| *mailbox)).collect();
        assert_eq!(all, there, "none of a provider that was not asked for");
        assert!(system.acquire_listening("late", PROVIDERS, 100, LEASE).await.unwrap().is_empty());
    })
    .await;
}

#[tokio::test]
async fn lost_listen_lease_is_neither_renewed_nor_released() {
    on_each_database(|db| async move {
        let system = db.store.system();
        let there = mailboxes(&db, "acme", Provider::Imap, 3).await;
        let ours = system.acquire_listening("me", PROVIDERS, 3, LEASE).await.unwrap();
        assert_eq!(system.renew_listening("me", &ours, LEASE).await.unwrap().len(), 3);
        assert!(system.renew_listening("other", &ours, LEASE).await.unwrap().is_empty(), "not by another's token");
        let count = ListenDemand { mailboxes: 3, other_listeners: 1 };
        assert_eq!(system.find_listen_demand("me", PROVIDERS).await.unwrap(), count);

        db.run(&format!("update leases set until = '2020-01-01T00:00:00.000Z' where name = 'idle:{}'", there[0])).await;
        let theirs = system.acquire_listening("other", PROVIDERS, 3, LEASE).await.unwrap();
        assert_eq!(theirs.iter().map(|((_, mailbox), _)| *mailbox).collect::<Vec<_>>(), [there[0]]);
        let kept = system.renew_listening("me", &ours, LEASE).await.unwrap();
        assert!(kept.len() == 2 && !kept.contains(&there[0]), "{kept:?}");
        system.release_listening("me", &ours).await.unwrap();
        assert_eq!(system.renew_listening("other", &theirs, LEASE).await.unwrap().len(), 1, "it is theirs");

        system.stop_listening("me").await.unwrap();
        system.stop_listening("other").await.unwrap();
        assert_eq!(system.find_listen_demand("late", PROVIDERS).await.unwrap().other_listeners, 0);
        assert_eq!(system.acquire_listening("late", PROVIDERS, 3, LEASE).await.unwrap().len(), 2);
    })
    .await;
}
