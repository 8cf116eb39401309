//! Queries with SQL: what the pages promise, `mailroom sql`, and logins of readers.

use std::fs;
use std::process::Stdio;

use serde_json::json;
use store::testing::{admin_url, run_sql};
use tokio_postgres::{Client, NoTls};

use crate::installation::{CommandOutput, PASSWORD, PROGRAM, TestInstallation, block_on, on_each_database};
use crate::mail::{mbox, simple};
use crate::servers::Postgres;

/// A query of a page.
struct PageQuery {
    page: String,
    text: String,
}

/// Returns every query of the pages: what is marked as SQL, and what is given to `mailroom sql` as it is pasted.
fn page_queries() -> Vec<PageQuery> {
    let docs = fs::read_dir("../../docs").unwrap().map(|entry| entry.unwrap().path());
    let pages = docs.filter(|path| path.extension().is_some_and(|extension| extension == "md"));
    let mut queries = Vec::new();
    for path in pages.chain(["../../README.md".into()]) {
        let (page, text) = (path.display().to_string(), fs::read_to_string(&path).unwrap());
        let marked = text.split("```sql\n").skip(1).map(|block| block.split("```").next().unwrap());
        let pasted = text.split("mailroom sql '").skip(1).map(|rest| rest.split('\'').next().unwrap());
        queries.extend(marked.chain(pasted).map(|text| PageQuery { page: page.clone(), text: text.to_owned() }));
    }
    queries
}

/// A reader as `mailroom sql grant` makes one, which goes when it is dropped.
struct Login<'a> {
    mailroom: &'a TestInstallation,
    name: String,
    password: String,
}

impl<'a> Login<'a> {
    fn grant(mailroom: &'a TestInstallation, tenant: Option<&str>) -> Self {
        let database = mailroom.url().unwrap().rsplit('/').next().unwrap();
        let name = format!("{}_of_{database}", tenant.unwrap_or("all"));
        let args =
            [&["sql", "grant", name.as_str()][..], tenant.map_or(&[], |_| &["--tenant"]), tenant.as_slice()].concat();
        let granted = mailroom.ok(&args);
        granted.assert_tells("This password is shown only now");
        let password = granted.text().trim().to_owned();
        assert_eq!(password.len(), 64, "{granted}");
        Self { mailroom, name, password }
    }

    /// Returns the address of the server itself, for this login: a pooler does not know it.
    fn url(&self, password: &str) -> String {
        let url = admin_url(self.mailroom.url().unwrap());
        format!("postgres://{}:{password}@{}", self.name, url.rsplit_once('@').unwrap().1)
    }

    async fn connect(&self, password: &str) -> Result<Client, tokio_postgres::Error> {
        let (client, connection) = tokio_postgres::connect(&self.url(password), NoTls).await?;
        tokio::spawn(connection);
        Ok(client)
    }

    /// Returns how many rows a query shows to it.
    fn count(&self, text: &str) -> usize {
        block_on(async {
            let client = self.connect(&self.password).await.unwrap();
            client.query_typed(text, &[]).await.unwrap_or_else(|e| panic!("{}: {text}: {e:?}", self.name)).len()
        })
    }
}

impl Drop for Login<'_> {
    fn drop(&mut self) {
        let _ = block_on(run_sql(self.mailroom.url().unwrap(), &format!("drop role if exists {}", self.name)));
    }
}

