//! A database that goes away in the middle of an import: it waits, and goes on.

use serde_json::json;

use crate::installation::{PROGRAM, TestInstallation};
use crate::mail::mbox;
use crate::processes::{RunningProcess, wait_until};
use crate::servers::Postgres;

const MESSAGES: usize = 400;

#[test]
fn import_waits_for_a_restarted_postgresql() {
    let server = Postgres::start();
    let mailroom = TestInstallation::on_server(server.url());
    let file = mailroom.write("all.mbox", mbox(41, MESSAGES));
    let args = ["import", &file, "--tenant", "acme", "--mailbox", "me@acme.test", "--json"];
    let mut running = RunningProcess::start(
        mailroom.command(PROGRAM, &args).env("MAILROOM_IMPORT__BATCH_MESSAGES", "4").env("MAILROOM_LOG__LEVEL", "off"),
    );

    let mut restarts = 0;
    for packs in [5, 30, 60] {
        wait_until("the import is under way", || running.has_ended() || mailroom.packs().len() >= packs);
        if !running.has_ended() {
            server.restart();
            restarts += 1;
        }
    }

    let done = running.finish();
    assert_eq!(done.code, Some(0), "{done}");
    assert!(restarts > 0, "the import was over too soon");
    let summary = &done.objects()[0];
    assert_eq!(
        (&summary["read"], &summary["stored"], &summary["failed"]),
        (&json!(MESSAGES), &json!(MESSAGES), &json!(0))
    );
    assert_eq!(mailroom.emails("acme").len(), MESSAGES);
    mailroom.assert_whole();
}

#[test]
fn import_without_retries_reports_a_lost_database() {
    let server = Postgres::start();
    let mailroom = TestInstallation::on_server(server.url());
    let file = mailroom.write("all.mbox", mbox(41, MESSAGES));
    mailroom.ok(&["tenant", "create", "acme"]);
    let args = ["import", &file, "--tenant", "acme", "--mailbox", "me@acme.test", "--json"];
    let mut command = mailroom.command(PROGRAM, &args);
    command
        .env("MAILROOM_IMPORT__BATCH_MESSAGES", "4")
        .env("MAILROOM_IMPORT__PATIENCE", "0s")
        .env("MAILROOM_LOG__LEVEL", "off");
    let mut running = RunningProcess::start(&mut command);
    wait_until("the import is under way", || running.has_ended() || mailroom.packs().len() >= 5);

    drop(server);

    running.finish().assert_refused(1, &["the database is not reachable", "check that it runs"]);
}
