//! A mailbox at a real JMAP server ends up as it is there, whatever its owner does: at a Cyrus, whose owners use IMAP.
//! `make test-imap` starts it and names it in MAILROOM_TEST_JMAP_URL and MAILROOM_TEST_IMAP_URL; `make test` has none.
#![expect(clippy::disallowed_methods, reason = "the tests' servers are named in the environment")]

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use domain::connector::{ConnectorAccount, Cursors, NoApiAccess};
use domain::{
    Backfill, Connector, ConnectorError, MailboxId, MailboxSettings, Provider, Secret, Sha256, SystemClock, TenantId,
};
use engine::operations::mailboxes::ConnectRequest;
use providers::http::{HttpClient, HttpTimeouts};
use providers::jmap::{Jmap, JmapConnection};
use store::TenantStore;
use store::testing::migrated_sqlite;
use testkit::{AppOptions, MailboxOperations, TestApp};

use crate::imap::server::{Owner, Thing};

const PASSWORD: &str = "pw";

fn url() -> String {
    std::env::var("MAILROOM_TEST_JMAP_URL").expect("MAILROOM_TEST_JMAP_URL names a Cyrus; see CONTRIBUTING.md")
}

fn fresh_user() -> String {
    static LAST: AtomicU32 = AtomicU32::new(0);
    format!("j{}-{}", TenantId::new(&SystemClock), LAST.fetch_add(1, Ordering::SeqCst))
}

fn connector() -> Arc<dyn Connector> {
    Arc::new(Jmap::new(HttpClient::new(HttpTimeouts::default()).unwrap()).unwrap())
}

fn account(user: &str, password: &str) -> ConnectorAccount {
    ConnectorAccount {
        tenant: TenantId::new(&SystemClock),
        mailbox: MailboxId::new(&SystemClock),
        address: format!("{user}@acme.test"),
        settings: serde_json::to_string(&JmapConnection::new(&url(), user).unwrap()).unwrap(),
        secret: Some(Secret::new(password.to_owned())),
        folders: Vec::new(),
        sweep_since: None,
        access: Arc::new(NoApiAccess),
    }
}

/// A message in a folder: its name, the flags, the hash of the bytes.
type PlacedMessage = (String, String, String);

/// An application with one account at the server.
struct CyrusApp {
    app: TestApp,
    owner: Owner,
    store: TenantStore,
    mailbox: Option<MailboxId>,
    _database: tempfile::TempDir,
}

impl Deref for CyrusApp {
    type Target = TestApp;

    fn deref(&self) -> &TestApp {
        &self.app
    }
}

impl CyrusApp {
    async fn new() -> Self {
        let owner = Owner::new(&fresh_user()).await;
        let folder = tempfile::tempdir().unwrap();
        let app = TestApp::new(migrated_sqlite(folder.path()).await, AppOptions::default().connector(connector()));
        let store = app.create_tenant("acme").await;
        Self { app, owner, store, mailbox: None, _database: folder }
    }

    /// Connects the account, and syncs it for the first time.
    async fn connect(&mut self) {
        let connection = JmapConnection::new(&url(), &self.owner.user).unwrap();
        let connect = ConnectRequest {
            provider: Provider::Jmap,
            address: format!("{}@acme.test", self.owner.user),
            settings: MailboxSettings::of_connection(serde_json::to_value(connection).unwrap()),
            secret: Some(Secret::new(PASSWORD.to_owned())),
            backfill: Backfill::All,
        };
        self.mailbox = self.app.engine.connect(self.store.id, connect).await.unwrap();
        self.app.run_jobs_until_idle().await;
    }

    async fn sync(&self) {
        self.app.sync(&self.store, self.mailbox.unwrap()).await;
    }

    async fn stored(&self) -> BTreeSet<PlacedMessage> {
        let sql = "select f.name, cast(p.flags as text), e.raw_blob_sha256
                   from placements p join emails e on e.id = p.email_id and e.deleted_at is null
                   join folders f on f.id = p.folder_id and f.gone_at is null
                   where p.is_live";
        let rows = self.db.rows(sql).await.into_iter().map(|row| {
            let flags: Vec<String> = serde_json::from_str(&row.get::<String>(1).unwrap()).unwrap();
            (row.get(0).unwrap(), flags.join(" "), row.get(2).unwrap())
        });
        rows.collect()
    }

    /// Fails unless what is stored is what the server has, by IMAP and by a full listing over JMAP, each message once.
    async fn assert_equal(&self) {
        let (stored, truth) = (self.stored().await, as_over_jmap(self.owner.truth(|_| true).await));
        let missing: Vec<_> = truth.difference(&stored).take(5).collect();
        let surplus: Vec<_> = stored.difference(&truth).take(5).collect();
        assert!(missing.is_empty() && surplus.is_empty(), "missing {missing:#?}\nsurplus {surplus:#?}");
        let contents: BTreeSet<&String> = truth.iter().map(|(_, _, hash)| hash).collect();
        assert_eq!(self.count("emails where deleted_at is null").await, contents.len(), "emails, one for each content");
        let mailbox = self.mailbox(&self.store, &self.mailbox.unwrap().to_string()).await;
        let compared = self.syncer.compare(&mailbox).await.unwrap().unwrap();
        assert_eq!(compared.difference(), 0, "{compared:?}");
    }

