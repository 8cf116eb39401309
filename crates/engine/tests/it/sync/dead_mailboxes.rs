//! Mailboxes whose sync ended in a dead letter: one with the reason, and a poll now and then whether it works again.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use domain::connector::ListingPage;
use domain::{ConnectorError, JobState, MailboxId, MailboxState, Provider};
use jobs::Worker;
use store::TenantStore;
use store::sql::jobs::{JobFilter, JobRow, ReplayOptions};
use store::testing::{TestDatabase, on_each_database};
use testkit::pages::{folder, page, seen_message};
use testkit::{ScriptedConnector, ScriptedReply, TestApp, wait_until};

use super::polls::{enqueue_poll, gmail_app, listing_kinds, start, synced_mailboxes};

/// Mailboxes at Gmail of which `odd` is scripted, and a worker that syncs them.
struct DeadMailboxApp {
    app: TestApp,
    gmail: Arc<ScriptedConnector>,
    store: TenantStore,
    mailboxes: Vec<MailboxId>,
    worker: Worker,
}

impl Deref for DeadMailboxApp {
    type Target = TestApp;

    fn deref(&self) -> &TestApp {
        &self.app
    }
}

impl DeadMailboxApp {
    async fn new(db: TestDatabase, addresses: &[&str]) -> Self {
        let (app, gmail) = gmail_app(db);
        let (store, mailboxes) = synced_mailboxes(&app, "odd", addresses).await;
        let worker = start(&app, listing_kinds(&app));
        Self { app, gmail, store, mailboxes, worker }
    }

    fn answer_nonsense(&self, text: &'static str) {
        self.gmail.on_changes_of("odd", move || ConnectorError::Protocol(text.to_owned()).into());
    }

    /// As when it is due.
    async fn poll(&self) {
        enqueue_poll(&self.store, Provider::Gmail, &self.mailboxes).await;
        self.finish_jobs().await;
    }

    /// As by a push.
    async fn sync(&self) {
        self.enqueue_sync(&self.store, self.mailboxes[0]).await;
        self.finish_jobs().await;
    }

    async fn replay(&self, letter: &JobRow) {
        let system = self.db.store.system();
        assert!(system.replay_one(letter.tenant_id, letter.id, &ReplayOptions::default()).await.unwrap());
        self.finish_jobs().await;
    }

    /// Waits for all jobs, whose retries come at once.
    async fn finish_jobs(&self) {
        wait_until("no job is left", async || {
            self.make_retries_ready().await;
            self.count("jobs").await == 0
        })
        .await;
    }

    async fn letters(&self) -> Vec<JobRow> {
        let dead = JobFilter { state: Some(JobState::Dead), ..JobFilter::default() };
        self.db.store.system().list_jobs(&dead, None, 10).await.unwrap()
    }

    /// The one dead letter that there is.
    async fn letter(&self, reason: &str) -> JobRow {
        let mut letters = self.letters().await;
        assert_eq!(letters.len(), 1, "{letters:?}");
        let letter = letters.remove(0);
        assert!(letter.reason.as_ref().unwrap().contains(reason), "{letter:?}");
        letter
    }

    async fn errors(&self) -> u64 {
        self.sync_state(&self.store, self.mailboxes[0]).await.error_count
    }

    async fn state_with_reason(&self) -> (MailboxState, Option<String>) {
        let mailbox = self.mailbox(&self.store, "odd").await;
        (mailbox.state, mailbox.state_reason)
    }

    async fn state(&self) -> MailboxState {
        self.mailbox_state(&self.store, self.mailboxes[0]).await
    }

