//! Incoming pushes: which are accepted, and what each causes.

use std::time::Duration;

use domain::{Lane, MailboxId, MailboxSettings, PlanTier, Provider, PushRefusal, SystemClock, TenantId};
use engine::sync::push::{PushError, PushOutcome, PushReceiver};
use futures_util::future::join_all;
use serde_json::{Value, json};
use store::Store;
use store::sql::mailboxes::NewMailbox;
use store::testing::{TestDatabase, on_each_database};

use super::google::{Google, changed, claims, jwk, push, sign, token};

pub async fn tenant(db: &TestDatabase, name: &str) -> TenantId {
    db.store.system().create_tenant(name, PlanTier::Standard).await.unwrap().unwrap().id
}

/// At work, as if it had been looked at before, and watched.
pub async fn mailbox_at(db: &TestDatabase, tenant: TenantId, provider: Provider, address: &str) -> MailboxId {
    let id = MailboxId::new(&SystemClock);
    let mut unit = db.store.tenant(tenant).write();
    unit.add_mailbox(NewMailbox {
        id,
        provider,
        address: address.into(),
        settings: MailboxSettings::default(),
        secret_ref: None,
        since: None,
    });
    unit.request_watch(id);
    unit.commit().await.unwrap();
    db.run(&format!("update mailboxes set state = 'active' where id = '{id}'")).await;
    id
}

async fn mailbox(db: &TestDatabase, tenant: TenantId, address: &str) -> MailboxId {
    mailbox_at(db, tenant, Provider::Gmail, address).await
}

/// How often each mailbox is to be looked at, in the order of their ids; all in the lane of what is urgent.
pub async fn looks(db: &TestDatabase) -> Vec<String> {
    let sql =
        format!("select unique_key from jobs where kind = 'sync_mailbox' and lane = {} order by 1", Lane::High as i64);
    db.rows(&sql).await.iter().map(|row| row.get(0).unwrap()).collect()
}

pub async fn messages(db: &TestDatabase) -> usize {
    db.rows("select 1 from push_messages").await.len()
}

async fn take(pushes: &PushReceiver, message: &str, address: &str, history: u64) -> PushOutcome {
    pushes.receive(push(message, address, history)).await.unwrap()[0]
}

#[tokio::test]
async fn push_syncs_each_active_mailbox_of_the_account() {
    on_each_database(|db| async move {
        let (acme, beta, idle) = (tenant(&db, "acme").await, tenant(&db, "beta").await, tenant(&db, "idle").await);
        let mut both = vec![
            mailbox(&db, acme, "me@acme.test").await.to_string(),
            mailbox(&db, beta, "me@acme.test").await.to_string(),
        ];
        both.sort();
        mailbox(&db, acme, "other@acme.test").await;
        mailbox(&db, idle, "me@acme.test").await;
        db.store.system().set_tenant_active(idle, false).await.unwrap();
        for state in ["paused", "needs_reauth", "disconnected"] {
            let tenant = tenant(&db, state).await;
            let id = mailbox(&db, tenant, "me@acme.test").await;
            db.run(&format!("update mailboxes set state = '{state}' where id = '{id}'")).await;
        }
        let pushes = Google::with_key("one").pushes(&db.store);

        assert_eq!(take(&pushes, "1", "Me@Acme.Test", 20).await, PushOutcome::Accepted);
        assert_eq!(looks(&db).await, both);
        // Delivered again, an older one after a newer one, and one more while the job still waits.
        assert_eq!(take(&pushes, "1", "me@acme.test", 20).await, PushOutcome::Repeated);
        assert_eq!(take(&pushes, "0", "me@acme.test", 10).await, PushOutcome::Accepted);
        assert_eq!(take(&pushes, "2", "me@acme.test", 30).await, PushOutcome::Accepted);
        assert_eq!(looks(&db).await, both, "one job for all of them");
        let told = "select 1 from push_watches where last_push_at is not null";
        assert_eq!((db.rows(told).await.len(), messages(&db).await), (2, 3));

        // Nothing is remembered of an account that nobody has.
        assert_eq!(take(&pushes, "3", "nobody@acme.test", 1).await, PushOutcome::Unknown);
        assert!(matches!(pushes.receive(b"{}").await, Err(PushError::Malformed(_))));
        assert_eq!((looks(&db).await, messages(&db).await), (both, 3));
    })
    .await;
}