/// As people run it: by the command, by sqlite3 and by psql.
#[test]
fn every_query_of_the_pages_runs_as_they_say() {
    let queries = page_queries();
    assert!(queries.iter().any(|query| query.page.ends_with("README.md")), "the README has a query");
    assert!(queries.len() >= 12, "{} queries", queries.len());
    on_each_database(|mailroom| {
        mailroom.import(&mailroom.write("some.mbox", mbox(91, 40)));
        let logins = if mailroom.is_sqlite() {
            Vec::new()
        } else {
            vec![Login::grant(mailroom, None), Login::grant(mailroom, Some("acme"))]
        };
        let mut shown = 0;
        for PageQuery { page, text } in &queries {
            let rows = mailroom.objects(&["sql", text]).len();
            shown += usize::from(rows > 0);
            assert_eq!(mailroom.objects(&["sql", text, "--tenant", "acme"]).len(), rows, "{page}: {text}");
            for login in &logins {
                assert_eq!(login.count(text), rows, "{page}: {text}");
            }
            if mailroom.is_sqlite() {
                let shell = rusqlite::Connection::open(mailroom.data_dir().join("mailroom.db")).unwrap();
                let mut statement = shell.prepare(text).unwrap_or_else(|e| panic!("{page}: {text}: {e}"));
                assert_eq!(statement.query_map([], |_| Ok(())).unwrap().count(), rows, "{page}: {text}");
            }
        }
        // The others ask for what is wrong, of which there is nothing.
        assert!(shown + 4 >= queries.len(), "{shown} of {} queries show something", queries.len());
    });
}

#[test]
fn query_is_printed_as_table_csv_and_json() {
    on_each_database(|mailroom| {
        mailroom.import(&mailroom.write("a.eml", simple("Say \"hi\", Bob", "one")));
        let query = "select subject, size_bytes > 1 as is_big, null as missing from mailroom_emails";
        let big = if mailroom.is_sqlite() { "1" } else { "true" };

        let table = mailroom.ok(&["sql", query]).text();
        let csv = mailroom.ok(&["sql", query, "--csv"]).text();
        let object = mailroom.ok(&["sql", query, "--json"]).text();

        assert!(table.starts_with("subject        is_big  missing\n──────"), "{table}");
        assert!(table.ends_with(&format!("Say \"hi\", Bob  {big}\n")), "{table}");
        assert_eq!(csv, format!("subject,is_big,missing\n\"Say \"\"hi\"\", Bob\",{big},\n"));
        assert_eq!(object, format!("{{\"subject\":\"Say \\\"hi\\\", Bob\",\"is_big\":{big},\"missing\":null}}\n"));
    });
}

#[test]
fn query_says_when_it_shows_less_than_all() {
    on_each_database(|mailroom| {
        mailroom.import(&mailroom.write("some.mbox", mbox(92, 5)));
        let query = "select email_id from mailroom_emails";

        let cut = mailroom.ok(&["sql", query, "--limit", "3", "--json"]);
        let whole = mailroom.ok(&["sql", query, "--limit", "5", "--json"]);

        assert_eq!((cut.objects().len(), whole.objects().len()), (3, 5));
        assert_eq!(cut.stderr, "Only the first 3 rows are shown; --limit N shows more.\n");
        assert_eq!(whole.stderr, "");
        let mut piped = mailroom.command("bash", &["-c", &format!("echo '{query}' | {PROGRAM} sql - --csv")]);
        assert_eq!(CommandOutput::of(piped.stdin(Stdio::null())).text().lines().count(), 6);
    });
}

#[test]
fn refused_query_says_why_and_names_the_views() {
    on_each_database(|mailroom| {
        mailroom.ok(&["tenant", "create", "acme"]);
        let views = "the views are mailroom_emails, mailroom_recipients,";
        for (query, why) in [
            ("select * from mailroom_emils", "mailroom_emils"),
            ("selec 1", "syntax error"),
            ("select * from secrets", "secrets"),
            ("delete from mailroom_emails", "only a query that returns rows"),
            ("select 1; select 2", "statement"),
        ] {
            let refused = mailroom.run(&["sql", query, "--tenant", "acme"]);
            assert_eq!((refused.code, refused.text().as_str()), (Some(2), ""), "{query}: {refused}");
            if query.starts_with("delete") && mailroom.is_sqlite() {
                // It sees first that a view cannot be written.
                refused.assert_one_sentence("error: ", &[views]);
            } else if query.contains(';') && !mailroom.is_sqlite() {
                refused.assert_one_sentence("error: ", &["multiple commands", views]);
            } else {
                refused.assert_one_sentence("error: ", &[why, views]);
            }
        }
        let endless = "with recursive n (i) as (select 1 union all select i + 1 from n) select count(*) from n";
        mailroom
            .run(&["sql", endless, "--timeout", "50ms"])
            .assert_refused(1, &["the query was stopped after 0.05 s; --timeout allows more"]);
        mailroom.run(&["sql", "select 1", "--timeout", "soon"]).assert_refused(2, &["--timeout must be a duration"]);
        mailroom.run(&["sql", "select 1", "--csv", "--json"]).assert_refused(2, &["choose one"]);
        mailroom.run(&["sql", "select 1", "--tenant", "nobody"]).assert_refused(1, &["no tenant \"nobody\""]);
    });
}

