//! Mailboxes at a real IMAP server end up as they are there, whatever their owners do and whatever the server offers.

mod folders;
mod imap_app;
mod incomplete_listings;
mod proxy;
pub mod server;

use domain::Backfill;
use imap_app::{ImapApp, letter, with_each_server};
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn existing_and_new_mail_is_stored() {
    with_each_server(async |app| {
        for n in 0..30 {
            app.owner.append("INBOX", "", &letter(&format!("old-{n}"))).await;
        }
        app.owner.append("Sent", "\\Seen", &letter("sent")).await;
        app.connect(Backfill::All).await;
        app.assert_equal().await;
        app.owner.append("INBOX", "\\Flagged", &letter("new")).await;
        app.sync().await;
        app.assert_equal().await;
        assert_eq!(app.count("emails").await, 32);
        assert_eq!(app.proxy.take_bodies(), 32);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unchanged_mailbox_writes_nothing() {
    with_each_server(async |app| {
        app.owner.append("INBOX", "", &letter("one")).await;
        app.connect(Backfill::All).await;
        app.sync().await;
        app.proxy.take_bodies();
        let events = app.store.list_events(0, 1000).await.unwrap().len();
        app.sync().await;
        assert_eq!(app.proxy.take_bodies(), 0);
        assert_eq!(app.store.list_events(0, 1000).await.unwrap().len(), events);
        app.assert_equal().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn identical_bytes_are_one_email() {
    with_each_server(async |app| {
        app.connect(Backfill::All).await;
        for _ in 0..2 {
            app.owner.append("INBOX", "", &letter("same")).await;
        }
        app.sync().await;
        app.assert_equal().await;
        assert_eq!((app.count("emails").await, app.count("placements where is_live").await), (1, 2));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn copies_and_moves_between_folders_are_followed() {
    with_each_server(async |app| {
        app.owner.does("CREATE Archive").await;
        for name in ["one", "two", "three"] {
            app.owner.append("INBOX", "", &letter(name)).await;
        }
        app.connect(Backfill::All).await;
        app.owner.in_folder("INBOX", &["UID COPY 1 Archive", "UID MOVE 2 Archive"]).await;
        app.sync().await;
        app.assert_equal().await;
        assert_eq!(app.count("emails").await, 3);
        assert_eq!(app.count("emails where deleted_at is not null").await, 0);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn flags_of_old_mail_are_followed() {
    with_each_server(async |app| {
        for n in 0..10 {
            app.owner.append("INBOX", "", &letter(&format!("{n}"))).await;
        }
        app.connect(Backfill::All).await;
        app.sync().await;
        app.owner.in_folder("INBOX", &["UID STORE 1,5 +FLAGS (\\Seen $Forwarded)"]).await;
        app.sync().await;
        app.assert_equal().await;
        app.owner.in_folder("INBOX", &["UID STORE 5 FLAGS ()", "UID STORE 10 +FLAGS (\\Answered)"]).await;
        app.sync().await;
        app.assert_equal().await;
        assert_eq!(app.proxy.take_bodies(), 10);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn email_stays_while_a_copy_is_left() {
    with_each_server(async |app| {
        app.owner.does("CREATE Archive").await;
        app.owner.append("INBOX", "", &letter("kept")).await;
        app.owner.append("INBOX", "", &letter("gone")).await;
        app.owner.in_folder("INBOX", &["UID COPY 1 Archive"]).await;
        app.connect(Backfill::All).await;
        app.owner.in_folder("INBOX", &["UID STORE 1:2 +FLAGS (\\Deleted)", "UID EXPUNGE 1:2"]).await;
        app.sync().await;
        app.assert_equal().await;
        assert_eq!(app.count("emails where deleted_at is null").await, 1);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn returning_mail_is_the_same_email() {
    with_each_server(async |app| {
        app.owner.append("INBOX", "", &letter("wanderer")).await;
        app.connect(Backfill::All).await;
        app.owner.in_folder("INBOX", &["UID MOVE 1 Trash"]).await;
        app.sync().await;
        assert_eq!(app.count("emails where deleted_at is null").await, 0);
        app.owner.in_folder("Trash", &["UID MOVE 1 INBOX"]).await;
        app.sync().await;
        app.assert_equal().await;
        assert_eq!(app.count("emails").await, 1);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn edited_draft_replaces_the_old_one() {
    with_each_server(async |app| {
        app.owner.append("Drafts", "\\Draft", &letter("first")).await;
        app.connect_with(Backfill::All, json!({"folders": ["INBOX", "Drafts"]})).await;
        app.owner.append("Drafts", "\\Draft", &letter("second")).await;
        app.owner.in_folder("Drafts", &["UID STORE 1 +FLAGS (\\Deleted)", "UID EXPUNGE 1"]).await;
        app.sync().await;
        app.assert_equal_in(|name| ["INBOX", "Drafts"].contains(&name)).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn mail_removed_before_its_fetch_is_gone() {
    with_each_server(async |app| {
        app.connect(Backfill::All).await;
        for name in ["one", "two", "three"] {
            app.owner.append("INBOX", "", &letter(name)).await;
        }
        app.proxy.hold_bodies().await;
        let worker = app.begin().await;
        app.proxy.until_asked().await;
        app.owner.in_folder("INBOX", &["UID STORE 2 +FLAGS (\\Deleted)", "UID EXPUNGE 2"]).await;
        app.proxy.release();
        worker.shut_down().await;
        app.sync().await;
        app.assert_equal().await;
        // Some servers hand it out for as long as a folder stays open; then it was stored, and is deleted by now.
        assert_eq!(app.count("emails").await, app.proxy.take_bodies());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn removal_during_a_listing_hides_nothing() {
    let mut app = ImapApp::new(vec![]).await;
    app.connect(Backfill::All).await;
    for n in 0..1500 {
        app.owner.append("INBOX", "", &letter(&format!("{n}"))).await;
    }
    app.proxy.hold(b"INTERNALDATE").await;
    let worker = app.begin().await;
    app.proxy.until_asked().await;
    app.owner.in_folder("INBOX", &["UID STORE 7 +FLAGS (\\Deleted)", "UID EXPUNGE 7"]).await;
    app.proxy.release();
    worker.shut_down().await;
    app.sync().await;
    app.assert_equal().await;
    assert_eq!(app.count("emails").await, 1499);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn folders_are_selected_by_name() {
    with_each_server(async |app| {
        for names in [&["Work"][..], &["Private"], &["Work", "Deep"]] {
            let folder = app.owner.path(names);
            app.owner.does(&format!("CREATE \"{folder}\"")).await;
            app.owner.append(&folder, "", &letter(&names.join("-"))).await;
        }
        app.owner.append("INBOX", "", &letter("in")).await;
        app.connect_with(Backfill::All, json!({"exclude": ["Private"]})).await;
        app.assert_equal_in(|name| !["Private", "Drafts", "Junk", "Trash"].contains(&name)).await;
        assert_eq!(app.proxy.take_bodies(), 3);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn older_mail_is_not_fetched_without_a_backfill() {
    with_each_server(async |app| {
        app.owner.append("INBOX", "", &letter("old")).await;
        app.connect(Backfill::None).await;
        assert_eq!(app.count("emails").await, 0);
        app.owner.append("INBOX", "", &letter("new")).await;
        app.owner.in_folder("INBOX", &["UID STORE 1 +FLAGS (\\Seen)"]).await;
        app.sync().await;
        assert_eq!(app.count("emails").await, 1);
        assert_eq!(app.proxy.take_bodies(), 1);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn backfill_days_follow_the_server_dates() {
    let mut app = ImapApp::new(vec![]).await;
    for (name, days) in [("old", 60), ("young", 10)] {
        let day = (jiff::civil::date(2026, 11, 15) - jiff::Span::new().days(days)).strftime("%d-%b-%Y").to_string();
        let message = letter(name).replace('\n', "\r\n");
        let command = format!("APPEND INBOX () \"{day} 10:00:00 +0000\" {{{}+}}\r\n{message}", message.len());
        app.owner.does(&command).await;
    }
    let now = app.db.store.system().now().await.unwrap();
    let since = now - jiff::civil::date(2026, 11, 15).to_zoned(jiff::tz::TimeZone::UTC).unwrap().timestamp();
    let month = std::time::Duration::from_secs(30 * 86_400).saturating_add(since.try_into().unwrap_or_default());
    app.connect(Backfill::Last(month)).await;
    let stored = app.db.rows("select subject, cast(received_at as text) from emails").await;
    assert_eq!(stored.len(), 1);
    assert_eq!(stored[0].get::<String>(0).unwrap(), "young");
    assert!(stored[0].get::<String>(1).unwrap().starts_with("2026-11-05T10:00"), "{stored:?}");
    app.finish().await;
}

/// The average number of the first 500 messages that were stored, in this order.
async fn average_number(app: &ImapApp, order: &str) -> f64 {
    let sql = format!(
        "select cast(m.subject as integer) from events v join emails m on m.id = v.email_id
         where v.type = 'email.received' order by v.seq {order} limit 500"
    );
    let rows = app.db.rows(&sql).await;
    rows.iter().map(|row| row.get::<i64>(0).unwrap() as f64).sum::<f64>() / 500.0
}

#[tokio::test(flavor = "multi_thread")]
async fn new_mail_is_fetched_before_the_old() {
    let mut app = ImapApp::new(vec![]).await;
    for n in 0..2500 {
        app.owner.append("INBOX", "", &letter(&format!("{n}"))).await;
    }
    app.connect(Backfill::All).await;
    let (first, last) = (average_number(&app, "asc").await, average_number(&app, "desc").await);
    assert!(first > last, "{first} on average come first, {last} last");
    app.assert_equal().await;
    app.finish().await;
}
