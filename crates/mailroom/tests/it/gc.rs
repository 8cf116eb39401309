//! The collector: what nobody names goes, nothing else does, whoever writes, reads or sleeps meanwhile.

use std::process::Command;

use serde_json::json;
use store::failpoint::VARIABLE;

use crate::mail::{mbox, simple};
use crate::place::{Done, PROGRAM, Place, on_each_database};
use crate::processes::{Running, wait_until};

fn importing(place: &Place, file: &str, mailbox: &str, failpoints: &str) -> Command {
    let mut command = place.command(PROGRAM, &["import", file, "--tenant", "acme", "--mailbox", mailbox, "--json"]);
    command.env(VARIABLE, failpoints);
    command
}

fn collect(place: &Place) -> serde_json::Value {
    place.objects(&["gc", "--grace", "0s"]).remove(0)
}

/// Bytes of everything in the data folder.
fn disk_use(place: &Place) -> u64 {
    crate::place::files_below(&place.data_dir()).iter().map(|file| file.metadata().map_or(0, |meta| meta.len())).sum()
}

#[test]
fn after_deleting_half_the_mail_the_disk_holds_what_a_fresh_import_of_the_rest_would() {
    const MESSAGES: usize = 1200;
    on_each_database(|place| {
        let file = place.write("all.mbox", mbox(31, MESSAGES));
        place.import(&file);
        let before = disk_use(place);
        let newest = place.objects(&["search", "", "--tenant", "acme", "--limit", "600"]);
        let ids: Vec<&str> = newest.iter().map(|email| email["id"].as_str().unwrap()).collect();

        let purged = place.object(&[&["email", "purge", "--tenant", "acme", "--yes"], &ids[..]].concat());
        assert_eq!(purged["purged"], 600);
        let collected = collect(place);
        assert_eq!(collected["problems"], json!([]), "{collected}");
        assert!(collected["blobs_deleted"].as_u64().unwrap() >= 600, "{collected}");
        place.assert_whole();
        let rest = place.path("rest.mbox").into_os_string().into_string().unwrap();
        place.ok(&["export", "--tenant", "acme", "--out", &rest]);
        let fresh = if place.is_sqlite() { Place::sqlite() } else { Place::postgres() };
        assert_eq!(fresh.import(&rest)["stored"], 600);
        // As a collector would leave it; the difference is what was not collected.
        collect(&fresh);

        let (left, ideal) = (disk_use(place), disk_use(&fresh));
        assert!(left * 100 <= ideal * 110, "{left} bytes are left of {before}, a fresh import takes {ideal}");
    });
}

#[test]
fn collecting_twice_changes_nothing_more() {
    on_each_database(|place| {
        let file = place.write("all.mbox", mbox(32, 60));
        place.run_with(
            &[("MAILROOM_IMPORT__BATCH_MESSAGES", "5")],
            &["import", &file, "--tenant", "acme", "--mailbox", "a@b.test"],
        );
        assert!(place.packs().len() > 5, "an import in small batches makes small packs");

        let first = collect(place);
        let packs = place.packs();
        let second = collect(place);

        assert!(first["packs_merged"].as_u64().unwrap() > 5, "{first}");
        assert_eq!(packs.len(), 1, "{first}");
        for what in ["packs_given_up", "blobs_condemned", "blobs_deleted", "packs_merged", "objects_deleted"] {
            assert_eq!(second[what], 0, "{what}: {second}");
        }
        assert_eq!(place.packs(), packs);
        place.assert_whole();
    });
}

#[test]
fn within_the_grace_period_nothing_is_deleted() {
    on_each_database(|place| {
        place.import(&place.write("a.eml", simple("a", "b")));
        place.object(&["email", "purge", "--tenant", "acme", "--query", "", "--yes"]);

        let collected = place.objects(&["gc"]).remove(0);

        assert_eq!((&collected["blobs_condemned"], &collected["blobs_deleted"]), (&json!(1), &json!(0)));
        assert_eq!(place.packs().len(), 1);
    });
}

