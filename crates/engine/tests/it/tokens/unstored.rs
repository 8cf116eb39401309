//! What a provider gave in the place of a secret while the database does not take it.

use std::time::Duration;

use domain::{ConnectorError, Secret};
use engine::tokens::{Asker, TokenSettings, Tokens};
use store::testing::{TestDatabase, on_each_database};
use tokio::task::JoinHandle;

use super::bank::Bank;
use super::{QUICK, Scene};

/// Short enough to wait for its end, and long enough for a call that a test holds back.
const PATIENT: TokenSettings = TokenSettings { lease: Duration::from_secs(6), ..QUICK };

const AWAY: &str = "alter table secrets rename to secrets_are_away";
const BACK: &str = "alter table secrets_are_away rename to secrets";

/// Somebody asks for a token, and when it comes nobody reads or writes a secret.
async fn ask_and_lose_the_database(
    db: &TestDatabase,
    bank: &Bank,
    tokens: &Tokens,
    asker: &Asker,
) -> JoinHandle<Result<Secret<String>, ConnectorError>> {
    let gate = bank.gate.lock().await;
    let (tokens, asker) = (tokens.clone(), asker.clone());
    let asking = tokio::spawn(async move { tokens.get(&asker, None).await });
    while bank.asked() == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    db.run(AWAY).await;
    drop(gate);
    asking
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_comes_back_in_time_gets_it() {
    on_each_database(|db| async move {
        let scene = Scene::new(&db, Bank::new(Duration::ZERO, true)).await;
        let mailbox = scene.connect("me@acme.test").await;
        let (tokens, asker) = (scene.instance(&db, "one", QUICK), scene.asker(mailbox));

        let mut asking = ask_and_lose_the_database(&db, &scene.bank, &tokens, &asker).await;
        let waited = tokio::time::timeout(Duration::from_millis(600), &mut asking).await;
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
        let scene = Scene::new(&db, Bank::new(Duration::ZERO, true)).await;
        let mailbox = scene.connect("me@acme.test").await;
        let (tokens, asker) = (scene.instance(&db, "one", PATIENT), scene.asker(mailbox));

        let asking = ask_and_lose_the_database(&db, &scene.bank, &tokens, &asker).await;
        let outcome = asking.await.unwrap();
        assert!(matches!(outcome, Err(ConnectorError::NotYet(_))), "it is not used before: {outcome:?}");
        db.run(BACK).await;

        let token = tokens.get(&asker, None).await.unwrap();
        assert!(scene.bank.is_good(&token));
        assert_eq!(scene.bank.asked(), 1, "it was in memory");
        let other = scene.instance(&db, "two", PATIENT);
        assert_eq!(other.get(&asker, None).await.unwrap().expose(), token.expose(), "and is stored now");
        assert!(scene.bank.is_good(&other.get(&asker, Some(&token)).await.unwrap()));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn it_is_forgotten_when_the_mailbox_was_connected_anew() {
    on_each_database(|db| async move {
        let scene = Scene::new(&db, Bank::new(Duration::ZERO, true)).await;
        let mailbox = scene.connect("me@acme.test").await;
        let (tokens, asker) = (scene.instance(&db, "one", PATIENT), scene.asker(mailbox));
        let asking = ask_and_lose_the_database(&db, &scene.bank, &tokens, &asker).await;
        asking.await.unwrap().unwrap_err();
        db.run(BACK).await;

        let anew = Secret::new("another".to_owned());
        *scene.bank.secret.lock().unwrap() = "another".to_owned();
        let there = scene.mailbox(mailbox).await;
        scene.engine.change_mailbox(&there, serde_json::json!({}), Some(anew)).await.unwrap();

        assert!(scene.bank.is_good(&tokens.get(&asker, None).await.unwrap()));
        assert_eq!(scene.bank.asked(), 2, "by the new one");
    })
    .await;
}
