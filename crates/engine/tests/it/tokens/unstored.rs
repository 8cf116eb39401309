//! What a provider gave in the place of a secret while the database does not take it.

use std::sync::atomic::Ordering;
use std::time::Duration;

use domain::ConnectorError;
use store::testing::{TestDatabase, on_each_database};

use super::bank::Bank;
use super::{QUICK, SHORT, Scene};

/// As long as a test holds the call back, so that the database is away once it ends.
const HELD_BACK: Duration = Duration::from_millis(300);

const AWAY: &str = "alter table secrets rename to secrets_are_away";
const BACK: &str = "alter table secrets_are_away rename to secrets";

/// Nobody reads or writes a secret from now on; a call for a token is under way.
async fn lose_the_database(db: &TestDatabase, bank: &Bank) {
    while bank.asked() == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    db.run(AWAY).await;
    assert_eq!(bank.in_flight.load(Ordering::SeqCst), 1, "the call has not ended yet");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_comes_back_in_time_gets_it() {
    on_each_database(|db| async move {
        let scene = Scene::new(&db, Bank::new(HELD_BACK, true)).await;
        let mailbox = scene.connect("me@acme.test").await;
        let (tokens, asker) = (scene.instance(&db, "one", QUICK), scene.asker(mailbox));
        let mut asking = tokio::spawn({
            let (tokens, asker) = (tokens.clone(), asker.clone());
            async move { tokens.get(&asker, None).await }
        });

        lose_the_database(&db, &scene.bank).await;
        let waited = tokio::time::timeout(HELD_BACK * 2, &mut asking).await;
        assert!(waited.is_err(), "it is tried again: {waited:?}");
        db.run(BACK).await;

        let token = asking.await.unwrap().unwrap();
        assert!(scene.bank.is_good(&token));
        let next = tokens.get(&asker, Some(&token)).await.unwrap();
        assert!(scene.bank.is_good(&next), "by the secret that came with it");
        assert_eq!(scene.bank.asked(), 2);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_stays_away_gets_it_once_it_is_back_and_nobody_asks_by_the_old_one() {
    on_each_database(|db| async move {
        let scene = Scene::new(&db, Bank::new(HELD_BACK, true)).await;
        let mailbox = scene.connect("me@acme.test").await;
        let (tokens, asker) = (scene.instance(&db, "one", SHORT), scene.asker(mailbox));
        let asking = tokio::spawn({
            let (tokens, asker) = (tokens.clone(), asker.clone());
            async move { tokens.get(&asker, None).await }
        });

        lose_the_database(&db, &scene.bank).await;
        let outcome = asking.await.unwrap();
        assert!(matches!(outcome, Err(ConnectorError::Throttled { .. })), "it is not used before: {outcome:?}");
        db.run(BACK).await;

        let token = tokens.get(&asker, None).await.unwrap();
        assert!(scene.bank.is_good(&token));
        assert_eq!(scene.bank.asked(), 1, "it was in memory");
        let other = scene.instance(&db, "two", SHORT);
        assert_eq!(other.get(&asker, None).await.unwrap().expose(), token.expose(), "and is stored now");
        assert!(scene.bank.is_good(&other.get(&asker, Some(&token)).await.unwrap()));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn it_is_forgotten_when_the_mailbox_was_connected_anew() {
    on_each_database(|db| async move {
        let scene = Scene::new(&db, Bank::new(HELD_BACK, true)).await;
        let mailbox = scene.connect("me@acme.test").await;
        let (tokens, asker) = (scene.instance(&db, "one", SHORT), scene.asker(mailbox));
        let asking = tokio::spawn({
            let (tokens, asker) = (tokens.clone(), asker.clone());
            async move { tokens.get(&asker, None).await }
        });
        lose_the_database(&db, &scene.bank).await;
        asking.await.unwrap().unwrap_err();
        db.run(BACK).await;

        let anew = domain::Secret::new("another".to_owned());
        *scene.bank.secret.lock().unwrap() = "another".to_owned();
        let there = scene.mailbox(mailbox).await;
        scene.engine.change_mailbox(&there, serde_json::json!({}), Some(anew)).await.unwrap();

        assert!(scene.bank.is_good(&tokens.get(&asker, None).await.unwrap()));
        assert_eq!(scene.bank.asked(), 2, "by the new one");
    })
    .await;
}
