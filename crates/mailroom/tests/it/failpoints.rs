//! The process dies right before and right after everything that it makes durable; the same commands, run again, end up
//! where an unbroken run does.

use std::collections::BTreeSet;
use std::process::Command;

use store::failpoint::{Effect, VARIABLE};

use crate::dump::{TenantDump, assert_same, dump};
use crate::installation::{CommandOutput, PROGRAM, TestInstallation};
use crate::mail::mbox;

const MESSAGES: usize = 24;

/// Everything that makes something durable, in an order in which each of it has something to do.
const COMMANDS: &[&[&str]] = &[
    &["migrate"],
    &["import", "a.mbox", "--tenant", "acme", "--mailbox", "me@acme.test", "--json"],
    // The tenant has these bytes: a pack is announced for nothing.
    &["import", "a.mbox", "--tenant", "acme", "--mailbox", "copy@acme.test", "--json"],
    &["email", "purge", "--tenant", "acme", "--query", "before:2024-01-01", "--yes", "--json"],
    &["email", "purge", "--tenant", "acme", "--query", "has:attachment", "--yes", "--json"],
    &["gc", "--grace", "0s", "--json"],
    &["backup", "--out", "backup", "--json"],
];

/// Restores go into another Mailroom; the tests of [`crate::backup`] die there.
const TESTED_ELSEWHERE: [Effect; 2] = [Effect::RestoreObject, Effect::RestoreDatabase];

fn command(mailroom: &TestInstallation, args: &[&str], failpoints: &str) -> Command {
    let mut command = mailroom.command(PROGRAM, args);
    command.env("MAILROOM_IMPORT__BATCH_MESSAGES", "8").env(VARIABLE, failpoints);
    command
}

/// Runs all commands, with the process dying at one failpoint, and each broken command once more. Returns whether it died.
fn run_commands(mailroom: &TestInstallation, failpoints: &str) -> bool {
    mailroom.write("a.mbox", mbox(21, MESSAGES));
    let mut has_died = false;
    for args in COMMANDS {
        let done = CommandOutput::of(&mut command(mailroom, args, if has_died { "" } else { failpoints }));
        if done.code.is_none() {
            has_died = true;
            let again = CommandOutput::of(&mut command(mailroom, args, ""));
            assert_eq!(again.code, Some(0), "{failpoints}: {args:?} again: {again}");
        } else {
            assert_eq!(done.code, Some(0), "{failpoints}: {args:?}: {done}");
        }
    }
    // What a crash left behind may have been too young for the first one.
    mailroom.ok(&["gc", "--grace", "0s"]);
    has_died
}

fn assert_right(mailroom: &TestInstallation, expected: &TenantDump, what: &str) {
    mailroom.assert_whole();
    let states: BTreeSet<String> = mailroom.select("select state from packs").into_iter().collect();
    assert_eq!(states, BTreeSet::from(["live".to_owned()]), "{what}");
    // What a write that was cut off left behind under a temporary name is removed when it is an hour old.
    let objects = mailroom.packs().iter().filter(|file| !file.to_string_lossy().contains('#')).count();
    assert_eq!(objects, mailroom.select("select object_key from packs").len(), "{what}: objects without a pack");
    assert_same(&dump(mailroom, "acme"), expected, what);
}

/// `new` makes an installation that may have its schema, `empty` one that has none.
fn dies_at_each(new: fn() -> TestInstallation, empty: fn() -> TestInstallation) {
    let unbroken = empty();
    assert!(!run_commands(&unbroken, ""));
    let expected = dump(&unbroken, "acme");
    assert_right(&unbroken, &expected, "unbroken");
    assert!(!expected["emails"].is_empty() && !expected["blobs"].is_empty());

    // The queue has a story of its own, in `store`, and so have keys, in [`crate::secrets`], and mailboxes elsewhere.
    let elsewhere = [
        &TESTED_ELSEWHERE,
        Effect::QUEUE,
        Effect::SECRETS,
        Effect::SYNC,
        Effect::TOKENS,
        Effect::PUSHES,
        Effect::SUBSCRIPTIONS,
        Effect::DISCOVERY,
        Effect::WEBHOOKS,
    ]
    .concat();
    for effect in Effect::ALL.iter().filter(|effect| !elsewhere.contains(effect)) {
        for moment in ["before", "after"] {
            let failpoint = format!("{moment}:{}=crash", effect.name());
            let mailroom = if *effect == Effect::Migrate { empty() } else { new() };
            assert!(run_commands(&mailroom, &failpoint), "{failpoint} was never reached");
            assert_right(&mailroom, &expected, &failpoint);
        }
    }
}

#[test]
fn death_at_any_failpoint_loses_nothing_on_sqlite() {
    dies_at_each(TestInstallation::sqlite, TestInstallation::sqlite);
}

#[test]
fn death_at_any_failpoint_loses_nothing_on_postgresql() {
    dies_at_each(TestInstallation::postgres, TestInstallation::empty_postgres);
}
