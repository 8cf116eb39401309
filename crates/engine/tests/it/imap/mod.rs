//! Mailboxes at a real IMAP server end up as they are there, whatever their owners do and whatever the server offers.

mod folders;
mod lies;
mod proxy;
mod scene;
mod server;

use engine::mailboxes::Backfill;
use scene::{Scene, letter, with_each_server};
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn what_was_there_and_what_comes_later_is_stored() {
    with_each_server(async |scene| {
        for n in 0..30 {
            scene.owner.append("INBOX", "", &letter(&format!("old-{n}"))).await;
        }
        scene.owner.append("Sent", "\\Seen", &letter("sent")).await;
        scene.connect(Backfill::All).await;
        scene.assert_equal().await;
        scene.owner.append("INBOX", "\\Flagged", &letter("new")).await;
        scene.sync().await;
        scene.assert_equal().await;
        assert_eq!(scene.count("emails").await, 32);
        assert_eq!(scene.proxy.take_bodies(), 32);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_look_at_what_has_not_changed_fetches_and_writes_nothing() {
    with_each_server(async |scene| {
        scene.owner.append("INBOX", "", &letter("one")).await;
        scene.connect(Backfill::All).await;
        scene.sync().await;
        scene.proxy.take_bodies();
        let events = scene.store.list_events(0, 1000).await.unwrap().len();
        scene.sync().await;
        assert_eq!(scene.proxy.take_bodies(), 0);
        assert_eq!(scene.store.list_events(0, 1000).await.unwrap().len(), events);
        scene.assert_equal().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn identical_bytes_are_one_email_in_two_places() {
    with_each_server(async |scene| {
        scene.connect(Backfill::All).await;
        for _ in 0..2 {
            scene.owner.append("INBOX", "", &letter("same")).await;
        }
        scene.sync().await;
        scene.assert_equal().await;
        assert_eq!((scene.count("emails").await, scene.count("placements where is_live").await), (1, 2));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn copies_and_moves_between_folders_are_followed() {
    with_each_server(async |scene| {
        scene.owner.does("CREATE Archive").await;
        for name in ["one", "two", "three"] {
            scene.owner.append("INBOX", "", &letter(name)).await;
        }
        scene.connect(Backfill::All).await;
        scene.owner.in_folder("INBOX", &["UID COPY 1 Archive", "UID MOVE 2 Archive"]).await;
        scene.sync().await;
        scene.assert_equal().await;
        assert_eq!(scene.count("emails").await, 3);
        assert_eq!(scene.count("emails where deleted_at is not null").await, 0);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn flags_are_followed_also_old_ones() {
    with_each_server(async |scene| {
        for n in 0..10 {
            scene.owner.append("INBOX", "", &letter(&format!("{n}"))).await;
        }
        scene.connect(Backfill::All).await;
        scene.sync().await;
        scene.owner.in_folder("INBOX", &["UID STORE 1,5 +FLAGS (\\Seen $Forwarded)"]).await;
        scene.sync().await;
        scene.assert_equal().await;
        scene.owner.in_folder("INBOX", &["UID STORE 5 FLAGS ()", "UID STORE 10 +FLAGS (\\Answered)"]).await;
        scene.sync().await;
        scene.assert_equal().await;
        assert_eq!(scene.proxy.take_bodies(), 10);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_copies_one_may_go_and_the_email_stays() {
    with_each_server(async |scene| {
        scene.owner.does("CREATE Archive").await;
        scene.owner.append("INBOX", "", &letter("kept")).await;
        scene.owner.append("INBOX", "", &letter("gone")).await;
        scene.owner.in_folder("INBOX", &["UID COPY 1 Archive"]).await;
        scene.connect(Backfill::All).await;
        scene.owner.in_folder("INBOX", &["UID STORE 1:2 +FLAGS (\\Deleted)", "UID EXPUNGE 1:2"]).await;
        scene.sync().await;
        scene.assert_equal().await;
        assert_eq!(scene.count("emails where deleted_at is null").await, 1);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn mail_that_vanishes_and_comes_back_is_the_same_email() {
    with_each_server(async |scene| {
        scene.owner.append("INBOX", "", &letter("wanderer")).await;
        scene.connect(Backfill::All).await;
        scene.owner.in_folder("INBOX", &["UID MOVE 1 Trash"]).await;
        scene.sync().await;
        assert_eq!(scene.count("emails where deleted_at is null").await, 0);
        scene.owner.in_folder("Trash", &["UID MOVE 1 INBOX"]).await;
        scene.sync().await;
        scene.assert_equal().await;
        assert_eq!(scene.count("emails").await, 1);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_edited_draft_takes_the_place_of_the_old_one() {
    with_each_server(async |scene| {
        scene.owner.append("Drafts", "\\Draft", &letter("first")).await;
        scene.connect_with(Backfill::All, json!({"folders": ["INBOX", "Drafts"]})).await;
        scene.owner.append("Drafts", "\\Draft", &letter("second")).await;
        scene.owner.in_folder("Drafts", &["UID STORE 1 +FLAGS (\\Deleted)", "UID EXPUNGE 1"]).await;
        scene.sync().await;
        scene.assert_equal_in(|name| ["INBOX", "Drafts"].contains(&name)).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn mail_that_goes_between_list_and_fetch_is_gone_and_harms_nothing() {
    with_each_server(async |scene| {
        scene.connect(Backfill::All).await;
        for name in ["one", "two", "three"] {
            scene.owner.append("INBOX", "", &letter(name)).await;
        }
        scene.proxy.hold_bodies().await;
        let worker = scene.begin().await;
        scene.proxy.until_asked().await;
        scene.owner.in_folder("INBOX", &["UID STORE 2 +FLAGS (\\Deleted)", "UID EXPUNGE 2"]).await;
        scene.proxy.release();
        worker.shut_down().await;
        scene.sync().await;
        scene.assert_equal().await;
        // Some servers hand it out for as long as a folder stays open; then it was stored, and is deleted by now.
        assert_eq!(scene.count("emails").await, scene.proxy.take_bodies());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_goes_while_many_are_listed_does_not_hide_those_behind_it() {
    let mut scene = Scene::new(vec![]).await;
    scene.connect(Backfill::All).await;
    for n in 0..1500 {
        scene.owner.append("INBOX", "", &letter(&format!("{n}"))).await;
    }
    scene.proxy.hold(b"INTERNALDATE").await;
    let worker = scene.begin().await;
    scene.proxy.until_asked().await;
    scene.owner.in_folder("INBOX", &["UID STORE 7 +FLAGS (\\Deleted)", "UID EXPUNGE 7"]).await;
    scene.proxy.release();
    worker.shut_down().await;
    scene.sync().await;
    scene.assert_equal().await;
    assert_eq!(scene.count("emails").await, 1499);
}

#[tokio::test(flavor = "multi_thread")]
async fn folders_are_taken_in_or_left_out_as_they_are_named() {
    with_each_server(async |scene| {
        for names in [&["Work"][..], &["Private"], &["Work", "Deep"]] {
            let folder = scene.owner.path(names);
            scene.owner.does(&format!("CREATE \"{folder}\"")).await;
            scene.owner.append(&folder, "", &letter(&names.join("-"))).await;
        }
        scene.owner.append("INBOX", "", &letter("in")).await;
        scene.connect_with(Backfill::All, json!({"exclude": ["Private"]})).await;
        scene.assert_equal_in(|name| !["Private", "Drafts", "Junk", "Trash"].contains(&name)).await;
        assert_eq!(scene.proxy.take_bodies(), 3);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn from_now_on_means_that_nothing_older_is_fetched() {
    with_each_server(async |scene| {
        scene.owner.append("INBOX", "", &letter("old")).await;
        scene.connect(Backfill::None).await;
        assert_eq!(scene.count("emails").await, 0);
        scene.owner.append("INBOX", "", &letter("new")).await;
        scene.owner.in_folder("INBOX", &["UID STORE 1 +FLAGS (\\Seen)"]).await;
        scene.sync().await;
        assert_eq!(scene.count("emails").await, 1);
        assert_eq!(scene.proxy.take_bodies(), 1);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_thirty_days_are_by_the_servers_own_dates() {
    let mut scene = Scene::new(vec![]).await;
    for (name, days) in [("old", 60), ("young", 10)] {
        let day = (jiff::civil::date(2026, 11, 15) - jiff::Span::new().days(days)).strftime("%d-%b-%Y").to_string();
        let message = letter(name).replace('\n', "\r\n");
        let command = format!("APPEND INBOX () \"{day} 10:00:00 +0000\" {{{}+}}\r\n{message}", message.len());
        scene.owner.does(&command).await;
    }
    let now = scene.db.store.system().now().await.unwrap();
    let since = now - jiff::civil::date(2026, 11, 15).to_zoned(jiff::tz::TimeZone::UTC).unwrap().timestamp();
    let month = std::time::Duration::from_secs(30 * 86_400).saturating_add(since.try_into().unwrap_or_default());
    scene.connect(Backfill::Last(month)).await;
    let stored = scene.db.rows("select subject, cast(received_at as text) from emails").await;
    assert_eq!(stored.len(), 1);
    assert_eq!(stored[0].get::<String>(0).unwrap(), "young");
    assert!(stored[0].get::<String>(1).unwrap().starts_with("2026-11-05T10:00"), "{stored:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn new_mail_is_there_before_the_old() {
    let mut scene = Scene::new(vec![]).await;
    for n in 0..2500 {
        scene.owner.append("INBOX", "", &letter(&format!("{n}"))).await;
    }
    scene.connect(Backfill::All).await;
    let (first, last) = ("asc", "desc");
    let uids = async |order: &str| -> f64 {
        let sql = format!(
            "select cast(m.subject as integer) from events v join emails m on m.id = v.email_id
             where v.type = 'email.received' order by v.seq {order} limit 500"
        );
        let rows = scene.db.rows(&sql).await;
        rows.iter().map(|row| row.get::<i64>(0).unwrap() as f64).sum::<f64>() / 500.0
    };
    let (first, last) = (uids(first).await, uids(last).await);
    assert!(first > last, "{first} on average come first, {last} last");
    scene.assert_equal().await;
}
