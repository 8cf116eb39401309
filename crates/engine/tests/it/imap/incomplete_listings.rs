//! Servers that list less than they have, or keep a folder locked: nothing is lost or deleted because of it.

use std::time::Duration;

use domain::Backfill;
use serde_json::json;

use super::imap_app::{ImapApp, letter};
use super::proxy::{hides_all_folders, hides_uid_three, hides_work, no_permission, short_searches, without_modseq};

#[tokio::test(flavor = "multi_thread")]
async fn incomplete_search_deletes_nothing() {
    let mut app = ImapApp::new(vec![without_modseq]).await;
    for n in 1..=9 {
        app.owner.append("INBOX", "", &letter(&format!("{n}"))).await;
    }
    app.connect(Backfill::All).await;
    app.owner.in_folder("INBOX", &["UID STORE 9 +FLAGS (\\Deleted)", "UID EXPUNGE 9"]).await;
    app.proxy.rewrite(vec![without_modseq, short_searches]).await;
    app.owner.append("Sent", "", &letter("elsewhere")).await;
    app.sync().await;
    assert_eq!(app.count("emails where deleted_at is null").await, 10, "other folders are followed");
    app.proxy.rewrite(vec![without_modseq]).await;
    app.sync().await;
    app.assert_equal().await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn short_list_of_folders_deletes_nothing() {
    let mut app = ImapApp::new(vec![]).await;
    app.confirms_nothing();
    // It waits a moment while the mailbox is synced.
    app.may_leave_jobs(&["remove_missing"]);
    app.owner.does("CREATE Work").await;
    app.owner.append("Work", "", &letter("work")).await;
    app.owner.append("INBOX", "", &letter("inbox")).await;
    app.connect(Backfill::All).await;
    app.proxy.rewrite(vec![hides_work]).await;
    app.sync_once().await;
    app.proxy.rewrite(vec![hides_all_folders]).await;
    app.sync_once().await;
    assert_eq!(app.count("emails where deleted_at is null").await, 2);
    app.proxy.rewrite(vec![]).await;
    for _ in 0..2 {
        app.make_retries_ready().await;
        app.sync_once().await;
    }
    app.assert_equal().await;
    assert_eq!(app.count("events where type in ('email.deleted', 'email.restored')").await, 0);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unopenable_folder_waits_alone() {
    let mut app = ImapApp::new(vec![no_permission]).await;
    app.owner.does("CREATE Work").await;
    app.owner.append("INBOX", "", &letter("open")).await;
    app.owner.append("Work", "", &letter("shut")).await;
    app.proxy.shut(Some(b"Work")).await;
    app.add(Backfill::All, json!({})).await;
    let worker = app.begin().await;
    app.until("jobs where kind = 'list_history' and state = 'retry'", 1).await;
    app.until("emails", 1).await;
    worker.shut_down().await;

    app.owner.append("INBOX", "", &letter("new")).await;
    let worker = app.begin().await;
    app.until("emails", 2).await;
    app.proxy.shut(None).await;
    app.db.run("update jobs set state = 'ready', run_at = mailroom_now() where state = 'retry'").await;
    app.until_idle().await;
    worker.shut_down().await;
    app.assert_equal().await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn message_that_does_not_come_is_not_gone() {
    let mut app = ImapApp::new(vec![hides_uid_three]).await;
    for n in 1..=5 {
        app.owner.append("INBOX", "", &letter(&format!("{n}"))).await;
    }
    app.add(Backfill::All, json!({})).await;
    let worker = app.begin().await;
    app.until("emails", 4).await;
    // Asked for by itself as well.
    app.until("jobs where kind = 'fetch_emails' and token > 1", 1).await;
    assert_eq!(app.count("ledger where state = 'gone'").await, 0);
    app.proxy.rewrite(vec![]).await;
    app.until_idle().await;
    worker.shut_down().await;
    app.assert_equal().await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn copy_replaces_a_message_without_bytes() {
    let mut app = ImapApp::new(vec![]).await;
    app.connect(Backfill::All).await;
    app.owner.append("INBOX", "", &letter("one")).await;
    app.make_blobs_unavailable();
    let worker = app.begin().await;
    app.until("emails where processing_status = 'failed'", 1).await;
    worker.shut_down().await;
    app.bring_blobs_back();
    app.owner.in_folder("INBOX", &["UID COPY 1 Sent", "UID STORE 1 +FLAGS (\\Deleted)", "UID EXPUNGE 1"]).await;
    let worker = app.begin().await;
    app.until("emails where processing_status = 'processed'", 1).await;
    worker.shut_down().await;
    assert_eq!(app.count("emails").await, 1);
    app.finish().await;
}

/// The command that puts a message into Work, received so many days ago.
fn append(name: &str, now: jiff::Timestamp, days: i64) -> String {
    let received = now - jiff::SignedDuration::from_hours(24 * days);
    let received = received.strftime("%d-%b-%Y %H:%M:%S +0000");
    let message = letter(name).replace('\n', "\r\n");
    format!("APPEND Work () \"{received}\" {{{}+}}\r\n{message}", message.len())
}

#[tokio::test(flavor = "multi_thread")]
async fn recreated_folder_keeps_the_backfill_limit() {
    let mut app = ImapApp::new(vec![]).await;
    let now = app.db.store.system().now().await.unwrap();
    app.owner.does("CREATE Work").await;
    let mail = [("ancient", 60), ("old", 50), ("young", 10)];
    for (name, days) in mail {
        app.owner.does(&append(name, now, days)).await;
    }
    app.connect(Backfill::Last(Duration::from_secs(30 * 86_400))).await;
    // Seen to come, whatever its date: it is wanted.
    app.owner.does(&append("moved in", now, 40)).await;
    app.sync().await;
    assert_eq!(app.count("emails").await, 2);
    app.owner.does("DELETE Work").await;
    app.owner.does("CREATE Work").await;
    for (name, days) in mail.into_iter().chain([("moved in", 40)]) {
        app.owner.does(&append(name, now, days)).await;
    }
    app.proxy.take_bodies();
    app.sync().await;
    assert_eq!(app.count("emails").await, 2);
    assert_eq!(app.count("emails where deleted_at is null").await, 2);
    // None where the server says that they are the same.
    assert!(app.proxy.take_bodies() <= 2);
    app.finish().await;
}