    /// How often everything was listed because changes could not be.
    async fn full_comparisons(&self) -> usize {
        self.count("events where type = 'mailbox.gap_healed'").await
    }

    /// Pretends that the last sync ended at this state.
    async fn set_state(&self, state: &str) {
        let cursor = serde_json::json!({"email": state, "mailbox": state});
        self.db.run(&format!("update sync_cursors set cursor = '{cursor}' where phase = 'changes'")).await;
    }
}

/// Returns what JMAP shows of what IMAP has, without the folders that nobody asked for. An email is one for all its copies,
/// with the flags of any of them, but seen only if all are; one that is marked as deleted is not there.
fn as_over_jmap(things: BTreeSet<Thing>) -> BTreeSet<PlacedMessage> {
    let mut copies: BTreeMap<String, Vec<(String, BTreeSet<String>)>> = BTreeMap::new();
    for (folder, _, flags, hash) in things {
        let flags: BTreeSet<String> = flags.split_ascii_whitespace().map(str::to_owned).collect();
        if !flags.contains("deleted") {
            copies.entry(hash).or_default().push((folder, flags));
        }
    }
    let mut placed = BTreeSet::new();
    for (hash, copies) in copies {
        let mut flags: BTreeSet<String> = copies.iter().flat_map(|(_, flags)| flags.clone()).collect();
        if !copies.iter().all(|(_, flags)| flags.contains("seen")) {
            flags.remove("seen");
        }
        let flags = Vec::from_iter(flags).join(" ");
        for (folder, _) in copies {
            let name = if folder == "INBOX" { "Inbox".to_owned() } else { folder };
            if !["Drafts", "Junk", "Trash"].contains(&&*name) {
                placed.insert((name, flags.clone(), hash.clone()));
            }
        }
    }
    placed
}

fn letter(subject: &str) -> String {
    format!("From: ann@acme.test\nSubject: {subject}\nMessage-ID: <{subject}@acme.test>\n\nHello {subject}\n")
}

#[tokio::test]
async fn session_is_discovered_and_its_login_checked() {
    let owner = Owner::new(&fresh_user()).await;

    assert_eq!(connector().check(&account(&owner.user, PASSWORD)).await, Ok(()));
    let refused = connector().check(&account(&owner.user, "wrong")).await;
    assert!(matches!(refused, Err(ConnectorError::Unauthorized(_))), "{refused:?}");
}

#[tokio::test]
async fn account_has_mail_from_the_first_login_by_imap_on() {
    let user = fresh_user();
    let account = account(&user, PASSWORD);

    let before = connector().changes(&account, &Cursors::new()).await;
    Owner::new(&user).await;
    let after = connector().changes(&account, &Cursors::new()).await.unwrap();

    assert!(matches!(before, Err(ConnectorError::Unauthorized(_))), "{before:?}");
    assert!(after.folders.iter().any(|folder| folder.name == "Inbox"), "{after:?}");
}

