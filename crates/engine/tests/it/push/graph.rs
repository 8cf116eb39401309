//! What Microsoft Graph tells: what is believed of it, and what follows.

use std::sync::Arc;
use std::time::Duration;

use domain::{MailboxId, Provider, Secret, Sha256, TenantId};
use engine::Vault;
use engine::credentials::secrets::KeySource;
use engine::sync::push::{ClientStates, PushError, PushOutcome, PushReceiver};
use futures_util::future::join_all;
use providers::outlook::GraphPushReader;
use serde_json::{Value, json};
use store::sql::subscriptions::{Subscription, SubscriptionClaim};
use store::testing::{TestDatabase, migrated_sqlite, on_each_database};
use store::{Location, Store};

use super::incoming::{looks, mailbox_at, messages, tenant};

const OUTLOOK: Provider = Provider::Outlook;

/// The same for all processes of a database.
fn vault(store: &Store) -> Vault {
    Vault::new(store.clone(), KeySource::Given(Secret::new("7b".repeat(32))))
}

fn pushes(store: &Store) -> PushReceiver {
    PushReceiver::new(store.clone(), vault(store), Arc::new(GraphPushReader))
}

/// What somebody may be told to say.
async fn password(store: &Store) -> String {
    ClientStates::new(vault(store)).create().await.unwrap().expose().clone()
}

/// An account that is subscribed to under this name, and says this.
pub async fn subscribe(store: &Store, address: &str, name: Option<&str>, password: &str) {
    let system = store.system();
    let claim = SubscriptionClaim { provider: OUTLOOK, address, nonce: password };
    let claimed = system.claim_subscription(claim, Duration::from_secs(60)).await.unwrap().unwrap();
    system.begin_subscription(claim, Sha256::of(password.as_bytes()), None).await.unwrap();
    if let Some(name) = name {
        let agreed = Subscription {
            name: Some(name.into()),
            expires_at: Some("2100-01-01T00:00:00Z".parse().unwrap()),
            renewed_at: Some(claimed.claimed_at),
            owner: None,
        };
        system.record_subscription(claim, agreed, Vec::new()).await.unwrap();
    }
}

pub fn item(id: &str, name: &str, password: &str) -> Value {
    json!({"id": id, "subscriptionId": name, "clientState": password, "changeType": "created", "tenantId": "t",
        "subscriptionExpirationDateTime": "2100-01-01T00:00:00Z", "resource": format!("Users/u/Messages/{id}"),
        "resourceData": {"@odata.type": "#Microsoft.Graph.Message", "@odata.etag": "W/\"1\"", "id": id}})
}

fn with(mut item: Value, field: &str, value: &str) -> Value {
    item[field] = json!(value);
    item
}

pub fn body(items: &[Value]) -> Vec<u8> {
    json!({"value": items}).to_string().into_bytes()
}

pub async fn take(pushes: &PushReceiver, items: &[Value]) -> Vec<PushOutcome> {
    pushes.receive(body(items)).await.unwrap()
}

async fn count(db: &TestDatabase, what: &str) -> usize {
    db.rows(&format!("select 1 from {what}")).await.len()
}

#[tokio::test]
async fn item_with_a_wrong_client_state_is_dropped() {
    on_each_database(|db| async move {
        let (acme, beta) = (tenant(&db, "acme").await, tenant(&db, "beta").await);
        let mut both = vec![
            mailbox_at(&db, acme, OUTLOOK, "me@acme.test").await.to_string(),
            mailbox_at(&db, beta, OUTLOOK, "me@acme.test").await.to_string(),
        ];
        both.sort();
        mailbox_at(&db, acme, OUTLOOK, "other@acme.test").await;
        let gmail = tenant(&db, "gmail").await;
        mailbox_at(&db, gmail, Provider::Gmail, "me@acme.test").await;
        let (one, two, three) = (password(&db.store).await, password(&db.store).await, password(&db.store).await);
        subscribe(&db.store, "me@acme.test", Some("s1"), &one).await;
        subscribe(&db.store, "other@acme.test", Some("s2"), &two).await;
        subscribe(&db.store, "left@acme.test", Some("s3"), &three).await;
        let pushes = pushes(&db.store);

        let forged = [
            item("1", "s1", "secret"),
            item("1", "s1", &two),
            item("1", "s1", &format!("{one}1")),
            item("1", "s9", &one),
            item("1", "s9", &password(&db.store).await),
            item("1", "s3", &three),
            json!({"subscriptionId": "s1", "changeType": "created"}),
            with(item("1", "s1", &one), "lifecycleEvent", "unheard of"),
            json!(null),
        ];
        let outcomes = take(&pushes, &forged).await;
        let (wrong, none, odd) = (PushOutcome::Forbidden, PushOutcome::Unknown, PushOutcome::Malformed);
        assert_eq!(outcomes, [wrong, wrong, wrong, none, none, none, odd, odd, odd]);
        assert_eq!((looks(&db).await.len(), messages(&db).await), (0, 0), "nothing has happened");

        let mut mixed = forged.to_vec();
        mixed.insert(4, item("1", "s1", &one));
        mixed.push(item("1", "s1", &one));
        let outcomes = take(&pushes, &mixed).await;
        assert_eq!((outcomes[4], outcomes[10]), (PushOutcome::Accepted, PushOutcome::Repeated));
        assert_eq!((looks(&db).await, messages(&db).await), (both.clone(), 1));
        // An older one after it, the same again, and nothing at all.
        assert_eq!(take(&pushes, &[item("0", "s1", &one)]).await, [PushOutcome::Accepted]);
        assert_eq!(take(&pushes, &[item("1", "s1", &one)]).await, [PushOutcome::Repeated]);
        assert_eq!(take(&pushes, &[]).await, []);
        assert_eq!((looks(&db).await, messages(&db).await), (both, 2), "one job for all of them");
        assert_eq!(count(&db, "push_watches where last_push_at is not null").await, 2);
        assert_eq!(count(&db, "push_watches where sweep_since is not null").await, 0);
        for nonsense in [&b""[..], b"{}", b"[]", b"{\"value\": 7}"] {
            assert!(matches!(pushes.receive(nonsense).await, Err(PushError::Malformed(_))));
        }
    })
    .await;
}

