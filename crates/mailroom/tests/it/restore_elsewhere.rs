//! A backup of one PostgreSQL, restored on another one that does not have its login.

use store::failpoint::VARIABLE;
use store::scratch;

use crate::installation::{TestInstallation, block_on};
use crate::mail::mbox;
use crate::servers::Postgres;

/// A login that may make roles, and an empty database of its own.
fn make_login(server: &Postgres, login: &str) -> String {
    let (host, _) = server.url().rsplit_once('/').unwrap();
    for sql in [format!("create role {login} login createrole"), format!("create database {login} owner {login}")] {
        block_on(scratch::run_sql(server.url(), &sql)).unwrap();
    }
    format!("{}/{login}", host.replace("postgres@", &format!("{login}@")))
}

fn assert_well(mailroom: &TestInstallation, emails: usize) {
    mailroom.ok(&["doctor"]);
    mailroom.assert_whole();
    assert_eq!(mailroom.emails("acme").len(), emails);
    assert_eq!(mailroom.import(&mailroom.write("new.mbox", mbox(72, 3)))["stored"], 3);
    mailroom.ok(&["migrate", "--check"]);
}

#[test]
fn backup_is_restored_under_another_login() {
    let (first, second) = (Postgres::start(), Postgres::start());
    let mailroom = TestInstallation::on_server(&make_login(&first, "ada"));
    mailroom.import(&mailroom.write("some.mbox", mbox(71, 12)));
    // A role of the first server that the second does not have.
    let (host, _) = first.url().rsplit_once('/').unwrap();
    let grant = "create role clerk; grant select on emails to clerk";
    block_on(scratch::run_sql(&format!("{host}/ada"), grant)).unwrap();
    let folder = mailroom.path("backup").into_os_string().into_string().unwrap();
    mailroom.ok(&["backup", "--out", &folder]);

    let restored = TestInstallation::on_empty_server(&make_login(&second, "grace"));
    restored.ok(&["restore", &folder]);
    assert_well(&restored, 12);

    // Cut off between the rows and the grants.
    let other = TestInstallation::on_empty_server(&make_login(&second, "joan"));
    let died = other.run_with(&[(VARIABLE, "before:migrate=crash")], &["restore", &folder]);
    assert_eq!(died.code, None, "{died}");
    other.run(&["restore", &folder]).assert_refused(1, &["finish that with `mailroom migrate`"]);
    other.run(&["search", "", "--tenant", "acme"]).assert_refused(1, &["finish that with `mailroom migrate`"]);
    other.ok(&["migrate"]);
    assert_well(&other, 12);
}
