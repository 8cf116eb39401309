//! What is special to JMAP: pages of a mailbox that changes, and the event source.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use domain::connector::{ConnectorAccount, Cursors, ListingPage};
use domain::{Connector, ConnectorError};
use sim::jmap::{JmapFault, JmapFaultKind, JmapOperation};

use testkit::contract::{ConnectorUnderTest, JmapUnderTest};
use testkit::{WAIT_DEADLINE, wait_until};
use tokio::task::JoinHandle;

const MESSAGES: usize = 95;
const MESSAGES_PER_PAGE: usize = 10;

async fn account() -> JmapUnderTest {
    JmapUnderTest::new(MESSAGES, 3, MESSAGES_PER_PAGE).await
}

/// Lists the history page by page, and calls `between` with each page.
async fn list_history(jmap: &JmapUnderTest, mut between: impl FnMut(&ListingPage)) -> Vec<String> {
    let (connector, mut account) = (jmap.connector(), jmap.account());
    let start = connector.changes(&account, &Cursors::new()).await.unwrap();
    account.folders = start.folders.iter().map(known).collect();
    let mut cursors = Cursors::new();
    let mut listed = Vec::new();
    loop {
        let page = connector.history(&account, &cursors, &start.cursors, None).await.unwrap();
        page.move_cursors(&mut cursors);
        listed.extend(page.seen.iter().map(|seen| seen.message.clone()));
        if page.is_last {
            return listed;
        }
        between(&page);
    }
}

fn known(folder: &domain::connector::ListedFolder) -> domain::connector::KnownFolder {
    domain::connector::KnownFolder {
        id: folder.id.clone(),
        name: folder.name.clone(),
        role: folder.role,
        delimiter: folder.delimiter.clone(),
        uid_validity: None,
        is_in_scope: true,
        missing_since: None,
    }
}

fn message_ids(jmap: &JmapUnderTest) -> BTreeSet<String> {
    jmap.world.truth(JmapUnderTest::ADDRESS).unwrap().messages.into_keys().collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn arriving_mail_moves_no_page() {
    let jmap = account().await;
    let before = message_ids(&jmap);

    let listed = list_history(&jmap, |_| drop(jmap.apply(JmapOperation::deliver(3)))).await;

    assert_eq!(listed.len(), MESSAGES, "each is listed once, and what arrives is left to the changes");
    assert_eq!(listed.into_iter().collect::<BTreeSet<_>>(), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn destroyed_mail_hides_no_other() {
    let jmap = account().await;

    // The last message of each page, after which the next one begins.
    let listed = list_history(&jmap, |page| {
        let message = page.seen.last().unwrap().message.clone();
        jmap.apply(JmapOperation::Destroy { message });
    })
    .await;

    let listed: BTreeSet<String> = listed.into_iter().collect();
    assert!(message_ids(&jmap).is_subset(&listed));
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_or_later_state_expires_the_cursor() {
    let jmap = account().await;
    let (connector, account) = (jmap.connector(), jmap.account());
    let start = connector.changes(&account, &Cursors::new()).await.unwrap().cursors;
    let mut cursor: serde_json::Value = serde_json::from_str(&start["mailbox"]).unwrap();

    for state in ["another", "s95", "1000000"] {
        cursor["email"] = state.into();
        let cursors = Cursors::from([("mailbox".to_owned(), cursor.to_string())]);
        let refused = connector.changes(&account, &cursors).await;
        assert_eq!(refused, Err(ConnectorError::CursorExpired), "{state}");
    }
    assert_eq!(jmap.violations(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_state_of_folders_lists_them_anew() {
    let jmap = account().await;
    let (connector, mut account) = (jmap.connector(), jmap.account());
    let start = connector.changes(&account, &Cursors::new()).await.unwrap();
    account.folders = start.folders.iter().skip(1).map(known).collect();
    let mut cursor: serde_json::Value = serde_json::from_str(&start.cursors["mailbox"]).unwrap();
    cursor["mailbox"] = "another".into();

    let page = connector.changes(&account, &Cursors::from([("mailbox".to_owned(), cursor.to_string())])).await.unwrap();

    assert_eq!(page.folders, start.folders[..1]);
    assert_eq!(page.cursors, start.cursors);
}

/// Listens, and returns once the server tells this connection of changes.
async fn listen(
    jmap: &JmapUnderTest,
    connector: &Arc<dyn Connector>,
    account: &ConnectorAccount,
    at_most: Duration,
) -> JoinHandle<Result<bool, ConnectorError>> {
    let (connector, account) = (connector.clone(), account.clone());
    let before = jmap.world.request_log().len();
    let listening = tokio::spawn(async move { connector.listen(&account, at_most).unwrap().await });
    wait_until("it listens", async || {
        // The states from which on it counts are the last that it asks for.
        let requests = jmap.world.request_log();
        let since = &requests[before..];
        since.last().is_some_and(|last| last.method == "POST") || listening.is_finished()
    })
    .await;
    listening
}

#[tokio::test(flavor = "multi_thread")]
async fn event_ends_the_wait() {
    let jmap = account().await;
    let (connector, account) = (jmap.connector(), jmap.account());
    let listening = listen(&jmap, &connector, &account, WAIT_DEADLINE).await;

    // The answer with the states may still be on its way, so one change may come too early to be one.
    wait_until("an event is heard", async || {
        jmap.apply(JmapOperation::deliver(1));
        listening.is_finished()
    })
    .await;

    assert_eq!(listening.await.unwrap(), Ok(true));
    assert_eq!(jmap.violations(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn change_between_two_connections_is_noticed() {
    let jmap = account().await;
    let (connector, account) = (jmap.connector(), jmap.account());
    let listening = listen(&jmap, &connector, &account, Duration::from_millis(300)).await;
    assert_eq!(listening.await.unwrap(), Ok(false), "nothing has changed");

    jmap.apply(JmapOperation::deliver(1));

    assert_eq!(connector.listen(&account, WAIT_DEADLINE).unwrap().await, Ok(true));
}

#[tokio::test(flavor = "multi_thread")]
async fn throttled_event_source_says_when_to_retry() {
    let jmap = account().await;
    jmap.world.add_fault(JmapFault::always(JmapFaultKind::Throttled { retry_after: Some(7) }));

    let heard = jmap.connector().listen(&jmap.account(), WAIT_DEADLINE).unwrap().await;

    assert_eq!(heard, Err(ConnectorError::Throttled { retry_after: Some(Duration::from_secs(7)) }));
}

#[tokio::test(flavor = "multi_thread")]
async fn server_without_events_is_polled() {
    let jmap = account().await;
    let (connector, account) = (jmap.connector(), jmap.account());
    jmap.world.add_fault(JmapFault::always(JmapFaultKind::NoEvents));

    assert!(connector.listen(&account, WAIT_DEADLINE).unwrap().await.is_err());

    assert!(connector.listen(&account, WAIT_DEADLINE).is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn token_opens_the_account_like_a_password() {
    let jmap = account().await;
    let mut account = jmap.account();
    let mut settings: serde_json::Value = serde_json::from_str(&account.settings).unwrap();
    settings["auth"] = "token".into();
    account.settings = settings.to_string();

    account.secret = jmap.world.token(JmapUnderTest::ADDRESS).map(domain::Secret::new);
    assert_eq!(jmap.connector().check(&account).await, Ok(()));
    account.secret = Some(domain::Secret::new("another".to_owned()));
    assert!(matches!(jmap.connector().check(&account).await, Err(ConnectorError::Unauthorized(_))));
}
