//! `verify` names what is wrong, whatever was done to the data behind our back.

use std::fs;
use std::path::PathBuf;

use serde_json::Value;

use crate::installation::{TestInstallation, on_each_database};
use crate::mail::mbox;

fn fill(mailroom: &TestInstallation) {
    mailroom.import(&mailroom.write("a.mbox", mbox(9, 12)));
    mailroom.assert_whole();
}

/// Returns what `verify` finds, after checks of its exit code and of its text for people.
fn differences(mailroom: &TestInstallation, options: &[&str]) -> Vec<String> {
    let done = mailroom.run(&[&["verify", "--json"], options].concat());
    let report = done.objects().remove(0);
    let found: Vec<String> =
        report["differences"].as_array().unwrap().iter().map(|d| d["what"].as_str().unwrap().to_owned()).collect();
    assert_eq!(report["ok"], Value::Bool(found.is_empty()));
    assert_eq!(done.code, Some(i32::from(!found.is_empty())), "{done}");
    let told = mailroom.run(&[&["verify"], options].concat());
    assert_eq!(told.code, done.code);
    assert_eq!(told.text().contains("NOT complete"), !found.is_empty(), "{told}");
    assert!(found.iter().all(|what| told.text().contains(what)), "{told}");
    found
}

fn only_pack(mailroom: &TestInstallation) -> PathBuf {
    let mut packs = mailroom.packs();
    assert_eq!(packs.len(), 1);
    packs.remove(0)
}

const MISSING: &str = "packs are missing from blob storage";
const ANOTHER_SIZE: &str = "packs have another size in blob storage than was written";
const WRONG_HASH: &str = "packs have blobs that do not match their hash";

#[test]
fn deep_verify_finds_a_flipped_byte() {
    on_each_database(|mailroom| {
        fill(mailroom);
        let pack = only_pack(mailroom);
        let whole = fs::read(&pack).unwrap();
        for at in [0, whole.len() / 2, whole.len() - 1] {
            let mut bytes = whole.clone();
            bytes[at] ^= 1;
            fs::write(&pack, bytes).unwrap();

            assert_eq!(differences(mailroom, &[]), [""; 0], "sizes alone cannot tell");
            assert_eq!(differences(mailroom, &["--deep"]), [WRONG_HASH], "byte {at}");
        }
    });
}

/// Runs the doctor, which must end with this code, and returns what it prints.
fn doctor(mailroom: &TestInstallation, code: i32) -> String {
    let done = mailroom.run(&["doctor"]);
    assert_eq!(done.code, Some(code), "{done}");
    done.text()
}

#[test]
fn verify_finds_a_missing_pack() {
    on_each_database(|mailroom| {
        fill(mailroom);
        fs::remove_file(only_pack(mailroom)).unwrap();

        assert_eq!(differences(mailroom, &[]), [MISSING]);
        assert!(differences(mailroom, &["--deep"]).contains(&MISSING.to_owned()));
    });
}

#[test]
fn verify_finds_a_pack_of_another_size() {
    on_each_database(|mailroom| {
        fill(mailroom);
        let pack = only_pack(mailroom);
        let whole = fs::read(&pack).unwrap();

        for bytes in [&whole[..whole.len() - 1], &whole[..whole.len() / 2], &[], &[&whole[..], b"x"].concat()] {
            fs::write(&pack, bytes).unwrap();

            assert!(differences(mailroom, &[]).contains(&ANOTHER_SIZE.to_owned()), "{} bytes", bytes.len());
            assert!(differences(mailroom, &["--deep"]).contains(&ANOTHER_SIZE.to_owned()), "{} bytes", bytes.len());
        }
        fs::write(&pack, &whole).unwrap();
        mailroom.assert_whole();
    });
}

/// Returns the one pack that `verify` names, after a check that its text for people names it as well.
fn only_damage(mailroom: &TestInstallation, options: &[&str]) -> Value {
    let report = mailroom.run(&[&["verify", "--json"], options].concat()).objects().remove(0);
    let packs = report["packs"].as_array().unwrap();
    assert_eq!(packs.len(), 1, "{report}");
    let told = mailroom.run(&[&["verify"], options].concat()).text();
    let (key, blobs, emails) = (packs[0]["object_key"].as_str().unwrap(), &packs[0]["blobs"], &packs[0]["emails"]);
    assert!(told.contains(key) && told.contains("put this object back from a backup"), "{told}");
    assert!(told.contains(&format!(": {blobs} blobs of {emails} emails cannot be read")), "{told}");
    packs[0].clone()
}

