//! P1 under `kill -9`: wherever an import is cut off, the next one ends up with the same mail.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;
use store::failpoint::VARIABLE;

use crate::dump::{Everything, assert_same};
use crate::mail::mbox;
use crate::place::{PROGRAM, Place};
use crate::processes::{Running, watch_until};

const MESSAGES: usize = 80;

/// Small, so that there are many moments to be killed at.
const BATCH: usize = 8;

const ROUNDS: u64 = 10;

const KILLS: u64 = 50;

#[expect(clippy::disallowed_methods, reason = "`make chaos` asks for more rounds and repeats a seed")]
pub fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

/// SplitMix64: the same moments for the same seed, as far as a running process lets them be.
pub struct Random(u64);

impl Random {
    /// For somebody else, who takes numbers at times of their own.
    pub fn fork(&mut self) -> Self {
        Self(self.below(u64::MAX))
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        (mixed ^ (mixed >> 27)) % limit
    }
}

#[expect(clippy::print_stdout, reason = "a failure is repeated with the seed")]
pub fn random() -> Random {
    let seed = setting("MAILROOM_TEST_SEED", 1);
    println!("MAILROOM_TEST_SEED={seed}");
    Random(seed)
}

fn import(place: &Place, file: &str, tenant: &str) -> Command {
    let mut command =
        place.command(PROGRAM, &["import", file, "--tenant", tenant, "--mailbox", "me@acme.test", "--json"]);
    command.env("MAILROOM_IMPORT__BATCH_MESSAGES", BATCH.to_string());
    command
}

fn start(place: &Place, file: &str, tenant: &str) -> Running {
    Running::start(&mut import(place, file, tenant))
}

/// Everything that must not depend on how the import went.
fn facts(place: &Place, tenant: &str) -> BTreeSet<String> {
    let emails = place.emails(tenant);
    assert_eq!(emails.len(), MESSAGES, "each once");
    let fact = |email: &Value| {
        let parts: Vec<&Value> = email["attachments"].as_array().unwrap().iter().map(|part| &part["sha256"]).collect();
        let names = ["provider_message_id", "sha256", "subject", "received_at", "folders", "flags", "body_text", "to"];
        format!("{:?} {parts:?}", names.map(|name| &email[name]))
    };
    emails.iter().map(fact).collect()
}

/// Waits until the import has written a number of packs, and then a little, so that any step of a batch can be hit.
fn reach_a_moment(place: &Place, running: &mut Running, random: &mut Random) {
    let packs = place.packs().len() as u64 + random.below((MESSAGES / BATCH) as u64);
    let a_little = Duration::from_micros(random.below(20_000));
    watch_until("an import gets somewhere", || running.has_ended() || place.packs().len() as u64 >= packs);
    let reached = Instant::now();
    watch_until("a little later", || running.has_ended() || reached.elapsed() >= a_little);
}

/// Where an import was when it died, by the last durable effect that it began or ended.
fn stage(trace: &str) -> &'static str {
    match trace.lines().last() {
        Some("before:announce_pack") => "announcing a pack",
        Some("after:announce_pack") => "parsing and packing",
        Some("before:write_object") => "writing an object",
        Some("after:write_object") => "between bytes and rows",
        Some("before:commit_batch") => "committing",
        Some("after:commit_batch") => "after a commit",
        _ => "before the first batch",
    }
}

const STAGES: usize = 7;

