//! A refresh token that the provider replaced while the database takes no write.

use std::time::Duration;

use domain::{ConnectorError, Secret};
use engine::credentials::tokens::{TokenRequest, TokenSettings, Tokens};
use store::testing::{TestDatabase, on_each_database};
use testkit::MailboxOperations;
use testkit::wait_until;
use tokio::task::JoinHandle;

use super::counting_issuer::CountingIssuer;
use super::{QUICK, TokenApp};

/// Short enough to wait for its end, and long enough for a call that a test holds back.
const PATIENT: TokenSettings = TokenSettings { lease: Duration::from_secs(6), ..QUICK };

const AWAY: &str = "alter table secrets rename to secrets_are_away";
const BACK: &str = "alter table secrets_are_away rename to secrets";

/// Somebody asks for a token, and when it comes nobody reads or writes a secret.
async fn ask_and_lose_the_database(
    db: &TestDatabase,
    bank: &CountingIssuer,
    tokens: &Tokens,
    asker: &TokenRequest,
) -> JoinHandle<Result<Secret<String>, ConnectorError>> {
    let gate = bank.gate.lock().await;
    let (tokens, asker) = (tokens.clone(), asker.clone());
    let asking = tokio::spawn(async move { tokens.get(&asker, None).await });
    wait_until("a token is requested", async || bank.asked() > 0).await;
    db.run(AWAY).await;
    drop(gate);
    asking
}

#[tokio::test(flavor = "multi_thread")]
async fn returning_database_stores_the_secret() {
    on_each_database(|db| async move {
        let app = TokenApp::new(db, CountingIssuer::new(Duration::ZERO, true)).await;
        let mailbox = app.connect("me@acme.test").await;
        let (tokens, asker) = (app.instance("one", QUICK), app.asker(mailbox));

        let mut asking = ask_and_lose_the_database(&app.db, &app.bank, &tokens, &asker).await;
        let waited = tokio::time::timeout(Duration::from_millis(600), &mut asking).await;
        assert!(waited.is_err(), "it is tried again: {waited:?}");
        app.db.run(BACK).await;

        let token = asking.await.unwrap().unwrap();
        assert!(app.bank.is_good(&token));
        let next = tokens.get(&asker, Some(&token)).await.unwrap();
        assert!(app.bank.is_good(&next), "by the secret that came with it");
        assert_eq!(app.bank.asked(), 2);
        app.finish().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn absent_database_stores_the_secret_later() {
    on_each_database(|db| async move {
        let app = TokenApp::new(db, CountingIssuer::new(Duration::ZERO, true)).await;
        let mailbox = app.connect("me@acme.test").await;
        let (tokens, asker) = (app.instance("one", PATIENT), app.asker(mailbox));

        let asking = ask_and_lose_the_database(&app.db, &app.bank, &tokens, &asker).await;
        let outcome = asking.await.unwrap();
        assert!(matches!(outcome, Err(ConnectorError::RateLimited(_))), "it is not used before: {outcome:?}");
        app.db.run(BACK).await;

        let token = tokens.get(&asker, None).await.unwrap();
        assert!(app.bank.is_good(&token));
        assert_eq!(app.bank.asked(), 1, "it was in memory");
        let other = app.instance("two", PATIENT);
        assert_eq!(other.get(&asker, None).await.unwrap().expose(), token.expose(), "and is stored now");
        assert!(app.bank.is_good(&other.get(&asker, Some(&token)).await.unwrap()));
        app.finish().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn reconnect_drops_an_unstored_secret() {
    on_each_database(|db| async move {
        let app = TokenApp::new(db, CountingIssuer::new(Duration::ZERO, true)).await;
        let mailbox = app.connect("me@acme.test").await;
        let (tokens, asker) = (app.instance("one", PATIENT), app.asker(mailbox));
        let asking = ask_and_lose_the_database(&app.db, &app.bank, &tokens, &asker).await;
        asking.await.unwrap().unwrap_err();
        app.db.run(BACK).await;

        let anew = Secret::new("another".to_owned());
        *app.bank.secret.lock().unwrap() = "another".to_owned();
        let there = app.mailbox(mailbox).await;
        app.engine.change_mailbox(&there, serde_json::json!({}).into(), Some(anew)).await.unwrap();

        assert!(app.bank.is_good(&tokens.get(&asker, None).await.unwrap()));
        assert_eq!(app.bank.asked(), 2, "by the new one");
        app.finish().await;
    })
    .await;
}
