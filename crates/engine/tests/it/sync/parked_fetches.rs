//! Fetches of a mailbox that is paused or needs a person do not come round until its state changes.

use std::time::Duration;

use domain::{ConnectorError, MailboxState};
use jobs::{Completion, Job, JobContext, JobError, JobKind, JobKinds};
use serde::{Deserialize, Serialize};
use store::sql::mailboxes::Mailbox;
use store::testing::on_each_database;
use testkit::pages::{page, seen_message};
use testkit::{MailboxOperations, ScriptedApp, wait_until};

use super::pairs;

const LONG: Duration = Duration::from_secs(3600);

/// How often the fetches were claimed.
async fn claims(app: &ScriptedApp) -> u64 {
    app.db.rows("select cast(sum(token) as bigint) from jobs where kind = 'fetch_emails'").await[0]
        .get::<Option<u64>>(0)
        .unwrap()
        .unwrap()
}

async fn run_for_long(app: &ScriptedApp) {
    for _ in 0..3 {
        app.clock.advance(LONG);
        app.make_retries_ready().await;
        app.run_jobs_until_idle().await;
    }
}

/// Lists a message of which only the fetch is left to do.
async fn list_message(app: &ScriptedApp) {
    app.connector.fetches("m1", "Subject: one\n\nhello");
    app.connector.queue_changes(page(vec![seen_message("m1", "INBOX", &[])]));
    app.enqueue_sync().await;
    let worker = app.start_worker_with(testkit::app::listing_kinds(&app.syncer), testkit::app::worker_settings());
    wait_until("it is listed", async || app.count("jobs where kind in ('sync_mailbox', 'list_history')").await == 0)
        .await;
    worker.shut_down().await;
    assert_eq!(claims(app).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn paused_mailboxes_fetches_are_claimed_once() {
    on_each_database(|db| async move {
        let app = ScriptedApp::new(db).await;
        list_message(&app).await;
        let mailbox = app.mailbox(&app.tenant, &app.mailbox.to_string()).await;
        app.engine.pause_mailbox(&mailbox).await.unwrap();

        app.run_jobs_until_idle().await;
        run_for_long(&app).await;

        assert_eq!(claims(&app).await, 1, "however long the pause is");
        let job = app.db.rows("select id from jobs where kind = 'fetch_emails'").await[0].get(0).unwrap();
        let why = app.db.store.system().diagnose_job(job).await.unwrap().unwrap();
        assert_eq!(why.reasons[0].sentence(), "It is parked: its mailbox is paused. It is woken when that changes.");
        assert_eq!(app.db.store.system().count_strays().await.unwrap().total(), 0);

        let mailbox = app.mailbox(&app.tenant, &app.mailbox.to_string()).await;
        app.engine.resume_mailbox(&mailbox).await.unwrap();
        assert_eq!(app.count("jobs where kind = 'fetch_emails' and state = 'ready'").await, 1, "with the resume");
        app.run_jobs_until_idle().await;
        assert_eq!(app.stored_emails().await, pairs(&[("one", "INBOX[]")]));
        assert_eq!(app.connector.fetched(), ["m1"]);
        app.finish().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn fetches_are_parked_until_credentials_are_renewed() {
    on_each_database(|db| async move {
        let app = ScriptedApp::new(db).await;
        list_message(&app).await;
        app.connector.on_fetch(|_| ConnectorError::Unauthorized("no".into()).into());

        app.run_jobs_until_idle().await;
        run_for_long(&app).await;

        assert_eq!(app.mailbox_state(&app.tenant, app.mailbox).await, MailboxState::NeedsReauth);
        assert_eq!(claims(&app).await, 2, "one is refused, one finds the mailbox waiting for a person");
        let mailbox = app.mailbox(&app.tenant, &app.mailbox.to_string()).await;
        app.engine.resume_mailbox(&mailbox).await.unwrap();
        assert_eq!(app.count("jobs where kind = 'fetch_emails' and state = 'ready'").await, 1);
        app.leaves_jobs(&["fetch_emails", "fetch_failed", "sync_mailbox"]);
        app.may_leave_jobs(&["watch_mailbox"]);
        app.finish().await;
    })
    .await;
}

/// A job that decides to be parked, and before that is committed, what it waits for is over.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct LateToPark {}

impl Job for LateToPark {
    const KIND: &'static str = "late_to_park";
}

async fn park_at_first(ctx: JobContext, mailbox: Mailbox) -> Result<Completion, JobError> {
    if ctx.job.token > 1 {
        return Ok(Completion::Done);
    }
    let mut unit = ctx.write();
    unit.expect_mailbox(mailbox.id, mailbox.version);
    Ok(Completion::Park { unit, on: mailbox.id.to_string(), reason: "it is early".to_owned() })
}

#[tokio::test(flavor = "multi_thread")]
async fn job_is_not_parked_on_what_is_over() {
    on_each_database(|db| async move {
        let app = ScriptedApp::new(db).await;
        let before = app.mailbox(&app.tenant, &app.mailbox.to_string()).await;
        app.db.run("update mailboxes set version = version + 1").await;
        app.enqueue(app.tenant.id, &LateToPark {}).await;

        let kind = JobKind::new(move |ctx, _: LateToPark| park_at_first(ctx, before.clone()));
        let kinds = JobKinds::default().with(kind);
        let worker = app.start_worker_with(kinds, testkit::app::worker_settings());
        wait_until("it has come again", async || app.count("finished_jobs where kind = 'late_to_park'").await == 1)
            .await;
        worker.shut_down().await;

        assert_eq!(app.count("finished_jobs where token = 2 and attempt = 0").await, 1);
        app.sync().await;
        app.finish().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stranded_jobs_are_woken() {
    on_each_database(|db| async move {
        let app = ScriptedApp::new(db).await;
        list_message(&app).await;
        let mailbox = app.mailbox(&app.tenant, &app.mailbox.to_string()).await;
        app.engine.pause_mailbox(&mailbox).await.unwrap();
        app.run_jobs_until_idle().await;
        let system = app.db.store.system();
        assert_eq!(system.wake_stranded_jobs().await.unwrap(), 0, "it waits for good reason");

        // An older version of the program, which wakes nothing.
        app.db.run("update mailboxes set state = 'active', version = version + 1").await;

        assert_eq!(system.wake_stranded_jobs().await.unwrap(), 1);
        app.run_jobs_until_idle().await;
        assert_eq!(app.stored_emails().await, pairs(&[("one", "INBOX[]")]));
        app.finish().await;
    })
    .await;
}
