//! Subscriptions: claims on them, and how their pushes are recognised.

use std::time::Duration;

use domain::{Provider, Sha256};
use store::sql::subscriptions::{Subscription, SubscriptionClaim};
use store::testing::{migrated_postgres, on_each_database};
use store::{Precondition, StoreError};

use crate::samples::time;

const HOLD: Duration = Duration::from_secs(60);

fn claim(word: &str) -> SubscriptionClaim<'_> {
    SubscriptionClaim { provider: Provider::Outlook, address: "me@acme.test", nonce: word }
}

fn assert_refused(done: Result<(), StoreError>) {
    assert!(matches!(done, Err(StoreError::Precondition(Precondition::SubscriptionClaimed))), "{done:?}");
}

#[tokio::test]
async fn expired_subscription_claim_changes_nothing() {
    on_each_database(|db| async move {
        let system = db.store.system();
        let first = system.claim_subscription(claim("one"), HOLD).await.unwrap().unwrap();
        assert_eq!(first.subscription, Subscription { name: None, expires_at: None, renewed_at: None, owner: None });
        assert_eq!(system.claim_subscription(claim("two"), HOLD).await.unwrap(), None);
        system.begin_subscription(claim("one"), Sha256::of(b"a"), None).await.unwrap();
        let agreed = Subscription {
            name: Some("s1".into()),
            expires_at: Some(time("2100-01-01T00:00:00Z")),
            renewed_at: Some(time("2026-01-01T00:00:00Z")),
            owner: Some("u1".into()),
        };
        system.record_subscription(claim("one"), agreed.clone(), Vec::new()).await.unwrap();
        let found = system.find_subscription(Provider::Outlook, "me@acme.test").await.unwrap();
        assert_eq!(found.as_ref(), Some(&agreed));
        assert_eq!(system.find_subscription(Provider::Gmail, "me@acme.test").await.unwrap(), None);

        // Free again; and the first claim, which has expired, is refused.
        let second = system.claim_subscription(claim("two"), HOLD).await.unwrap().unwrap();
        assert_eq!(second.subscription, agreed);
        let by_hand = Subscription { owner: None, ..agreed.clone() };
        system.record_subscription(claim("two"), by_hand, Vec::new()).await.unwrap();
        let second = system.claim_subscription(claim("two"), HOLD).await.unwrap().unwrap();
        assert_eq!(second.subscription, agreed, "an unknown owner does not replace a known one");
        assert_refused(system.begin_subscription(claim("one"), Sha256::of(b"b"), None).await);
        assert_refused(system.record_subscription(claim("one"), agreed.clone(), Vec::new()).await);
        system.release_subscription(claim("one")).await.unwrap();
        system.forget_subscription(claim("one")).await.unwrap();
        assert_eq!(system.claim_subscription(claim("three"), HOLD).await.unwrap(), None, "the second has it");
        assert_eq!(system.find_subscription(Provider::Outlook, "me@acme.test").await.unwrap(), Some(agreed));
        system.release_subscription(claim("two")).await.unwrap();
        assert!(system.claim_subscription(claim("three"), HOLD).await.unwrap().is_some());
        system.forget_subscription(claim("three")).await.unwrap();
        assert_eq!(system.find_subscription(Provider::Outlook, "me@acme.test").await.unwrap(), None);
    })
    .await;
}

#[tokio::test]
async fn subscriptions_are_found_by_name_or_password() {
    on_each_database(|db| async move {
        let system = db.store.system();
        for n in 0..3 {
            let (address, word) = (format!("{n}@acme.test"), n.to_string());
            let claim = SubscriptionClaim { provider: Provider::Outlook, address: &address, nonce: &word };
            let claimed = system.claim_subscription(claim, HOLD).await.unwrap().unwrap();
            system.begin_subscription(claim, Sha256::of(word.as_bytes()), None).await.unwrap();
            let name = (n != 2).then(|| format!("s{n}"));
            let agreed = Subscription { name, expires_at: None, renewed_at: Some(claimed.claimed_at), owner: None };
            system.record_subscription(claim, agreed, Vec::new()).await.unwrap();
        }
        let found = async |names: &[&str], said: &[&str]| {
            let names = names.iter().map(|name| (*name).to_owned()).collect();
            let said = said.iter().map(|said| Sha256::of(said.as_bytes())).collect();
            let found = system.list_subscriptions(Provider::Outlook, names, said).await.unwrap();
            let mut found: Vec<String> = found.into_iter().map(|found| found.address).collect();
            found.sort();
            found
        };
        assert_eq!(found(&["s0", "s9"], &["2", "x"]).await, ["0@acme.test", "2@acme.test"]);
        assert_eq!(found(&["s1"], &["1"]).await, ["1@acme.test"], "once");
        assert_eq!(found(&["s1"], &[]).await, ["1@acme.test"]);
        assert_eq!(found(&[], &["0"]).await, ["0@acme.test"]);
        assert_eq!(found(&[], &[]).await, [""; 0]);
        assert_eq!(system.list_subscriptions(Provider::Gmail, vec!["s0".into()], Vec::new()).await.unwrap(), []);
    })
    .await;
}

#[tokio::test]
async fn tenants_see_no_subscriptions() {
    let db = migrated_postgres().await;
    db.store.system().claim_subscription(claim("one"), HOLD).await.unwrap();
    let granted = "select 1 from information_schema.role_table_grants
                   where table_name = 'push_subscriptions' and grantee in ('mailroom_tenant', 'PUBLIC')";
    assert!(db.rows(granted).await.is_empty());
    assert_eq!(db.store.system().isolation_problems().await.unwrap(), Vec::<String>::new());
}
