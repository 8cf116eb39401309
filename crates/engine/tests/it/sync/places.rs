//! Where messages are, told all at once and told with their bytes.

use domain::Flags;
use domain::connector::{Cursors, Page};
use store::sql::sync::{PageRows, Phase};
use store::testing::on_each_database;

use super::{Scene, page, pairs, place, seen};

#[tokio::test(flavor = "multi_thread")]
async fn a_page_that_tells_every_place_of_a_message_takes_it_from_the_others() {
    on_each_database(|db| async move {
        let scene = Scene::new(&db).await;
        ["m1", "m2", "m3"].iter().for_each(|id| scene.has(id, &format!("Subject: {id}\n\nhello")));
        let all = ["m1", "m2", "m3"].iter().flat_map(|id| [seen(id, "INBOX", &[]), seen(id, "Archive", &[])]);
        scene.says(page(all.collect()));
        scene.sync().await;

        // One is in fewer places, one has other flags, one is nowhere.
        let messages =
            vec![seen("m1", "Archive", &["seen"]), seen("m2", "INBOX", &["seen"]), seen("m2", "Archive", &[])];
        let whole = ["m1", "m2", "m3", "m4"].map(str::to_owned).to_vec();
        scene.says(Page { whole, ..page(messages) });
        scene.sync().await;

        let left = [("m1", r#"Archive["seen"]"#), ("m2", "Archive[]"), ("m2", r#"INBOX["seen"]"#)];
        assert_eq!(scene.emails().await, pairs(&left));
        let gone = [("m1", "processed"), ("m2", "processed"), ("m3", "gone")];
        assert_eq!(scene.ledger().await, pairs(&gone));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn where_a_message_is_may_show_with_its_bytes() {
    on_each_database(|db| async move {
        let scene = Scene::new(&db).await;
        let seen_flag = || Flags::from_names(["seen"]);
        for (id, folders) in
            [("m1", vec!["Archive"]), ("m2", vec!["Trash"]), ("m3", vec!["INBOX", "Archive", "Nowhere"])]
        {
            scene.has(id, &format!("Subject: {id}\n\nhello"));
            let places = folders.into_iter().map(|folder| (place(id, folder), seen_flag())).collect();
            scene.script.places.lock().unwrap().insert(id.into(), places);
        }
        let mut after = 0;
        scene.says(page(["m1", "m2", "m3"].map(|id| seen(id, "INBOX", &[])).to_vec()));
        scene.sync().await;

        // What turns out to be in the trash is not wanted, and not told of.
        let there = [("m1", r#"Archive["seen"]"#), ("m3", r#"Archive["seen"]"#), ("m3", r#"INBOX["seen"]"#)];
        assert_eq!(scene.emails().await, pairs(&there));
        assert_eq!(scene.ledger().await, pairs(&[("m1", "processed"), ("m2", "gone"), ("m3", "processed")]));
        assert_eq!(scene.events(&mut after).await, ["email.received", "email.received"]);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_listing_has_told_since_the_bytes_were_read_holds() {
    on_each_database(|db| async move {
        let scene = Scene::new(&db).await;
        scene.has("m1", "Subject: m1\n\nhello");
        scene.script.places.lock().unwrap().insert("m1".into(), vec![(place("m1", "INBOX"), Flags::default())]);
        // The same as is recorded already, so that nothing but the telling shows.
        let told = PageRows {
            phase: Phase::Changes,
            folders: Vec::new(),
            gone_folders: Vec::new(),
            messages: vec![seen("m1", "Archive", &[])],
            whole: vec!["m1".into()],
            told: vec!["m1".into()],
            there: Vec::new(),
            vanished: Vec::new(),
            present: Vec::new(),
            cursors: Cursors::new(),
            listing: None,
            is_listed: false,
            is_history_done: false,
            found: 0,
            is_backfill: false,
            left_folders: Vec::new(),
        };
        *scene.script.meanwhile.lock().unwrap() = Some((scene.store.clone(), scene.mailbox, told));
        scene.says(page(vec![seen("m1", "Archive", &[])]));
        scene.sync().await;

        assert_eq!(scene.emails().await, pairs(&[("m1", "Archive[]")]));
        // It was read once more.
        assert_eq!(*scene.script.fetched.lock().unwrap(), ["m1", "m1"]);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_is_only_named_again_stays_where_and_as_it_is() {
    on_each_database(|db| async move {
        let scene = Scene::new(&db).await;
        scene.has("m1", "Subject: m1\n\nhello");
        let places = vec![(place("m1", "Archive"), Flags::from_names(["seen"]))];
        scene.script.places.lock().unwrap().insert("m1".into(), places);
        for _ in 0..2 {
            // As when a page of a list is told twice.
            scene.says(Page { named: vec![seen("m1", "INBOX", &[])], ..page(vec![]) });
            scene.sync().await;
            assert_eq!(scene.emails().await, pairs(&[("m1", r#"Archive["seen"]"#)]));
        }
    })
    .await;
}
