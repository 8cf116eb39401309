//! Mailboxes that are given up: one dead letter with the reason, and a look now and then whether it is over.

use domain::MailboxState;
use store::sql::jobs::{JobRow, Replay};

use super::polls::{Does, Odd, ask, settled, start, syncer_with, until};
use super::*;

/// Mailboxes of which the first is odd, and a worker that looks at them.
struct Odds<'a> {
    scene: Scene<'a>,
    odd: Arc<Odd>,
    store: TenantStore,
    mailboxes: Vec<MailboxId>,
    worker: Worker,
}

fn nonsense(what: &str) -> Does {
    Does::Refuses(ConnectorError::Protocol(what.to_owned()))
}

impl<'a> Odds<'a> {
    async fn new(db: &'a TestDatabase, addresses: &[&str]) -> Self {
        let scene = Scene::new(db).await;
        let odd = Arc::new(Odd::default());
        let (store, mailboxes) = settled(db, "odd", addresses).await;
        let syncer = syncer_with(&scene, &odd, 500);
        let kinds = syncer.list_kinds().into_iter().fold(Kinds::default(), Kinds::with).with(syncer.poll_kind());
        let worker = start(db, kinds, 10);
        Self { scene, odd, store, mailboxes, worker }
    }

    fn does(&self, does: Does) {
        self.odd.does.lock().unwrap().insert("odd".into(), does);
    }

    /// As when it is due.
    async fn look(&self) {
        ask(&self.store, Provider::Gmail, &self.mailboxes).await;
        self.settle().await;
    }

    /// As by a push.
    async fn sync(&self) {
        let mut unit = self.store.write();
        let job = new_job(&SyncMailbox { mailbox: self.mailboxes[0] }, &SystemClock, None).unwrap();
        unit.enqueue(vec![only_one(job, self.mailboxes[0])]);
        unit.commit().await.unwrap();
        self.settle().await;
    }

    async fn replay(&self, letter: &JobRow) {
        let system = self.scene.db.store.system();
        assert!(system.replay_one(letter.tenant_id, letter.id, &Replay::default()).await.unwrap());
        self.settle().await;
    }

    async fn settle(&self) {
        until("it is over", async || {
            self.scene.come_back().await;
            self.scene.db.rows("select 1 from jobs").await.is_empty()
        })
        .await;
    }

    async fn letters(&self) -> Vec<JobRow> {
        let dead = JobFilter { state: Some(JobState::Dead), ..JobFilter::default() };
        self.scene.db.store.system().list_jobs(&dead, None, 10).await.unwrap()
    }

    /// The one that there is.
    async fn letter(&self, reason: &str) -> JobRow {
        let mut letters = self.letters().await;
        assert_eq!(letters.len(), 1, "{letters:?}");
        let letter = letters.remove(0);
        assert!(letter.reason.as_ref().unwrap().contains(reason), "{letter:?}");
        letter
    }

