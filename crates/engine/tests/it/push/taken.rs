//! Pushes that come in: who is believed, and what follows.

use std::time::{Duration, Instant};

use domain::{Lane, MailboxId, PlanTier, Provider, SystemClock, TenantId};
use engine::push::{GmailPushes, Outcome, Refused};
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
        settings: json!({}),
        secret_ref: None,
        since: None,
    });
    unit.want_watch(id);
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

async fn take(pushes: &GmailPushes, message: &str, address: &str, history: u64) -> Outcome {
    pushes.take(&push(message, address, history)).await.unwrap()
}

#[tokio::test]
async fn every_mailbox_of_the_account_that_is_at_work_is_looked_at_once() {
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

        assert_eq!(take(&pushes, "1", "Me@Acme.Test", 20).await, Outcome::Accepted);
        assert_eq!(looks(&db).await, both);
        // Delivered again, an older one after a newer one, and one more while the job still waits.
        assert_eq!(take(&pushes, "1", "me@acme.test", 20).await, Outcome::Repeated);
        assert_eq!(take(&pushes, "0", "me@acme.test", 10).await, Outcome::Accepted);
        assert_eq!(take(&pushes, "2", "me@acme.test", 30).await, Outcome::Accepted);
        assert_eq!(looks(&db).await, both, "one job for all of them");
        let told = "select 1 from push_watches where last_push_at is not null";
        assert_eq!((db.rows(told).await.len(), messages(&db).await), (2, 3));

        // Nothing is remembered of an account that nobody has.
        assert_eq!(take(&pushes, "3", "nobody@acme.test", 1).await, Outcome::Unknown);
        assert_eq!(pushes.take(b"{}").await.unwrap(), Outcome::Malformed);
        assert_eq!((looks(&db).await, messages(&db).await), (both, 3));
    })
    .await;
}

#[tokio::test]
async fn a_push_finds_the_mailboxes_of_its_account_whatever_they_are_called() {
    on_each_database(|db| async move {
        let (acme, beta) = (tenant(&db, "acme").await, tenant(&db, "beta").await);
        let named = mailbox(&db, acme, "me@acme.test").await.to_string();
        // Its name is another's there, at another provider.
        let otherwise = mailbox(&db, beta, "me+gmail@acme.test").await.to_string();
        let settings = serde_json::json!({"connection": {"account": "me@acme.test"}});
        db.run(&format!("update mailboxes set settings = '{settings}' where id = '{otherwise}'")).await;
        let pushes = Google::with_key("one").pushes(&db.store);
        let system = db.store.system();

        assert_eq!(take(&pushes, "1", "me+gmail@acme.test", 1).await, Outcome::Unknown, "there is no such account");
        assert_eq!(take(&pushes, "2", "me@acme.test", 2).await, Outcome::Accepted);
        let mut both = vec![named.clone(), otherwise.clone()];
        both.sort();
        assert_eq!(looks(&db).await, both);
        db.run(&format!("update mailboxes set state = 'disconnected' where id = '{named}'")).await;
        assert!(system.is_connected(Provider::Gmail, "me@acme.test").await.unwrap(), "beta has it, too");
        db.run(&format!("update mailboxes set state = 'disconnected' where id = '{otherwise}'")).await;
        assert!(!system.is_connected(Provider::Gmail, "me@acme.test").await.unwrap());
    })
    .await;
}

#[tokio::test]
async fn a_job_that_waits_is_made_urgent_and_one_that_runs_is_followed_by_another() {
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
        (String::new(), Err("neither")),
        ("nonsense".into(), Err("neither")),
        (forged, Err("signature")),
        (format!("{signed}.AAAA"), Err("signature")),
        (token("one", 1, &claims()), Err("signature")),
        (token("two", 1, &claims()), Err("does not have")),
        (format!("{}.", said(json!({"alg": "none"})).rsplit_once('.').unwrap().0), Err("not signed in the way")),
        (said(json!({"alg": "none", "kid": "one"})), Err("not signed in the way")),
        (hs256, Err("not signed in the way")),
        (said(json!({"alg": "RS512", "kid": "one"})), Err("not signed in the way")),
        (sign(&head, 0, &changed("exp", json!(now - 60))), Err("expired")),
        (unauthorized("exp", Value::Null), Err("until when")),
        (unauthorized("iat", json!(now + 300)), Err("still to come")),
        (unauthorized("iss", json!("https://accounts.google.com.evil.example")), Err("another issuer")),
        (unauthorized("iss", Value::Null), Err("another issuer")),
        (unauthorized("aud", json!("https://mail.example/")), Ok("somebody else")),
        (unauthorized("aud", Value::Null), Ok("somebody else")),
        (unauthorized("email", json!("eve@project.iam.gserviceaccount.com")), Ok("another service account")),
        (unauthorized("email", Value::Null), Ok("another service account")),
        (unauthorized("email_verified", json!(false)), Ok("another service account")),
        (unauthorized("email_verified", json!("true")), Ok("another service account")),
    ]
}

