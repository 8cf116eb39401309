//! A server that does not say all that it has, or keeps a folder shut: nothing is lost or deleted for that.

use std::time::Duration;

use engine::mailboxes::Backfill;
use serde_json::json;

use super::proxy::{hides_uid_three, no_permission, short_searches, without_modseq};
use super::scene::{Scene, letter};

#[tokio::test(flavor = "multi_thread")]
async fn a_search_that_finds_too_few_deletes_nothing() {
    let mut scene = Scene::new(vec![without_modseq]).await;
    for n in 1..=9 {
        scene.owner.append("INBOX", "", &letter(&format!("{n}"))).await;
    }
    scene.connect(Backfill::All).await;
    scene.owner.in_folder("INBOX", &["UID STORE 9 +FLAGS (\\Deleted)", "UID EXPUNGE 9"]).await;
    scene.proxy.rewrite(vec![without_modseq, short_searches]).await;
    scene.owner.append("Sent", "", &letter("elsewhere")).await;
    scene.sync().await;
    assert_eq!(scene.count("emails where deleted_at is null").await, 10, "other folders are followed");
    scene.proxy.rewrite(vec![without_modseq]).await;
    scene.sync().await;
    scene.assert_equal().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_that_cannot_be_opened_waits_alone() {
    let mut scene = Scene::new(vec![no_permission]).await;
    scene.owner.does("CREATE Work").await;
    scene.owner.append("INBOX", "", &letter("open")).await;
    scene.owner.append("Work", "", &letter("shut")).await;
    scene.proxy.shut(Some(b"Work")).await;
    scene.add(Backfill::All, json!({})).await;
    let worker = scene.begin().await;
    scene.until("jobs where kind = 'list_history' and state = 'retry'", 1).await;
    scene.until("emails", 1).await;
    worker.shut_down().await;

    scene.owner.append("INBOX", "", &letter("new")).await;
    let worker = scene.begin().await;
    scene.until("emails", 2).await;
    scene.proxy.shut(None).await;
    scene.db.run("update jobs set state = 'ready', run_at = mailroom_now() where state = 'retry'").await;
    scene.until_idle().await;
    worker.shut_down().await;
    scene.assert_equal().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_is_there_and_does_not_come_is_not_gone() {
    let mut scene = Scene::new(vec![hides_uid_three]).await;
    for n in 1..=5 {
        scene.owner.append("INBOX", "", &letter(&format!("{n}"))).await;
    }
    scene.add(Backfill::All, json!({})).await;
    let worker = scene.begin().await;
    scene.until("emails", 4).await;
    // Asked for by itself as well.
    scene.until("jobs where kind = 'fetch_emails' and token > 1", 1).await;
    assert_eq!(scene.count("ledger where state = 'gone'").await, 0);
    scene.proxy.rewrite(vec![]).await;
    scene.until_idle().await;
    worker.shut_down().await;
    scene.assert_equal().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_that_could_not_be_stored_are_brought_by_a_copy_when_the_first_is_gone() {
    let mut scene = Scene::new(vec![]).await;
    scene.connect(Backfill::All).await;
    scene.owner.append("INBOX", "", &letter("one")).await;
    scene.take_blobs_away();
    let worker = scene.begin().await;
    scene.until("emails where processing_status = 'failed'", 1).await;
    worker.shut_down().await;
    scene.bring_blobs_back();
    scene.owner.in_folder("INBOX", &["UID COPY 1 Sent", "UID STORE 1 +FLAGS (\\Deleted)", "UID EXPUNGE 1"]).await;
    let worker = scene.begin().await;
    scene.until("emails where processing_status = 'processed'", 1).await;
    worker.shut_down().await;
    assert_eq!(scene.count("emails").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_older_than_was_wanted_stays_out_when_its_folder_is_made_anew() {
    let mut scene = Scene::new(vec![]).await;
    let now = scene.db.store.system().now().await.unwrap();
    let dated = |days: i64| {
        let time = now - jiff::SignedDuration::from_hours(24 * days);
        time.strftime("%d-%b-%Y %H:%M:%S +0000").to_string()
    };
    let append = |name: &str, days: i64| {
        let message = letter(name).replace('\n', "\r\n");
        format!("APPEND Work () \"{}\" {{{}+}}\r\n{message}", dated(days), message.len())
    };
    scene.owner.does("CREATE Work").await;
    let mail = [("ancient", 60), ("old", 50), ("young", 10)];
    for (name, days) in mail {
        scene.owner.does(&append(name, days)).await;
    }
    scene.connect(Backfill::Last(Duration::from_secs(30 * 86_400))).await;
    // Seen to come, whatever its date: it is wanted.
    scene.owner.does(&append("moved in", 40)).await;
    scene.sync().await;
    assert_eq!(scene.count("emails").await, 2);
    scene.owner.does("DELETE Work").await;
    scene.owner.does("CREATE Work").await;
    for (name, days) in mail.into_iter().chain([("moved in", 40)]) {
        scene.owner.does(&append(name, days)).await;
    }
    scene.proxy.take_bodies();
    scene.sync().await;
    assert_eq!(scene.count("emails").await, 2);
    assert_eq!(scene.count("emails where deleted_at is null").await, 2);
    // None where the server says that they are the same.
    assert!(scene.proxy.take_bodies() <= 2);
}
