//! What becomes of a mailbox and its token: refused, replaced, let go of.

use std::sync::atomic::Ordering;
use std::time::Duration;

use domain::{ConnectorError, MailboxId, MailboxState, Provider, Secret, SecretId, SecretKind, SystemClock};
use serde_json::json;
use store::failpoint::Effect;
use store::testing::{migrated_sqlite, on_each_database};

use super::bank::Bank;
use super::{QUICK, SHORT, Scene, stored};
use crate::alone::alone;

#[test]
fn who_dies_around_the_commit_of_a_token_harms_nobody() {
    for effect in Effect::TOKENS {
        for moment in ["before", "after"] {
            alone("tokens::lives::outlives_a_panic", &format!("{moment}:{}=panic", effect.name()));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "run by another test, with a failpoint that panics"]
async fn outlives_a_panic() {
    let folder = tempfile::tempdir().unwrap();
    let db = migrated_sqlite(folder.path()).await;
    let scene = Scene::new(&db, Bank::new(Duration::ZERO, false)).await;
    let mailbox = scene.connect("me@acme.test").await;
    let (one, two) = (scene.instance(&db, "one", SHORT), scene.instance(&db, "two", SHORT));
    let asker = scene.asker(mailbox);

    let broken = one.get(&asker, None).await;
    assert!(matches!(broken, Err(ConnectorError::Unavailable(_))), "{broken:?}");
    let token = two.get(&asker, None).await.unwrap();
    assert!(scene.bank.is_good(&token), "somebody else asks once the lease has run out, or finds what was stored");
    assert_eq!(one.get(&asker, None).await.unwrap().expose(), token.expose());
    assert_eq!(scene.bank.most_in_flight.load(Ordering::SeqCst), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_consent_that_has_ended_is_told_once_and_nobody_asks_again() {
    on_each_database(|db| async move {
        let scene = Scene::new(&db, Bank::new(Duration::ZERO, false)).await;
        let mailbox = scene.connect("me@acme.test").await;
        scene.work(&db).await;
        assert_eq!(scene.mailbox(mailbox).await.state, MailboxState::Active);
        *scene.bank.secret.lock().unwrap() = "another".into();
        // The token ends.
        scene.bank.current.fetch_add(1, Ordering::SeqCst);

        scene.ask_to_sync(&[mailbox]).await;
        scene.work(&db).await;

        let now = scene.mailbox(mailbox).await;
        assert_eq!(now.state, MailboxState::NeedsReauth);
        assert!(now.state_reason.unwrap().contains("invalid_grant"));
        let events = scene.store.list_events(0, 100).await.unwrap();
        let told: Vec<_> = events.iter().filter(|event| event.data["state"] == "needs_reauth").collect();
        assert_eq!(told.len(), 1);
        let asked = scene.bank.asked();
        for _ in 0..3 {
            scene.ask_to_sync(&[mailbox]).await;
            scene.work(&db).await;
        }
        let (other, refused) = (scene.instance(&db, "other", QUICK), Secret::new("t1".into()));
        let outcome = other.get(&scene.asker(mailbox), Some(&refused)).await;
        assert!(matches!(outcome, Err(ConnectorError::Unauthorized(_))));
        assert_eq!(scene.bank.asked(), asked, "no call for a token any more");

        // Connected again, it goes on as the same mailbox.
        let secret = Some(Secret::new("another".into()));
        scene.engine.change_mailbox(&scene.mailbox(mailbox).await, json!({}), secret).await.unwrap();
        scene.work(&db).await;
        assert_eq!(scene.mailbox(mailbox).await.state, MailboxState::Active);
        assert_eq!(scene.bank.asked(), asked + 1);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_that_was_replaced_while_it_was_refused_is_tried() {
    on_each_database(|db| async move {
        let scene = Scene::new(&db, Bank::new(Duration::from_millis(300), false)).await;
        let mailbox = scene.connect("me@acme.test").await;
        *scene.bank.secret.lock().unwrap() = "another".into();
        let tokens = scene.instance(&db, "one", QUICK);
        let asker = scene.asker(mailbox);

        let asking = tokio::spawn(async move { tokens.get(&asker, None).await });
        while scene.bank.asked() == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let secret = Some(Secret::new("another".into()));
        scene.engine.change_mailbox(&scene.mailbox(mailbox).await, json!({}), secret).await.unwrap();

        assert!(scene.bank.is_good(&asking.await.unwrap().unwrap()));
        assert_eq!(scene.bank.asked(), 2);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_that_comes_while_keys_are_rotated_is_kept() {
    on_each_database(|db| async move {
        let scene = Scene::new(&db, Bank::new(Duration::from_millis(500), true)).await;
        let mailbox = scene.connect("me@acme.test").await;
        let tokens = scene.instance(&db, "one", QUICK);
        let asker = scene.asker(mailbox);

        let asking = tokio::spawn({
            let (tokens, asker) = (tokens.clone(), asker.clone());
            async move { tokens.get(&asker, None).await }
        });
        while scene.bank.asked() == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        scene.engine.vault.rotate(None).await.unwrap();
        let token = asking.await.unwrap().unwrap();

        assert!(scene.bank.is_good(&token));
        assert_eq!(scene.bank.asked(), 1, "what came was not lost");
        assert!(
            scene.bank.is_good(&tokens.get(&asker, Some(&token)).await.unwrap()),
            "by the secret that came with it"
        );
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_comes_after_its_mailbox_has_gone_is_not_kept() {
    on_each_database(|db| async move {
        let scene = Scene::new(&db, Bank::new(Duration::from_millis(300), false)).await;
        let mailbox = scene.connect("me@acme.test").await;
        let tokens = scene.instance(&db, "one", QUICK);
        let asker = scene.asker(mailbox);

        let asking = tokio::spawn(async move { tokens.get(&asker, None).await });
        while scene.bank.asked() == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        scene.engine.disconnect(&scene.mailbox(mailbox).await, None).await.unwrap();

        assert!(matches!(asking.await.unwrap(), Err(ConnectorError::Unauthorized(_))));
        assert_eq!(stored(&db, SecretKind::AccessToken).await, 0);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_mailboxes_learn_from_a_few_calls_that_the_app_is_refused() {
    on_each_database(|db| async move {
        let scene = Scene::new(&db, Bank::new(Duration::from_millis(5), false)).await;
        let refusal = ConnectorError::Operator("the secret is wrong (invalid_client)".into());
        *scene.bank.refusal.lock().unwrap() = Some(refusal);
        let mut mailboxes = Vec::new();
        for n in 0..100 {
            mailboxes.push(scene.connect(&format!("m{n}@acme.test")).await);
        }

        scene.work(&db).await;

        assert!(scene.bank.asked() <= 8, "{} calls", scene.bank.asked());
        for mailbox in mailboxes {
            let state = scene.mailbox(mailbox).await.state;
            assert_eq!(state, MailboxState::Connecting, "it is not the mailbox's fault");
            let error = scene.store.find_sync(mailbox).await.unwrap().unwrap().last_error.unwrap();
            assert!(error.contains("invalid_client"), "{error}");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_granted_is_revoked_once_a_mailbox_is_disconnected_and_not_while_another_needs_it() {
    on_each_database(|db| async move {
        let scene = Scene::new(&db, Bank::new(Duration::ZERO, false)).await;
        let mailbox = scene.connect("me@acme.test").await;
        scene.work(&db).await;
        assert_eq!((stored(&db, SecretKind::RefreshToken).await, stored(&db, SecretKind::AccessToken).await), (1, 1));

        *scene.bank.refusal.lock().unwrap() = Some(ConnectorError::Unavailable("away".into()));
        scene.engine.disconnect(&scene.mailbox(mailbox).await, None).await.unwrap();
        scene.work(&db).await;
        assert_eq!(stored(&db, SecretKind::AccessToken).await, 0, "at once");
        assert_eq!(stored(&db, SecretKind::RefreshToken).await, 1, "it is needed until the provider has forgotten it");
        *scene.bank.refusal.lock().unwrap() = None;
        db.run("update jobs set state = 'ready', run_at = mailroom_now() where state = 'retry'").await;
        scene.work(&db).await;
        assert_eq!(*scene.bank.revoked.lock().unwrap(), ["r0"]);
        assert_eq!(stored(&db, SecretKind::RefreshToken).await, 0);

        // Once more, and connected again before the job comes: the provider would forget the new one with it.
        scene.connect("me@acme.test").await;
        scene.engine.disconnect(&scene.mailbox(mailbox).await, None).await.unwrap();
        scene.connect("me@acme.test").await;
        scene.work(&db).await;
        assert_eq!(scene.bank.revoked.lock().unwrap().len(), 1);
        assert_eq!(stored(&db, SecretKind::RefreshToken).await, 1);
        assert_eq!(scene.mailbox(mailbox).await.state, MailboxState::Active);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_revoked_while_an_owner_gives_it_anew() {
    on_each_database(|db| async move {
        let scene = Scene::new(&db, Bank::new(Duration::ZERO, false)).await;
        let mailbox = scene.connect("me@acme.test").await;
        scene.work(&db).await;
        let giving = scene.engine.hold_grant(Provider::Gmail, "me@acme.test").await.unwrap().unwrap();
        scene.engine.disconnect(&scene.mailbox(mailbox).await, None).await.unwrap();

        scene.work(&db).await;
        assert!(scene.bank.revoked.lock().unwrap().is_empty());
        scene.connect("me@acme.test").await;
        giving.release().await;
        db.run("update jobs set state = 'ready', run_at = mailroom_now() where kind = 'revoke_grant'").await;
        scene.work(&db).await;

        assert!(scene.bank.revoked.lock().unwrap().is_empty(), "it is needed again");
        assert_eq!(stored(&db, SecretKind::RefreshToken).await, 1);
        assert_eq!(scene.mailbox(mailbox).await.state, MailboxState::Active);
        let free = scene.engine.hold_grant(Provider::Gmail, "me@acme.test").await.unwrap();
        assert!(free.is_some(), "and nobody holds it any more");
    })
    .await;
}

#[test]
fn the_place_of_a_token_follows_from_its_mailbox() {
    let (one, two) = (MailboxId::new(&SystemClock), MailboxId::new(&SystemClock));

    assert_eq!(SecretId::of_access_token(one), SecretId::of_access_token(one));
    assert_ne!(SecretId::of_access_token(one), SecretId::of_access_token(two));
    assert_ne!(SecretId::of_access_token(one).0, one.0);
}
