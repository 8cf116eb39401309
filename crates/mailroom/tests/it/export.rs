//! Originals out again, byte for byte.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use serde_json::json;

use crate::installation::{PROGRAM, TestInstallation, on_each_database};
use crate::mail::{generated, hashes, hostile_messages, simple, stored_hashes};
use crate::processes::RunningProcess;

/// Everything that is hard to keep as it is, beside ordinary mail.
fn fill(mailroom: &TestInstallation) -> BTreeSet<String> {
    let mut mails: Vec<Vec<u8>> = generated(5, 40).into_iter().map(|message| message.raw).collect();
    mails.extend(hostile_messages());
    for (n, mail) in mails.iter().enumerate() {
        mailroom.write(&format!("mail/{n:03}.eml"), mail);
    }
    let summary = mailroom.import(mailroom.path("mail").to_str().unwrap());
    assert_eq!(summary["stored"], mails.len(), "{summary}");
    hashes(&mails)
}

fn export(mailroom: &TestInstallation, format: &str, more: &[&str]) -> String {
    let out = mailroom.path(&format!("out.{format}")).into_os_string().into_string().unwrap();
    mailroom.object(&[&["export", "--tenant", "acme", "--format", format, "--out", &out], more].concat());
    out
}

fn names_in(folder: &Path) -> BTreeSet<String> {
    fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn export_is_exact_in_both_formats() {
    on_each_database(|mailroom| {
        let originals = fill(mailroom);

        for format in ["mbox", "eml"] {
            let out = export(mailroom, format, &[]);

            let fresh = TestInstallation::sqlite();
            let summary = fresh.import(&out);
            assert_eq!((&summary["failed"], &summary["duplicates"]), (&json!(0), &json!(0)), "{format}: {summary}");
            let emails = fresh.emails("acme");
            assert_eq!(stored_hashes(&emails), originals, "{format}");
            for email in &emails {
                let raw = fresh.ok(&["email", "show", email["id"].as_str().unwrap(), "--raw", "--tenant", "acme"]);
                assert!(originals.is_superset(&hashes([&raw.stdout])), "{format}: {}", email["subject"]);
            }
        }
        let files: Vec<Vec<u8>> = names_in(&mailroom.path("out.eml"))
            .iter()
            .map(|n| fs::read(mailroom.path("out.eml").join(n)).unwrap())
            .collect();
        assert_eq!(hashes(&files), originals);
    });
}

#[test]
fn importing_an_export_adds_nothing() {
    on_each_database(|mailroom| {
        let originals = fill(mailroom);

        for format in ["mbox", "eml"] {
            let summary = mailroom.import(&export(mailroom, format, &[]));

            assert_eq!(
                (&summary["stored"], &summary["duplicates"], &summary["failed"]),
                (&json!(0), &json!(originals.len()), &json!(0)),
                "{format}"
            );
        }
        mailroom.assert_whole();
    });
}

fn receive_times(mailroom: &TestInstallation) -> BTreeSet<(String, String)> {
    let emails = mailroom.emails("acme");
    emails.iter().map(|email| (email["sha256"].to_string(), email["received_at"].to_string())).collect()
}

#[test]
fn mbox_restores_receive_times() {
    let mailroom = TestInstallation::sqlite();
    mailroom.import(&mailroom.write("a.mbox", crate::mail::mbox(6, 20)));

    let fresh = TestInstallation::sqlite();
    fresh.import(&export(&mailroom, "mbox", &[]));

    assert_eq!(receive_times(&fresh), receive_times(&mailroom));
}

/// The hashes of what is exported with these arguments.
fn exported_hashes(mailroom: &TestInstallation, args: &[&str]) -> BTreeSet<String> {
    let folder = PathBuf::from(export(mailroom, "eml", args));
    let files: Vec<Vec<u8>> = names_in(&folder).iter().map(|name| fs::read(folder.join(name)).unwrap()).collect();
    fs::remove_dir_all(folder).unwrap();
    hashes(&files)
}

#[test]
fn query_and_mailbox_narrow_an_export() {
    on_each_database(|mailroom| {
        let (a, b) = (simple("Invoice", "first"), simple("Letter", "second"));
        let c = simple("Invoice", "third");
        for (name, mail, address) in [("a", &a, "x@acme.test"), ("b", &b, "x@acme.test"), ("c", &c, "y@acme.test")] {
            let file = mailroom.write(&format!("{name}.eml"), mail);
            mailroom.object(&["import", &file, "--tenant", "acme", "--mailbox", address]);
        }

        assert_eq!(exported_hashes(mailroom, &["--query", "subject:invoice"]), hashes([&a, &c]));
        assert_eq!(exported_hashes(mailroom, &["--mailbox", "x@acme.test"]), hashes([&a, &b]));
        assert_eq!(exported_hashes(mailroom, &["--mailbox", "X@acme.test", "--query", "invoice"]), hashes([&a]));
        assert_eq!(exported_hashes(mailroom, &["--query", "nothing-like-this"]), hashes([""; 0]));
    });
}

#[test]
fn export_replaces_nothing() {
    let mailroom = TestInstallation::sqlite();
    mailroom.import(&mailroom.write("a.eml", simple("a", "b")));
    let out = mailroom.write("there.mbox", "precious");

    mailroom
        .run(&["export", "--tenant", "acme", "--out", &out])
        .assert_refused(1, &["there.mbox exists already; choose another name or remove it first"]);

    assert_eq!(fs::read_to_string(out).unwrap(), "precious");
}

#[test]
fn export_leaves_other_files_alone() {
    let mailroom = TestInstallation::sqlite();
    mailroom.import(&mailroom.write("a.eml", simple("a", "b")));
    symlink("nowhere", mailroom.path("link")).unwrap();

    for format in ["mbox", "eml"] {
        let precious = mailroom.write(&format!("out.{format}.partial/precious"), "precious");

        export(&mailroom, format, &[]);
        let link = mailroom.run(&["export", "--tenant", "acme", "--format", format, "--out", "link"]);

        assert_eq!(fs::read_to_string(precious).unwrap(), "precious");
        link.assert_refused(1, &["link exists already; choose another name or remove it first"]);
    }
    assert!(mailroom.path("link").is_symlink() && !mailroom.path("nowhere").exists());
}

fn permissions(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn export_is_readable_by_its_owner_only() {
    let mailroom = TestInstallation::sqlite();
    mailroom.import(&mailroom.write("a.eml", simple("a", "b")));

    let [mbox, eml] = ["mbox", "eml"].map(|format| PathBuf::from(export(&mailroom, format, &[])));

    let email = eml.join(names_in(&eml).pop_first().unwrap());
    assert_eq!((permissions(&mbox), permissions(&eml), permissions(&email)), (0o600, 0o700, 0o600));
}

#[test]
fn one_of_concurrent_exports_succeeds() {
    let mailroom = TestInstallation::sqlite();
    let originals = fill(&mailroom);

    for format in ["mbox", "eml"] {
        let args = ["export", "--tenant", "acme", "--format", format, "--out", "out"];
        let running: Vec<RunningProcess> =
            (0..4).map(|_| RunningProcess::start(&mut mailroom.command(PROGRAM, &args))).collect();
        let (done, refused): (Vec<_>, Vec<_>) =
            running.into_iter().map(RunningProcess::finish).partition(|done| done.code == Some(0));

        assert_eq!(done.len(), 1, "{format}");
        refused.iter().for_each(|refused| refused.assert_refused(1, &["out exists already; choose another name"]));
        let fresh = TestInstallation::sqlite();
        fs::rename(mailroom.path("out"), fresh.path("Sent")).unwrap();
        fresh.import(fresh.path("Sent").to_str().unwrap());
        assert_eq!(stored_hashes(&fresh.emails("acme")), originals, "{format}");
    }
    assert_eq!(names_in(&mailroom.path("")), ["data", "mail"].map(str::to_owned).into());
}

#[test]
fn failed_export_leaves_nothing() {
    let mailroom = TestInstallation::sqlite();
    mailroom.import(&mailroom.write("a.eml", simple("a", "b")));
    let pack = mailroom.packs().remove(0);
    let bytes = fs::read(&pack).unwrap();

    for format in ["mbox", "eml"] {
        let before = names_in(&mailroom.path(""));
        let args = ["export", "--tenant", "acme", "--format", format, "--out", format];
        fs::remove_file(&pack).unwrap();

        mailroom.run(&args).assert_refused(1, &["is missing from blob storage; run `mailroom verify`"]);

        assert_eq!(names_in(&mailroom.path("")), before);
        fs::write(&pack, &bytes).unwrap();
        mailroom.ok(&args);
        assert_eq!(names_in(&mailroom.path("")), &before | &[format.to_owned()].into());
    }
}

#[test]
fn export_needs_a_folder_and_a_tenant() {
    let mailroom = TestInstallation::sqlite();
    mailroom.import(&mailroom.write("a.eml", simple("a", "b")));

    mailroom
        .run(&["export", "--tenant", "acme", "--out", "no/such/folder/x.mbox"])
        .assert_refused(1, &["cannot write no/such/folder/x.mbox", "check the folder and its rights"]);
    mailroom.run(&["export", "--tenant", "nobody", "--out", "x"]).assert_refused(1, &["there is no tenant \"nobody\""]);
    mailroom
        .run(&["export", "--tenant", "acme", "--out", "x", "--query", "before:soon"])
        .assert_refused(2, &["before: wants a date like 2024-01-31"]);
    mailroom
        .run(&["export", "--tenant", "acme", "--out", "x", "--mailbox", "q@acme.test"])
        .assert_refused(1, &["this tenant has no mailbox"]);
    assert!(!mailroom.path("x").exists());
}