    async fn state(&self) -> MailboxState {
        self.store.find_mailbox(&self.mailboxes[0].to_string()).await.unwrap().unwrap().state
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mailbox_that_makes_no_sense_is_given_up_with_the_reason_once_and_beside_it_others_are_looked_at() {
    on_each_database(|db| async move {
        let odds = Odds::new(&db, &["odd", "fine"]).await;
        odds.does(nonsense("a page of nonsense"));

        odds.look().await;

        let letter = odds.letter("a page of nonsense").await;
        assert_eq!(letter.attempt, 13);
        let mailbox = odds.store.find_mailbox("odd").await.unwrap().unwrap();
        assert_eq!((mailbox.state, mailbox.state_reason.is_some()), (MailboxState::Error, true));
        assert!(odds.store.find_sync(odds.mailboxes[1]).await.unwrap().unwrap().last_sync_at.is_some());

        let errors = async || odds.store.find_sync(odds.mailboxes[0]).await.unwrap().unwrap().error_count;
        let before = errors().await;
        odds.look().await;
        assert_eq!(errors().await, before + 1, "it is looked at once more, and that is all");
        odds.sync().await;
        assert_eq!(errors().await, before + 2);
        assert_eq!(odds.letter("a page of nonsense").await.id, letter.id);

        odds.odd.does.lock().unwrap().clear();
        odds.look().await;
        assert_eq!((errors().await, odds.state().await), (0, MailboxState::Active));
        odds.worker.shut_down().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mailbox_that_cannot_be_opened_is_one_dead_letter_however_it_is_asked_for() {
    on_each_database(|db| async move {
        let odds = Odds::new(&db, &["locked"]).await;

        odds.look().await;

        let letter = odds.letter("is not there any more").await;
        assert_eq!(odds.state().await, MailboxState::Error);
        odds.look().await;
        odds.sync().await;
        odds.sync().await;
        assert_eq!(odds.letter("is not there any more").await.id, letter.id);
        odds.worker.shut_down().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mailbox_that_failed_for_another_reason_before_is_given_up_all_the_same() {
    on_each_database(|db| async move {
        let odds = Odds::new(&db, &["odd", "locked"]).await;
        odds.does(Does::Refuses(ConnectorError::Unavailable("503".into())));
        let locked = odds.mailboxes[1].to_string();
        db.run(&format!("update mailboxes set state = 'paused' where id = '{locked}'")).await;
        odds.look().await;
        let state = odds.store.find_sync(odds.mailboxes[0]).await.unwrap().unwrap();
        assert_eq!((state.error_count, odds.letters().await.len()), (1, 0));

        odds.does(nonsense("a page of nonsense"));
        odds.look().await;
        assert_eq!(odds.letter("a page of nonsense").await.attempt, 13);

        // The same of one that cannot be opened, which the provider never sees.
        db.run(&format!("update mailboxes set state = 'active' where id = '{locked}'")).await;
        db.run(&format!("update sync_states set error_count = 20 where mailbox_id = '{locked}'")).await;
        odds.look().await;
        assert_eq!(odds.letters().await.len(), 2);
        odds.worker.shut_down().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_letter_that_is_replayed_is_one_again_until_the_mailbox_works() {
    on_each_database(|db| async move {
        let odds = Odds::new(&db, &["odd"]).await;
        odds.does(nonsense("a page of nonsense"));
        odds.look().await;
        let letter = odds.letter("a page of nonsense").await;

        odds.does(nonsense("other nonsense"));
        odds.replay(&letter).await;

        let again = odds.letter("other nonsense").await;
        assert_eq!((again.id, again.attempt), (letter.id, 13));
        odds.look().await;
        assert_eq!(odds.letter("other nonsense").await.ended_at, again.ended_at);

        odds.odd.does.lock().unwrap().clear();
        odds.replay(&again).await;
        assert!(odds.letters().await.is_empty());
        assert_eq!(odds.state().await, MailboxState::Active);
        odds.worker.shut_down().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mailbox_that_worked_meanwhile_is_given_up_anew_and_the_new_letter_takes_the_place_of_the_old() {
    on_each_database(|db| async move {
        let odds = Odds::new(&db, &["odd"]).await;
        odds.does(nonsense("a page of nonsense"));
        odds.look().await;
        odds.odd.does.lock().unwrap().clear();
        odds.look().await;
        let old = odds.letter("a page of nonsense").await;
        assert_eq!(odds.state().await, MailboxState::Active);

        odds.does(nonsense("other nonsense"));
        odds.look().await;

        let new = odds.letter("other nonsense").await;
        assert_eq!(new.attempt, 13, "it had all its tries");
        assert_eq!(odds.state().await, MailboxState::Error);
        assert_ne!(new.id, old.id);
        let attempts = format!("select 1 from job_attempts where job_id = '{}'", old.id);
        assert!(db.rows(&attempts).await.is_empty());
        odds.worker.shut_down().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mailbox_that_never_worked_stays_connecting_and_says_why_until_it_does() {
    on_each_database(|db| async move {
        let odds = Odds::new(&db, &["odd"]).await;
        odds.does(nonsense("there is no mailbox yet"));
        db.run("update mailboxes set state = 'connecting'").await;
        let told = async || {
            let mailbox = odds.store.find_mailbox("odd").await.unwrap().unwrap();
            (mailbox.state, mailbox.state_reason)
        };

        odds.sync().await;

        let (state, reason) = told().await;
        assert_eq!(state, MailboxState::Connecting);
        assert!(reason.as_ref().is_some_and(|reason| reason.contains("there is no mailbox yet")), "{reason:?}");
        odds.letter("there is no mailbox yet").await;
        let version = odds.store.find_mailbox("odd").await.unwrap().unwrap().version;

        odds.sync().await;
        assert_eq!(odds.store.find_mailbox("odd").await.unwrap().unwrap().version, version, "that is known");
        // As when somebody resumes it in vain.
        db.run("update mailboxes set state_reason = null").await;
        odds.sync().await;
        assert_eq!(told().await, (MailboxState::Connecting, reason));

        odds.odd.does.lock().unwrap().clear();
        odds.sync().await;
        assert_eq!(told().await, (MailboxState::Active, None));
        odds.worker.shut_down().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_had_to_wait_has_not_failed() {
    on_each_database(|db| async move {
        let odds = Odds::new(&db, &["odd"]).await;
        odds.look().await;
        let (key, lease) = ((odds.store.id, odds.mailboxes[0]), Duration::from_secs(600));
        assert_eq!(db.store.system().begin_syncs(&[key], "somebody", lease).await.unwrap().len(), 1);
        let mut unit = odds.store.write();
        let job = new_job(&SyncMailbox { mailbox: key.1 }, &SystemClock, None).unwrap();
        unit.enqueue(vec![only_one(job, key.1)]);
        unit.commit().await.unwrap();
        until("it is sent away again and again", async || {
            odds.scene.come_back().await;
            !db.rows("select 1 from jobs where token > 4").await.is_empty()
        })
        .await;

        let does = odds.odd.clone();
        odds.does(Does::Meanwhile(Box::pin(async move {
            // The first answer makes no sense, the next does.
            does.does.lock().unwrap().clear();
            Page { is_last: true, ..page(vec![seen("m1", "a folder that was never told of", &[])]) }
        })));
        db.run("update sync_states set holder = null, held_until = null").await;
        odds.settle().await;

        let events = odds.store.list_events(0, 100).await.unwrap();
        assert!(events.iter().all(|event| event.data["state"] != "error"), "{events:?}");
        let attempts = db.rows("select message from job_attempts").await;
        assert_eq!(attempts.len(), 1, "it did fail once");
        odds.worker.shut_down().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_stored_or_makes_us_panic_is_one_dead_letter_as_well() {
    on_each_database(|db| async move {
        let odds = Odds::new(&db, &["odd"]).await;
        let folders = vec![folder("INBOX", None)];
        odds.does(Does::Says(Box::new(Page { folders, ..page(vec![seen("m1", "INBOX", &[])]) })));
        db.run("alter table ledger rename to ledger_away").await;

        odds.sync().await;

        let letter = odds.letter("ledger").await;
        assert_eq!((letter.attempt, odds.state().await), (13, MailboxState::Error));
        odds.sync().await;
        assert_eq!(odds.letter("ledger").await.id, letter.id);

        db.run("alter table ledger_away rename to ledger").await;
        odds.odd.does.lock().unwrap().clear();
        odds.sync().await;
        assert_eq!(odds.state().await, MailboxState::Active);

        odds.does(Does::Panics);
        odds.sync().await;
        let letter = odds.letter("as it was told").await;
        assert_eq!((letter.error_class.as_deref(), odds.state().await), (Some("panic"), MailboxState::Error));
        odds.sync().await;
        assert_eq!(odds.letter("as it was told").await.id, letter.id);
        odds.worker.shut_down().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mailbox_that_is_connected_again_or_becomes_another_has_all_its_tries() {
    on_each_database(|db| async move {
        let odds = Odds::new(&db, &["odd"]).await;
        odds.does(nonsense("a page of nonsense"));
        odds.sync().await;
        let mut letter = odds.letter("a page of nonsense").await;
        for is_another in [false, true] {
            let mut unit = odds.store.write();
            match is_another {
                true => unit.sync_another(odds.mailboxes[0]),
                false => unit.start_syncing(odds.mailboxes[0], None),
            }
            unit.commit().await.unwrap();
            assert_eq!(odds.letters().await.len(), 0);

            odds.sync().await;

            let next = odds.letter("a page of nonsense").await;
            assert_eq!((next.attempt, next.id == letter.id), (13, false));
            letter = next;
        }
        odds.worker.shut_down().await;
    })
    .await;
}
