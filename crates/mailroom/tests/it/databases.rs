//! Databases that cannot be used: one plain sentence with what to do, the right exit code, and nothing changed.

use std::fs;

use crate::installation::{PASSWORD, TestInstallation, on_each_database};
use crate::mail::simple;
use crate::servers::{Postgres, closed_port};

#[test]
fn newer_database_is_left_alone() {
    on_each_database(|mailroom| {
        let file = mailroom.write("a.eml", simple("a", "b"));
        mailroom.import(&file);
        mailroom.sql("insert into schema_migrations values (9999, 'future', '', '2026-01-01')");
        let says = ["the database was made by a newer Mailroom (schema 9999", "; upgrade this program"];

        mailroom.try_import(&file).assert_refused(1, &says);
        mailroom.run(&["search", "", "--tenant", "acme"]).assert_refused(1, &says);
        mailroom.run(&["migrate"]).assert_refused(1, &says);
        mailroom.run(&["migrate", "--check"]).assert_refused(1, &says);

        mailroom.sql("delete from schema_migrations where version = 9999");
        mailroom.assert_whole();
        assert_eq!(mailroom.emails("acme").len(), 1);
    });
}

#[test]
fn outdated_postgresql_is_refused() {
    let mailroom = TestInstallation::empty_postgres();
    let file = mailroom.write("a.eml", simple("a", "b"));

    mailroom.try_import(&file).assert_refused(1, &["schema is version 0", "run `mailroom migrate`"]);

    mailroom.ok(&["migrate"]);
    mailroom.import(&file);
}

#[test]
fn file_that_is_no_database_is_kept() {
    let mailroom = TestInstallation::sqlite();
    let file = mailroom.write("a.eml", simple("a", "b"));
    let text = "Dear diary, this is not a database at all. ".repeat(100);
    let database = mailroom.write("data/mailroom.db", &text);

    mailroom.try_import(&file).assert_refused(1, &["is not a SQLite database; check database.url and data_dir"]);

    assert_eq!(fs::read_to_string(database).unwrap(), text);
}

#[test]
fn wrong_password_is_not_repeated() {
    let mailroom = TestInstallation::sqlite();
    let file = mailroom.write("a.eml", simple("a", "b"));
    let server = Postgres::start();
    server.require_password("right");
    let (wrong, right) = (server.url_with(PASSWORD), server.url_with("right"));
    let args = ["import", &file, "--tenant", "acme", "--mailbox", "me@acme.test"];

    let refused = mailroom.run_with(&[("MAILROOM_DATABASE__URL", &wrong)], &args);
    let doctor = mailroom.run_with(&[("MAILROOM_DATABASE__URL", &wrong)], &["doctor"]);
    let file_of_url = mailroom.write("url", &wrong);
    let by_file = mailroom.run_with(&[("MAILROOM_DATABASE__URL_FILE", &file_of_url)], &args);
    let nowhere = mailroom.run_with(&[("MAILROOM_DATABASE__URL", &format!("{right}_absent"))], &args);

    for refused in [refused, by_file] {
        refused.assert_refused(2, &["PostgreSQL refuses the login", "check the user and password in database.url"]);
    }
    assert_eq!(doctor.code, Some(1));
    assert!(doctor.text().contains("BAD  database       PostgreSQL refuses the login"), "{doctor}");
    nowhere.assert_refused(2, &["does not exist", "create the database or correct database.url"]);
    let right = [("MAILROOM_DATABASE__URL", right.as_str())];
    assert_eq!(mailroom.run_with(&right, &["migrate"]).code, Some(0));
    assert_eq!(mailroom.run_with(&right, &args).code, Some(0));
}

#[test]
fn stopped_postgresql_is_reported() {
    let mailroom = TestInstallation::sqlite();
    let file = mailroom.write("a.eml", simple("a", "b"));
    let url = format!("postgres://ada:{PASSWORD}@127.0.0.1:{}/mail", closed_port());

    let args = ["import", &file, "--tenant", "acme", "--mailbox", "me@acme.test"];
    let refused = mailroom.run_with(&[("MAILROOM_DATABASE__URL", &url)], &args);

    refused.assert_refused(1, &["the database is not reachable", "check that it runs and that database.url is right"]);
}

#[test]
fn clock_an_hour_off_is_reported() {
    let mailroom = TestInstallation::postgres();
    let name = mailroom.url().unwrap().rsplit('/').next().unwrap();
    assert_eq!(mailroom.run(&["doctor"]).code, Some(0));
    for (offset, is_well) in [("1 hour", false), ("-1 hour", false), ("1 second", true)] {
        mailroom.sql(&format!("alter database {name} set mailroom.clock_offset = '{offset}'"));

        let doctor = mailroom.run(&["doctor"]);

        assert_eq!(doctor.code, Some(i32::from(!is_well)), "{offset}: {doctor}");
        let named = "BAD  clock          the database's clock differs from this machine's by 3";
        assert_eq!(doctor.text().contains(named), !is_well, "{offset}: {doctor}");
        assert_eq!(doctor.text().contains("synchronise both with a time server"), !is_well, "{offset}: {doctor}");
    }
}