#[test]
fn readers_are_granted_listed_and_revoked() {
    let mailroom = TestInstallation::postgres();
    mailroom.import(&mailroom.write("a.eml", simple("one", "an apple")));
    let acme = mailroom.tenants()[0]["id"].clone();
    let mut login = Login::grant(&mailroom, Some("acme"));
    let name = login.name.clone();

    let listed = mailroom.object(&["sql", "list"]);
    assert_eq!((&listed["login"], &listed["tenant_id"], &listed["can_log_in"]), (&json!(name), &acme, &json!(true)));
    assert!(mailroom.ok(&["sql", "list"]).text().contains("acme   can log in"));
    assert_eq!(login.count("select * from mailroom_emails"), 1);
    mailroom.run(&["sql", "grant", &name]).assert_refused(1, &["is a reader already; revoke it first"]);
    for taken in ["postgres", store::testing::LOGIN] {
        let refused = mailroom.run(&["sql", "grant", taken]);
        assert!(refused.code != Some(0), "{taken}: {refused}");
    }
    for bad in ["Upper", "a-b", "a b", "1st", "pg_x", "mailroom_x", "none", "x\"; drop table emails; --"] {
        mailroom.run(&["sql", "grant", bad]).assert_refused(2, &["login must"]);
    }

    assert_eq!(mailroom.ok(&["sql", "revoke", &name]).text(), format!("{name} reads nothing any more.\n"));

    assert_eq!(mailroom.ok(&["sql", "list"]).text().lines().count(), 1);
    mailroom.run(&["sql", "revoke", &name]).assert_refused(1, &["there is no reader", "`mailroom sql list`"]);
    assert!(block_on(login.connect(&login.password)).is_err(), "its login is dropped");
    let audit = mailroom.select("select entry::text from audit order by seq").join("\n");
    for action in ["sql_reader.grant", "sql_reader.revoke"] {
        assert!(audit.contains(action) && !audit.contains(&login.password), "{audit}");
    }
    // One that an administrator has made, with a password of its own.
    let make = format!("create role {name} login in role mailroom_all_reader");
    mailroom.sql(&make);
    mailroom.run(&["sql", "grant", &name, "--tenant", "acme"]).assert_refused(1, &["no reader of this kind"]);
    assert_eq!(mailroom.object(&["sql", "grant", &name])["password"], json!(null));
    login.password.clear();
    assert_eq!(login.count("select * from mailroom_emails"), 1);
}

#[test]
fn sqlite_has_no_readers() {
    let mailroom = TestInstallation::sqlite();
    for args in [&["sql", "grant", "x"][..], &["sql", "revoke", "x"]] {
        mailroom.run(args).assert_refused(1, &["SQLite has no logins", "`mailroom sql --tenant`"]);
    }
    assert!(mailroom.ok(&["sql", "list"]).text().starts_with("No reader yet"));
}

/// The server has no more of the password than what tells it from another.
#[test]
fn reader_logs_in_with_its_password_alone() {
    let server = Postgres::start();
    server.require_password("right");
    let mailroom = TestInstallation::on_server(&server.url_with("right"));
    let file = mailroom.write("password", format!("{PASSWORD}\n"));
    let granted = mailroom.ok(&["sql", "grant", "clerk", "--password-file", &file]);
    assert_eq!(granted.text(), "clerk reads the rows of all tenants.\n");
    let login = Login { mailroom: &mailroom, name: "clerk".to_owned(), password: PASSWORD.to_owned() };

    assert!(block_on(login.connect(PASSWORD)).is_ok());
    assert!(block_on(login.connect("wrong")).is_err());
}
