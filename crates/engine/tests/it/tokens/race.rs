//! Three processes with two callers each, and a token that is refused again and again.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::time::Duration;

use domain::Secret;
use engine::credentials::tokens::Tokens;
use futures_util::future::join_all;
use store::testing::{TestDatabase, migrated_sqlite, on_each_database};

use super::counting_issuer::CountingIssuer;
use super::{QUICK, TokenApp, TokenIssuer};
use testkit::own_process;

/// How often all of them had the same good token before somebody was refused.
pub async fn race<G: TokenIssuer>(db: TestDatabase, giver: G, rounds: u32) -> (TokenApp<G>, u32) {
    let app = TokenApp::new(db, giver).await;
    let mailbox = app.connect("me@acme.test").await;
    let instances: Vec<Tokens> = ["one", "two", "three"].map(|name| app.instance(name, QUICK)).into();
    let asker = app.asker(mailbox);
    let mut refused: Option<Secret<String>> = None;
    for round in 0..rounds {
        let ask = |tokens: &Tokens| {
            let (tokens, asker, refused) = (tokens.clone(), asker.clone(), refused.clone());
            tokio::spawn(async move { tokens.get(&asker, refused.as_ref()).await })
        };
        let given = join_all(instances.iter().flat_map(|tokens| [ask(tokens), ask(tokens)])).await;
        let given: Result<BTreeSet<String>, _> =
            given.into_iter().map(|token| token.unwrap().map(|token| token.expose().clone())).collect();
        let Ok(given) = given else { return (app, round) };
        let mut given = given.into_iter().map(Secret::new);
        let (token, is_one) = (given.next().unwrap(), given.next().is_none());
        if !is_one || !app.bank.takes(&token).await.unwrap() {
            return (app, round);
        }
        refused = Some(token);
    }
    (app, rounds)
}

#[tokio::test(flavor = "multi_thread")]
async fn processes_request_a_token_one_at_a_time() {
    on_each_database(|db| async move {
        let (app, rounds) = race(db, CountingIssuer::new(Duration::from_millis(2), false), 250).await;

        assert_eq!(app.bank.most_in_flight.load(Ordering::SeqCst), 1, "never two at once");
        assert_eq!((rounds, app.bank.asked()), (250, 250), "once each time that a token was refused");
        app.finish().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rotated_secret_is_stored_before_its_token_is_used() {
    on_each_database(|db| async move {
        let (app, rounds) = race(db, CountingIssuer::new(Duration::from_millis(2), true), 50).await;

        assert_eq!(app.bank.most_in_flight.load(Ordering::SeqCst), 1);
        assert_eq!((rounds, app.bank.asked()), (50, 50), "the old ones are refused, so each of these was the last");
        app.finish().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_lease_lets_processes_ask_at_once() {
    if !own_process::is_child() {
        return own_process::run("tokens::race::missing_lease_lets_processes_ask_at_once", "off=token_lease");
    }
    let folder = tempfile::tempdir().unwrap();
    let db = migrated_sqlite(folder.path()).await;
    // Long enough for the others to ask meanwhile, also on a busy machine; the first round shows it.
    let (app, rounds) = race(db, CountingIssuer::new(Duration::from_millis(500), false), 30).await;

    assert!(app.bank.most_in_flight.load(Ordering::SeqCst) > 1, "the test above would not notice");
    assert!(rounds < 30, "nor that they have different tokens");
    app.finish().await;
}
