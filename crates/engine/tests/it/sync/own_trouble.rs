//! Trouble of our own storage spends no attempt of a message; what fails for one message alone does.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;

use domain::connector::SeenMessage;
use engine::archive::repair::RetryBlobs;
use engine::storage_health::StoragePart;
use store::Location;
use store::sql::jobs::{JobScope, ReplayOptions, StartTime, WaitReason};
use store::testing::{TestDatabase, on_each_database, run_sql};
use testkit::pages::{page, seen_message};
use testkit::{AppOptions, MailboxOperations, ScriptedApp, wait_until};

use super::pairs;
use crate::refused_messages::refuse_the_subject_bad;

/// Longer than any pause between two probes.
const LONG: Duration = Duration::from_secs(3600);

/// A folder in which not even root can make files.
const UNWRITABLE: &str = "/sys";

/// Puts a folder that takes no writes in the place of another one.
struct FolderOutage {
    folder: PathBuf,
    aside: PathBuf,
}

impl FolderOutage {
    fn begin(folder: &Path) -> Self {
        let aside = folder.with_extension("aside");
        fs::create_dir_all(folder).unwrap();
        fs::rename(folder, &aside).unwrap();
        symlink(UNWRITABLE, folder).unwrap();
        Self { folder: folder.to_owned(), aside }
    }

    fn end(self) {
        fs::remove_file(&self.folder).unwrap();
        fs::rename(&self.aside, &self.folder).unwrap();
    }
}

/// An application whose waits are short: retries are made ready, and nobody waits for those of later.
async fn impatient_app(db: TestDatabase) -> ScriptedApp {
    ScriptedApp::with_options(db, AppOptions::default().retry_horizon(Duration::ZERO)).await
}

/// Runs jobs with all retries and everything that is scheduled within an hour, several times over.
async fn run_for_long(app: &ScriptedApp) {
    for _ in 0..8 {
        app.clock.advance(LONG);
        app.db.run("update jobs set state = 'ready' where state in ('retry', 'scheduled')").await;
        app.run_jobs_until_idle().await;
    }
}

async fn sync_with(app: &ScriptedApp, message: SeenMessage) {
    app.connector.queue_changes(page(vec![message]));
    app.enqueue_sync().await;
    app.run_jobs_until_idle().await;
}

