//! The collector deletes bytes that no row names, and nothing else, whatever is written, read or stopped meanwhile.

use std::process::Command;

use serde_json::json;
use store::failpoint::VARIABLE;

use crate::installation::{CommandOutput, PROGRAM, TestInstallation, on_each_database};
use crate::mail::{mbox, simple};
use crate::processes::{RunningProcess, wait_until};

fn importing(mailroom: &TestInstallation, file: &str, mailbox: &str, failpoints: &str) -> Command {
    let mut command = mailroom.command(PROGRAM, &["import", file, "--tenant", "acme", "--mailbox", mailbox, "--json"]);
    command.env(VARIABLE, failpoints);
    command
}

fn collect(mailroom: &TestInstallation) -> serde_json::Value {
    mailroom.objects(&["gc", "--grace", "0s"]).remove(0)
}

/// Returns the size of the data folder.
fn disk_use(mailroom: &TestInstallation) -> u64 {
    crate::installation::files_below(&mailroom.data_dir())
        .iter()
        .map(|file| file.metadata().map_or(0, |meta| meta.len()))
        .sum()
}

#[test]
fn collector_frees_the_bytes_of_purged_mail() {
    const MESSAGES: usize = 1200;
    on_each_database(|mailroom| {
        let file = mailroom.write("all.mbox", mbox(31, MESSAGES));
        mailroom.import(&file);
        let before = disk_use(mailroom);
        let newest = mailroom.objects(&["search", "", "--tenant", "acme", "--limit", "600"]);
        let ids: Vec<&str> = newest.iter().map(|email| email["id"].as_str().unwrap()).collect();

        let purged = mailroom.object(&[&["email", "purge", "--tenant", "acme", "--yes"], &ids[..]].concat());
        assert_eq!(purged["purged"], 600);
        let collected = collect(mailroom);
        assert_eq!(collected["problems"], json!([]), "{collected}");
        assert!(collected["blobs_deleted"].as_u64().unwrap() >= 600, "{collected}");
        mailroom.assert_whole();
        let rest = mailroom.path("rest.mbox").into_os_string().into_string().unwrap();
        mailroom.ok(&["export", "--tenant", "acme", "--out", &rest]);
        let fresh = if mailroom.is_sqlite() { TestInstallation::sqlite() } else { TestInstallation::postgres() };
        assert_eq!(fresh.import(&rest)["stored"], 600);
        // As a collector would leave it; the difference is what was not collected.
        collect(&fresh);

        let (left, ideal) = (disk_use(mailroom), disk_use(&fresh));
        assert!(left * 100 <= ideal * 110, "{left} bytes are left of {before}, a fresh import takes {ideal}");
    });
}

#[test]
fn second_collection_changes_nothing() {
    on_each_database(|mailroom| {
        let file = mailroom.write("all.mbox", mbox(32, 60));
        mailroom.run_with(
            &[("MAILROOM_IMPORT__BATCH_MESSAGES", "5")],
            &["import", &file, "--tenant", "acme", "--mailbox", "a@b.test"],
        );
        assert!(mailroom.packs().len() > 5, "an import in small batches makes small packs");

        let first = collect(mailroom);
        let packs = mailroom.packs();
        let second = collect(mailroom);

        assert!(first["packs_merged"].as_u64().unwrap() > 5, "{first}");
        assert_eq!(packs.len(), 1, "{first}");
        for what in ["packs_given_up", "blobs_condemned", "blobs_deleted", "packs_merged", "objects_deleted"] {
            assert_eq!(second[what], 0, "{what}: {second}");
        }
        assert_eq!(mailroom.packs(), packs);
        mailroom.assert_whole();
    });
}

#[test]
fn grace_period_protects_bytes() {
    on_each_database(|mailroom| {
        mailroom.import(&mailroom.write("a.eml", simple("a", "b")));
        mailroom.object(&["email", "purge", "--tenant", "acme", "--query", "", "--yes"]);

        let collected = mailroom.objects(&["gc"]).remove(0);

        assert_eq!((&collected["blobs_condemned"], &collected["blobs_deleted"]), (&json!(1), &json!(0)));
        assert_eq!(mailroom.packs().len(), 1);
    });
}

