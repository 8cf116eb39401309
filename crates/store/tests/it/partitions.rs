//! Partitions by receive time: made ahead and on demand, and only those opened that are needed.

use std::sync::Arc;

use domain::{EmailId, SystemClock};
use jiff::{SignedDuration, Timestamp, ToSpan};
use store::sql::search::{PageStart, SearchPage};
use store::testing::{TestDatabase, admin_url, migrate_fresh_postgres, migrated_postgres, run_sql, wait_until};
use store::{Location, Store, StoreError, TenantStore};
use tempfile::tempdir;
use tokio_postgres::{Client, NoTls};

use crate::samples::{attachment, blobs, email, mailbox, record, tenant, time};

fn url(db: &TestDatabase) -> &str {
    match &db.location {
        Location::Postgres { url, .. } => url,
        Location::Sqlite { .. } => panic!("these tests are about PostgreSQL"),
    }
}

async fn admin(db: &TestDatabase) -> Client {
    let (client, connection) = tokio_postgres::connect(&admin_url(url(db)), NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

async fn texts(client: &Client, sql: &str) -> Vec<String> {
    client.query_typed(sql, &[]).await.unwrap().iter().map(|row| row.get(0)).collect()
}

async fn number(client: &Client, sql: &str) -> i64 {
    client.query_typed(sql, &[]).await.unwrap()[0].get(0)
}

const TABLES: [&str; 4] = ["emails", "email_recipients", "attachments", "email_search"];

async fn assert_default_is_empty(client: &Client) {
    for table in TABLES {
        assert_eq!(number(client, &format!("select count(*) from {table}_default")).await, 0, "{table}");
    }
}

/// One email in each of the given times, with an attachment.
async fn fill(tenant: &TenantStore, times: &[Timestamp]) -> Vec<EmailId> {
    let folder = tempdir().unwrap();
    let mailbox = mailbox(tenant).await;
    let emails: Vec<_> = times
        .iter()
        .map(|time| {
            let subject = format!("word {time}");
            let mut new = email(mailbox.id, &subject, *time);
            new.attachments = vec![attachment(new.id, subject.as_bytes())];
            new
        })
        .collect();
    let ids = emails.iter().map(|email| email.id).collect();
    record(tenant, &blobs(&folder), emails).await.unwrap();
    ids
}

/// From the earliest time that an id can have until tomorrow.
fn all_ages(db: &TestDatabase) -> Vec<Timestamp> {
    let now = db.store.clock().now();
    let mut times: Vec<Timestamp> = (1990..2026).map(|year| time(&format!("{year}-06-07T08:09:10Z"))).collect();
    times.extend((1..24).map(|months| now - SignedDuration::from_hours(24 * 30 * months)));
    times.extend([time("1990-01-01T00:00:00Z"), now, now + SignedDuration::from_hours(24)]);
    times
}

#[tokio::test]
async fn month_partitions_exist_ahead_years_on_demand() {
    let db = migrate_fresh_postgres().await;
    let client = admin(&db).await;
    let names = "select c.relname::text from pg_inherits i join pg_class c on c.oid = i.inhrelid
                 where i.inhparent = 'emails'::regclass order by 1";
    let ahead = texts(&client, names).await;
    let today = jiff::Zoned::new(db.store.clock().now(), jiff::tz::TimeZone::UTC);
    for months in [-24, -1, 0, 3] {
        let month = today.first_of_month().unwrap().checked_add(months.months()).unwrap();
        let name = format!("emails_{:04}_{:02}", month.year(), month.month());
        assert!(ahead.contains(&name), "{name} is not among {ahead:?}");
    }
    assert_eq!(ahead.len(), 24 + 1 + 3 + 2, "{ahead:?}");

    let acme = tenant(&db.store, "acme").await;
    let ages = all_ages(&db);
    let ids = fill(&acme, &ages).await;

    assert_default_is_empty(&client).await;
    let now = texts(&client, names).await;
    for year in ["emails_1990", "emails_1999", "emails_2020"] {
        assert!(now.iter().any(|name| name == year), "{year} is not among {now:?}");
    }
    assert_eq!(acme.get_emails(&ids).await.unwrap().len(), ids.len());
    assert!(acme.get_emails(&ids).await.unwrap().iter().all(|email| email.attachments.len() == 1));
    let page = SearchPage { limit: 1000, ..SearchPage::default() };
    let found = acme.search(&Default::default(), &page).await.unwrap();
    assert!(found.len() == ids.len() && found.is_sorted_by(|a, b| a > b), "{found:?}");
    assert!(acme.verify_rows(None).await.unwrap().is_empty());
    assert_eq!(db.store.system().isolation_problems().await.unwrap(), Vec::<String>::new());
    db.store.migrate().await.unwrap();
    assert_eq!(texts(&client, names).await, now);
}

/// Puts the rows of a partition where they would be if there had been none.
async fn return_to_default(client: &Client, suffix: &str) {
    let mut sql = "begin; set session_replication_role = replica;".to_owned();
    for table in TABLES {
        sql += &format!(
            "alter table {table} detach partition {table}_{suffix}; insert into {table} select * from {table}_{suffix};"
        );
    }
    for table in TABLES.iter().rev() {
        sql += &format!("drop table {table}_{suffix};");
    }
    client.batch_execute(&(sql + "commit; reset session_replication_role")).await.unwrap();
}

#[tokio::test]
async fn default_partition_is_emptied_during_ingest() {
    let db = migrated_postgres().await;
    let (client, acme) = (admin(&db).await, tenant(&db.store, "acme").await);
    let mut ids = fill(&acme, &all_ages(&db)).await;
    for suffix in ["1999", "2005", "2019"] {
        return_to_default(&client, suffix).await;
    }
    assert_eq!(number(&client, "select count(*) from emails_default").await, 3);
    // Another process, which believes that it has a partition for each.
    let importer = Store::open(&db.location, Arc::new(SystemClock)).unwrap().tenant(acme.id);
    let importing = tokio::spawn(async move {
        let mut ids = Vec::new();
        for n in 0..30 {
            let times: Vec<Timestamp> =
                [1999, 2005, 2019, 2003].map(|year| time(&format!("{year}-01-01T00:00:{:02}Z", n))).to_vec();
            ids.extend(fill(&importer, &times).await);
        }
        ids
    });
    while !importing.is_finished() {
        let (one, other) = (db.store.system(), db.store.system());
        let (one, other, read) = tokio::join!(one.upkeep(), other.upkeep(), acme.get_emails(&ids));
        one.unwrap();
        other.unwrap();
        assert_eq!(read.unwrap().len(), ids.len());
    }
    ids.extend(importing.await.unwrap());
    db.store.system().upkeep().await.unwrap();

    assert_default_is_empty(&client).await;
    let read = acme.get_emails(&ids).await.unwrap();
    assert!(read.len() == ids.len() && read.iter().all(|email| email.attachments.len() == 1 && email.to.len() == 1));
    assert!(acme.verify_rows(None).await.unwrap().is_empty());
    assert_eq!(db.store.system().isolation_problems().await.unwrap(), Vec::<String>::new());
}

/// As when a database of an earlier schema is migrated: mail of all ages is in the default partition and nothing else is there.
#[tokio::test]
async fn migration_empties_the_default_partition() {
    let db = migrated_postgres().await;
    let (client, acme) = (admin(&db).await, tenant(&db.store, "acme").await);
    let mut ages = all_ages(&db);
    ages.extend((1..=12).map(|month| time(&format!("2024-{month:02}-03T00:00:00Z"))));
    let ids = fill(&acme, &ages).await;
    let parts = "select substr(c.relname, 8)::text from pg_inherits i join pg_class c on c.oid = i.inhrelid
                 where i.inhparent = 'emails'::regclass and c.relname <> 'emails_default'";
    for suffix in texts(&client, parts).await {
        return_to_default(&client, &suffix).await;
    }
    assert_eq!(number(&client, "select count(*) from emails_default").await, ids.len() as i64);

    db.store.migrate().await.unwrap();

    assert_default_is_empty(&client).await;
    assert_eq!(acme.get_emails(&ids).await.unwrap().len(), ids.len());
    assert!(acme.verify_rows(None).await.unwrap().is_empty());
}

fn page(start: Option<PageStart>) -> SearchPage {
    SearchPage { limit: 2, start, ..SearchPage::default() }
}

#[tokio::test]
async fn emails_in_the_default_partition_are_found() {
    let db = migrated_postgres().await;
    let (client, acme) = (admin(&db).await, tenant(&db.store, "acme").await);
    let years = [1980, 1990, 1995, 2001, 2002, 2003, 2019, 2020, 2110];
    let mut ids = fill(&acme, &years.map(|year| time(&format!("{year}-06-07T08:09:10Z")))).await;
    ids.sort_by(|a, b| b.cmp(a));
    let all = SearchPage { limit: 100, ..SearchPage::default() };
    for suffix in ["1990", "2002", "2110", "2020", "1995", "2003", "2019"] {
        return_to_default(&client, suffix).await;

        assert_eq!(acme.search(&Default::default(), &all).await.unwrap(), ids, "{suffix}");
        let mut paged = acme.search(&Default::default(), &page(None)).await.unwrap();
        while let Some(last) = paged.last().copied().filter(|last| ids.last() != Some(last)) {
            paged.extend(acme.search(&Default::default(), &page(Some(PageStart::After(last)))).await.unwrap());
        }
        assert_eq!(paged, ids, "{suffix}");
        let (after, before) = (Some(time("1995-01-01T00:00:00Z")), Some(time("2003-01-01T00:00:00Z")));
        let dated = domain::search::SearchQuery { after, before, ..Default::default() };
        assert_eq!(acme.search(&dated, &all).await.unwrap(), ids[4..7], "{suffix}");
    }

    db.store.system().upkeep().await.unwrap();
    assert_eq!(acme.search(&Default::default(), &all).await.unwrap(), ids);
}

/// Waits until a session of this database waits for a lock on a table.
async fn wait_for_a_waiter(client: &Client) {
    let waiting = "select count(*) from pg_locks l join pg_database d on d.oid = l.database
                   where d.datname = current_database() and l.locktype = 'relation' and not l.granted";
    wait_until("a session waits", async || number(client, waiting).await > 0).await;
}

/// What it finds, begun while rows are on their way from the default partition to one of their own.
async fn read_during_a_move<T: Send + 'static>(
    db: &TestDatabase,
    read: impl Future<Output = Result<T, StoreError>> + Send + 'static,
) -> T {
    let (mover, watcher) = (admin(db).await, admin(db).await);
    return_to_default(&watcher, "2001").await;
    mover.batch_execute("begin").await.unwrap();
    let made = mover.query_typed("select mailroom_upkeep_partitions('{}', 60)", &[]).await.unwrap();
    assert_eq!(made[0].get::<_, Option<i32>>(0), Some(1));
    let reading = tokio::spawn(read);
    wait_for_a_waiter(&watcher).await;
    mover.batch_execute("commit").await.unwrap();
    reading.await.unwrap().unwrap()
}

#[tokio::test]
async fn reader_during_a_move_finds_all_rows() {
    let db = migrated_postgres().await;
    let acme = tenant(&db.store, "acme").await;
    let ids =
        fill(&acme, &["2001-02-03", "2001-10-11", "2002-02-03"].map(|day| time(&format!("{day}T00:00:00Z")))).await;

    let (reader, wanted) = (acme.clone(), ids.clone());
    let read = read_during_a_move(&db, async move { reader.get_emails(&wanted).await }).await;
    assert_eq!(read.len(), 3);
    assert!(read.iter().all(|email| email.attachments.len() == 1 && email.to.len() == 1));

    let page = SearchPage { limit: 10, ..SearchPage::default() };
    let (reader, wanted) = (acme.clone(), page.clone());
    let found = read_during_a_move(&db, async move { reader.search(&Default::default(), &wanted).await }).await;
    assert_eq!(found.len(), 3);

    // A range that leaves the default partition out once it has a partition of its own.
    let (after, before) = (Some(time("2001-02-01T00:00:00Z")), Some(time("2001-11-01T00:00:00Z")));
    let dated = domain::search::SearchQuery { after, before, ..Default::default() };
    let reader = acme.clone();
    let found = read_during_a_move(&db, async move { reader.search(&dated, &page).await }).await;
    assert_eq!(found, [ids[1], ids[0]]);
}

#[tokio::test]
async fn interrupted_upkeep_changes_nothing() {
    let db = migrated_postgres().await;
    let (client, acme) = (admin(&db).await, tenant(&db.store, "acme").await);
    let ids = fill(&acme, &[time("2001-02-03T04:05:06Z")]).await;
    return_to_default(&client, "2001").await;
    // Late, after rows were moved: the last table cannot be attached.
    run_sql(url(&db), "create table email_search_2001 (a int)").await.unwrap();

    assert!(db.store.system().upkeep().await.is_err());
    assert_eq!(number(&client, "select count(*) from attachments_default").await, 1);
    assert_eq!(acme.get_emails(&ids).await.unwrap().len(), 1);

    run_sql(url(&db), "drop table email_search_2001").await.unwrap();
    db.store.system().upkeep().await.unwrap();
    assert_default_is_empty(&client).await;
    assert_eq!(acme.get_emails(&ids).await.unwrap()[0].attachments.len(), 1);
}

fn shape(name: &str) -> String {
    format!(
        "select a.attname || ' ' || format_type(a.atttypid, a.atttypmod) || a.attcompression::text || a.attstorage::text || a.attnotnull || a.attstattarget
         from pg_attribute a where a.attrelid = '{name}'::regclass and a.attnum > 0 order by a.attnum"
    )
}

fn indexes(name: &str) -> String {
    format!("select count(*) from pg_index where indrelid = '{name}'::regclass")
}

#[tokio::test]
async fn partitions_have_their_parents_shape() {
    let db = migrated_postgres().await;
    let client = admin(&db).await;
    for table in TABLES {
        let parent = texts(&client, &shape(table)).await;
        for part in [format!("{table}_before_1990"), format!("{table}_default")] {
            assert_eq!(texts(&client, &shape(&part)).await, parent, "{part}");
            assert_eq!(number(&client, &indexes(&part)).await, number(&client, &indexes(table)).await, "{part}");
        }
    }
    let keys =
        "select count(*) from pg_constraint where contype = 'f' and conrelid = 'attachments_before_1990'::regclass
                and confrelid = 'emails_before_1990'::regclass";
    assert_eq!(number(&client, keys).await, 1);
}

/// Plans of everything that a store does, also inside functions and for foreign keys: the server sends them as notices,
/// which the driver logs.
mod plans {
    use std::sync::{Mutex, Once};

    static RECORDED_PLANS: Mutex<Vec<String>> = Mutex::new(Vec::new());

    struct PlanRecorder;

    impl log::Log for PlanRecorder {
        fn enabled(&self, _: &log::Metadata<'_>) -> bool {
            true
        }

        fn log(&self, record: &log::Record<'_>) {
            let text = record.args().to_string();
            if text.contains("Query Text:") {
                RECORDED_PLANS.lock().unwrap().push(text);
            }
        }

        fn flush(&self) {}
    }

    pub fn listen() {
        static ONCE: Once = Once::new();
        ONCE.call_once(|| {
            log::set_logger(&PlanRecorder).unwrap();
            log::set_max_level(log::LevelFilter::Info);
        });
    }

    /// Since the last time.
    pub fn recorded() -> Vec<String> {
        let recorded = std::mem::take(&mut *RECORDED_PLANS.lock().unwrap());
        assert!(!recorded.is_empty(), "the server sends no plans");
        recorded
    }

    /// Partitions that they read from.
    pub fn opened() -> Vec<String> {
        let recorded = recorded();
        let scanned =
            recorded.iter().flat_map(|plan| plan.lines()).filter(|line| line.contains("Scan") && line.contains(" on "));
        let mut names: Vec<String> = scanned
            .filter_map(|line| line.split(" on ").nth(1)?.split_whitespace().next())
            .filter(|name| super::TABLES.iter().any(|table| name.starts_with(&format!("{table}_"))))
            .filter(|name| !name.ends_with("_pkey") && !name.ends_with("_idx"))
            .map(str::to_owned)
            .collect();
        names.sort();
        names.dedup();
        names
    }
}

/// The same database, telling its plans.
fn with_plan_notices(db: &TestDatabase) -> Store {
    let settings = [
        "session_preload_libraries=auto_explain",
        "auto_explain.log_min_duration=0",
        "auto_explain.log_nested_statements=on",
        "auto_explain.log_level=notice",
    ];
    let options: Vec<String> = settings.iter().map(|setting| format!("-c%20{setting}")).collect();
    let url = format!("{}?options={}", admin_url(url(db)), options.join("%20"));
    Store::open(&Location::Postgres { url, connections: 1 }, Arc::new(SystemClock)).unwrap()
}

/// One test, because all plans are recorded in one list.
#[tokio::test]
async fn usual_queries_prune_partitions() {
    let db = migrated_postgres().await;
    let ids = fill(&tenant(&db.store, "acme").await, &all_ages(&db)).await;
    let acme = db.store.system().find_tenant("acme").await.unwrap().unwrap().id;
    let client = admin(&db).await;
    client.batch_execute("analyze").await.unwrap();
    let acme = with_plan_notices(&db).tenant(acme);
    plans::listen();
    let of_2003 = TABLES.map(|table| format!("{table}_2003"));
    // Months end in `_MM`, years in `_YYYY`.
    let is_month =
        |name: &String| name.ends_with("_default") || name.rsplit('_').next().is_some_and(|end| end.len() == 2);

    let email = acme.find_email(ids[9]).await.unwrap().unwrap();
    assert_eq!((email.received_at, email.attachments.len()), (time("1999-06-07T08:09:10Z"), 1));
    assert_eq!(plans::opened(), ["attachments_1999", "email_recipients_1999", "emails_1999"]);

    acme.get_searched_emails(&[ids[9], ids[10]]).await.unwrap();
    let opened = plans::opened();
    assert!(
        opened.len() == 6 && opened.iter().all(|name| name.ends_with("_1999") || name.ends_with("_2000")),
        "{opened:?}"
    );

    let (newest, one) = (Default::default(), SearchPage { limit: 1, ..SearchPage::default() });
    assert_eq!(acme.search(&newest, &one).await.unwrap(), [*ids.iter().max().unwrap()]);
    let opened = plans::opened();
    assert!(opened.len() <= 6 && opened.iter().all(is_month), "{opened:?}");

    let dated = domain::search::SearchQuery {
        after: Some(time("2003-01-01T00:00:00Z")),
        before: Some(time("2004-01-01T00:00:00Z")),
        ..Default::default()
    };
    let page = SearchPage { limit: 50, ..SearchPage::default() };
    assert_eq!(acme.search(&dated, &page).await.unwrap().len(), 1);
    assert_eq!(plans::opened(), ["email_search_2003"]);

    fill(&acme, &[time("2003-02-03T04:05:06Z")]).await;
    let opened = plans::opened();
    assert!(opened.iter().all(|name| of_2003.contains(name) || name == "emails_default"), "{opened:?}");

    let part = email.attachments[0].id;
    let sql = format!("explain select * from attachments where tenant_id = '{}' and id = '{part}'", acme.id);
    let plan = texts(&client, &sql).await.join("\n");
    assert!(
        plan.contains("attachments_1999") && !plan.contains("attachments_2") && !plan.contains("default"),
        "{plan}"
    );

    uses_the_text_index(&db, &client, &acme).await;
}

/// Through the function; and only through it, for under row security the operator is not leakproof.
async fn uses_the_text_index(db: &TestDatabase, client: &Client, acme: &TenantStore) {
    let many: Vec<Timestamp> = (0..5000).map(|n| time("2003-03-01T00:00:00Z") + SignedDuration::from_secs(n)).collect();
    fill(acme, &many).await;
    client.batch_execute("vacuum analyze email_search_2003").await.unwrap();
    plans::recorded();
    let word = "2003-03-01t00:07:09z";
    let phrase = domain::search::Phrase { tokens: vec![word.to_owned()], is_prefix: false };
    let query = domain::search::SearchQuery { all_of: vec![phrase], ..Default::default() };

    assert_eq!(acme.search(&query, &SearchPage { limit: 10, ..SearchPage::default() }).await.unwrap().len(), 1);
    let plan = plans::recorded().join("\n");
    assert!(plan.contains("Bitmap Index Scan on email_search_2003_tokens_idx"), "{plan}");

    let login = connect_in(db, acme).await;
    let direct =
        format!("explain select email_id from email_search where tenant_id = '{}' and tokens @@ '''{word}'''", acme.id);
    let plan = texts(&login, &direct).await.join("\n");
    assert!(plan.contains("email_search_2003") && !plan.contains("tokens_idx"), "{plan}");
}

async fn connect_in(db: &TestDatabase, tenant: &TenantStore) -> Client {
    let (client, connection) = tokio_postgres::connect(url(db), NoTls).await.unwrap();
    tokio::spawn(connection);
    let begin = format!(
        "begin; select set_config('role', 'mailroom_tenant', true), set_config('mailroom.tenant', '{}', true)",
        tenant.id
    );
    client.batch_execute(&begin).await.unwrap();
    client
}