/// A writer sleeps between bytes and rows while the collector gives its pack up.
fn a_writer_oversleeps(place: &Place, off: &str) -> (Done, bool) {
    let file = place.write("all.mbox", mbox(33, 20));
    place.ok(&["tenant", "create", "acme"]);
    let failpoints = format!("before:commit_batch=stop {off}");
    let mut writer = Running::start(&mut importing(place, &file, "me@acme.test", &failpoints));
    wait_until("the writer sleeps", || writer.has_ended() || writer.is_stopped());
    assert_eq!(place.packs().len(), 1);

    // The collector dies as well, with the object gone and the row still there: nothing but its state is in the way.
    let mut collector = place.command(PROGRAM, &["gc", "--grace", "0s"]);
    let died = Done::of(collector.env(VARIABLE, "before:forget_pack=crash"));
    assert_eq!(died.code, None, "{died}");
    assert!(place.packs().is_empty());
    writer.resume();

    let done = writer.finish();
    let is_whole = place.objects_of(&["verify", "--deep"]).iter().all(|report| report["ok"] == true);
    (done, is_whole)
}

#[test]
fn a_writer_that_oversleeps_the_grace_period_writes_again_and_loses_nothing() {
    on_each_database(|place| {
        let (done, is_whole) = a_writer_oversleeps(place, "");

        assert_eq!(done.code, Some(0), "{done}");
        assert_eq!(done.objects()[0]["stored"], 20);
        assert!(is_whole);
        assert_eq!(collect(place)["blobs_deleted"], 0);
        place.assert_whole();
    });
}

#[test]
fn without_the_guard_a_writer_that_oversleeps_names_bytes_that_are_gone() {
    on_each_database(|place| {
        let (_, is_whole) = a_writer_oversleeps(place, "off=pack_is_writing");
        assert!(!is_whole, "the guard is not what protects this");
    });
}

/// Somebody stores condemned bytes again while the collector is at work, stopped at one place.
fn condemned_bytes_come_back(place: &Place, collector_stops: &str, off: &str) -> bool {
    let file = place.write("a.mbox", mbox(34, 12));
    place.import(&file);
    place.object(&["email", "purge", "--tenant", "acme", "--query", "", "--yes"]);
    place.ok(&["gc"]); // condemns

    let mut command = place.command(PROGRAM, &["gc", "--grace", "0s", "--json"]);
    let mut collector = Running::start(command.env(VARIABLE, format!("{collector_stops}=stop")));
    wait_until("the collector sleeps", || collector.has_ended() || collector.is_stopped());
    assert!(!collector.has_ended(), "{collector_stops} was never reached");
    // Nobody holds a lock while it sleeps.
    let imported = Done::of(&mut importing(place, &file, "me@acme.test", off));
    collector.resume();
    let collected = collector.finish();

    assert_eq!(collected.code, Some(0), "{collector_stops}: {collected}");
    assert_eq!(imported.code, Some(0), "{collector_stops}: {imported}");
    let is_whole = place.objects_of(&["verify", "--deep"]).iter().all(|report| report["ok"] == true);
    assert_eq!(place.emails("acme").len(), 12, "{collector_stops}");
    // And nothing of it is collected later.
    collect(place);
    is_whole && place.objects_of(&["verify", "--deep"]).iter().all(|report| report["ok"] == true)
}

#[test]
fn condemned_bytes_that_come_back_are_there_wherever_the_collector_is() {
    for new in [Place::sqlite, Place::postgres] {
        for effect in ["give_up_packs", "delete_blobs", "empty_packs", "delete_object", "forget_pack"] {
            for moment in ["before", "after"] {
                let stops = format!("{moment}:{effect}");
                assert!(condemned_bytes_come_back(&new(), &stops, ""), "{stops}");
            }
        }
    }
}
