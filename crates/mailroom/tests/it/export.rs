//! Originals out again, byte for byte.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use serde_json::json;

use crate::mail::{generated, hashes, nasty, simple, stored_hashes};
use crate::place::{PROGRAM, Place, on_each_database};
use crate::processes::Running;

/// Everything that is hard to keep as it is, beside ordinary mail.
fn fill(place: &Place) -> BTreeSet<String> {
    let mut mails: Vec<Vec<u8>> = generated(5, 40).into_iter().map(|message| message.raw).collect();
    mails.extend(nasty());
    for (n, mail) in mails.iter().enumerate() {
        place.write(&format!("mail/{n:03}.eml"), mail);
    }
    let summary = place.import(place.path("mail").to_str().unwrap());
    assert_eq!(summary["stored"], mails.len(), "{summary}");
    hashes(&mails)
}

fn export(place: &Place, format: &str, more: &[&str]) -> String {
    let out = place.path(&format!("out.{format}")).into_os_string().into_string().unwrap();
    place.object(&[&["export", "--tenant", "acme", "--format", format, "--out", &out], more].concat());
    out
}

fn names_in(folder: &Path) -> BTreeSet<String> {
    fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn an_export_is_exact_in_both_formats() {
    on_each_database(|place| {
        let originals = fill(place);

        for format in ["mbox", "eml"] {
            let out = export(place, format, &[]);

            let fresh = Place::sqlite();
            let summary = fresh.import(&out);
            assert_eq!((&summary["failed"], &summary["duplicates"]), (&json!(0), &json!(0)), "{format}: {summary}");
            let emails = fresh.emails("acme");
            assert_eq!(stored_hashes(&emails), originals, "{format}");
            for email in &emails {
                let raw = fresh.ok(&["email", "show", email["id"].as_str().unwrap(), "--raw", "--tenant", "acme"]);
                assert!(originals.is_superset(&hashes([&raw.stdout])), "{format}: {}", email["subject"]);
            }
        }
        let files: Vec<Vec<u8>> =
            names_in(&place.path("out.eml")).iter().map(|n| fs::read(place.path("out.eml").join(n)).unwrap()).collect();
        assert_eq!(hashes(&files), originals);
    });
}

#[test]
fn importing_an_export_stores_nothing_new() {
    on_each_database(|place| {
        let originals = fill(place);

        for format in ["mbox", "eml"] {
            let summary = place.import(&export(place, format, &[]));

            assert_eq!(
                (&summary["stored"], &summary["duplicates"], &summary["failed"]),
                (&json!(0), &json!(originals.len()), &json!(0)),
                "{format}"
            );
        }
        place.assert_whole();
    });
}

#[test]
fn an_mbox_restores_when_mail_was_received() {
    let place = Place::sqlite();
    place.import(&place.write("a.mbox", crate::mail::mbox(6, 20)));
    let times = |place: &Place| -> BTreeSet<(String, String)> {
        let time = |email: &serde_json::Value| (email["sha256"].to_string(), email["received_at"].to_string());
        place.emails("acme").iter().map(time).collect()
    };

    let fresh = Place::sqlite();
    fresh.import(&export(&place, "mbox", &[]));

    assert_eq!(times(&fresh), times(&place));
}

#[test]
fn a_query_and_a_mailbox_narrow_an_export() {
    on_each_database(|place| {
        let (a, b) = (simple("Invoice", "first"), simple("Letter", "second"));
        let c = simple("Invoice", "third");
        for (name, mail, address) in [("a", &a, "x@acme.test"), ("b", &b, "x@acme.test"), ("c", &c, "y@acme.test")] {
            let file = place.write(&format!("{name}.eml"), mail);
            place.object(&["import", &file, "--tenant", "acme", "--mailbox", address]);
        }
        let exported = |more: &[&str]| {
            let out = export(place, "eml", more);
            let files = names_in(Path::new(&out)).iter().map(|n| fs::read(Path::new(&out).join(n)).unwrap()).collect();
            fs::remove_dir_all(out).unwrap();
            let files: Vec<Vec<u8>> = files;
            hashes(&files)
        };

        assert_eq!(exported(&["--query", "subject:invoice"]), hashes([&a, &c]));
        assert_eq!(exported(&["--mailbox", "x@acme.test"]), hashes([&a, &b]));
        assert_eq!(exported(&["--mailbox", "X@acme.test", "--query", "invoice"]), hashes([&a]));
        assert_eq!(exported(&["--query", "nothing-like-this"]), hashes([""; 0]));
    });
}

#[test]
fn an_export_never_replaces_what_is_there() {
    let place = Place::sqlite();
    place.import(&place.write("a.eml", simple("a", "b")));
    let out = place.write("there.mbox", "precious");

    place
        .run(&["export", "--tenant", "acme", "--out", &out])
        .assert_refused(1, &["there.mbox exists already; choose another name or remove it first"]);

    assert_eq!(fs::read_to_string(out).unwrap(), "precious");
}

#[test]
fn an_export_leaves_alone_what_it_did_not_make() {
    let place = Place::sqlite();
    place.import(&place.write("a.eml", simple("a", "b")));
    symlink("nowhere", place.path("link")).unwrap();

    for format in ["mbox", "eml"] {
        let precious = place.write(&format!("out.{format}.partial/precious"), "precious");

        export(&place, format, &[]);
        let link = place.run(&["export", "--tenant", "acme", "--format", format, "--out", "link"]);

        assert_eq!(fs::read_to_string(precious).unwrap(), "precious");
        link.assert_refused(1, &["link exists already; choose another name or remove it first"]);
    }
    assert!(place.path("link").is_symlink() && !place.path("nowhere").exists());
}

#[test]
fn an_export_is_for_its_owner_only() {
    let place = Place::sqlite();
    place.import(&place.write("a.eml", simple("a", "b")));
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;

    let [mbox, eml] = ["mbox", "eml"].map(|format| PathBuf::from(export(&place, format, &[])));

    let email = eml.join(names_in(&eml).pop_first().unwrap());
    assert_eq!((mode(&mbox), mode(&eml), mode(&email)), (0o600, 0o700, 0o600));
}

#[test]
fn of_exports_to_one_name_at_once_one_is_whole_and_the_others_are_refused() {
    let place = Place::sqlite();
    let originals = fill(&place);

    for format in ["mbox", "eml"] {
        let args = ["export", "--tenant", "acme", "--format", format, "--out", "out"];
        let running: Vec<Running> = (0..4).map(|_| Running::start(&mut place.command(PROGRAM, &args))).collect();
        let (done, refused): (Vec<_>, Vec<_>) =
            running.into_iter().map(Running::finish).partition(|done| done.code == Some(0));

        assert_eq!(done.len(), 1, "{format}");
        refused.iter().for_each(|refused| refused.assert_refused(1, &["out exists already; choose another name"]));
        let fresh = Place::sqlite();
        fs::rename(place.path("out"), fresh.path("Sent")).unwrap();
        fresh.import(fresh.path("Sent").to_str().unwrap());
        assert_eq!(stored_hashes(&fresh.emails("acme")), originals, "{format}");
    }
    assert_eq!(names_in(&place.path("")), ["data", "mail"].map(str::to_owned).into());
}

#[test]
fn a_failed_export_leaves_nothing() {
    let place = Place::sqlite();
    place.import(&place.write("a.eml", simple("a", "b")));
    let pack = place.packs().remove(0);
    let bytes = fs::read(&pack).unwrap();

    for format in ["mbox", "eml"] {
        let before = names_in(&place.path(""));
        let args = ["export", "--tenant", "acme", "--format", format, "--out", format];
        fs::remove_file(&pack).unwrap();

        place.run(&args).assert_refused(1, &["is missing from blob storage; run `mailroom verify`"]);

        assert_eq!(names_in(&place.path("")), before);
        fs::write(&pack, &bytes).unwrap();
        place.ok(&args);
        assert_eq!(names_in(&place.path("")), &before | &[format.to_owned()].into());
    }
}

#[test]
fn an_export_to_nowhere_or_of_nobody_is_refused() {
    let place = Place::sqlite();
    place.import(&place.write("a.eml", simple("a", "b")));

    place
        .run(&["export", "--tenant", "acme", "--out", "no/such/folder/x.mbox"])
        .assert_refused(1, &["cannot write no/such/folder/x.mbox", "check the folder and its rights"]);
    place.run(&["export", "--tenant", "nobody", "--out", "x"]).assert_refused(1, &["there is no tenant \"nobody\""]);
    place
        .run(&["export", "--tenant", "acme", "--out", "x", "--query", "before:soon"])
        .assert_refused(2, &["before: wants a date like 2024-01-31"]);
    place
        .run(&["export", "--tenant", "acme", "--out", "x", "--mailbox", "q@acme.test"])
        .assert_refused(1, &["this tenant has no mailbox"]);
    assert!(!place.path("x").exists());
}
