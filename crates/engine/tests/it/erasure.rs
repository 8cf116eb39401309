//! What is purged or erased is in no row, file and blob any more, nor in a backup that is taken afterwards.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use domain::{Actor, EmailId, Sha256};
use engine::Progress;
use engine::operations::{Invocation, emails, tenants};
use jiff::SignedDuration;
use store::testing::wait::wait_until;
use store::{Dialect, Location, TenantStore};
use testkit::{TestApp, on_each_app};

/// Words of the mail to erase: of its subject, sender, body, HTML, header, attachment's name and attachment.
const WORDS: [&str; 7] = ["xqsubject", "xqsender", "xqbody", "xqhtml", "xqheader", "xqname", "xqinside"];

fn secret(n: usize) -> String {
    format!(
        "Subject: {n} xqsubject\nFrom: <xqsender@acme.test>\nX-Note: xqheader\nMIME-Version: 1.0\n\
         Content-Type: multipart/mixed; boundary=b\n\n--b\nContent-Type: text/plain\n\nxqbody {n}\n\
         --b\nContent-Type: text/html\n\n<p>xqhtml {n}</p>\n\
         --b\nContent-Type: text/plain; name=xqname.txt\nContent-Disposition: attachment; filename=xqname.txt\n\n\
         xqinside {n}\n--b--\n"
    )
}

fn other(n: usize) -> String {
    format!("Subject: {n} harmless\nFrom: <ann@acme.test>\n\nhello {n} {}\n", "and so on ".repeat(n * 3))
}

/// Imports mail to erase between other mail, by several commits.
async fn import(app: &TestApp, tenant: &TenantStore) {
    for round in 0..4 {
        let mails = (0..10).map(|n| if n % 4 == 1 { secret(round * 10 + n) } else { other(round * 10 + n) });
        app.import(tenant, "me@acme.test", "INBOX", mails).await;
    }
}

/// Returns how often each word is in the database: in SQLite's files, or in PostgreSQL's rows.
async fn words_in_database(app: &TestApp) -> BTreeMap<&'static str, usize> {
    match &app.db.location {
        Location::Sqlite { path, .. } => words_below(path.parent().unwrap()),
        Location::Postgres { .. } => words_in_rows(app).await,
    }
}

fn words_below(folder: &Path) -> BTreeMap<&'static str, usize> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            words_below(&path).into_iter().for_each(|(word, count)| *found.entry(word).or_default() += count);
            continue;
        }
        let bytes = std::fs::read(&path).unwrap();
        for word in WORDS {
            let count = bytes.windows(word.len()).filter(|window| *window == word.as_bytes()).count();
            if count > 0 {
                *found.entry(word).or_default() += count;
            }
        }
    }
    found
}

async fn words_in_rows(app: &TestApp) -> BTreeMap<&'static str, usize> {
    let tables =
        "select relname::text from pg_class where relkind = 'r' and relnamespace = current_schema()::regnamespace";
    let mut found = BTreeMap::new();
    for table in app.db.rows(tables).await {
        let table: String = table.get(0).unwrap();
        for word in WORDS {
            let count = app.count(&format!("{table} t where t::text like '%{word}%'")).await;
            if count > 0 {
                *found.entry(word).or_default() += count;
            }
        }
    }
    found
}

/// Fails if packs have bytes that no row names, or if there is an object without a pack.
async fn assert_no_spare_bytes(app: &TestApp) {
    let spare = "packs p where size_bytes is null or size_bytes <> (
                     select coalesce(sum(stored_bytes), 0) from blobs b where b.tenant_id = p.tenant_id and b.pack_id = p.id)";
    assert_eq!(app.count(spare).await, 0, "a pack has bytes that no row names");
    assert_eq!(objects(&app.folder.path().join("blobs")), app.count("packs").await, "an object without a pack");
}

fn objects(folder: &Path) -> usize {
    let entries = std::fs::read_dir(folder).map(|entries| entries.map(|entry| entry.unwrap().path())).into_iter();
    entries.flatten().map(|path| if path.is_dir() { objects(&path) } else { 1 }).sum()
}