/// Kills until there were enough of them, and at least one in each stage.
fn killed_imports_end_up_whole(place: &Place) {
    let file = place.write("all.mbox", mbox(11, MESSAGES));
    assert_eq!(start(place, &file, "unbroken").finish().code, Some(0));
    let wanted = setting("MAILROOM_TEST_CHAOS_ROUNDS", KILLS);
    let (mut random, mut kills, mut tenants) = (random(), BTreeMap::<&str, u64>::new(), Vec::new());

    while kills.values().sum::<u64>() < wanted || kills.len() < STAGES {
        let tenant = format!("round-{}", tenants.len());
        assert!(tenants.len() < 20 * wanted as usize, "some stages are never met: {kills:?}");
        let trace = place.path(&format!("{tenant}.trace"));
        let read_trace = || std::fs::read_to_string(&trace).unwrap_or_default();
        let mut command = import(place, &file, &tenant);
        let mut running = Running::start(command.env(VARIABLE, format!("trace={}", trace.display())));
        let (effects, a_little) = (random.below(90), Duration::from_micros(random.below(3000)));
        watch_until("an import gets somewhere", || {
            running.has_ended() || read_trace().lines().count() as u64 >= effects
        });
        let reached = Instant::now();
        watch_until("a little later", || running.has_ended() || reached.elapsed() >= a_little);
        if running.kill().code.is_none() {
            *kills.entry(stage(&read_trace())).or_default() += 1;
        }

        let done = start(place, &file, &tenant).finish();
        assert_eq!(done.code, Some(0), "{tenant}: {done}");
        tenants.push(tenant);
    }

    tell(&format!("kills by stage: {kills:?}"));
    place.ok(&["gc", "--grace", "0s"]);
    place.assert_whole();
    let everything = Everything::of(place);
    let expected = everything.dump("unbroken");
    assert_eq!(expected["emails"].len(), MESSAGES);
    for tenant in tenants {
        assert_same(&everything.dump(&tenant), &expected, &tenant);
    }
}

#[expect(clippy::print_stdout, reason = "for who runs it")]
fn tell(text: &str) {
    println!("{text}");
}

#[test]
fn a_killed_import_ends_up_whole_on_sqlite() {
    killed_imports_end_up_whole(&Place::sqlite());
}

#[test]
fn a_killed_import_ends_up_whole_on_postgresql() {
    killed_imports_end_up_whole(&Place::postgres());
}

/// One mailbox, cut off again and again, never goes back and never stores anything twice.
fn one_mailbox_survives_many_kills(place: &Place) {
    let file = place.write("all.mbox", mbox(12, MESSAGES));
    let mut random = random();
    let mut stored = 0;

    for _ in 0..setting("MAILROOM_TEST_CHAOS_ROUNDS", ROUNDS) / 2 {
        let mut running = start(place, &file, "acme");
        reach_a_moment(place, &mut running, &mut random);
        running.kill();

        let report = place.objects(&["verify", "--deep"]);
        let now = report.first().map_or(0, |report| report["totals"]["emails"].as_u64().unwrap());
        assert!(report.iter().all(|report| report["ok"] == true), "half of a batch is there: {report:?}");
        assert!(now >= stored && now.is_multiple_of(BATCH as u64), "{now} after {stored}");
        stored = now;
    }

    assert_eq!(start(place, &file, "acme").finish().code, Some(0));
    facts(place, "acme");
    place.assert_whole();
}

#[test]
fn what_is_left_after_each_crash_is_whole_batches_on_sqlite() {
    one_mailbox_survives_many_kills(&Place::sqlite());
}

#[test]
fn what_is_left_after_each_crash_is_whole_batches_on_postgresql() {
    one_mailbox_survives_many_kills(&Place::postgres());
}

fn paused_imports_go_on(place: &Place) {
    let file = place.write("all.mbox", mbox(13, MESSAGES));
    let mut random = random();
    let mut running = start(place, &file, "acme");
    let mut paused = 0;

    while paused < 5 && !running.has_ended() {
        reach_a_moment(place, &mut running, &mut random);
        if running.pause() {
            paused += 1;
            // Readers are served whatever the sleeper holds.
            place.ok(&["tenant", "list"]);
            running.resume();
        }
    }

    let done = running.finish();
    assert_eq!(done.code, Some(0), "{done}");
    assert_eq!(done.objects()[0]["stored"], MESSAGES);
    facts(place, "acme");
    place.assert_whole();
    assert!(paused > 0, "the import ended before it was paused");
}

#[test]
fn a_paused_import_goes_on_where_it_was_on_sqlite() {
    paused_imports_go_on(&Place::sqlite());
}

#[test]
fn a_paused_import_goes_on_where_it_was_on_postgresql() {
    paused_imports_go_on(&Place::postgres());
}
