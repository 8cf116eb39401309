//! What a provider shows becomes rows, emails and events, on both databases.

mod given_up;
mod places;
mod polls;
mod rooms;
mod stops;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use domain::connector::{Account, Answer, Cursors, Facts, Page, Place, Present, Seen, SeenFolder, Sink, Wanted, names};
use domain::{Connector, ConnectorError, Flags, FolderRole, JobState, MailboxId, PlanTier, Provider, SystemClock};
use engine::calls::Calls;
use engine::mailboxes::{Backfill, Connect};
use engine::sync::{SyncMailbox, SyncSettings, Syncer, only_one};
use jiff::Timestamp;
use jobs::{Kinds, SystemDice, Worker, new_job};
use serde_json::json;
use store::sql::jobs::JobFilter;
use store::sql::mailboxes::NewMailbox;
use store::sql::sync::PageRows;
use store::testing::{TestDatabase, on_each_database};
use store::{Dialect, TenantStore};

use crate::bench::{Bench, worker_settings};

/// Only a hang gets there.
const DEADLINE: Duration = Duration::from_secs(60);

/// A provider that says what it is told to say.
#[derive(Debug, Default)]
struct Script {
    changes: Mutex<VecDeque<Result<Page, ConnectorError>>>,
    history: Mutex<VecDeque<Page>>,
    list: Mutex<VecDeque<Page>>,
    bodies: Mutex<BTreeMap<String, Vec<u8>>>,
    /// Told with the bytes.
    places: Mutex<BTreeMap<String, Vec<(Place, Flags)>>>,
    /// Happens between the bytes and their end, and is recorded by somebody else.
    meanwhile: Mutex<Option<(TenantStore, MailboxId, PageRows)>>,
    fetched: Mutex<Vec<String>>,
    calls: Mutex<u32>,
}

fn next(queue: &Mutex<VecDeque<Page>>) -> Page {
    queue.lock().unwrap().pop_front().unwrap_or(Page { is_last: true, ..Page::default() })
}

impl Connector for Script {
    fn provider(&self) -> Provider {
        Provider::Scripted
    }

    fn changes<'a>(&'a self, _: &'a Account, _: &'a Cursors) -> Answer<'a, Page> {
        *self.calls.lock().unwrap() += 1;
        let page = self.changes.lock().unwrap().pop_front();
        Box::pin(async move { page.unwrap_or(Ok(Page { is_last: true, ..Page::default() })) })
    }

    fn history<'a>(
        &'a self,
        _: &'a Account,
        _: &'a Cursors,
        _: &'a Cursors,
        _: Option<jiff::Timestamp>,
    ) -> Answer<'a, Page> {
        let page = next(&self.history);
        Box::pin(async move { Ok(page) })
    }

    fn list<'a>(
        &'a self,
        _: &'a Account,
        _: &'a Cursors,
        _: Option<&'a Cursors>,
        _: Option<Timestamp>,
    ) -> Answer<'a, Page> {
        let page = next(&self.list);
        Box::pin(async move { Ok(page) })
    }

    fn fetch<'a>(&'a self, _: &'a Account, wanted: &'a [Wanted], sink: &'a mut dyn Sink) -> Answer<'a, ()> {
        Box::pin(async move {
            sink.room(&names(wanted)).await?;
            for wanted in wanted {
                self.fetched.lock().unwrap().push(wanted.message.clone());
                let body = self.bodies.lock().unwrap().get(&wanted.message).cloned();
                match body {
                    None => sink.fail(&wanted.message, ConnectorError::Gone),
                    Some(body) if body == b"broken" => {
                        sink.fail(&wanted.message, ConnectorError::Protocol("broken".into()));
                    }
                    Some(body) => {
                        sink.begin(&wanted.message);
                        sink.write(&body).unwrap();
                        let places = self.places.lock().unwrap().get(&wanted.message).cloned();
                        let meanwhile = self.meanwhile.lock().unwrap().take();
                        if let Some((store, mailbox, page)) = meanwhile {
                            let now = page.messages.iter().map(|seen| (seen.place.clone(), seen.flags.clone()));
                            self.places.lock().unwrap().insert(wanted.message.clone(), now.collect());
                            let mut unit = store.write();
                            unit.record_page(mailbox, page);
                            unit.commit().await.unwrap();
                        }
                        sink.end(Facts { places, ..Facts::default() }).unwrap();
                    }
                }
            }
            Ok(())
        })
    }

    fn check<'a>(&'a self, _: &'a Account) -> Answer<'a, ()> {
        Box::pin(async { Ok(()) })
    }
}

