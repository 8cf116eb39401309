//! The process dies right before and right after everything that it makes durable; the same commands, run again, end up
//! where an unbroken run does.

use std::collections::BTreeSet;
use std::process::Command;

use store::failpoint::{Effect, VARIABLE};

use crate::dump::{Dump, assert_same, dump};
use crate::mail::mbox;
use crate::place::{Done, PROGRAM, Place};

const MESSAGES: usize = 24;

/// Everything that makes something durable, in an order in which each of it has something to do.
const STORY: &[&[&str]] = &[
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
const ELSEWHERE: [Effect; 2] = [Effect::RestoreObject, Effect::RestoreDatabase];

fn command(place: &Place, args: &[&str], failpoints: &str) -> Command {
    let mut command = place.command(PROGRAM, args);
    command.env("MAILROOM_IMPORT__BATCH_MESSAGES", "8").env(VARIABLE, failpoints);
    command
}

/// Tells the story, with the process dying at one place, and each broken command run once more. Whether it died.
fn tell_story(place: &Place, failpoints: &str) -> bool {
    place.write("a.mbox", mbox(21, MESSAGES));
    let mut has_died = false;
    for args in STORY {
        let done = Done::of(&mut command(place, args, if has_died { "" } else { failpoints }));
        if done.code.is_none() {
            has_died = true;
            let again = Done::of(&mut command(place, args, ""));
            assert_eq!(again.code, Some(0), "{failpoints}: {args:?} again: {again}");
        } else {
            assert_eq!(done.code, Some(0), "{failpoints}: {args:?}: {done}");
        }
    }
    // What a crash left behind may have been too young for the first one.
    place.ok(&["gc", "--grace", "0s"]);
    has_died
}

fn assert_right(place: &Place, expected: &Dump, what: &str) {
    place.assert_whole();
    let states: BTreeSet<String> = place.select("select state from packs").into_iter().collect();
    assert_eq!(states, BTreeSet::from(["live".to_owned()]), "{what}");
    // What a write that was cut off left behind under a temporary name is removed when it is an hour old.
    let objects = place.packs().iter().filter(|file| !file.to_string_lossy().contains('#')).count();
    assert_eq!(objects, place.select("select object_key from packs").len(), "{what}: objects without a pack");
    assert_same(&dump(place, "acme"), expected, what);
}

fn dies_at_each(new: impl Fn() -> Place) {
    let unbroken = new();
    assert!(!tell_story(&unbroken, ""));
    let expected = dump(&unbroken, "acme");
    assert_right(&unbroken, &expected, "unbroken");
    assert!(!expected["emails"].is_empty() && !expected["blobs"].is_empty());

    // The queue has a story of its own, in `store`, and so have keys, in [`crate::secrets`], and mailboxes elsewhere.
    let elsewhere = [
        &ELSEWHERE,
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
    let is_here = |effect: &&Effect| !elsewhere.contains(effect);
    for effect in Effect::ALL.iter().filter(is_here) {
        for moment in ["before", "after"] {
            let failpoint = format!("{moment}:{}=crash", effect.name());
            let place = new();
            assert!(tell_story(&place, &failpoint), "{failpoint} was never reached");
            assert_right(&place, &expected, &failpoint);
        }
    }
}

#[test]
fn a_process_that_dies_at_any_failpoint_loses_nothing_on_sqlite() {
    dies_at_each(Place::sqlite);
}

#[test]
fn a_process_that_dies_at_any_failpoint_loses_nothing_on_postgresql() {
    dies_at_each(Place::empty_postgres);
}
