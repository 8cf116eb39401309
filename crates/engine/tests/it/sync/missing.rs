//! What a listing lacks is removed only once that is confirmed, and what returns is restored.

use std::time::Duration;

use domain::connector::{FolderSnapshot, ListingPage, SeenMessage};
use domain::{Actor, FolderRole, Provider};
use engine::operations::{Invocation, Origin, mailboxes};
use store::Dialect;
use store::sql::sync::HeldRemovals;
use store::testing::{TestDatabase, on_each_database};
use testkit::app::ADDRESS;
use testkit::pages::{folder, page, placement, seen_message};
use testkit::{AppOptions, ScriptedApp, ScriptedConnector, TestApp};

/// A mailbox with so many messages in its archive, and one in its inbox.
async fn with_archived(db: TestDatabase, count: usize) -> ScriptedApp {
    let options = AppOptions::default().retry_horizon(Duration::from_secs(1));
    let app = ScriptedApp::with_options(db, options).await;
    app.connector.on_message(|id| Some(format!("Subject: {id}\n\nhello {id}").into()));
    app.connector.queue_changes(page(everything(count)));
    app.sync().await;
    assert_eq!(app.stored_emails().await.len(), count + 1);
    app
}

fn everything(archived: usize) -> Vec<SeenMessage> {
    let archived = (0..archived).map(|n| seen_message(&format!("a{n}"), "Archive", &[]));
    archived.chain([seen_message("i", "INBOX", &[])]).collect()
}

fn without(folders: &[&str]) -> ListingPage {
    let missing_folders = folders.iter().map(|folder| (*folder).to_owned()).collect();
    ListingPage { missing_folders, ..page(vec![]) }
}

/// The archive is listed again, with what is in it.
fn archive_is_back(archived: usize) -> ListingPage {
    let seen = everything(archived).into_iter().filter(|seen| seen.placement.folder == "Archive").collect();
    ListingPage { folders: vec![folder("Archive", None)], ..page(seen) }
}

fn emptied_archive() -> ListingPage {
    let emptied = FolderSnapshot { folder: "Archive".into(), uids: vec![] };
    ListingPage { folder_snapshots: vec![emptied], ..page(vec![]) }
}

/// Half a day passes for the removals that are held back.
async fn wait_half_a_day(app: &ScriptedApp) {
    let before = |column: &str| match app.store().dialect() {
        Dialect::Postgres => format!("{column} = {column} - interval '12 hours'"),
        Dialect::Sqlite => format!("{column} = strftime('%Y-%m-%dT%H:%M:%fZ', {column}, '-12 hours')"),
    };
    let (since, look_at) = (before("removals_held_since"), before("removals_look_at"));
    app.db.run(&format!("update sync_states set {since}, {look_at}")).await;
}

async fn held(app: &ScriptedApp) -> Option<HeldRemovals> {
    app.app.sync_state(&app.tenant, app.mailbox).await.held_removals
}

async fn types_of_events(app: &ScriptedApp, after: &mut u64) -> Vec<String> {
    let mut types = app.email_events(after).await;
    types.dedup();
    types
}