struct Scene<'a> {
    db: &'a TestDatabase,
    script: Arc<Script>,
    store: TenantStore,
    mailbox: MailboxId,
    syncer: Syncer,
    _folder: tempfile::TempDir,
}

fn folder(id: &str, role: Option<FolderRole>) -> SeenFolder {
    SeenFolder { id: id.into(), name: id.into(), role, delimiter: Some("/".into()), uid_validity: None }
}

fn seen(message: &str, folder: &str, flags: &[&str]) -> Seen {
    Seen {
        message: message.into(),
        place: place(message, folder),
        flags: Flags::from_names(flags.iter().copied()),
        size_bytes: Some(100),
        received_at: Some("2026-05-01T10:00:00Z".parse().unwrap()),
        revision: None,
    }
}

fn place(message: &str, folder: &str) -> Place {
    Place { folder: folder.into(), uid: message.into() }
}

fn page(messages: Vec<Seen>) -> Page {
    Page { messages, is_last: true, cursors: Cursors::from([(String::new(), "1".into())]), ..Page::default() }
}

impl<'a> Scene<'a> {
    async fn new(db: &'a TestDatabase) -> Self {
        let tenant = db.store.system().create_tenant("acme", PlanTier::Standard).await.unwrap().unwrap();
        let store = db.store.tenant(tenant.id);
        let mailbox = MailboxId::new(&SystemClock);
        let mut unit = store.write();
        unit.add_mailbox(NewMailbox {
            id: mailbox,
            provider: Provider::Scripted,
            address: "me@acme.test".into(),
            settings: json!({}),
            secret_ref: None,
            since: None,
        });
        unit.commit().await.unwrap();
        let folder_of_files = tempfile::tempdir().unwrap();
        let script = Arc::new(Script::default());
        let connectors: HashMap<Provider, Arc<dyn Connector>> =
            HashMap::from([(Provider::Scripted, script.clone() as _)]);
        let settings = SyncSettings { holder: "test".into(), lease: Duration::from_secs(60), duplicate_check: true };
        let engine = Bench::engine(&db.store, folder_of_files.path());
        let syncer = Syncer::new(engine, settings, connectors, Calls::default());
        let scene = Self { db, script, store, mailbox, syncer, _folder: folder_of_files };
        scene.says(Page {
            folders: vec![
                folder("INBOX", Some(FolderRole::Inbox)),
                folder("Archive", None),
                folder("Trash", Some(FolderRole::Trash)),
            ],
            is_last: false,
            ..page(vec![])
        });
        scene
    }

    fn says(&self, page: Page) {
        self.script.changes.lock().unwrap().push_back(Ok(page));
    }

    fn has(&self, message: &str, body: &str) {
        self.script.bodies.lock().unwrap().insert(message.into(), body.as_bytes().to_vec());
    }

    /// Asks for a sync and works until nothing is left to do.
    async fn sync(&self) {
        let job = new_job(&SyncMailbox { mailbox: self.mailbox }, &SystemClock, None).unwrap();
        let mut unit = self.store.write();
        unit.enqueue(vec![only_one(job, self.mailbox)]);
        unit.commit().await.unwrap();
        self.settle().await;
    }

