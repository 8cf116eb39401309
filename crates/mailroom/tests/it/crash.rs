//! P1 under `kill -9`: wherever an import is cut off, the next one ends up with the same mail.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;
use store::failpoint::VARIABLE;

use crate::dump::{DatabaseDump, assert_same};
use crate::installation::{PROGRAM, TestInstallation};
use crate::mail::mbox;
use crate::processes::{RunningProcess, watch_until};

const MESSAGES: usize = 80;

/// Small, so that there are many moments to be killed at.
const BATCH_MESSAGES: usize = 8;

const ROUNDS: u64 = 10;

const KILLS: u64 = 50;

#[expect(clippy::disallowed_methods, reason = "`make chaos` asks for more rounds and repeats a seed")]
pub fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

/// SplitMix64: the same moments for the same seed, as far as a running process allows it.
pub struct SeededRandom(u64);

impl SeededRandom {
    /// Returns an independent generator, for another thread.
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
pub fn random() -> SeededRandom {
    let seed = setting("MAILROOM_TEST_SEED", 1);
    println!("MAILROOM_TEST_SEED={seed}");
    SeededRandom(seed)
}

fn import(mailroom: &TestInstallation, file: &str, tenant: &str) -> Command {
    let mut command = mailroom.command(
        PROGRAM,
        &["import", file, "--tenant", tenant, "--mailbox", "me@acme.test", "--json", "--create-tenant"],
    );
    command.env("MAILROOM_IMPORT__BATCH_MESSAGES", BATCH_MESSAGES.to_string());
    command
}

fn start(mailroom: &TestInstallation, file: &str, tenant: &str) -> RunningProcess {
    RunningProcess::start(&mut import(mailroom, file, tenant))
}

/// Returns everything that must not depend on how the import went.
fn facts(mailroom: &TestInstallation, tenant: &str) -> BTreeSet<String> {
    let emails = mailroom.emails(tenant);
    assert_eq!(emails.len(), MESSAGES, "each once");
    emails.iter().map(email_facts).collect()
}

fn email_facts(email: &Value) -> String {
    let parts: Vec<&Value> = email["attachments"].as_array().unwrap().iter().map(|part| &part["sha256"]).collect();
    let names = ["provider_message_id", "sha256", "subject", "received_at", "folders", "flags", "body_text", "to"];
    format!("{:?} {parts:?}", names.map(|name| &email[name]))
}

/// Waits until the import has written a number of packs, and then a little, so that any step of a batch can be hit.
fn wait_for_random_point(mailroom: &TestInstallation, running: &mut RunningProcess, random: &mut SeededRandom) {
    let packs = mailroom.packs().len() as u64 + random.below((MESSAGES / BATCH_MESSAGES) as u64);
    let a_little = Duration::from_micros(random.below(20_000));
    watch_until("an import gets somewhere", || running.has_ended() || mailroom.packs().len() as u64 >= packs);
    let reached = Instant::now();
    watch_until("a little later", || running.has_ended() || reached.elapsed() >= a_little);
}

/// Returns the stage at which an import died, by the last durable effect that it began or ended.
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
fn killed_imports_end_up_whole(mailroom: &TestInstallation) {
    let file = mailroom.write("all.mbox", mbox(11, MESSAGES));
    assert_eq!(start(mailroom, &file, "unbroken").finish().code, Some(0));
    let wanted = setting("MAILROOM_TEST_CHAOS_ROUNDS", KILLS);
    let (mut random, mut kills, mut tenants) = (random(), BTreeMap::<&str, u64>::new(), Vec::new());

    while kills.values().sum::<u64>() < wanted || kills.len() < STAGES {
        let tenant = format!("round-{}", tenants.len());
        assert!(tenants.len() < 20 * wanted as usize, "some stages are never met: {kills:?}");
        let trace = mailroom.path(&format!("{tenant}.trace"));
        let mut command = import(mailroom, &file, &tenant);
        let mut running = RunningProcess::start(command.env(VARIABLE, format!("trace={}", trace.display())));
        let (effects, a_little) = (random.below(90), Duration::from_micros(random.below(3000)));
        watch_until("an import gets somewhere", || {
            running.has_ended() || std::fs::read_to_string(&trace).unwrap_or_default().lines().count() as u64 >= effects
        });
        let reached = Instant::now();
        watch_until("a little later", || running.has_ended() || reached.elapsed() >= a_little);
        if running.kill().code.is_none() {
            *kills.entry(stage(&std::fs::read_to_string(&trace).unwrap_or_default())).or_default() += 1;
        }

        let done = start(mailroom, &file, &tenant).finish();
        assert_eq!(done.code, Some(0), "{tenant}: {done}");
        tenants.push(tenant);
    }

    print_line(&format!("kills by stage: {kills:?}"));
    mailroom.ok(&["gc", "--grace", "0s"]);
    mailroom.assert_whole();
    let database = DatabaseDump::of(mailroom);
    let expected = database.dump("unbroken");
    assert_eq!(expected["emails"].len(), MESSAGES);
    for tenant in tenants {
        assert_same(&database.dump(&tenant), &expected, &tenant);
    }
}

#[expect(clippy::print_stdout, reason = "for who runs it")]
fn print_line(text: &str) {
    println!("{text}");
}

#[test]
fn killed_import_completes_on_sqlite() {
    killed_imports_end_up_whole(&TestInstallation::sqlite());
}

#[test]
fn killed_import_completes_on_postgresql() {
    killed_imports_end_up_whole(&TestInstallation::postgres());
}

/// One mailbox, cut off again and again, never goes back and never stores anything twice.
fn one_mailbox_survives_many_kills(mailroom: &TestInstallation) {
    let file = mailroom.write("all.mbox", mbox(12, MESSAGES));
    let mut random = random();
    let mut stored = 0;

    for _ in 0..setting("MAILROOM_TEST_CHAOS_ROUNDS", ROUNDS) / 2 {
        let mut running = start(mailroom, &file, "acme");
        wait_for_random_point(mailroom, &mut running, &mut random);
        running.kill();

        let report = mailroom.objects(&["verify", "--deep"]);
        let now = report.first().map_or(0, |report| report["totals"]["emails"].as_u64().unwrap());
        assert!(report.iter().all(|report| report["ok"] == true), "half of a batch is there: {report:?}");
        assert!(now >= stored && now.is_multiple_of(BATCH_MESSAGES as u64), "{now} after {stored}");
        stored = now;
    }

    assert_eq!(start(mailroom, &file, "acme").finish().code, Some(0));
    facts(mailroom, "acme");
    mailroom.assert_whole();
}

#[test]
fn crash_leaves_whole_batches_on_sqlite() {
    one_mailbox_survives_many_kills(&TestInstallation::sqlite());
}

#[test]
fn crash_leaves_whole_batches_on_postgresql() {
    one_mailbox_survives_many_kills(&TestInstallation::postgres());
}

fn paused_imports_go_on(mailroom: &TestInstallation) {
    let file = mailroom.write("all.mbox", mbox(13, MESSAGES));
    let mut random = random();
    let mut running = start(mailroom, &file, "acme");
    let mut paused = 0;

    while paused < 5 && !running.has_ended() {
        wait_for_random_point(mailroom, &mut running, &mut random);
        if running.pause() {
            paused += 1;
            // Readers are served whatever the sleeper holds.
            mailroom.ok(&["tenant", "list"]);
            running.resume();
        }
    }

    let done = running.finish();
    assert_eq!(done.code, Some(0), "{done}");
    assert_eq!(done.objects()[0]["stored"], MESSAGES);
    facts(mailroom, "acme");
    mailroom.assert_whole();
    assert!(paused > 0, "the import ended before it was paused");
}

#[test]
fn paused_import_resumes_on_sqlite() {
    paused_imports_go_on(&TestInstallation::sqlite());
}

#[test]
fn paused_import_resumes_on_postgresql() {
    paused_imports_go_on(&TestInstallation::postgres());
}
