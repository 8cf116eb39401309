//! What happens to folders, and to the numbers that stand for them.

use engine::mailboxes::Backfill;

use super::proxy::{modseq_goes_back, without_uid_validity};
use super::scene::{Scene, letter, with_each_server};

#[tokio::test(flavor = "multi_thread")]
async fn a_new_folder_is_found_with_what_is_in_it() {
    with_each_server(async |scene| {
        scene.connect(Backfill::All).await;
        scene.owner.does("CREATE Fresh").await;
        scene.owner.append("Fresh", "", &letter("inside")).await;
        scene.sync().await;
        scene.assert_equal().await;
        assert_eq!(scene.count("emails").await, 1);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_renamed_folder_keeps_its_id_and_nothing_is_fetched() {
    with_each_server(async |scene| {
        scene.owner.does("CREATE Work").await;
        for n in 0..5 {
            scene.owner.append("Work", "", &letter(&format!("{n}"))).await;
        }
        scene.connect(Backfill::All).await;
        let before = scene.folder_ids().await;
        scene.proxy.take_bodies();
        scene.owner.does("RENAME Work Archive").await;
        scene.owner.does("CREATE Work").await;
        scene.sync().await;
        scene.assert_equal().await;
        assert_eq!(scene.proxy.take_bodies(), 0);
        let id = |folders: &[(String, String)], name: &str| {
            folders.iter().find(|(other, _)| other == name).map(|(_, id)| id.clone()).unwrap()
        };
        let after = scene.folder_ids().await;
        assert_eq!(id(&after, "Archive"), id(&before, "Work"));
        // And mail that comes afterwards is found under the new name.
        scene.owner.append("Archive", "", &letter("later")).await;
        scene.sync().await;
        scene.assert_equal().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn with_a_folder_goes_what_was_only_there() {
    with_each_server(async |scene| {
        scene.owner.does("CREATE Work").await;
        scene.owner.append("Work", "", &letter("only")).await;
        scene.owner.append("Work", "", &letter("both")).await;
        scene.owner.in_folder("Work", &["UID COPY 2 INBOX"]).await;
        scene.connect(Backfill::All).await;
        scene.owner.does("DELETE Work").await;
        scene.sync().await;
        scene.assert_equal().await;
        assert_eq!(scene.count("emails where deleted_at is null").await, 1);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_that_is_made_anew_is_bound_by_content() {
    with_each_server(async |scene| {
        scene.owner.does("CREATE Work").await;
        for name in ["one", "two", "gone"] {
            scene.owner.append("Work", "", &letter(name)).await;
        }
        scene.connect(Backfill::All).await;
        scene.owner.does("DELETE Work").await;
        scene.owner.does("CREATE Work").await;
        for name in ["two", "one", "new"] {
            scene.owner.append("Work", "\\Seen", &letter(name)).await;
        }
        scene.proxy.take_bodies();
        scene.sync().await;
        scene.assert_equal().await;
        assert_eq!(scene.count("emails").await, 4);
        // Each once; or only what is new, where an id tells the rest.
        let fetched = if scene.owner.server_has("OBJECTID") { 1 } else { 3 };
        assert_eq!(scene.proxy.take_bodies(), fetched);
        scene.sync().await;
        scene.assert_equal().await;
        assert_eq!(scene.proxy.take_bodies(), 0);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_number_that_is_missing_deletes_nothing() {
    with_each_server(async |scene| {
        scene.owner.append("INBOX", "", &letter("one")).await;
        scene.connect(Backfill::All).await;
        scene.proxy.rewrite(vec![without_uid_validity]).await;
        scene.sync().await;
        scene.owner.append("INBOX", "", &letter("two")).await;
        scene.sync().await;
        assert_eq!(scene.count("emails where deleted_at is null").await, 2);
        scene.proxy.rewrite(vec![]).await;
        scene.sync().await;
        scene.assert_equal().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_numbers_from_the_start_everything_is_found_by_name() {
    let mut scene = Scene::new(vec![without_uid_validity]).await;
    scene.owner.append("INBOX", "", &letter("one")).await;
    scene.connect(Backfill::All).await;
    scene.owner.append("INBOX", "", &letter("two")).await;
    scene.sync().await;
    assert_eq!(scene.count("emails where deleted_at is null").await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn modification_numbers_that_go_back_lose_nothing() {
    let mut scene = Scene::new(vec![]).await;
    for name in ["one", "two", "three"] {
        scene.owner.append("INBOX", "", &letter(name)).await;
    }
    scene.connect(Backfill::All).await;
    scene.sync().await;
    scene
        .owner
        .in_folder("INBOX", &["UID STORE 1 +FLAGS (\\Seen)", "UID STORE 2 +FLAGS (\\Deleted)", "UID EXPUNGE 2"])
        .await;
    scene.proxy.rewrite(vec![modseq_goes_back]).await;
    scene.sync().await;
    scene.assert_equal().await;
    scene.proxy.rewrite(vec![]).await;
    scene.owner.in_folder("INBOX", &["UID STORE 3 +FLAGS (\\Flagged)"]).await;
    scene.sync().await;
    scene.assert_equal().await;
    assert_eq!(scene.proxy.take_bodies(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn three_hundred_folders_are_no_trouble() {
    let mut scene = Scene::new(vec![]).await;
    for n in 0..300 {
        scene.owner.does(&format!("CREATE f{n}")).await;
    }
    for n in (0..300).step_by(50) {
        scene.owner.append(&format!("f{n}"), "", &letter(&format!("{n}"))).await;
    }
    scene.connect(Backfill::All).await;
    scene.owner.append("f299", "", &letter("late")).await;
    scene.owner.does("RENAME f100 g100").await;
    scene.sync().await;
    scene.assert_equal().await;
    assert_eq!(scene.proxy.take_bodies(), 7);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_may_be_called_anything() {
    with_each_server(async |scene| {
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
            let is_taken = scene.owner.tries(&format!("CREATE \"{name}\"")).await;
            assert!(is_taken || n >= all.len(), "{shown} is refused");
            if is_taken {
                scene.owner.append(name, "", &letter(&format!("odd-{n}"))).await;
                expected.push(shown);
            }
        }
        scene.connect(Backfill::All).await;
        scene.assert_equal().await;
        assert_eq!(scene.count("emails").await, expected.len());
        let names: Vec<String> = scene.folder_ids().await.into_iter().map(|(name, _)| name).collect();
        for shown in expected {
            assert!(names.iter().any(|name| name == shown), "{shown} in {names:?}");
        }
    })
    .await;
}