#[tokio::test]
async fn push_finds_mailboxes_under_any_address() {
    on_each_database(|db| async move {
        let (acme, beta) = (tenant(&db, "acme").await, tenant(&db, "beta").await);
        let named = mailbox(&db, acme, "me@acme.test").await.to_string();
        // Its name is another's there, at another provider.
        let otherwise = mailbox(&db, beta, "me+gmail@acme.test").await.to_string();
        let settings = serde_json::json!({"connection": {"account": "me@acme.test"}});
        db.run(&format!("update mailboxes set settings = '{settings}' where id = '{otherwise}'")).await;
        let pushes = Google::with_key("one").pushes(&db.store);
        let system = db.store.system();

        assert_eq!(take(&pushes, "1", "me+gmail@acme.test", 1).await, PushOutcome::Unknown, "there is no such account");
        assert_eq!(take(&pushes, "2", "me@acme.test", 2).await, PushOutcome::Accepted);
        let mut both = vec![named.clone(), otherwise.clone()];
        both.sort();
        assert_eq!(looks(&db).await, both);
        db.run(&format!("update mailboxes set state = 'disconnected' where id = '{named}'")).await;
        assert!(system.is_account_connected(Provider::Gmail, "me@acme.test").await.unwrap(), "beta has it, too");
        db.run(&format!("update mailboxes set state = 'disconnected' where id = '{otherwise}'")).await;
        assert!(!system.is_account_connected(Provider::Gmail, "me@acme.test").await.unwrap());
    })
    .await;
}

#[tokio::test]
async fn push_makes_a_waiting_sync_urgent() {
    on_each_database(|db| async move {
        let acme = tenant(&db, "acme").await;
        mailbox(&db, acme, "me@acme.test").await;
        let pushes = Google::with_key("one").pushes(&db.store);
        take(&pushes, "1", "me@acme.test", 1).await;
        db.run("update jobs set lane = 2").await;

        take(&pushes, "2", "me@acme.test", 2).await;
        assert_eq!(looks(&db).await.len(), 1);
        db.run("update jobs set state = 'running'").await;
        take(&pushes, "2", "me@acme.test", 2).await;
        assert!(db.rows("select 1 from jobs where rerun").await.is_empty(), "it has come before");
        take(&pushes, "3", "me@acme.test", 3).await;
        assert_eq!(db.rows("select 1 from jobs where rerun").await.len(), 1);
    })
    .await;
}

/// With the reason that it is refused for.
fn bad_tokens() -> Vec<(String, Result<&'static str, &'static str>)> {
    let head = json!({"alg": "RS256", "kid": "one"});
    let (good, now) = (token("one", 0, &claims()), claims()["iat"].as_i64().unwrap() + 5);
    let (signed, signature) = good.rsplit_once('.').unwrap();
    let rest = good.split_once('.').unwrap().1;
    let other = token("one", 0, &changed("sub", json!("2")));
    let forged = format!("{}.{signature}", other.rsplit_once('.').unwrap().0);
    let said = |head: Value| format!("{}.{rest}", sign(&head, 0, &claims()).split_once('.').unwrap().0);
    // What is public, taken as a secret: the classic mistake.
    let hs256 = {
        use base64::Engine as _;
        use base64::engine::general_purpose::URL_SAFE_NO_PAD;
        let whole = sign(&json!({"alg": "HS256", "kid": "one"}), 0, &claims());
        let signed = whole.rsplit_once('.').unwrap().0.to_owned();
        let n = URL_SAFE_NO_PAD.decode(jwk("one", 0)["n"].as_str().unwrap()).unwrap();
        let tag = ring::hmac::sign(&ring::hmac::Key::new(ring::hmac::HMAC_SHA256, &n), signed.as_bytes());
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(tag))
    };
    let unauthorized = |claim: &str, value: Value| token("one", 0, &changed(claim, value));
    vec![
        (String::new(), Err("malformed")),
        ("nonsense".into(), Err("malformed")),
        (forged, Err("signature")),
        (format!("{signed}.AAAA"), Err("signature")),
        (token("one", 1, &claims()), Err("signature")),
        (token("two", 1, &claims()), Err("does not publish")),
        (
            format!("{}.", said(json!({"alg": "none"})).rsplit_once('.').unwrap().0),
            Err("not signed with the configured algorithm"),
        ),
        (said(json!({"alg": "none", "kid": "one"})), Err("not signed with the configured algorithm")),
        (hs256, Err("not signed with the configured algorithm")),
        (said(json!({"alg": "RS512", "kid": "one"})), Err("not signed with the configured algorithm")),
        (sign(&head, 0, &changed("exp", json!(now - 60))), Err("expired")),
        (unauthorized("exp", Value::Null), Err("no expiry time")),
        (unauthorized("iat", json!(now + 300)), Err("in the future")),
        (unauthorized("iss", json!("https://accounts.google.com.evil.example")), Err("another issuer")),
        (unauthorized("iss", Value::Null), Err("another issuer")),
        (unauthorized("aud", json!("https://mail.example/")), Ok("another audience")),
        (unauthorized("aud", Value::Null), Ok("another audience")),
        (unauthorized("email", json!("eve@project.iam.gserviceaccount.com")), Ok("another service account")),
        (unauthorized("email", Value::Null), Ok("another service account")),
        (unauthorized("email_verified", json!(false)), Ok("another service account")),
        (unauthorized("email_verified", json!("true")), Ok("another service account")),
    ]
}