/// Fails if a word is in a backup that is taken now.
async fn assert_backup_is_clean(app: &TestApp) {
    if app.store().dialect() == Dialect::Postgres {
        return; // what `pg_dump` writes is rows
    }
    let out = app.folder.path().join("backup");
    app.engine.backup(&out, None, &Arc::new(Progress::default())).await.unwrap();
    assert_eq!(words_below(&out), BTreeMap::new(), "in the backup");
}

async fn secrets(tenant: &TenantStore) -> Vec<EmailId> {
    let query = content::query::parse("xqsubject").unwrap().including_deleted();
    engine::archive::search::all_matching(tenant, &query, None).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn purged_mail_is_nowhere_any_more() {
    on_each_app(async |app| {
        let acme = app.create_tenant("acme").await;
        import(app, &acme).await;
        let ids = secrets(&acme).await;
        let found = words_in_database(app).await;
        assert!(WORDS[..6].iter().all(|word| found.contains_key(word)), "{found:?}");
        let operator = Actor::Operator.into();
        // A row that grows moves within the file.
        for id in &ids[..4] {
            let call = Invocation::begin(&app.engine, &operator).await.unwrap();
            emails::delete(&call, acme.id, *id).await.unwrap();
        }

        let call = Invocation::begin(&app.engine, &operator).await.unwrap();
        let purged = emails::purge(&call, acme.id, &ids).await.unwrap();

        assert_eq!(purged, ids.len() as u64);
        assert_eq!(words_in_database(app).await, BTreeMap::new());
        app.engine.collect(acme.id, SignedDuration::ZERO, &Progress::default()).await.unwrap();
        assert_no_spare_bytes(app).await;
        assert_backup_is_clean(app).await;
        let rest = engine::archive::search::all_matching(&acme, &Default::default(), None).await.unwrap();
        assert_eq!(rest.len(), 40 - ids.len());
        for email in acme.get_emails(&rest).await.unwrap() {
            assert_eq!(Sha256::of(&app.engine.read_raw(&acme, &email).await.unwrap()), email.sha256);
        }
        assert!(acme.verify_rows(None).await.unwrap().is_empty());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn erased_tenant_is_nowhere_any_more() {
    on_each_app(async |app| {
        let (acme, beta) = (app.create_tenant("acme").await, app.create_tenant("beta").await);
        import(app, &acme).await;
        app.import(&beta, "me@beta.test", "INBOX", (0..20).map(other)).await;
        let operator = Actor::Operator.into();
        let call = Invocation::begin(&app.engine, &operator).await.unwrap();
        let tenant = app.store().system().find_tenant("acme").await.unwrap().unwrap();

        tenants::delete(&call, &tenant, SignedDuration::ZERO).await.unwrap();
        let worker = app.start_worker();
        let erased = "finished_jobs where kind = 'erase_tenant' and state = 'done'";
        wait_until("the tenant is erased", async || app.count(erased).await == 1).await;
        worker.shut_down().await;

        assert!(app.store().system().find_tenant("acme").await.unwrap().is_none());
        assert_eq!(words_in_database(app).await, BTreeMap::new());
        assert_no_spare_bytes(app).await;
        assert_backup_is_clean(app).await;
        let query = content::query::parse("harmless").unwrap();
        assert_eq!(engine::archive::search::all_matching(&beta, &query, None).await.unwrap().len(), 20);
    })
    .await;
}

/// What a process leaves that is killed while it overwrites free pages.
#[tokio::test(flavor = "multi_thread")]
async fn interrupted_scrub_is_completed_by_the_next_one() {
    on_each_app(async |app| {
        if app.store().dialect() == Dialect::Postgres {
            return;
        }
        let acme = app.create_tenant("acme").await;
        import(app, &acme).await;
        acme.purge_emails(&secrets(&acme).await).await.unwrap();
        app.db.run("insert into scrub_filler values (zeroblob(100000))").await;
        assert!(!words_in_database(app).await.is_empty());

        app.store().system().scrub(&|| {}).await.unwrap();

        assert_eq!(words_in_database(app).await, BTreeMap::new());
        assert_eq!(app.count("scrub_filler").await, 0);
        assert_eq!(app.count("scrubs where wanted = done").await, 1);
    })
    .await;
}