    /// Works until nothing is left to do.
    async fn settle(&self) {
        let kinds = self.syncer.list_kinds().into_iter().fold(Kinds::default(), Kinds::with);
        let kinds = kinds.with(self.syncer.fetch_kind()).with(self.syncer.poll_kind());
        let worker = Worker::start(self.db.store.clone(), kinds, worker_settings(), Arc::new(SystemDice));
        // Nor does it wait for those that were sent away for long.
        let soon = match self.db.store.dialect() {
            Dialect::Postgres => "mailroom_now() + interval '30 seconds'",
            Dialect::Sqlite => "strftime('%Y-%m-%dT%H:%M:%fZ', mailroom_now(), '30 seconds')",
        };
        let left =
            format!("select 1 from jobs where state <> 'scheduled' and (state <> 'retry' or run_at < (select {soon}))");
        let idle = async {
            while !self.db.rows(&left).await.is_empty() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        if tokio::time::timeout(DEADLINE, idle).await.is_err() {
            let jobs = self.db.store.system().list_jobs(&JobFilter::default(), None, 10).await.unwrap();
            panic!("something never ends: {jobs:?}");
        }
        worker.shut_down().await;
        let dead = JobFilter { state: Some(JobState::Dead), ..JobFilter::default() };
        let dead = self.db.store.system().list_jobs(&dead, None, 10).await.unwrap();
        assert!(dead.is_empty(), "{dead:?}");
    }

    async fn paused(&self) -> Option<String> {
        let paused = self.store.find_sync(self.mailbox).await.unwrap().unwrap().paused;
        assert_eq!(self.store.list_pauses().await.unwrap().remove(&self.mailbox), paused);
        paused.map(|pause| pause.reason)
    }

    /// What was sent away comes back, as when its time has come.
    async fn come_back(&self) {
        self.db.run("update jobs set state = 'ready', run_at = mailroom_now() where state = 'retry'").await;
    }

    /// Subject of each email that is not deleted, with its folders and flags.
    async fn emails(&self) -> Vec<(String, String)> {
        let rows = self
            .db
            .rows(
                "select e.subject, f.name, cast(p.flags as text) from emails e
                 join placements p on p.tenant_id = e.tenant_id and p.email_id = e.id and p.is_live
                 join folders f on f.tenant_id = p.tenant_id and f.id = p.folder_id
                 where e.deleted_at is null order by 1, 2, 3",
            )
            .await;
        let text = |row: &store::Row| {
            let flags: String = row.get(2).unwrap();
            (row.get(0).unwrap(), format!("{}{flags}", row.get::<String>(1).unwrap()))
        };
        rows.iter().map(text).collect()
    }

    async fn ledger(&self) -> Vec<(String, String)> {
        let rows = self.db.rows("select provider_message_id, state from ledger order by 1").await;
        rows.iter().map(|row| (row.get(0).unwrap(), row.get(1).unwrap())).collect()
    }

    /// Those since the last time, without those of syncs and states.
    async fn events(&self, after: &mut u64) -> Vec<String> {
        let events = self.store.list_events(*after, 1000).await.unwrap();
        for (n, event) in events.iter().enumerate() {
            assert_eq!(event.seq, *after + n as u64 + 1, "there is a gap");
        }
        *after += events.len() as u64;
        let is_of_email = |kind: &str| kind.starts_with("email.") || kind == "mailbox.gap_healed";
        events.into_iter().map(|event| event.kind).filter(|kind| is_of_email(kind)).collect()
    }
}

fn pairs(list: &[(&str, &str)]) -> Vec<(String, String)> {
    list.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn mail_comes_moves_is_marked_goes_and_comes_back() {
    on_each_database(|db| async move {
        let scene = Scene::new(&db).await;
        let mut after = 0;
        scene.has("m1", "Subject: one\n\nhello");
        scene.has("m2", "Subject: two\n\nhello");
        scene.script.history.lock().unwrap().push_back(page(vec![seen("m2", "Archive", &["seen"])]));
        scene.sync().await;
        assert_eq!(scene.emails().await, pairs(&[("two", "Archive[\"seen\"]")]));
        assert_eq!(scene.events(&mut after).await, ["email.received"]);

        scene.says(page(vec![seen("m1", "INBOX", &[])]));
        scene.sync().await;
        assert_eq!(scene.emails().await, pairs(&[("one", "INBOX[]"), ("two", "Archive[\"seen\"]")]));
        assert_eq!(scene.events(&mut after).await, ["email.received"]);

        // Moved and marked at once; what is told twice happens once.
        let moved = Page { vanished: vec![place("m1", "INBOX")], ..page(vec![seen("m1", "Archive", &["seen"])]) };
        scene.says(moved.clone());
        scene.says(moved);
        scene.sync().await;
        scene.sync().await;
        assert_eq!(scene.emails().await, pairs(&[("one", "Archive[\"seen\"]"), ("two", "Archive[\"seen\"]")]));
        assert_eq!(scene.events(&mut after).await, ["email.flags_changed", "email.moved"]);

        // To the trash, which is out of scope.
        scene.says(Page { vanished: vec![place("m1", "Archive")], ..page(vec![seen("m1", "Trash", &[])]) });
        scene.sync().await;
        assert_eq!(scene.emails().await, pairs(&[("two", "Archive[\"seen\"]")]));
        assert_eq!(scene.events(&mut after).await, ["email.deleted"]);
        assert_eq!(scene.ledger().await, pairs(&[("m1", "gone"), ("m2", "processed")]));

        // And back again: nothing is fetched.
        scene.script.fetched.lock().unwrap().clear();
        scene.says(page(vec![seen("m1", "INBOX", &[])]));
        scene.sync().await;
        assert_eq!(scene.emails().await, pairs(&[("one", "INBOX[]"), ("two", "Archive[\"seen\"]")]));
        assert_eq!(scene.events(&mut after).await, ["email.restored"]);
        assert!(scene.script.fetched.lock().unwrap().is_empty());

        // Everything that is in a folder, and a folder that is no more.
        let present = vec![Present { folder: "INBOX".into(), uids: vec![] }];
        scene.says(Page { present, gone_folders: vec!["Archive".into()], ..page(vec![]) });
        scene.sync().await;
        assert_eq!(scene.emails().await, []);
        assert_eq!(scene.events(&mut after).await, ["email.deleted", "email.deleted"]);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_draft_is_fetched_again_when_its_text_changes() {
    on_each_database(|db| async move {
        let scene = Scene::new(&db).await;
        let mut after = 0;
        let draft = |revision: &str| Seen { revision: Some(revision.into()), ..seen("d", "INBOX", &[]) };
        scene.has("d", "Subject: first\n\nold");
        scene.says(page(vec![draft("1")]));
        scene.sync().await;
        scene.has("d", "Subject: second\n\nnew");
        scene.says(page(vec![draft("2")]));
        scene.says(page(vec![draft("2")]));
        scene.sync().await;
        scene.sync().await;

        assert_eq!(scene.emails().await, pairs(&[("second", "INBOX[]")]));
        assert_eq!(scene.events(&mut after).await, ["email.received", "email.updated"]);
        assert_eq!(scene.script.fetched.lock().unwrap().len(), 2);
        assert_eq!(db.rows("select 1 from emails").await.len(), 1);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn when_the_provider_forgets_where_we_were_everything_is_compared() {
    on_each_database(|db| async move {
        let scene = Scene::new(&db).await;
        let mut after = 0;
        for id in ["a", "b", "c"] {
            scene.has(id, &format!("Subject: {id}\n\nhello"));
        }
        scene.says(page(vec![seen("a", "INBOX", &[]), seen("b", "INBOX", &[])]));
        scene.sync().await;
        scene.events(&mut after).await;

        // Meanwhile `a` went and `c` came; the list comes in two pages.
        scene.script.changes.lock().unwrap().push_back(Err(ConnectorError::CursorExpired));
        scene.says(page(vec![]));
        let first = Page { is_last: false, ..page(vec![seen("b", "INBOX", &["seen"])]) };
        scene.script.list.lock().unwrap().extend([first, page(vec![seen("c", "INBOX", &[])])]);
        scene.script.fetched.lock().unwrap().clear();
        scene.sync().await;

        assert_eq!(scene.emails().await, pairs(&[("b", "INBOX[\"seen\"]"), ("c", "INBOX[]")]));
        let mut told = scene.events(&mut after).await;
        told.sort();
        assert_eq!(told, ["email.deleted", "email.flags_changed", "email.received", "mailbox.gap_healed"]);
        assert_eq!(*scene.script.fetched.lock().unwrap(), ["c"]);
        assert_eq!(scene.ledger().await, pairs(&[("a", "gone"), ("b", "processed"), ("c", "processed")]));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_message_that_cannot_be_had_harms_no_other() {
    on_each_database(|db| async move {
        let scene = Scene::new(&db).await;
        scene.has("good", "Subject: good\n\nhello");
        scene.says(page(vec![seen("good", "INBOX", &[]), seen("lost", "INBOX", &[])]));
        scene.sync().await;

        assert_eq!(scene.emails().await, pairs(&[("good", "INBOX[]")]));
        assert_eq!(scene.ledger().await, pairs(&[("good", "processed"), ("lost", "gone")]));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_credentials_are_tried_once_and_then_left_alone() {
    on_each_database(|db| async move {
        let scene = Scene::new(&db).await;
        scene.script.changes.lock().unwrap().push_front(Err(ConnectorError::Unauthorized("no".into())));
        scene.sync().await;
        scene.sync().await;

        let mailbox = scene.store.find_mailbox("me@acme.test").await.unwrap().unwrap();
        assert_eq!(mailbox.state, domain::MailboxState::NeedsReauth);
        assert_eq!(*scene.script.calls.lock().unwrap(), 1);
        let events = scene.store.list_events(0, 10).await.unwrap();
        assert_eq!(events.iter().map(|event| event.kind.as_str()).collect::<Vec<_>>(), ["mailbox.state_changed"]);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_removed_for_good_is_not_fetched_again() {
    on_each_database(|db| async move {
        let scene = Scene::new(&db).await;
        scene.has("m", "Subject: secret\n\nhello");
        scene.says(page(vec![seen("m", "INBOX", &[])]));
        scene.sync().await;
        let ids = scene.store.list_email_ids(scene.mailbox, 10).await.unwrap();
        assert_eq!(scene.store.purge_emails(&ids).await.unwrap(), 1);

        scene.script.fetched.lock().unwrap().clear();
        scene.says(page(vec![seen("m", "INBOX", &["seen"])]));
        scene.sync().await;

        assert!(scene.script.fetched.lock().unwrap().is_empty());
        assert_eq!(scene.emails().await, []);
        assert_eq!(scene.ledger().await, pairs(&[("m", "gone")]));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_that_comes_into_scope_brings_its_mail_and_one_that_leaves_takes_it() {
    on_each_database(|db| async move {
        let scene = Scene::new(&db).await;
        scene.has("m", "Subject: one\n\nhello");
        scene.has("t", "Subject: two\n\nhello");
        scene.says(page(vec![seen("m", "Archive", &[]), seen("t", "Trash", &[])]));
        scene.sync().await;
        assert_eq!(scene.emails().await, pairs(&[("one", "Archive[]")]));

        // What was the trash is an ordinary folder now, and the archive is the trash.
        let folders = vec![folder("Trash", None), folder("Archive", Some(FolderRole::Trash))];
        scene.says(Page { folders, ..page(vec![]) });
        scene.script.list.lock().unwrap().push_back(page(vec![seen("m", "Archive", &[]), seen("t", "Trash", &[])]));
        scene.sync().await;

        assert_eq!(scene.emails().await, pairs(&[("two", "Trash[]")]));
        assert_eq!(scene.ledger().await, pairs(&[("m", "gone"), ("t", "processed")]));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_text_that_was_listed_last_is_the_one_that_is_stored() {
    on_each_database(|db| async move {
        let scene = Scene::new(&db).await;
        let draft = |revision: &str| Seen { revision: Some(revision.into()), ..seen("d", "INBOX", &[]) };
        scene.has("d", "Subject: first\n\nold");
        // Listed with another text before the first was stored: the job that brings the first must not win.
        scene.says(Page { is_last: false, ..page(vec![draft("1")]) });
        scene.says(page(vec![draft("2")]));
        scene.sync().await;
        scene.has("d", "Subject: second\n\nnew");
        scene.says(page(vec![draft("3")]));
        scene.sync().await;

        assert_eq!(scene.emails().await, pairs(&[("second", "INBOX[]")]));
        assert_eq!(db.rows("select 1 from ledger where revision = '3' and state = 'processed'").await.len(), 1);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_comparison_that_finds_a_wider_scope_begins_anew_and_loses_nothing() {
    on_each_database(|db| async move {
        let scene = Scene::new(&db).await;
        for id in ["a", "b", "t"] {
            scene.has(id, &format!("Subject: {id}\n\nhello"));
        }
        scene.says(page(vec![seen("a", "INBOX", &[]), seen("b", "INBOX", &[])]));
        scene.sync().await;

        // In the middle of it what was the trash turns out to be an ordinary folder.
        scene.script.changes.lock().unwrap().push_back(Err(ConnectorError::CursorExpired));
        scene.says(page(vec![]));
        let first = Page { is_last: false, ..page(vec![seen("a", "INBOX", &[])]) };
        let wider = Page { folders: vec![folder("Trash", None)], ..page(vec![seen("b", "INBOX", &[])]) };
        let again = page(vec![seen("a", "INBOX", &[]), seen("b", "INBOX", &[]), seen("t", "Trash", &[])]);
        scene.script.list.lock().unwrap().extend([first, wider, again]);
        scene.sync().await;

        assert_eq!(scene.emails().await, pairs(&[("a", "INBOX[]"), ("b", "INBOX[]"), ("t", "Trash[]")]));
        assert_eq!(db.rows("select 1 from events where type = 'email.deleted'").await.len(), 0);
        assert!(db.rows("select 1 from sync_states where is_listing").await.is_empty(), "it has ended");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_not_fetched_when_a_mailbox_was_disconnected_is_when_it_is_back() {
    on_each_database(|db| async move {
        let scene = Scene::new(&db).await;
        scene.has("m", "broken");
        scene.says(page(vec![seen("m", "INBOX", &[])]));
        scene.sync().await;
        let mailbox = scene.store.find_mailbox("me@acme.test").await.unwrap().unwrap();
        scene.syncer.engine.disconnect(&mailbox, None).await.unwrap();
        assert_eq!(scene.ledger().await, pairs(&[("m", "skipped")]));

        scene.has("m", "Subject: mended\n\nhello");
        scene.says(page(vec![]));
        scene.script.list.lock().unwrap().push_back(page(vec![seen("m", "INBOX", &[])]));
        let connect = Connect {
            provider: Provider::Scripted,
            address: "me@acme.test".into(),
            settings: json!({}),
            secret: None,
            backfill: Backfill::All,
        };
        assert_eq!(scene.syncer.engine.connect(scene.store.id, connect).await.unwrap(), Some(scene.mailbox));
        scene.sync().await;

        assert_eq!(scene.emails().await, pairs(&[("mended", "INBOX[]")]));
        assert_eq!(scene.ledger().await, pairs(&[("m", "processed")]));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mailbox_that_has_fetched_its_bytes_of_a_day_says_so_and_goes_on_when_it_may() {
    on_each_database(|db| async move {
        let scene = Scene::new(&db).await;
        // There is nothing to list but what is new, so it is those who fetch that are refused.
        db.run("update sync_states set is_history_done = true").await;
        // A tenth of it at once. What is owed after one message takes hours.
        db.run("update mailboxes set settings = '{\"bytes_per_day\": 10000}'").await;
        let names: Vec<String> = (0..6).map(|n| format!("m{n}")).collect();
        for name in &names {
            scene.has(name, &format!("Subject: {name}\r\n\r\n{}", "x".repeat(2000)));
        }
        // Each too large to share a batch; and no more than three are fetched before the first is paid for.
        let large = |name: &String| Seen { size_bytes: Some(5 << 20), ..seen(name, "INBOX", &[]) };
        scene.says(page(names.iter().map(large).collect()));
        scene.sync().await;

        let stored = scene.emails().await.len();
        assert!((1..=3).contains(&stored), "{stored}");
        assert_eq!(scene.paused().await.as_deref(), Some("it has fetched as many bytes as it may in a day"));
        scene.come_back().await;
        scene.sync().await;
        assert_eq!(scene.script.fetched.lock().unwrap().len(), stored, "nobody calls");

        db.run("update mailboxes set settings = '{\"bytes_per_day\": 0}'").await;
        scene.come_back().await;
        scene.sync().await;
        assert_eq!(scene.emails().await.len(), 6);
        assert_eq!(scene.script.fetched.lock().unwrap().len(), 6, "none was fetched twice");
        assert_eq!(scene.paused().await, None);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mailbox_whose_server_asked_to_wait_says_so_unless_it_is_for_a_moment() {
    on_each_database(|db| async move {
        let mut scene = Scene::new(&db).await;
        let wait = |seconds| ConnectorError::Throttled { retry_after: Some(Duration::from_secs(seconds)) };
        scene.script.changes.lock().unwrap().push_front(Err(wait(59)));
        scene.sync().await;
        assert_eq!(scene.paused().await, None);

        scene.syncer.calls = Calls::default(); // as when the time has passed
        scene.script.changes.lock().unwrap().push_front(Err(wait(3600)));
        scene.come_back().await;
        scene.sync().await;
        assert_eq!(scene.paused().await.as_deref(), Some("its server asked to wait"));
        assert_eq!(scene.store.find_sync(scene.mailbox).await.unwrap().unwrap().error_count, 0);

        scene.syncer.calls = Calls::default();
        scene.come_back().await;
        scene.sync().await;
        assert_eq!(scene.paused().await, None);
    })
    .await;
}