#[tokio::test]
async fn forged_client_state_costs_no_query() {
    on_each_database(|db| async move {
        let pushes = pushes(&db.store);
        let ours = password(&db.store).await;
        let elsewhere = Vault::new(db.store.clone(), KeySource::Given(Secret::new("7c".repeat(32))));
        assert!(ClientStates::new(elsewhere).create().await.is_err(), "one database, one master key");
        assert_eq!(take(&pushes, &[item("1", "s1", &ours)]).await, [PushOutcome::Unknown]);
        db.run("drop table push_subscriptions").await;

        let made_up = [item("1", "s1", &"A".repeat(86)), item("1", "s1", &ours[1..]), item("1", "s1", "x")];
        assert_eq!(take(&pushes, &made_up).await, [PushOutcome::Forbidden; 3]);
        assert!(pushes.receive(body(&[item("1", "s1", &ours)])).await.is_err(), "what may be ours is");
    })
    .await;
}

#[tokio::test]
async fn unrecorded_subscription_is_recognised() {
    on_each_database(|db| async move {
        let acme = tenant(&db, "acme").await;
        mailbox_at(&db, acme, OUTLOOK, "me@acme.test").await;
        let one = password(&db.store).await;
        subscribe(&db.store, "me@acme.test", None, &one).await;
        let pushes = pushes(&db.store);

        let other = password(&db.store).await;
        assert_eq!(take(&pushes, &[item("1", "who-knows", &other)]).await, [PushOutcome::Unknown]);
        assert_eq!(take(&pushes, &[item("1", "who-knows", &one)]).await, [PushOutcome::Accepted]);
        assert_eq!(looks(&db).await.len(), 1);
        assert_eq!(count(&db, "push_subscriptions where name = 'who-knows'").await, 1, "from now on it is known");
        assert_eq!(take(&pushes, &[item("2", "another", &one)]).await, [PushOutcome::Unknown]);
    })
    .await;
}

async fn sweep_since(db: &TestDatabase, tenant: TenantId, mailbox: MailboxId) -> Option<jiff::Timestamp> {
    let opened = db.store.system().open_mailboxes(&[(tenant, mailbox)]).await.unwrap();
    opened[&(tenant, mailbox)].sweep_since
}

#[tokio::test]
async fn deletion_push_requests_a_sweep() {
    on_each_database(|db| async move {
        let acme = tenant(&db, "acme").await;
        let id = mailbox_at(&db, acme, OUTLOOK, "me@acme.test").await;
        let one = password(&db.store).await;
        subscribe(&db.store, "me@acme.test", Some("s1"), &one).await;
        let pushes = pushes(&db.store);

        take(&pushes, &[item("1", "s1", &one)]).await;
        assert_eq!(sweep_since(&db, acme, id).await, None);
        let before = db.store.system().now().await.unwrap();
        take(&pushes, &[with(item("2", "s1", &one), "changeType", "deleted")]).await;
        let first = sweep_since(&db, acme, id).await.unwrap();
        assert!(first >= before, "{first} {before}");
        take(&pushes, &[item("3", "s1", &one)]).await;
        assert_eq!(sweep_since(&db, acme, id).await, Some(first));
    })
    .await;
}

