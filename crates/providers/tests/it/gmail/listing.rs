//! What is special to Gmail in listings and changes. What every connector does is in `testkit::contract`.

use std::collections::{BTreeMap, BTreeSet};

use domain::ConnectorError;
use domain::connector::Cursors;
use serde_json::{Value, json};
use sim::google::{GmailOperation, GoogleFault, GoogleFaultKind, GoogleRoute};
use testkit::contract::{ConnectorUnderTest, GmailUnderTest, assert_replicated};

#[tokio::test]
async fn idle_sync_takes_one_call() {
    let gmail = GmailUnderTest::new(30, 3).await;
    let mut replica = gmail.replica();
    replica.begin().await.unwrap();
    gmail.world.clear_requests();

    assert_eq!(replica.follow().await, Ok(0));

    assert_eq!(gmail.world.requests().all.routes, BTreeMap::from([(GoogleRoute::HistoryList, 1)]));
}

#[tokio::test]
async fn page_without_messages_is_not_the_last() {
    let gmail = GmailUnderTest::new(30, 2).await;
    let route = Some(GoogleRoute::MessagesList);
    gmail.world.add_fault(GoogleFault { route, count: Some(3), ..GoogleFault::always(GoogleFaultKind::EmptyPage) });
    let mut replica = gmail.replica();

    replica.begin().await.unwrap();

    assert_replicated(&gmail, &replica);
}

#[tokio::test]
async fn history_lists_only_messages_since_its_date() {
    let gmail = GmailUnderTest::new(0, 2).await;
    for received_at in ["2026-01-01T00:00:00Z", "2026-03-01T00:00:00Z", "2026-03-02T00:00:00Z"] {
        let received_at = Some(received_at.parse().unwrap());
        let deliver = GmailOperation::Deliver { labels: None, count: None, reply_to: None, raw: None, received_at };
        gmail.apply(deliver);
    }
    let mut replica = gmail.replica();
    replica.follow().await.unwrap();
    let (connector, account) = (&replica.connector, &replica.account);

    let since = Some("2026-03-01T00:00:00Z".parse().unwrap());
    let page = connector.history(account, &Cursors::new(), &Cursors::new(), since).await.unwrap();
    assert_eq!(page.id_only.len(), 2);

    // A listing keeps the older one apart from those that are synced.
    let (mut cursors, mut synced, mut all) = (Cursors::new(), BTreeSet::new(), BTreeSet::new());
    loop {
        let page = connector.list(account, &cursors, None, since).await.unwrap();
        page.move_cursors(&mut cursors);
        synced.extend(page.seen.into_iter().map(|seen| seen.message));
        all.extend(page.flags_only.into_iter().map(|seen| seen.message));
        if page.is_last {
            break;
        }
    }
    assert_eq!((synced.len(), all.len()), (2, 3));
}

/// The same cursors with a page token that is refused.
fn with_refused_token(mut cursors: Cursors) -> Cursors {
    for cursor in cursors.values_mut() {
        let mut at: Value = serde_json::from_str(cursor).unwrap();
        assert!(at["page"].is_string(), "there is a further page: {at}");
        at["page"] = json!("refused");
        *cursor = at.to_string();
    }
    cursors
}

#[tokio::test]
async fn refused_history_token_restarts_the_window() {
    let gmail = GmailUnderTest::new(30, 3).await;
    let mut replica = gmail.replica();
    replica.begin().await.unwrap();
    for _ in 0..150 {
        gmail.apply(GmailOperation::deliver());
    }
    // A page of which nothing is kept but its cursor: only the whole window has its messages.
    let first = replica.connector.changes(&replica.account, &replica.changes).await.unwrap();
    replica.changes = with_refused_token(first.cursors);

    replica.follow().await.unwrap();

    assert_replicated(&gmail, &replica);
}

#[tokio::test]
async fn history_whose_tokens_are_always_refused_expires() {
    let gmail = GmailUnderTest::new(30, 3).await;
    let mut replica = gmail.replica();
    replica.begin().await.unwrap();
    for _ in 0..150 {
        gmail.apply(GmailOperation::deliver());
    }
    let mut restarts = 0;

    let error = loop {
        match replica.connector.changes(&replica.account, &replica.changes).await {
            Ok(page) => replica.changes = with_refused_token(page.cursors),
            Err(e) => break e,
        }
        restarts += 1;
        assert!(restarts < 10, "it is listed again and again");
    };

    assert_eq!(error, ConnectorError::CursorExpired);
}

#[tokio::test]
async fn refused_list_token_restarts_its_folder() {
    let gmail = GmailUnderTest::new(150, 3).await;
    let mut replica = gmail.replica();
    replica.follow().await.unwrap();
    let (connector, account) = (&replica.connector, &replica.account);
    let first = connector.list(account, &Cursors::new(), Some(&replica.changes), None).await.unwrap();

    let again =
        connector.list(account, &with_refused_token(first.cursors), Some(&replica.changes), None).await.unwrap();

    assert_eq!(again.complete_placements, first.complete_placements);
    assert!(!again.is_last);
}
