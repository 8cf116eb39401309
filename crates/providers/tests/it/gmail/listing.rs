//! What is special to Gmail in listings and changes. What every connector does is in `testkit::contract`.

use std::collections::{BTreeMap, BTreeSet};

use domain::connector::Cursors;
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
