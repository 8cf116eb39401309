//! A backup of one PostgreSQL restored on another, where the login of the first was never heard of.

use store::failpoint::VARIABLE;
use store::scratch;

use crate::mail::mbox;
use crate::place::{Place, block_on};
use crate::servers::Postgres;

/// A login that may make roles, and an empty database of its own.
fn make_login(server: &Postgres, login: &str) -> String {
    let (host, _) = server.url().rsplit_once('/').unwrap();
    for sql in [format!("create role {login} login createrole"), format!("create database {login} owner {login}")] {
        block_on(scratch::run_sql(server.url(), &sql)).unwrap();
    }
    format!("{}/{login}", host.replace("postgres@", &format!("{login}@")))
}

fn assert_well(place: &Place, emails: usize) {
    place.ok(&["doctor"]);
    place.assert_whole();
    assert_eq!(place.emails("acme").len(), emails);
    assert_eq!(place.import(&place.write("new.mbox", mbox(72, 3)))["stored"], 3);
    place.ok(&["migrate", "--check"]);
}

#[test]
fn a_backup_is_restored_under_another_login_on_another_server() {
    let (first, second) = (Postgres::start(), Postgres::start());
    let place = Place::on_server(&make_login(&first, "ada"));
    place.import(&place.write("some.mbox", mbox(71, 12)));
    // Somebody of the first server's, whom the second does not know either.
    let (host, _) = first.url().rsplit_once('/').unwrap();
    let grant = "create role clerk; grant select on emails to clerk";
    block_on(scratch::run_sql(&format!("{host}/ada"), grant)).unwrap();
    let folder = place.path("backup").into_os_string().into_string().unwrap();
    place.ok(&["backup", "--out", &folder]);

    let restored = Place::on_empty_server(&make_login(&second, "grace"));
    restored.ok(&["restore", &folder]);
    assert_well(&restored, 12);

    // Cut off between the rows and the grants.
    let other = Place::on_empty_server(&make_login(&second, "joan"));
    let died = other.run_with(&[(VARIABLE, "before:migrate=crash")], &["restore", &folder]);
    assert_eq!(died.code, None, "{died}");
    other.run(&["restore", &folder]).assert_refused(1, &["go on with `mailroom migrate`"]);
    other.run(&["search", "", "--tenant", "acme"]).assert_refused(1, &["go on with `mailroom migrate`"]);
    other.ok(&["migrate"]);
    assert_well(&other, 12);
}