#[tokio::test]
async fn whoever_is_not_the_subscription_is_refused_with_the_reason() {
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
                (Refused::Unauthorized(reason), Err(says)) | (Refused::Forbidden(reason), Ok(says)) => {
                    reason.contains(says)
                }
                _ => false,
            };
            assert!(is_as_expected, "{expected:?}: {refused:?}");
        }
        assert!(matches!(pushes.verify(None).await, Err(Refused::Unauthorized(_))));
        assert_eq!((looks(&db).await.len(), messages(&db).await, google.asked()), (0, 0, 1));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn new_keys_are_found_and_while_they_cannot_be_nobody_is_called_a_forger() {
    let folder = tempfile::tempdir().unwrap();
    let location = store::Location::Sqlite { path: folder.path().join("mailroom.db"), connections: 1 };
    let store = Store::open(&location, std::sync::Arc::new(SystemClock)).unwrap();
    let google = Google::default();
    google.set_away(true);
    let pushes = google.pushes(&store);
    let verify = async |id: &str, key: usize| pushes.verify(Some(&token(id, key, &claims()))).await;
    let later = async || tokio::time::advance(Duration::from_secs(11)).await;

    assert_eq!(verify("one", 0).await, Err(Refused::NoKeys), "it comes again");
    google.set_away(false);
    google.add_key("one", 0);
    later().await;
    assert_eq!(verify("one", 0).await, Ok(()));

    google.add_key("two", 1);
    assert!(matches!(verify("two", 1).await, Err(Refused::Unauthorized(_))), "it was asked a moment ago");
    later().await;
    assert_eq!((verify("two", 1).await, verify("one", 0).await), (Ok(()), Ok(())));
    google.set_away(true);
    later().await;
    assert_eq!(verify("three", 0).await, Err(Refused::NoKeys), "it may be a new one");
    assert_eq!(verify("two", 1).await, Ok(()), "what is known still holds");
    assert_eq!(google.asked(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn storms_of_pushes_to_several_processes_are_recorded_once_each() {
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

        let accepted = outcomes.iter().filter(|outcome| **outcome == Outcome::Accepted).count();
        let repeated = outcomes.iter().filter(|outcome| **outcome == Outcome::Repeated).count();
        assert_eq!((accepted, repeated, messages(&db).await), (100, 300, 100));
        assert_eq!(looks(&db).await, expected);
    })
    .await;
}

#[tokio::test]
async fn old_messages_are_forgotten() {
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

/// Prints how long a push takes from its arrival to its answer. By hand:
/// `cargo test --release -p engine --test it -- --ignored --nocapture how_long_pushes_take`
#[tokio::test(flavor = "multi_thread")]
#[ignore = "it measures, and asserts nothing"]
async fn how_long_pushes_take() {
    const MAILBOXES: usize = 2000;
    on_each_database(|db| async move {
        let acme = tenant(&db, "acme").await;
        for n in 0..MAILBOXES {
            mailbox(&db, acme, &format!("{n}@acme.test")).await;
        }
        let pushes = Google::with_key("one").pushes(&db.store);
        let token = token("one", 0, &claims());
        for per_second in [200, 500, 1000] {
            let count = per_second * 5;
            let begin = tokio::time::Instant::now();
            let deliveries = (0..count).map(|n| {
                let (pushes, token) = (pushes.clone(), token.clone());
                let body =
                    push(&format!("{per_second}-{n}"), &format!("{}@acme.test", (n * 7919) % MAILBOXES), n as u64);
                tokio::spawn(async move {
                    tokio::time::sleep_until(begin + Duration::from_secs_f64(n as f64 / per_second as f64)).await;
                    let started = Instant::now();
                    pushes.verify(Some(&token)).await.unwrap();
                    pushes.take(&body).await.unwrap();
                    started.elapsed()
                })
            });
            let mut took: Vec<Duration> =
                join_all(deliveries.collect::<Vec<_>>()).await.into_iter().map(Result::unwrap).collect();
            took.sort_unstable();
            let at = |part: f64| took[((took.len() - 1) as f64 * part) as usize].as_secs_f64() * 1000.0;
            println!(
                "{:?}: {per_second} pushes a second: p50 {:.1} ms, p99 {:.1} ms, longest {:.1} ms",
                db.store.dialect(),
                at(0.5),
                at(0.99),
                at(1.0)
            );
        }
    })
    .await;
}
