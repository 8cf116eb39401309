//! The audit of commands, and the command that verifies it.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;

use serde_json::Value;

use crate::http::create_key;
use crate::installation::{CommandOutput, PROGRAM, TestInstallation, on_each_database};
use crate::mail::simple;

/// The damage is found and named, and nothing is found after the repair.
fn assert_broken(mailroom: &TestInstallation, damage: &str, repair: &str, says: &str) {
    mailroom.sql(damage);
    let verified = mailroom.run(&["audit", "verify"]);
    assert_eq!(verified.code, Some(1), "{damage}");
    assert!(verified.text().contains(says), "{verified}");
    mailroom.sql(repair);
    mailroom.ok(&["audit", "verify"]);
}

#[test]
fn audit_verify_names_the_broken_entry() {
    on_each_database(|mailroom| {
        mailroom.ok(&["tenant", "create", "acme"]);
        for _ in 0..4 {
            create_key(mailroom, "acme", "read");
        }
        let of = "tenant_id = (select id from tenants where name = 'acme')";
        let entries = mailroom.select(&format!("select entry from audit where {of} order by seq"));
        assert_eq!(entries.len(), 5);
        assert!(entries[0].contains("tenant.create"), "{}", entries[0]);
        for entry in &entries[1..] {
            assert!(entry.contains("api_key.create") && entry.contains("\"command:"), "{entry}");
        }
        mailroom.ok(&["audit", "verify"]);

        assert_broken(
            mailroom,
            &format!("update audit set entry = replace(entry, 'create', 'delete') where seq = 4 and {of}"),
            &format!("update audit set entry = replace(entry, 'delete', 'create') where seq = 4 and {of}"),
            "acme: entry 4 is broken",
        );
        assert_broken(
            mailroom,
            &format!("update audit set seq = 7 where seq = 5 and {of}"),
            &format!("update audit set seq = 5 where seq = 7 and {of}"),
            "acme: entry 5 is broken: it is missing",
        );
        assert_broken(
            mailroom,
            &format!("update audit_heads set seq = 9 where {of}"),
            &format!("update audit_heads set seq = 5 where {of}"),
            "acme: entry 6 is broken: it is missing",
        );
    });
}

/// Returns the actions that are on record, all of which are a command's.
fn audited_actions(mailroom: &TestInstallation) -> Vec<String> {
    let entries = mailroom.select("select cast(entry as text) from audit order by tenant_id, seq");
    let entries = entries.iter().map(|entry| serde_json::from_str::<Value>(entry).unwrap());
    entries
        .map(|entry| {
            assert!(entry["actor"].as_str().unwrap().starts_with("command:"), "{entry}");
            entry["action"].as_str().unwrap().to_owned()
        })
        .collect()
}

#[test]
fn every_changing_command_is_audited() {
    on_each_database(|mailroom| {
        mailroom.import(&mailroom.write("a.eml", simple("one", "an apple a day")));
        let [out, backup] = ["out.mbox", "backup"].map(|name| mailroom.path(name).display().to_string());
        let id = {
            let added = mailroom.object(&["jobs", "enqueue", "--tenant", "acme", "--kind", "noop", "--in", "10m"]);
            added["id"].as_str().unwrap().to_owned()
        };
        for command in [
            &["export", "--tenant", "acme", "--out", &out][..],
            &["reindex", "--tenant", "acme", "--background"],
            &["email", "purge", "--tenant", "acme", "--query", "apple", "--yes"],
            &["jobs", "move", &id, "--lane", "low"],
            &["jobs", "retry", &id],
            &["jobs", "cancel", &id],
            &["jobs", "pause", "--tenant", "acme"],
            &["jobs", "resume", "--tenant", "acme"],
            &["jobs", "limit", "--tenant", "acme", "--running", "3"],
            &["tenant", "set", "acme", "--backfill", "30d"],
            &["jobs", "pause", "--kind", "noop"],
            &["jobs", "limit", "--kind", "noop", "--running", "3"],
            &["jobs", "weight", "vip", "8"],
            &["secrets", "rotate"],
            &["backup", "--out", &backup],
        ] {
            mailroom.ok(command);
        }

        let mut expected = vec![
            "queue.pause",
            "queue.limit",
            "queue.weight",
            "secrets.rotate",
            "tenant.create",
            "mailbox.create",
            "email.import",
            "job.enqueue",
            "email.export",
            "email.reindex",
            "email.purge",
            "job.move",
            "job.retry",
            "job.cancel",
            "queue.pause",
            "queue.resume",
            "queue.limit",
            "tenant.change",
            "backup",
        ];
        let mut actions = audited_actions(mailroom);
        expected.sort_unstable();
        actions.sort_unstable();
        assert_eq!(actions, expected);
        mailroom.ok(&["audit", "verify"]);
    });
}

#[test]
fn path_that_is_no_text_is_imported_and_audited() {
    let mailroom = TestInstallation::sqlite();
    let path = mailroom.path("").join(OsStr::from_bytes(b"caf\xe9.eml"));
    fs::write(&path, simple("one", "an apple a day")).unwrap();

    let args = ["import", "--tenant", "acme", "--mailbox", "me@acme.test", "--json"];
    let done = CommandOutput::of(mailroom.command(PROGRAM, &args).arg(&path));

    assert_eq!(done.code, Some(0), "{done}");
    assert_eq!(audited_actions(&mailroom), ["tenant.create", "mailbox.create", "email.import"]);
}

#[test]
fn tenant_that_is_being_erased_cannot_be_activated() {
    on_each_database(|mailroom| {
        mailroom.ok(&["tenant", "create", "acme"]);
        mailroom
            .sql("update tenants set is_active = false, erasing_at = '2026-01-01T00:00:00.000Z' where name = 'acme'");
        mailroom.run(&["tenant", "activate", "acme"]).assert_refused(1, &["is being erased"]);
    });
}