#[test]
fn damaged_pack_is_named_with_its_emails() {
    on_each_database(|mailroom| {
        fill(mailroom);
        let pack = only_pack(mailroom);
        let key = pack.strip_prefix(mailroom.data_dir().join("blobs")).unwrap().to_str().unwrap();
        let whole = fs::read(&pack).unwrap();
        let blobs = mailroom.object(&["verify"])["totals"]["blobs"].clone();
        assert!(doctor(mailroom, 0).contains("every pack exists with its size"));

        // One bit: one blob, and the email or emails that it belongs to.
        let mut bytes = whole.clone();
        bytes[0] ^= 1;
        fs::write(&pack, bytes).unwrap();
        let damage = only_damage(mailroom, &["--deep"]);
        assert_eq!((&damage["object_key"], &damage["blobs"]), (&key.into(), &1.into()), "{damage}");
        assert_eq!((&damage["damage"]["kind"], &damage["emails"]), (&"other_bytes".into(), &1.into()), "{damage}");

        // Without its last byte: one blob is cut, and the others are whole.
        fs::write(&pack, &whole[..whole.len() - 1]).unwrap();
        for options in [&[][..], &["--deep"]] {
            let damage = only_damage(mailroom, options);
            assert_eq!((&damage["object_key"], &damage["blobs"]), (&key.into(), &1.into()), "{damage}");
            assert_eq!(damage["damage"]["found_bytes"], whole.len() as u64 - 1, "{damage}");
        }
        let told = doctor(mailroom, 1);
        assert!(
            told.contains("BAD  packs") && told.contains(&format!("{key} has {} bytes", whole.len() - 1)),
            "{told}"
        );

        // Gone: everything that was in it.
        fs::remove_file(&pack).unwrap();
        for options in [&[][..], &["--deep"]] {
            let damage = only_damage(mailroom, options);
            assert_eq!((&damage["object_key"], &damage["blobs"]), (&key.into(), &blobs), "{damage}");
            assert_eq!((&damage["damage"]["kind"], &damage["emails"]), (&"missing".into(), &12.into()), "{damage}");
        }
        assert!(doctor(mailroom, 1).contains(&format!("{key} is missing")));

        fs::write(&pack, &whole).unwrap();
        mailroom.assert_whole();
        assert!(doctor(mailroom, 0).contains("every pack exists with its size"));
    });
}

/// Removes rows as a person with a database tool would, past all foreign keys.
fn tamper(mailroom: &TestInstallation, sql: &str) {
    let unchecked =
        if mailroom.is_sqlite() { "pragma foreign_keys = off" } else { "set session_replication_role = replica" };
    mailroom.sql(&format!("{unchecked}; {sql}"));
}

#[test]
fn verify_names_missing_rows() {
    for (sql, names) in [
        ("delete from ledger", "emails have no ledger row"),
        ("delete from placements", "ledger rows have no live placement though they are not gone"),
        ("delete from email_contents", "emails differ from the content that their mailbox knows"),
        ("delete from emails", "ledger rows say processed but have no email"),
        ("update emails set raw_blob_sha256 = null", "emails are stored without their raw bytes"),
        ("update attachments set status = 'failed'", "attachments are not stored yet"),
        ("update attachments set blob_sha256 = null", "attachments say stored but name no blob"),
        ("delete from blobs", "emails name raw bytes that are not among the blobs"),
        ("delete from blobs", "attachments name bytes that are not among the blobs"),
        ("delete from email_search", "emails are not in the text index"),
        ("update packs set state = 'writing'", "blobs lie in packs that are not live"),
    ] {
        on_each_database(|mailroom| {
            fill(mailroom);
            tamper(mailroom, sql);

            let found = differences(mailroom, &[]);

            assert!(found.contains(&names.to_owned()), "after {sql}: {found:?}");
        });
    }
}

#[test]
fn example_cannot_control_the_terminal() {
    on_each_database(|mailroom| {
        fill(mailroom);
        tamper(mailroom, "update packs set object_key = '\u{1b}[2J\u{7}'");

        let told = mailroom.run(&["verify"]);

        assert!(told.text().contains(&format!("  {MISSING}: 1, for example  [2J \n")), "{told}");
        assert!(!told.text().contains(['\u{1b}', '\u{7}']), "{told}");
    });
}

#[test]
fn damage_stays_within_its_tenant() {
    on_each_database(|mailroom| {
        fill(mailroom);
        let file = mailroom.write("b.mbox", mbox(10, 3));
        mailroom.object(&["import", &file, "--tenant", "other", "--mailbox", "o@other.test"]);
        let id = mailroom.object(&["tenant", "show", "acme"])["tenant"]["id"].as_str().unwrap().to_owned();
        fs::remove_dir_all(mailroom.data_dir().join("blobs").join(id)).unwrap();

        assert_eq!(mailroom.run(&["verify", "--tenant", "acme"]).code, Some(1));
        assert_eq!(mailroom.run(&["verify", "--tenant", "other", "--deep"]).code, Some(0));
        assert_eq!(mailroom.run(&["verify"]).code, Some(1));
    });
}