/// A writer sleeps between bytes and rows while the collector gives its pack up.
fn a_writer_oversleeps(mailroom: &TestInstallation, off: &str) -> (CommandOutput, bool) {
    let file = mailroom.write("all.mbox", mbox(33, 20));
    mailroom.ok(&["tenant", "create", "acme"]);
    let failpoints = format!("before:commit_batch=stop {off}");
    let mut writer = RunningProcess::start(&mut importing(mailroom, &file, "me@acme.test", &failpoints));
    wait_until("the writer sleeps", || writer.has_ended() || writer.is_stopped());
    assert_eq!(mailroom.packs().len(), 1);

    // The collector dies as well, with the object gone and the row still there: nothing but its state is in the way.
    let mut collector = mailroom.command(PROGRAM, &["gc", "--grace", "0s"]);
    let died = CommandOutput::of(collector.env(VARIABLE, "before:forget_pack=crash"));
    assert_eq!(died.code, None, "{died}");
    assert!(mailroom.packs().is_empty());
    writer.resume();

    let done = writer.finish();
    let is_whole = mailroom.objects_of(&["verify", "--deep"]).iter().all(|report| report["ok"] == true);
    (done, is_whole)
}

#[test]
fn late_writer_writes_its_bytes_again() {
    on_each_database(|mailroom| {
        let (done, is_whole) = a_writer_oversleeps(mailroom, "");

        assert_eq!(done.code, Some(0), "{done}");
        assert_eq!(done.objects()[0]["stored"], 20);
        assert!(is_whole);
        assert_eq!(collect(mailroom)["blobs_deleted"], 0);
        mailroom.assert_whole();
    });
}

#[test]
fn without_the_guard_a_late_writer_loses_bytes() {
    on_each_database(|mailroom| {
        let (_, is_whole) = a_writer_oversleeps(mailroom, "off=pack_is_writing");
        assert!(!is_whole, "the guard is not what protects this");
    });
}

/// Stores condemned bytes again while the collector is stopped at one failpoint.
fn condemned_bytes_come_back(mailroom: &TestInstallation, collector_stops: &str, off: &str) -> bool {
    let file = mailroom.write("a.mbox", mbox(34, 12));
    mailroom.import(&file);
    mailroom.object(&["email", "purge", "--tenant", "acme", "--query", "", "--yes"]);
    mailroom.ok(&["gc"]); // condemns

    let mut command = mailroom.command(PROGRAM, &["gc", "--grace", "0s", "--json"]);
    let mut collector = RunningProcess::start(command.env(VARIABLE, format!("{collector_stops}=stop")));
    wait_until("the collector sleeps", || collector.has_ended() || collector.is_stopped());
    assert!(!collector.has_ended(), "{collector_stops} was never reached");
    // It holds no lock while it sleeps.
    let imported = CommandOutput::of(&mut importing(mailroom, &file, "me@acme.test", off));
    collector.resume();
    let collected = collector.finish();

    assert_eq!(collected.code, Some(0), "{collector_stops}: {collected}");
    assert_eq!(imported.code, Some(0), "{collector_stops}: {imported}");
    let is_whole = mailroom.objects_of(&["verify", "--deep"]).iter().all(|report| report["ok"] == true);
    assert_eq!(mailroom.emails("acme").len(), 12, "{collector_stops}");
    // And nothing of it is collected later.
    collect(mailroom);
    is_whole && mailroom.objects_of(&["verify", "--deep"]).iter().all(|report| report["ok"] == true)
}

#[test]
fn condemned_bytes_that_come_back_survive() {
    for new in [TestInstallation::sqlite, TestInstallation::postgres] {
        for effect in ["give_up_packs", "delete_blobs", "empty_packs", "delete_object", "forget_pack"] {
            for moment in ["before", "after"] {
                let stops = format!("{moment}:{effect}");
                assert!(condemned_bytes_come_back(&new(), &stops, ""), "{stops}");
            }
        }
    }
}