#[tokio::test(flavor = "multi_thread")]
async fn folder_that_one_listing_lacks_keeps_its_mail() {
    on_each_database(|db| async move {
        let app = with_archived(db, 3).await;
        let mut after = 0;
        app.email_events(&mut after).await;

        app.connector.queue_changes(without(&["Archive"]));
        app.connector.queue_changes(ListingPage { folders: vec![folder("Archive", None)], ..page(vec![]) });
        app.connector.queue_list(page(everything(3)));
        app.sync().await;

        assert_eq!(app.stored_emails().await.len(), 4);
        assert_eq!(app.email_events(&mut after).await, ["mailbox.gap_healed"]);
        assert_eq!(app.count("folders where missing_since is not null").await, 0);
        app.finish().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn folder_that_two_listings_lack_is_removed_and_restored() {
    on_each_database(|db| async move {
        let app = with_archived(db, 3).await;
        let mut after = 0;
        app.email_events(&mut after).await;

        app.connector.queue_changes(without(&["Archive"])).queue_changes(without(&["Archive"]));
        app.sync().await;
        assert_eq!(app.stored_emails().await.len(), 1);
        assert_eq!(app.email_events(&mut after).await, ["email.deleted"; 3]);
        assert_eq!(app.count("folders where gone_at is not null").await, 1);

        app.connector.forget_fetched();
        app.connector.queue_changes(archive_is_back(3));
        app.connector.queue_list(page(everything(3)));
        app.sync().await;
        assert_eq!(app.stored_emails().await.len(), 4);
        assert_eq!(types_of_events(&app, &mut after).await, ["email.restored", "mailbox.gap_healed"]);
        assert!(app.connector.fetched().is_empty());
        app.finish().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn returning_folder_keeps_the_backfill_limit() {
    on_each_database(|db| async move {
        let app = with_archived(db, 3).await;
        app.db.run("update sync_states set since = mailroom_now()").await;
        app.connector.queue_changes(without(&["Archive"])).queue_changes(without(&["Archive"]));
        app.sync().await;

        let ancient =
            SeenMessage { received_at: Some(jiff::Timestamp::UNIX_EPOCH), ..seen_message("ancient", "Archive", &[]) };
        let mut back = archive_is_back(3);
        back.seen.push(ancient.clone());
        let all = everything(3).into_iter().chain([ancient]).collect();
        app.connector.forget_fetched();
        app.connector.queue_changes(back).queue_list(page(all));
        app.sync().await;

        assert_eq!(app.stored_emails().await.len(), 4);
        assert!(app.connector.fetched().is_empty(), "what is older than the backfill was never wanted");
        app.finish().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn listing_without_the_inbox_deletes_nothing() {
    on_each_database(|db| async move {
        let app = with_archived(db, 3).await;

        app.connector.on_changes(|_, _| without(&["INBOX", "Archive", "Trash"]).into());
        app.sync().await;

        let state = app.app.sync_state(&app.tenant, app.mailbox).await;
        assert!(state.last_error.unwrap().contains("no inbox"));
        assert_eq!(app.count("folders where missing_since is not null").await, 0);
        app.connector.on_changes(|_, _| page(vec![]).into());
        app.make_retries_ready().await;
        app.sync().await;
        assert_eq!(app.stored_emails().await.len(), 4);
        app.finish().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn much_missing_mail_is_removed_when_a_person_says_so() {
    on_each_database(|db| async move {
        let app = with_archived(db, 20).await;
        let mut after = 0;
        app.email_events(&mut after).await;
        app.connector.queue_changes(emptied_archive());
        app.sync().await;
        assert_eq!(app.stored_emails().await.len(), 21);
        assert_eq!(held(&app).await.map(|held| (held.messages, held.looks)), Some((20, 0)));

        let origin = Origin::from(Actor::Operator);
        let call = Invocation::begin(&app.engine, &origin).await.unwrap();
        mailboxes::apply_removals(&call, app.tenant.id, app.mailbox).await.unwrap();
        app.run_jobs_until_idle().await;

        assert_eq!(app.stored_emails().await.len(), 1);
        assert_eq!(app.email_events(&mut after).await, ["email.deleted"; 20]);
        assert_eq!(held(&app).await, None);
        app.finish().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn much_missing_mail_is_removed_after_a_day_of_looks() {
    on_each_database(|db| async move {
        let app = with_archived(db, 20).await;
        app.connector.queue_changes(without(&["Archive"])).queue_changes(without(&["Archive"]));
        app.sync().await;
        for looks in 1..=2 {
            assert_eq!(app.stored_emails().await.len(), 21, "before look {looks}");
            wait_half_a_day(&app).await;
            app.connector.queue_changes(without(&["Archive"]));
            app.connector.queue_list(page(vec![seen_message("i", "INBOX", &[])]));
            app.sync().await;
        }

        assert_eq!(app.stored_emails().await.len(), 1);
        assert_eq!(held(&app).await, None);
        assert_eq!(app.count("folders where gone_at is not null").await, 1);
        app.finish().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn much_missing_mail_that_returns_is_kept() {
    on_each_database(|db| async move {
        let app = with_archived(db, 20).await;
        let mut after = 0;
        app.email_events(&mut after).await;
        app.connector.queue_changes(emptied_archive());
        app.sync().await;
        assert!(held(&app).await.is_some());

        wait_half_a_day(&app).await;
        app.connector.queue_list(page(everything(20)));
        app.sync().await;

        assert_eq!(app.stored_emails().await.len(), 21);
        assert_eq!(held(&app).await, None);
        assert_eq!(app.email_events(&mut after).await, ["mailbox.gap_healed"]);
        assert_eq!(app.count("placements where missing_since is not null").await, 0);
        app.finish().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn empty_comparison_removes_nothing_at_once() {
    on_each_database(|db| async move {
        let app = with_archived(db, 20).await;

        app.connector.queue_changes(domain::ConnectorError::CursorExpired);
        app.connector.queue_changes(page(vec![])).queue_list(page(vec![]));
        app.sync().await;

        assert_eq!(app.stored_emails().await.len(), 21);
        assert_eq!(held(&app).await.map(|held| held.messages), Some(21));
        app.finish().await;
    })
    .await;
}

/// A mailbox whose messages are known by their bytes, with three of them in its inbox.
async fn without_lasting_ids(db: TestDatabase) -> ScriptedApp {
    let connector = ScriptedConnector::quiet(Provider::Imap);
    let app = TestApp::new(db, AppOptions::default().scripted(&connector));
    let tenant = app.create_tenant("acme").await;
    let mailbox = app.add_mailbox(&tenant, Provider::Imap, ADDRESS).await;
    let app = ScriptedApp { app, connector, tenant, mailbox };
    // What is behind the last dot tells the bytes.
    app.connector.on_message(|id| Some(format!("Subject: {0}\n\nhello {0}", id.rsplit('.').next()?).into()));
    let folders = vec![folder("INBOX", Some(FolderRole::Inbox)), folder("Archive", None)];
    app.connector.queue_changes(ListingPage { folders, is_last: false, ..page(vec![]) });
    app.connector.queue_changes(page(renamed("1", "INBOX")));
    app.sync().await;
    assert_eq!(app.stored_emails().await.len(), 3);
    app
}

/// The three messages under the ids that begin with this.
fn renamed(prefix: &str, folder: &str) -> Vec<SeenMessage> {
    ["a", "b", "c"].map(|content| seen_message(&format!("{prefix}.{content}"), folder, &[])).into()
}

#[tokio::test(flavor = "multi_thread")]
async fn folder_made_anew_deletes_only_what_is_gone() {
    on_each_database(|db| async move {
        let app = without_lasting_ids(db).await;
        let mut after = 0;
        app.email_events(&mut after).await;

        let left: Vec<SeenMessage> = renamed("2", "INBOX").into_iter().take(2).collect();
        let uids = left.iter().map(|seen| seen.placement.uid.clone()).collect();
        let snapshot = FolderSnapshot { folder: "INBOX".into(), uids };
        app.connector.queue_changes(ListingPage { relisted: left, folder_snapshots: vec![snapshot], ..page(vec![]) });
        app.sync().await;

        assert_eq!(app.stored_emails().await.len(), 2);
        assert_eq!(app.email_events(&mut after).await, ["email.deleted"]);
        assert_eq!(app.count("placements where is_live and provider_message_id like '1.%'").await, 0);
        assert_eq!(app.count("ledger where state = 'gone'").await, 3);
        app.finish().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn move_without_lasting_ids_is_a_move() {
    on_each_database(|db| async move {
        let app = without_lasting_ids(db).await;
        let mut after = 0;
        app.email_events(&mut after).await;

        // The removal is listed before the message is at its other place.
        let removed_placements = renamed("1", "INBOX").into_iter().map(|seen| seen.placement).collect();
        app.connector.queue_changes(ListingPage { removed_placements, is_last: false, ..page(vec![]) });
        app.connector.queue_changes(page(renamed("2", "Archive")));
        app.sync().await;

        assert_eq!(app.email_events(&mut after).await, ["email.moved"; 3]);
        assert_eq!(app.count("placements where is_live").await, 3);
        assert_eq!(app.count("emails where deleted_at is null").await, 3);
        app.finish().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn import_restores_what_the_provider_has_removed() {
    on_each_database(|db| async move {
        let app = without_lasting_ids(db).await;
        let removed_placements = vec![placement("1.a", "INBOX")];
        app.connector.queue_changes(ListingPage { removed_placements, ..page(vec![]) });
        app.sync().await;
        assert_eq!(app.stored_emails().await.len(), 2);
        let mut after = 0;
        app.email_events(&mut after).await;

        app.import(&app.tenant, ADDRESS, "Imported", ["Subject: a\n\nhello a"]).await;

        assert_eq!(app.stored_emails().await.len(), 3);
        assert_eq!(app.email_events(&mut after).await, ["email.restored"]);
        // Its provider has no such folder, and never had.
        app.connector.on_changes(|account, _| {
            assert!(account.folders.iter().all(|folder| folder.name != "Imported"));
            page(vec![]).into()
        });
        app.sync().await;
        assert_eq!(app.stored_emails().await.len(), 3);
        app.finish().await;
    })
    .await;
}
