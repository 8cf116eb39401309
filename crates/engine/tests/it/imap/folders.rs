//! What happens to folders, and to the numbers that stand for them.

use domain::Backfill;

use super::imap_app::{ImapApp, letter, with_each_server};
use super::proxy::{modseq_goes_back, without_uid_validity};

#[tokio::test(flavor = "multi_thread")]
async fn new_folder_is_found_with_its_mail() {
    with_each_server(async |app| {
        app.connect(Backfill::All).await;
        app.owner.does("CREATE Fresh").await;
        app.owner.append("Fresh", "", &letter("inside")).await;
        app.sync().await;
        app.assert_equal().await;
        assert_eq!(app.count("emails").await, 1);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn renamed_folder_keeps_its_id() {
    with_each_server(async |app| {
        app.owner.does("CREATE Work").await;
        for n in 0..5 {
            app.owner.append("Work", "", &letter(&format!("{n}"))).await;
        }
        app.connect(Backfill::All).await;
        let before = app.folder_ids().await;
        app.proxy.take_bodies();
        app.owner.does("RENAME Work Archive").await;
        app.owner.does("CREATE Work").await;
        app.sync().await;
        app.assert_equal().await;
        assert_eq!(app.proxy.take_bodies(), 0);
        let after = app.folder_ids().await;
        let (_, archive) = after.iter().find(|(name, _)| name == "Archive").unwrap();
        let (_, work) = before.iter().find(|(name, _)| name == "Work").unwrap();
        assert_eq!(archive, work);
        // And mail that comes afterwards is found under the new name.
        app.owner.append("Archive", "", &letter("later")).await;
        app.sync().await;
        app.assert_equal().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn deleted_folder_removes_its_mail() {
    with_each_server(async |app| {
        app.owner.does("CREATE Work").await;
        app.owner.append("Work", "", &letter("only")).await;
        app.owner.append("Work", "", &letter("both")).await;
        app.owner.in_folder("Work", &["UID COPY 2 INBOX"]).await;
        app.connect(Backfill::All).await;
        app.owner.does("DELETE Work").await;
        app.sync().await;
        app.assert_equal().await;
        assert_eq!(app.count("emails where deleted_at is null").await, 1);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn recreated_folder_is_matched_by_content() {
    with_each_server(async |app| {
        app.owner.does("CREATE Work").await;
        for name in ["one", "two", "gone"] {
            app.owner.append("Work", "", &letter(name)).await;
        }
        app.connect(Backfill::All).await;
        app.owner.does("DELETE Work").await;
        app.owner.does("CREATE Work").await;
        for name in ["two", "one", "new"] {
            app.owner.append("Work", "\\Seen", &letter(name)).await;
        }
        app.proxy.take_bodies();
        app.sync().await;
        app.assert_equal().await;
        assert_eq!(app.count("emails").await, 4);
        assert_eq!(app.count("events where type = 'email.restored'").await, 0);
        assert_eq!(app.count("events where type = 'email.deleted'").await, 1);
        // Each once; or only what is new, where an id tells the rest.
        let fetched = if app.owner.server_has("OBJECTID") { 1 } else { 3 };
        assert_eq!(app.proxy.take_bodies(), fetched);
        app.sync().await;
        app.assert_equal().await;
        assert_eq!(app.proxy.take_bodies(), 0);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_uid_validity_deletes_nothing() {
    with_each_server(async |app| {
        app.owner.append("INBOX", "", &letter("one")).await;
        app.connect(Backfill::All).await;
        app.proxy.rewrite(vec![without_uid_validity]).await;
        app.sync().await;
        app.owner.append("INBOX", "", &letter("two")).await;
        app.sync().await;
        assert_eq!(app.count("emails where deleted_at is null").await, 2);
        app.proxy.rewrite(vec![]).await;
        app.sync().await;
        app.assert_equal().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn server_without_uid_validity_is_synced() {
    let mut app = ImapApp::new(vec![without_uid_validity]).await;
    app.owner.append("INBOX", "", &letter("one")).await;
    app.connect(Backfill::All).await;
    app.owner.append("INBOX", "", &letter("two")).await;
    app.sync().await;
    assert_eq!(app.count("emails where deleted_at is null").await, 2);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn decreasing_modseq_loses_nothing() {
    let mut app = ImapApp::new(vec![]).await;
    for name in ["one", "two", "three"] {
        app.owner.append("INBOX", "", &letter(name)).await;
    }
    app.connect(Backfill::All).await;
    app.sync().await;
    app.owner
        .in_folder("INBOX", &["UID STORE 1 +FLAGS (\\Seen)", "UID STORE 2 +FLAGS (\\Deleted)", "UID EXPUNGE 2"])
        .await;
    app.proxy.rewrite(vec![modseq_goes_back]).await;
    app.sync().await;
    app.assert_equal().await;
    app.proxy.rewrite(vec![]).await;
    app.owner.in_folder("INBOX", &["UID STORE 3 +FLAGS (\\Flagged)"]).await;
    app.sync().await;
    app.assert_equal().await;
    assert_eq!(app.proxy.take_bodies(), 3);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn three_hundred_folders_are_synced() {
    let mut app = ImapApp::new(vec![]).await;
    for n in 0..300 {
        app.owner.does(&format!("CREATE f{n}")).await;
    }
    for n in (0..300).step_by(50) {
        app.owner.append(&format!("f{n}"), "", &letter(&format!("{n}"))).await;
    }
    app.connect(Backfill::All).await;
    app.owner.append("f299", "", &letter("late")).await;
    app.owner.does("RENAME f100 g100").await;
    app.sync().await;
    app.assert_equal().await;
    assert_eq!(app.proxy.take_bodies(), 7);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn folder_may_have_any_name() {
    with_each_server(async |app| {
        // As they are sent and as they are shown. Some servers do not have those of the second list.
        let all = [
            ("a b", "a b"),
            ("a*b", "a*b"),
            ("&AOQA9g-", "äö"),
            ("&2D3eAA-", "😀"),
            ("(x)", "(x)"),
            ("a&-b", "a&b"),
            ("#hash", "#hash"),
            ("'", "'"),
        ];
        let some = [("a%b", "a%b"), ("\\\"q\\\\\\\"", "\"q\\\""), ("&Jjo-!", "☺!"), ("{5}", "{5}")];
        let mut expected = Vec::new();
        for (n, (name, shown)) in all.into_iter().chain(some).enumerate() {
            let is_taken = app.owner.tries(&format!("CREATE \"{name}\"")).await;
            assert!(is_taken || n >= all.len(), "{shown} is refused");
            if is_taken {
                app.owner.append(name, "", &letter(&format!("odd-{n}"))).await;
                expected.push(shown);
            }
        }
        app.connect(Backfill::All).await;
        app.assert_equal().await;
        assert_eq!(app.count("emails").await, expected.len());
        let names: Vec<String> = app.folder_ids().await.into_iter().map(|(name, _)| name).collect();
        for shown in expected {
            assert!(names.iter().any(|name| name == shown), "{shown} in {names:?}");
        }
    })
    .await;
}
