//! Three processes with two callers each, and a token that is refused again and again.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::time::Duration;

use domain::Secret;
use engine::tokens::Tokens;
use futures_util::future::join_all;
use store::testing::{TestDatabase, migrated_sqlite, on_each_database};

use super::bank::Bank;
use super::{Giver, QUICK, Scene};
use crate::alone::alone;

/// How often all of them had the same good token before somebody was refused.
pub async fn race<G: Giver>(db: &TestDatabase, giver: G, rounds: u32) -> (Scene<G>, u32) {
    let scene = Scene::new(db, giver).await;
    let mailbox = scene.connect("me@acme.test").await;
    let instances: Vec<Tokens> = ["one", "two", "three"].map(|name| scene.instance(db, name, QUICK)).into();
    let asker = scene.asker(mailbox);
    let mut refused: Option<Secret<String>> = None;
    for round in 0..rounds {
        let ask = |tokens: &Tokens| {
            let (tokens, asker, refused) = (tokens.clone(), asker.clone(), refused.clone());
            tokio::spawn(async move { tokens.get(&asker, refused.as_ref()).await })
        };
        let given = join_all(instances.iter().flat_map(|tokens| [ask(tokens), ask(tokens)])).await;
        let given: Result<BTreeSet<String>, _> =
            given.into_iter().map(|token| token.unwrap().map(|token| token.expose().clone())).collect();
        let Ok(given) = given else { return (scene, round) };
        let mut given = given.into_iter().map(Secret::new);
        let (token, is_one) = (given.next().unwrap(), given.next().is_none());
        if !is_one || !scene.bank.takes(&token).await.unwrap() {
            return (scene, round);
        }
        refused = Some(token);
    }
    (scene, rounds)
}

#[tokio::test(flavor = "multi_thread")]
async fn of_three_processes_one_at_a_time_asks_and_every_caller_gets_a_good_token() {
    on_each_database(|db| async move {
        let (scene, rounds) = race(&db, Bank::new(Duration::from_millis(2), false), 250).await;

        assert_eq!(scene.bank.most_in_flight.load(Ordering::SeqCst), 1, "never two at once");
        assert_eq!((rounds, scene.bank.asked()), (250, 250), "once each time that a token was refused");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rotated_secret_is_kept_before_its_token_is_used() {
    on_each_database(|db| async move {
        let (scene, rounds) = race(&db, Bank::new(Duration::from_millis(2), true), 50).await;

        assert_eq!(scene.bank.most_in_flight.load(Ordering::SeqCst), 1);
        assert_eq!((rounds, scene.bank.asked()), (50, 50), "the old ones are refused, so each of these was the last");
    })
    .await;
}

#[test]
fn without_the_lease_they_ask_at_once() {
    alone("tokens::race::asks_at_once", "off=token_lease");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "run by another test, with the lease switched off"]
async fn asks_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let db = migrated_sqlite(folder.path()).await;
    let (scene, rounds) = race(&db, Bank::new(Duration::from_millis(2), false), 30).await;

    assert!(scene.bank.most_in_flight.load(Ordering::SeqCst) > 1, "the test above would not notice");
    assert!(rounds < 30, "nor that they have different tokens");
}