    /// Ends with so many dead letters.
    async fn end(self, dead_letters: usize) {
        self.worker.shut_down().await;
        self.app.expect_dead_letters(dead_letters);
        self.app.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_responses_become_one_dead_letter() {
    on_each_database(|db| async move {
        let app = DeadMailboxApp::new(db, &["odd", "fine"]).await;
        app.answer_nonsense("a page of nonsense");

        app.poll().await;

        let letter = app.letter("a page of nonsense").await;
        assert_eq!(letter.attempt, 13);
        let mailbox = app.store.find_mailbox("odd").await.unwrap().unwrap();
        assert_eq!((mailbox.state, mailbox.state_reason.is_some()), (MailboxState::Error, true));
        assert!(app.store.find_sync_state(app.mailboxes[1]).await.unwrap().unwrap().last_sync_at.is_some());

        let before = app.errors().await;
        app.poll().await;
        assert_eq!(app.errors().await, before + 1, "it is looked at once more, and that is all");
        app.sync().await;
        assert_eq!(app.errors().await, before + 2);
        assert_eq!(app.letter("a page of nonsense").await.id, letter.id);

        app.gmail.forget_changes_of("odd");
        app.poll().await;
        assert_eq!((app.errors().await, app.state().await), (0, MailboxState::Active));
        app.end(1).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unopenable_mailbox_is_one_dead_letter() {
    on_each_database(|db| async move {
        let app = DeadMailboxApp::new(db, &["locked"]).await;

        app.poll().await;

        let letter = app.letter("is not there any more").await;
        assert_eq!(app.state().await, MailboxState::Error);
        app.poll().await;
        app.sync().await;
        app.sync().await;
        assert_eq!(app.letter("is not there any more").await.id, letter.id);
        app.end(1).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn earlier_failures_do_not_prevent_giving_up() {
    on_each_database(|db| async move {
        let app = DeadMailboxApp::new(db, &["odd", "locked"]).await;
        app.gmail.on_changes_of("odd", || ConnectorError::Unavailable("503".into()).into());
        let locked = app.mailboxes[1].to_string();
        app.db.run(&format!("update mailboxes set state = 'paused' where id = '{locked}'")).await;
        app.poll().await;
        let state = app.store.find_sync_state(app.mailboxes[0]).await.unwrap().unwrap();
        assert_eq!((state.error_count, app.letters().await.len()), (1, 0));

        app.answer_nonsense("a page of nonsense");
        app.poll().await;
        assert_eq!(app.letter("a page of nonsense").await.attempt, 13);

        // The same of one that cannot be opened, which the provider never sees.
        app.db.run(&format!("update mailboxes set state = 'active' where id = '{locked}'")).await;
        app.db.run(&format!("update sync_states set error_count = 20 where mailbox_id = '{locked}'")).await;
        app.poll().await;
        assert_eq!(app.letters().await.len(), 2);
        app.end(2).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn replayed_letter_dies_again_until_it_works() {
    on_each_database(|db| async move {
        let app = DeadMailboxApp::new(db, &["odd"]).await;
        app.answer_nonsense("a page of nonsense");
        app.poll().await;
        let letter = app.letter("a page of nonsense").await;

        app.answer_nonsense("other nonsense");
        app.replay(&letter).await;

        let again = app.letter("other nonsense").await;
        assert_eq!((again.id, again.attempt), (letter.id, 13));
        app.poll().await;
        assert_eq!(app.letter("other nonsense").await.ended_at, again.ended_at);

        app.gmail.forget_changes_of("odd");
        app.replay(&again).await;
        assert!(app.letters().await.is_empty());
        assert_eq!(app.state().await, MailboxState::Active);
        app.end(0).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn new_dead_letter_replaces_the_old() {
    on_each_database(|db| async move {
        let app = DeadMailboxApp::new(db, &["odd"]).await;
        app.answer_nonsense("a page of nonsense");
        app.poll().await;
        app.gmail.forget_changes_of("odd");
        app.poll().await;
        let old = app.letter("a page of nonsense").await;
        assert_eq!(app.state().await, MailboxState::Active);

        app.answer_nonsense("other nonsense");
        app.poll().await;

        let new = app.letter("other nonsense").await;
        assert_eq!(new.attempt, 13, "it had all its tries");
        assert_eq!(app.state().await, MailboxState::Error);
        assert_ne!(new.id, old.id);
        let attempts = format!("select 1 from job_attempts where job_id = '{}'", old.id);
        assert!(app.db.rows(&attempts).await.is_empty());
        app.end(1).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unconnected_mailbox_says_why() {
    on_each_database(|db| async move {
        let app = DeadMailboxApp::new(db, &["odd"]).await;
        app.answer_nonsense("there is no mailbox yet");
        app.db.run("update mailboxes set state = 'connecting'").await;

        app.sync().await;

        let (state, reason) = app.state_with_reason().await;
        assert_eq!(state, MailboxState::Connecting);
        assert!(reason.as_ref().is_some_and(|reason| reason.contains("there is no mailbox yet")), "{reason:?}");
        app.letter("there is no mailbox yet").await;
        let version = app.store.find_mailbox("odd").await.unwrap().unwrap().version;

        app.sync().await;
        assert_eq!(app.store.find_mailbox("odd").await.unwrap().unwrap().version, version, "that is known");
        // As when somebody resumes it in vain.
        app.db.run("update mailboxes set state_reason = null").await;
        app.sync().await;
        assert_eq!(app.state_with_reason().await, (MailboxState::Connecting, reason));

        app.gmail.forget_changes_of("odd");
        app.sync().await;
        assert_eq!(app.state_with_reason().await, (MailboxState::Active, None));
        app.end(1).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_is_no_failure() {
    on_each_database(|db| async move {
        let app = DeadMailboxApp::new(db, &["odd"]).await;
        app.poll().await;
        let (key, lease) = ((app.store.id, app.mailboxes[0]), Duration::from_secs(600));
        assert_eq!(app.db.store.system().begin_syncs(&[key], "somebody", lease).await.unwrap().len(), 1);
        app.enqueue_sync(&app.store, key.1).await;
        wait_until("it is sent away again and again", async || {
            app.make_retries_ready().await;
            !app.db.rows("select 1 from jobs where token > 4").await.is_empty()
        })
        .await;

        // The first answer makes no sense, the next does.
        app.gmail.queue_changes_of("odd", page(vec![seen_message("m1", "a folder that was never told of", &[])]));
        app.db.run("update sync_states set holder = null, held_until = null").await;
        app.finish_jobs().await;

        let events = app.store.list_events(0, 100).await.unwrap();
        assert!(events.iter().all(|event| event.data["state"] != "error"), "{events:?}");
        let attempts = app.db.rows("select message from job_attempts").await;
        assert_eq!(attempts.len(), 1, "it did fail once");
        app.end(0).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn storage_error_or_panic_is_one_dead_letter() {
    on_each_database(|db| async move {
        let app = DeadMailboxApp::new(db, &["odd"]).await;
        let folders = vec![folder("INBOX", None)];
        let news = ListingPage { folders, ..page(vec![seen_message("m1", "INBOX", &[])]) };
        app.gmail.on_changes_of("odd", move || news.clone().into());
        app.db.run("alter table ledger rename to ledger_away").await;

        app.sync().await;

        let letter = app.letter("ledger").await;
        assert_eq!((letter.attempt, app.state().await), (13, MailboxState::Error));
        app.sync().await;
        assert_eq!(app.letter("ledger").await.id, letter.id);

        app.db.run("alter table ledger_away rename to ledger").await;
        app.gmail.forget_changes_of("odd");
        app.sync().await;
        assert_eq!(app.state().await, MailboxState::Active);

        app.gmail.on_changes_of("odd", || ScriptedReply::panic("as it was told"));
        app.sync().await;
        let letter = app.letter("as it was told").await;
        assert_eq!((letter.error_class.as_deref(), app.state().await), (Some("panic"), MailboxState::Error));
        app.sync().await;
        assert_eq!(app.letter("as it was told").await.id, letter.id);
        app.end(1).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn reconnected_mailbox_has_all_its_attempts() {
    on_each_database(|db| async move {
        let app = DeadMailboxApp::new(db, &["odd"]).await;
        app.answer_nonsense("a page of nonsense");
        app.sync().await;
        let mut letter = app.letter("a page of nonsense").await;
        for is_another in [false, true] {
            let mut unit = app.store.write();
            if is_another {
                unit.restart_sync(app.mailboxes[0]);
            } else {
                unit.start_syncing(app.mailboxes[0], None);
            }
            unit.commit().await.unwrap();
            assert_eq!(app.letters().await.len(), 0);

            app.sync().await;

            let next = app.letter("a page of nonsense").await;
            assert_eq!((next.attempt, next.id == letter.id), (13, false));
            letter = next;
        }
        app.end(1).await;
    })
    .await;
}