async fn statuses(app: &ScriptedApp) -> Vec<String> {
    let rows = app.db.rows("select processing_status from emails order by 1").await;
    rows.iter().map(|row| row.get(0).unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn mail_is_fetched_once_while_blobs_are_away() {
    on_each_database(|db| async move {
        let app = impatient_app(db).await;
        app.connector.fetches("m1", "Subject: one\n\nhello");
        let outage = FolderOutage::begin(&app.folder.path().join("blobs"));

        sync_with(&app, seen_message("m1", "INBOX", &[])).await;
        run_for_long(&app).await;

        assert_eq!(app.connector.fetched(), ["m1"], "and not again for every probe");
        assert_eq!(app.stored_emails().await, pairs(&[("one", "INBOX[]")]));
        assert_eq!(statuses(&app).await, ["failed"], "its bytes are pending");
        assert_eq!(app.engine.storage_trouble().unwrap().part, StoragePart::Blobs);
        assert!(app.pause_reason().await.is_none_or(|reason| reason == "blob storage cannot be written"));
        assert_eq!(app.count("jobs where kind = 'retry_blobs' and attempt = 0").await, 1);

        outage.end();
        run_for_long(&app).await;

        assert_eq!(app.connector.fetched(), ["m1", "m1"]);
        assert_eq!(statuses(&app).await, ["processed"]);
        assert_eq!(app.ledger().await, pairs(&[("m1", "processed")]));
        assert_eq!(app.email_events(&mut 0).await, ["email.received"]);
        assert_eq!(app.engine.storage_trouble(), None);
        app.finish().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pending_bytes_are_requested_once() {
    on_each_database(|db| async move {
        let app = impatient_app(db).await;
        app.connector.fetches("m1", "Subject: one\n\nhello");
        let outage = FolderOutage::begin(&app.folder.path().join("blobs"));
        sync_with(&app, seen_message("m1", "INBOX", &[])).await;
        outage.end();
        app.clock.advance(LONG);
        // The fetch that the first run requests waits for its kind, as in a long queue.
        let fetches = JobScope::Kind("fetch_emails".into());
        app.db.store.system().pause_jobs(&fetches).await.unwrap();
        let worker = app.start_worker();
        for _ in 0..2 {
            let mut unit = app.tenant.write();
            unit.enqueue(vec![RetryBlobs::request(app.store().clock(), StartTime::Now).unwrap()]);
            unit.commit().await.unwrap();
            wait_until("it has run", async || app.count("jobs where kind = 'retry_blobs'").await == 0).await;
        }

        assert_eq!(app.count("jobs where kind = 'fetch_emails'").await, 1);

        app.db.store.system().resume_jobs(&fetches).await.unwrap();
        worker.shut_down().await;
        app.run_jobs_until_idle().await;
        assert_eq!(statuses(&app).await, ["processed"]);
        app.finish().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_fetched_while_the_disk_is_away() {
    on_each_database(|db| async move {
        let app = impatient_app(db).await;
        let large = "so many words are in it that it takes its time\n".repeat(100 << 10);
        app.connector.fetches("large", format!("Subject: large\n\n{large}"));
        app.connector.fetches("small", "Subject: small\n\nhello");
        let outage = FolderOutage::begin(&app.engine.spool.folder);
        let size_bytes = Some(large.len() as u64);
        sync_with(&app, SeenMessage { size_bytes, ..seen_message("large", "INBOX", &[]) }).await;
        assert_eq!(app.connector.fetched(), ["large"]);

        sync_with(&app, seen_message("small", "INBOX", &[])).await;
        run_for_long(&app).await;

        assert_eq!(app.connector.fetched(), ["large"], "there is no room for anything else");
        assert_eq!(app.ledger().await, pairs(&[("large", "queued"), ("small", "queued")]));
        assert_eq!(app.count("jobs where kind = 'fetch_emails' and attempt = 0").await, 2);
        let job = app.db.rows("select id from jobs where kind = 'fetch_emails'").await[0].get(0).unwrap();
        let why = app.db.store.system().diagnose_job(job).await.unwrap().unwrap();
        let why: Vec<String> = why.reasons.iter().map(WaitReason::sentence).collect();
        assert!(why.iter().any(|why| why.contains("the disk of the data folder cannot be written")), "{why:?}");

        outage.end();
        run_for_long(&app).await;

        assert_eq!(app.ledger().await, pairs(&[("large", "processed"), ("small", "processed")]));
        app.finish().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn storage_is_probed_once_per_pause_for_all() {
    on_each_database(|db| async move {
        let app = ScriptedApp::new(db).await;
        let _outage = FolderOutage::begin(&app.folder.path().join("blobs"));
        let check_often = async || {
            let checks = (0..100).map(|_| app.engine.check_storage());
            futures_util::future::join_all(checks).await
        };

        let first = check_often().await;
        app.clock.advance(LONG);
        let second = check_often().await;

        for (checks, failed_probes) in [(first, 1), (second, 2)] {
            assert!(checks.iter().all(|trouble| trouble.as_ref().unwrap().failed_probes == failed_probes));
        }
        let trouble = app.engine.storage_trouble().unwrap();
        assert!(trouble.wait(app.store().clock().now()) > Duration::from_secs(5), "the pause grows");
        app.sync().await;
        app.finish().await;
    })
    .await;
}

async fn accept_it_again(location: &Location) {
    match location {
        Location::Sqlite { path, .. } => {
            rusqlite::Connection::open(path).unwrap().execute_batch("drop trigger refuse").unwrap();
        }
        Location::Postgres { url, .. } => run_sql(url, "drop trigger refuse on emails").await.unwrap(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn message_that_fails_alone_becomes_a_dead_letter() {
    on_each_database(|db| async move {
        refuse_the_subject_bad(&db.location).await;
        let app = impatient_app(db).await;
        app.connector.fetches("bad", "Subject: bad\n\nhello");

        sync_with(&app, seen_message("bad", "INBOX", &[])).await;
        run_for_long(&app).await;

        assert_eq!(app.ledger().await, pairs(&[("bad", "failed")]));
        assert_eq!(app.connector.fetched().len(), 6, "as often as a message is tried");
        let system = app.db.store.system();
        assert_eq!(system.count_dead_letters().await.unwrap(), 1);
        let dead = app.db.rows("select id from finished_jobs where state = 'dead'").await[0].get(0).unwrap();
        let letter = system.find_job(dead).await.unwrap().unwrap();
        assert_eq!((letter.kind.as_str(), letter.payload["messages"][0].as_str()), ("fetch_emails", Some("bad")));
        assert_eq!(system.list_attempts(app.tenant.id, dead).await.unwrap().len(), 7, "with all that led to it");

        accept_it_again(&app.db.location).await;
        assert!(system.replay_one(app.tenant.id, dead, &ReplayOptions::default()).await.unwrap());
        run_for_long(&app).await;

        assert_eq!(app.ledger().await, pairs(&[("bad", "processed")]));
        app.finish().await; // without a dead letter
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn resume_replays_the_dead_letters_of_messages() {
    on_each_database(|db| async move {
        refuse_the_subject_bad(&db.location).await;
        let app = impatient_app(db).await;
        app.connector.fetches("bad", "Subject: bad\n\nhello");
        sync_with(&app, seen_message("bad", "INBOX", &[])).await;
        run_for_long(&app).await;
        accept_it_again(&app.db.location).await;

        let mailbox = app.mailbox(&app.tenant, &app.mailbox.to_string()).await;
        app.engine.resume_mailbox(&mailbox).await.unwrap();
        run_for_long(&app).await;

        assert_eq!(app.ledger().await, pairs(&[("bad", "processed")]));
        app.finish().await;
    })
    .await;
}