#[tokio::test]
async fn server_that_answers_without_events_is_polled() {
    let owner = Owner::new(&fresh_user()).await;
    let (connector, account) = (connector(), account(&owner.user, PASSWORD));

    let http = HttpClient::new(HttpTimeouts::default()).unwrap();
    let session = http.client.get(format!("{}/jmap/", url())).basic_auth(&owner.user, Some(PASSWORD));
    let session: serde_json::Value = http.json(session).await.unwrap();
    assert!(session["eventSourceUrl"].is_string(), "its session names an event source all the same: {session}");

    let heard = connector.listen(&account, Duration::from_secs(60)).unwrap().await;

    assert!(matches!(heard, Err(ConnectorError::Protocol(_))), "{heard:?}");
    assert!(connector.listen(&account, Duration::from_secs(60)).is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn every_byte_is_stored_as_it_was_appended() {
    let mut app = CyrusApp::new().await;
    let long = [b"Subject: long\r\n\r\n".to_vec(), b"All work and no play.\r\n".repeat(100_000)].concat();
    let appended: [&[u8]; 7] = [
        b"Subject: eight\r\n\r\n\xf0\x9f\x98\x80 \xe4\xf6\xfc \xc0\xc1\r\n",
        b"Subject: dots\r\n\tfolded\r\n\r\n.\r\n..\r\nFrom me\r\n\r\n\r\n",
        b"Subject: no end\r\n\r\nwithout a last newline",
        b"Subject: header only\r\n",
        b"\r\nno header\r\n",
        b"Content-Type: multipart/mixed; boundary=x\r\n\r\n--x\r\n\r\nnever closed",
        &long,
    ];
    for message in appended {
        app.owner.append_bytes("INBOX", "", message).await;
    }

    app.connect().await;

    let stored: BTreeSet<String> = app.stored().await.into_iter().map(|(_, _, hash)| hash).collect();
    assert_eq!(stored, appended.iter().map(|message| Sha256::of(message).hex()).collect());
    app.assert_equal().await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn flags_copies_moves_and_removals_come_as_changes() {
    let mut app = CyrusApp::new().await;
    app.owner.does("CREATE Archive").await;
    for n in 0..10 {
        app.owner.append("INBOX", "", &letter(&format!("{n}"))).await;
    }
    app.owner.append("Sent", "\\Seen", &letter("sent")).await;
    app.owner.append("Junk", "", &letter("spam")).await;
    app.connect().await;
    app.assert_equal().await;

    for commands in [
        &["UID STORE 1,5 +FLAGS (\\Seen $Forwarded urgent)"][..],
        &["UID STORE 5 FLAGS ()", "UID STORE 6 +FLAGS (\\Answered \\Flagged)"],
        &["UID COPY 1:3 Archive", "UID MOVE 4 Archive"],
        &["UID STORE 2 +FLAGS (\\Seen)"],
        &["UID STORE 7:8 +FLAGS (\\Deleted)", "UID EXPUNGE 7"],
        &["UID STORE 8 -FLAGS (\\Deleted)", "UID MOVE 9 Trash"],
        &["UID STORE 1:3 +FLAGS (\\Deleted)", "UID EXPUNGE 1:3"],
    ] {
        // Not closed, for that would expunge.
        app.owner.does("SELECT INBOX").await;
        for command in commands {
            app.owner.does(command).await;
        }
        app.owner.does("UNSELECT").await;
        app.sync().await;
        app.assert_equal().await;
    }

    assert_eq!(app.count("emails").await, 11, "nothing was stored twice");
    assert_eq!(app.full_comparisons().await, 0);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn removed_mail_that_is_appended_again_is_restored() {
    let mut app = CyrusApp::new().await;
    for name in ["one", "two"] {
        app.owner.append("INBOX", "", &letter(name)).await;
    }
    app.connect().await;
    app.owner.in_folder("INBOX", &["UID STORE 1 +FLAGS (\\Deleted)", "UID EXPUNGE 1"]).await;
    app.sync().await;
    app.assert_equal().await;

    // Of this, the server says that it was updated.
    app.owner.append("INBOX", "\\Flagged", &letter("one")).await;
    app.sync().await;

    app.assert_equal().await;
    assert_eq!(app.count("emails").await, 2);
    assert_eq!(app.full_comparisons().await, 0);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn more_changes_than_a_page_has_are_all_recorded() {
    const MESSAGES: usize = 540;
    let mut app = CyrusApp::new().await;
    app.connect().await;
    for n in 0..MESSAGES {
        app.owner.append("INBOX", "", &letter(&format!("{n}"))).await;
    }
    // These move to the end of the changes, and on the second page the server calls them updated, as on none created.
    app.owner.in_folder("INBOX", &["UID STORE 1:100 +FLAGS (\\Seen)"]).await;

    app.sync().await;

    app.assert_equal().await;
    assert_eq!(app.count("emails").await, MESSAGES);
    assert_eq!(app.full_comparisons().await, 0);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn folders_are_followed_and_a_deleted_one_relists_everything() {
    let mut app = CyrusApp::new().await;
    for folder in ["Work", "Work/Deep", "Gr&APYA3w-en"] {
        app.owner.does(&format!("CREATE {folder}")).await;
        app.owner.append(folder, "", &letter(folder)).await;
    }
    app.owner.append("Work", "", &letter("kept")).await;
    app.owner.in_folder("Work", &["UID COPY 2 INBOX"]).await;
    app.connect().await;
    app.assert_equal().await;

    app.owner.does("RENAME Work Play").await;
    app.sync().await;
    app.assert_equal().await;
    assert_eq!(app.full_comparisons().await, 0);

    for folder in ["Play/Deep", "Play"] {
        app.owner.does(&format!("DELETE {folder}")).await;
    }
    app.owner.append("INBOX", "", &letter("new")).await;
    app.sync().await;
    app.assert_equal().await;
    // The server forgets the changes of messages with each folder that is deleted.
    assert_eq!(app.full_comparisons().await, 1);
    assert_eq!(app.count("emails").await, 5, "nothing was stored twice");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn impossible_state_lists_everything_once_more() {
    let mut app = CyrusApp::new().await;
    for n in 0..6 {
        app.owner.append("INBOX", "", &letter(&format!("{n}"))).await;
    }
    app.connect().await;

    // One of another server, and one that is yet to come, as after the server's backup was restored.
    for (n, state) in ["sAnother", "1000000"].into_iter().enumerate() {
        app.set_state(state).await;
        let uid = n + 1;
        app.owner
            .in_folder("INBOX", &[&format!("UID STORE {uid} +FLAGS (\\Deleted)"), &format!("UID EXPUNGE {uid}")])
            .await;
        app.owner.append("INBOX", "", &letter(&format!("new {n}"))).await;
        app.sync().await;
        app.assert_equal().await;
        assert_eq!(app.full_comparisons().await, n + 1, "{state}");
    }

    assert_eq!(app.count("emails").await, 8, "nothing was stored twice");
    app.finish().await;
}