#[tokio::test]
async fn invalid_push_token_is_refused_with_the_reason() {
    on_each_database(|db| async move {
        let acme = tenant(&db, "acme").await;
        mailbox(&db, acme, "me@acme.test").await;
        let google = Google::with_key("one");
        let pushes = google.pushes(&db.store);
        assert_eq!(pushes.verify(Some(&token("one", 0, &claims()))).await, Ok(()));
        assert_eq!(pushes.verify(Some(&token("one", 0, &changed("iss", json!("accounts.google.com"))))).await, Ok(()));

        for (token, expected) in bad_tokens() {
            let refused = pushes.verify(Some(&token)).await.unwrap_err();
            let is_as_expected = match (refused, expected) {
                (PushRefusal::Unauthorized(reason), Err(says)) | (PushRefusal::Forbidden(reason), Ok(says)) => {
                    reason.contains(says)
                }
                _ => false,
            };
            assert!(is_as_expected, "{expected:?}: {refused:?}");
        }
        assert!(matches!(pushes.verify(None).await, Err(PushRefusal::Unauthorized(_))));
        assert_eq!((looks(&db).await.len(), messages(&db).await, google.asked()), (0, 0, 1));
    })
    .await;
}

/// After this, keys may be fetched again.
const KEY_RELOAD: Duration = Duration::from_secs(11);

async fn verify(pushes: &PushReceiver, id: &str, key: usize) -> Result<(), PushRefusal> {
    pushes.verify(Some(&token(id, key, &claims()))).await
}

#[tokio::test(start_paused = true)]
async fn rotated_keys_are_fetched() {
    let folder = tempfile::tempdir().unwrap();
    let location = store::Location::Sqlite { path: folder.path().join("mailroom.db"), connections: 1 };
    let store = Store::open(&location, std::sync::Arc::new(SystemClock)).unwrap();
    let google = Google::default();
    google.set_away(true);
    let pushes = google.pushes(&store);

    assert!(matches!(verify(&pushes, "one", 0).await, Err(PushRefusal::NoKeys(_))), "it comes again");
    google.set_away(false);
    google.add_key("one", 0);
    tokio::time::advance(KEY_RELOAD).await;
    assert_eq!(verify(&pushes, "one", 0).await, Ok(()));

    google.add_key("two", 1);
    assert!(matches!(verify(&pushes, "two", 1).await, Err(PushRefusal::Unauthorized(_))), "it was asked a moment ago");
    tokio::time::advance(KEY_RELOAD).await;
    assert_eq!((verify(&pushes, "two", 1).await, verify(&pushes, "one", 0).await), (Ok(()), Ok(())));
    google.set_away(true);
    tokio::time::advance(KEY_RELOAD).await;
    assert!(matches!(verify(&pushes, "three", 0).await, Err(PushRefusal::NoKeys(_))), "it may be a new one");
    assert_eq!(verify(&pushes, "two", 1).await, Ok(()), "what is known still holds");
    assert_eq!(google.asked(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_pushes_are_recorded_once_each() {
    on_each_database(|db| async move {
        let mut expected = Vec::new();
        for n in 0..20 {
            let tenant = tenant(&db, &format!("t{n}")).await;
            expected.push(mailbox(&db, tenant, &format!("{}@acme.test", n % 10)).await.to_string());
        }
        expected.sort();
        let google = Google::with_key("one");
        let processes = [google.pushes(&db.store), google.pushes(&db.second_store())];
        // Each is delivered twice to each.
        let deliveries = (0..400).map(|n| {
            let (message, address) = (format!("{}", n / 4), format!("{}@acme.test", (n / 4) % 10));
            let pushes = &processes[n % 2];
            async move { take(pushes, &message, &address, n as u64).await }
        });
        let outcomes = join_all(deliveries).await;

        let accepted = outcomes.iter().filter(|outcome| **outcome == PushOutcome::Accepted).count();
        let repeated = outcomes.iter().filter(|outcome| **outcome == PushOutcome::Repeated).count();
        assert_eq!((accepted, repeated, messages(&db).await), (100, 300, 100));
        assert_eq!(looks(&db).await, expected);
    })
    .await;
}

#[tokio::test]
async fn old_push_messages_are_pruned() {
    on_each_database(|db| async move {
        let acme = tenant(&db, "acme").await;
        mailbox(&db, acme, "me@acme.test").await;
        let pushes = Google::with_key("one").pushes(&db.store);
        for message in ["1", "2", "3"] {
            take(&pushes, message, "me@acme.test", 1).await;
        }
        db.run("update push_messages set received_at = '2026-01-01T00:00:00.000Z' where message_id <> '3'").await;
        let system = db.store.system();
        let before = "2026-01-02T00:00:00Z".parse().unwrap();

        assert!(system.prune_pushes(before, 1).await.unwrap(), "there is more");
        assert!(!system.prune_pushes(before, 10).await.unwrap());
        assert_eq!(messages(&db).await, 1);
    })
    .await;
}
