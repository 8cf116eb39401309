//! Events have the `data` that the examples of their types promise.

use std::collections::BTreeSet;

use domain::connector::{ListingPage, SeenMessage};
use domain::{ConnectorError, EventType};
use serde_json::Value;
use store::sql::events::Event;
use store::testing::on_each_database;
use testkit::ScriptedApp;
use testkit::pages::{page, placement, seen_message};

/// Fails the test if the `data` of an event has other keys than the example of its type.
#[track_caller]
pub fn assert_like_examples(events: &[Event]) {
    for event in events {
        let kind = EventType::parse(&event.kind).unwrap();
        let example: Value = serde_json::from_str(kind.example()).unwrap();
        assert_eq!(keys(&event.data), keys(&example), "{kind}: {}", event.data);
    }
}

fn keys(data: &Value) -> BTreeSet<&String> {
    data.as_object().unwrap().keys().collect()
}

#[test]
fn examples_of_event_types_are_objects() {
    for kind in EventType::ALL {
        let example: Value = serde_json::from_str(kind.example()).unwrap_or_else(|e| panic!("{kind}: {e}"));
        assert!(example.is_object(), "{kind}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn events_of_a_mailbox_are_like_their_examples() {
    on_each_database(|db| async move {
        let app = ScriptedApp::new(db).await;
        app.connector.fetches("m", "Subject: one\n\nhello");
        app.connector.fetches("d", "Subject: draft\n\nold");
        app.connector.queue_changes(page(vec![seen_message("m", "INBOX", &[]), draft("1")]));
        app.sync().await;
        app.connector.fetches("d", "Subject: draft\n\nnew");
        for change in [
            page(vec![draft("2")]),
            moved("INBOX", "Archive", &["seen"]),
            moved("Archive", "Trash", &[]),
            page(vec![seen_message("m", "INBOX", &[])]),
        ] {
            app.connector.queue_changes(change);
            app.sync().await;
        }
        app.connector.queue_changes(ConnectorError::CursorExpired);
        app.connector.queue_changes(page(vec![]));
        app.connector.queue_list(page(vec![seen_message("m", "INBOX", &[])]));
        app.sync().await;

        let events = app.tenant.list_events(0, 1000).await.unwrap();
        assert_like_examples(&events);
        for expected in [
            EventType::EmailReceived,
            EventType::EmailUpdated,
            EventType::EmailMoved,
            EventType::EmailFlagsChanged,
            EventType::EmailDeleted,
            EventType::EmailRestored,
            EventType::SyncCompleted,
            EventType::MailboxStateChanged,
            EventType::MailboxGapHealed,
        ] {
            assert!(events.iter().any(|event| event.kind == expected.as_str()), "{expected} did not happen");
        }
        app.finish().await;
    })
    .await;
}

fn draft(revision: &str) -> SeenMessage {
    SeenMessage { revision: Some(revision.into()), ..seen_message("d", "INBOX", &[]) }
}

/// Returns the page on which the message `m` has left a folder for another one. The trash is out of scope.
fn moved(from: &str, to: &str, flags: &[&str]) -> ListingPage {
    ListingPage { removed_placements: vec![placement("m", from)], ..page(vec![seen_message("m", to, flags)]) }
}