#[tokio::test]
async fn lifecycle_event_is_acted_upon() {
    on_each_database(|db| async move {
        let (acme, beta) = (tenant(&db, "acme").await, tenant(&db, "beta").await);
        mailbox_at(&db, acme, OUTLOOK, "me@acme.test").await;
        mailbox_at(&db, beta, OUTLOOK, "me@acme.test").await;
        let one = password(&db.store).await;
        subscribe(&db.store, "me@acme.test", Some("s1"), &one).await;
        let pushes = pushes(&db.store);
        let rest = "next_at = '2100-01-01T00:00:00.000Z', wanted_at = null, sweep_since = null";
        for (event, is_looked_at, is_asked, name) in [
            ("reauthorizationRequired", false, true, 1),
            ("missed", true, false, 1),
            ("subscriptionRemoved", true, true, 0),
        ] {
            db.run("delete from jobs").await;
            db.run(&format!("update push_watches set {rest}")).await;
            let told = with(item("1", "s1", &one), "lifecycleEvent", event);
            let forged = with(item("1", "s1", &password(&db.store).await), "lifecycleEvent", event);
            assert_eq!(take(&pushes, &[forged]).await, [PushOutcome::Forbidden]);
            assert_eq!(count(&db, "jobs").await, 0);

            assert_eq!(take(&pushes, &[told.clone(), told]).await, [PushOutcome::Accepted; 2]);
            let (syncs, watches) = (if is_looked_at { 2 } else { 0 }, if is_asked { 2 } else { 0 });
            assert_eq!(looks(&db).await.len(), syncs, "{event}");
            assert_eq!(count(&db, "push_watches where sweep_since is not null").await, syncs, "{event}");
            assert_eq!(count(&db, "jobs where kind = 'watch_mailbox'").await, watches, "{event}");
            let due = "push_watches where next_at < '2100-01-01T00:00:00.000Z' and wanted_at is not null";
            assert_eq!(count(&db, due).await, watches, "{event}");
            assert_eq!(count(&db, "push_subscriptions where name = 's1'").await, name, "{event}");
        }
        assert_eq!(count(&db, "push_watches where last_push_at is not null").await, 0, "no mail was told of");
        // Late ones of what has ended are no harm.
        assert_eq!(take(&pushes, &[item("2", "s1", &one)]).await, [PushOutcome::Accepted]);
        assert_eq!(messages(&db).await, 1, "what is told of subscriptions may come again");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_notifications_are_recorded_once_each() {
    on_each_database(|db| async move {
        let mut expected = Vec::new();
        for n in 0..20 {
            let tenant = tenant(&db, &format!("t{n}")).await;
            expected.push(mailbox_at(&db, tenant, OUTLOOK, &format!("{}@acme.test", n % 10)).await.to_string());
        }
        expected.sort();
        let mut passwords = Vec::new();
        for n in 0..10 {
            passwords.push(password(&db.store).await);
            subscribe(&db.store, &format!("{n}@acme.test"), Some(&format!("s{n}")), &passwords[n]).await;
        }
        let processes = [pushes(&db.store), pushes(&db.second_store())];
        // Ten items of several accounts in each call, and each call comes twice to each process.
        let calls = (0..80).map(|n: usize| {
            let call = n / 4;
            let items: Vec<Value> =
                (0..10).map(|k| item(&format!("{call}-{k}"), &format!("s{k}"), &passwords[k])).collect();
            let pushes = &processes[n % 2];
            async move { take(pushes, &items).await }
        });
        let outcomes: Vec<PushOutcome> = join_all(calls).await.concat();

        let accepted = outcomes.iter().filter(|outcome| **outcome == PushOutcome::Accepted).count();
        let repeated = outcomes.iter().filter(|outcome| **outcome == PushOutcome::Repeated).count();
        assert_eq!((accepted, repeated, messages(&db).await), (200, 600, 200));
        assert_eq!(looks(&db).await, expected);
    })
    .await;
}

/// Somebody else has the one right to write, and does not give it back.
#[tokio::test(flavor = "multi_thread")]
async fn overloaded_receiver_asks_for_a_redelivery() {
    let folder = tempfile::tempdir().unwrap();
    let db = migrated_sqlite(folder.path()).await;
    let acme = tenant(&db, "acme").await;
    mailbox_at(&db, acme, OUTLOOK, "me@acme.test").await;
    let one = password(&db.store).await;
    subscribe(&db.store, "me@acme.test", Some("s1"), &one).await;
    let pushes = pushes(&db.store);
    let Location::Sqlite { path, .. } = &db.location else { panic!("{:?}", db.location) };
    let other = rusqlite::Connection::open(path).unwrap();
    other.execute_batch("begin immediate").unwrap();

    let call = |n: usize| {
        let (pushes, items) = (pushes.clone(), body(&[item(&n.to_string(), "s1", &one)]));
        async move { pushes.receive(items).await }
    };
    let answers = join_all((0..250).map(call)).await;
    let mut refused = [0, 0];
    for answer in answers {
        match answer {
            Err(PushError::RetryLater(why)) => refused[usize::from(why.contains("in time"))] += 1,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(refused, [150, 100], "some wait, and the others are told at once");

    other.execute_batch("rollback").unwrap();
    for n in 0..250 {
        let outcome = call(n).await.unwrap();
        assert!(matches!(outcome[..], [PushOutcome::Accepted | PushOutcome::Repeated]), "{n}: {outcome:?}");
    }
    assert_eq!((looks(&db).await.len(), messages(&db).await), (1, 250));
}
