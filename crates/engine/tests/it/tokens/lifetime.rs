//! A mailbox and its token over time: refused, replaced, revoked.

use std::sync::atomic::Ordering;
use std::time::Duration;

use domain::{ConnectorError, MailboxId, MailboxState, Provider, Secret, SecretId, SecretKind, SystemClock};
use serde_json::json;
use store::failpoint::Effect;
use store::testing::{migrated_sqlite, on_each_database};
use testkit::MailboxOperations;
use testkit::wait_until;

use super::counting_issuer::CountingIssuer;
use super::{QUICK, SHORT, TokenApp, stored};
use testkit::own_process;

#[tokio::test(flavor = "multi_thread")]
async fn crash_around_a_token_commit_is_harmless() {
    if own_process::is_child() {
        return outlive_a_panic().await;
    }
    for effect in Effect::TOKENS {
        for moment in ["before", "after"] {
            own_process::run(
                "tokens::lifetime::crash_around_a_token_commit_is_harmless",
                &format!("{moment}:{}=panic", effect.name()),
            );
        }
    }
}

/// Requests a token, with a panic on the way.
async fn outlive_a_panic() {
    let folder = tempfile::tempdir().unwrap();
    let db = migrated_sqlite(folder.path()).await;
    let app = TokenApp::new(db, CountingIssuer::new(Duration::ZERO, false)).await;
    let mailbox = app.connect("me@acme.test").await;
    let (one, two) = (app.instance("one", SHORT), app.instance("two", SHORT));
    let asker = app.asker(mailbox);

    let broken = one.get(&asker, None).await;
    assert!(matches!(broken, Err(ConnectorError::Unavailable(_))), "{broken:?}");
    let token = two.get(&asker, None).await.unwrap();
    assert!(app.bank.is_good(&token), "somebody else asks once the lease has run out, or finds what was stored");
    assert_eq!(one.get(&asker, None).await.unwrap().expose(), token.expose());
    assert_eq!(app.bank.most_in_flight.load(Ordering::SeqCst), 1);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn revoked_consent_is_reported_once() {
    on_each_database(|db| async move {
        let app = TokenApp::new(db, CountingIssuer::new(Duration::ZERO, false)).await;
        let mailbox = app.connect("me@acme.test").await;
        app.run_jobs_until_idle().await;
        assert_eq!(app.mailbox(mailbox).await.state, MailboxState::Active);
        *app.bank.secret.lock().unwrap() = "another".into();
        // The token ends.
        app.bank.current.fetch_add(1, Ordering::SeqCst);

        app.enqueue_syncs(&[mailbox]).await;
        app.run_jobs_until_idle().await;

        let now = app.mailbox(mailbox).await;
        assert_eq!(now.state, MailboxState::NeedsReauth);
        assert!(now.state_reason.unwrap().contains("invalid_grant"));
        let events = app.store.list_events(0, 100).await.unwrap();
        let told: Vec<_> = events.iter().filter(|event| event.data["state"] == "needs_reauth").collect();
        assert_eq!(told.len(), 1);
        let asked = app.bank.asked();
        for _ in 0..3 {
            app.enqueue_syncs(&[mailbox]).await;
            app.run_jobs_until_idle().await;
        }
        let (other, refused) = (app.instance("other", QUICK), Secret::new("t1".into()));
        let outcome = other.get(&app.asker(mailbox), Some(&refused)).await;
        assert!(matches!(outcome, Err(ConnectorError::Unauthorized(_))));
        assert_eq!(app.bank.asked(), asked, "no call for a token any more");

        // Connected again, it goes on as the same mailbox.
        let secret = Some(Secret::new("another".into()));
        app.engine.change_mailbox(&app.mailbox(mailbox).await, json!({}).into(), secret).await.unwrap();
        app.run_jobs_until_idle().await;
        assert_eq!(app.mailbox(mailbox).await.state, MailboxState::Active);
        assert_eq!(app.bank.asked(), asked + 1);
        app.finish_jobs().await;
        app.finish().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn secret_replaced_during_a_refusal_is_tried() {
    on_each_database(|db| async move {
        let app = TokenApp::new(db, CountingIssuer::new(Duration::from_millis(300), false)).await;
        let mailbox = app.connect("me@acme.test").await;
        *app.bank.secret.lock().unwrap() = "another".into();
        let tokens = app.instance("one", QUICK);
        let asker = app.asker(mailbox);

        let asking = tokio::spawn(async move { tokens.get(&asker, None).await });
        wait_until("a token is requested", async || app.bank.asked() > 0).await;
        let secret = Some(Secret::new("another".into()));
        app.engine.change_mailbox(&app.mailbox(mailbox).await, json!({}).into(), secret).await.unwrap();

        assert!(app.bank.is_good(&asking.await.unwrap().unwrap()));
        assert_eq!(app.bank.asked(), 2);
        app.finish().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn secret_received_during_key_rotation_is_kept() {
    on_each_database(|db| async move {
        let app = TokenApp::new(db, CountingIssuer::new(Duration::from_millis(500), true)).await;
        let mailbox = app.connect("me@acme.test").await;
        let tokens = app.instance("one", QUICK);
        let asker = app.asker(mailbox);

        let asking = tokio::spawn({
            let (tokens, asker) = (tokens.clone(), asker.clone());
            async move { tokens.get(&asker, None).await }
        });
        wait_until("a token is requested", async || app.bank.asked() > 0).await;
        app.engine.vault.rotate(None).await.unwrap();
        let token = asking.await.unwrap().unwrap();

        assert!(app.bank.is_good(&token));
        assert_eq!(app.bank.asked(), 1, "what came was not lost");
        assert!(app.bank.is_good(&tokens.get(&asker, Some(&token)).await.unwrap()), "by the secret that came with it");
        app.finish().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn token_of_a_removed_mailbox_is_not_kept() {
    on_each_database(|db| async move {
        let app = TokenApp::new(db, CountingIssuer::new(Duration::from_millis(300), false)).await;
        let mailbox = app.connect("me@acme.test").await;
        let tokens = app.instance("one", QUICK);
        let asker = app.asker(mailbox);

        let asking = tokio::spawn(async move { tokens.get(&asker, None).await });
        wait_until("a token is requested", async || app.bank.asked() > 0).await;
        app.engine.disconnect(&app.mailbox(mailbox).await).await.unwrap();

        assert!(matches!(asking.await.unwrap(), Err(ConnectorError::Unauthorized(_))));
        assert_eq!(stored(&app.db, SecretKind::AccessToken).await, 0);
        app.leaves_jobs(&["stop_watch", "sync_mailbox", "watch_mailbox"]);
        app.finish().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rejected_app_is_learned_from_few_calls() {
    on_each_database(|db| async move {
        let app = TokenApp::new(db, CountingIssuer::new(Duration::from_millis(5), false)).await;
        let refusal = ConnectorError::AppRejected("the secret is wrong (invalid_client)".into());
        *app.bank.refusal.lock().unwrap() = Some(refusal);
        let mut mailboxes = Vec::new();
        for n in 0..100 {
            mailboxes.push(app.connect(&format!("m{n}@acme.test")).await);
        }

        app.run_jobs_until_idle().await;

        assert!(app.bank.asked() <= 8, "{} calls", app.bank.asked());
        for mailbox in mailboxes {
            let state = app.mailbox(mailbox).await.state;
            assert_eq!(state, MailboxState::Connecting, "it is not the mailbox's fault");
            let error = app.store.find_sync_state(mailbox).await.unwrap().unwrap().last_error.unwrap();
            assert!(error.contains("invalid_client"), "{error}");
        }
        app.leaves_jobs(&["sync_mailbox"]);
        app.finish().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn disconnect_revokes_an_unshared_grant() {
    on_each_database(|db| async move {
        let app = TokenApp::new(db, CountingIssuer::new(Duration::ZERO, false)).await;
        let mailbox = app.connect("me@acme.test").await;
        app.run_jobs_until_idle().await;
        assert_eq!(
            (stored(&app.db, SecretKind::RefreshToken).await, stored(&app.db, SecretKind::AccessToken).await),
            (1, 1)
        );

        *app.bank.refusal.lock().unwrap() = Some(ConnectorError::Unavailable("away".into()));
        app.engine.disconnect(&app.mailbox(mailbox).await).await.unwrap();
        app.run_jobs_until_idle().await;
        assert_eq!(stored(&app.db, SecretKind::AccessToken).await, 0, "at once");
        assert_eq!(
            stored(&app.db, SecretKind::RefreshToken).await,
            1,
            "it is needed until the provider has forgotten it"
        );
        *app.bank.refusal.lock().unwrap() = None;
        app.db.run("update jobs set state = 'ready', run_at = mailroom_now() where state = 'retry'").await;
        app.run_jobs_until_idle().await;
        assert_eq!(*app.bank.revoked.lock().unwrap(), ["r0"]);
        assert_eq!(stored(&app.db, SecretKind::RefreshToken).await, 0);

        // Once more, and connected again before the job comes: the provider would forget the new one with it.
        app.connect("me@acme.test").await;
        app.engine.disconnect(&app.mailbox(mailbox).await).await.unwrap();
        app.connect("me@acme.test").await;
        app.run_jobs_until_idle().await;
        assert_eq!(app.bank.revoked.lock().unwrap().len(), 1);
        assert_eq!(stored(&app.db, SecretKind::RefreshToken).await, 1);
        assert_eq!(app.mailbox(mailbox).await.state, MailboxState::Active);
        app.finish_jobs().await;
        app.finish().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn renewed_consent_is_not_revoked() {
    on_each_database(|db| async move {
        let app = TokenApp::new(db, CountingIssuer::new(Duration::ZERO, false)).await;
        let mailbox = app.connect("me@acme.test").await;
        app.run_jobs_until_idle().await;
        let giving = app.engine.acquire_grant_lease(Provider::Gmail, "me@acme.test").await.unwrap().unwrap();
        app.engine.disconnect(&app.mailbox(mailbox).await).await.unwrap();

        app.run_jobs_until_idle().await;
        assert!(app.bank.revoked.lock().unwrap().is_empty());
        app.connect("me@acme.test").await;
        giving.release().await;
        app.db.run("update jobs set state = 'ready', run_at = mailroom_now() where kind = 'revoke_grant'").await;
        app.run_jobs_until_idle().await;

        assert!(app.bank.revoked.lock().unwrap().is_empty(), "it is needed again");
        assert_eq!(stored(&app.db, SecretKind::RefreshToken).await, 1);
        assert_eq!(app.mailbox(mailbox).await.state, MailboxState::Active);
        let free = app.engine.acquire_grant_lease(Provider::Gmail, "me@acme.test").await.unwrap();
        assert!(free.is_some(), "and nobody holds it any more");
        app.finish_jobs().await;
        app.finish().await;
    })
    .await;
}

#[test]
fn token_id_follows_from_its_mailbox() {
    let (one, two) = (MailboxId::new(&SystemClock), MailboxId::new(&SystemClock));

    assert_eq!(SecretId::of_access_token(one), SecretId::of_access_token(one));
    assert_ne!(SecretId::of_access_token(one), SecretId::of_access_token(two));
    assert_ne!(SecretId::of_access_token(one).0, one.0);
}
