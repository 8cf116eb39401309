//! `verify` names what is wrong, whatever was done to the data behind our back.

use std::fs;
use std::path::PathBuf;

use serde_json::Value;

use crate::mail::mbox;
use crate::place::{Place, on_each_database};

fn fill(place: &Place) {
    place.import(&place.write("a.mbox", mbox(9, 12)));
    place.assert_whole();
}

/// What `verify` finds, and that it exits as it should, for programs and for people.
fn differences(place: &Place, options: &[&str]) -> Vec<String> {
    let done = place.run(&[&["verify", "--json"], options].concat());
    let report = done.objects().remove(0);
    let found: Vec<String> =
        report["differences"].as_array().unwrap().iter().map(|d| d["what"].as_str().unwrap().to_owned()).collect();
    assert_eq!(report["ok"], Value::Bool(found.is_empty()));
    assert_eq!(done.code, Some(i32::from(!found.is_empty())), "{done}");
    let told = place.run(&[&["verify"], options].concat());
    assert_eq!(told.code, done.code);
    assert_eq!(told.text().contains("NOT complete"), !found.is_empty(), "{told}");
    assert!(found.iter().all(|what| told.text().contains(what)), "{told}");
    found
}

fn only_pack(place: &Place) -> PathBuf {
    let mut packs = place.packs();
    assert_eq!(packs.len(), 1);
    packs.remove(0)
}

const MISSING: &str = "packs are missing from blob storage";
const ANOTHER_SIZE: &str = "packs have another size in blob storage than was written";
const WRONG_HASH: &str = "packs have blobs that do not match their hash";

#[test]
fn a_flipped_byte_is_found_by_reading_everything() {
    on_each_database(|place| {
        fill(place);
        let pack = only_pack(place);
        let whole = fs::read(&pack).unwrap();
        for at in [0, whole.len() / 2, whole.len() - 1] {
            let mut bytes = whole.clone();
            bytes[at] ^= 1;
            fs::write(&pack, bytes).unwrap();

            assert_eq!(differences(place, &[]), [""; 0], "sizes alone cannot tell");
            assert_eq!(differences(place, &["--deep"]), [WRONG_HASH], "byte {at}");
        }
    });
}

#[test]
fn a_pack_that_is_gone_is_found_at_once() {
    on_each_database(|place| {
        fill(place);
        fs::remove_file(only_pack(place)).unwrap();

        assert_eq!(differences(place, &[]), [MISSING]);
        assert!(differences(place, &["--deep"]).contains(&MISSING.to_owned()));
    });
}

#[test]
fn a_pack_that_is_too_short_or_too_long_is_found_at_once() {
    on_each_database(|place| {
        fill(place);
        let pack = only_pack(place);
        let whole = fs::read(&pack).unwrap();

        for bytes in [&whole[..whole.len() - 1], &whole[..whole.len() / 2], &[], &[&whole[..], b"x"].concat()] {
            fs::write(&pack, bytes).unwrap();

            assert!(differences(place, &[]).contains(&ANOTHER_SIZE.to_owned()), "{} bytes", bytes.len());
            assert!(differences(place, &["--deep"]).contains(&ANOTHER_SIZE.to_owned()), "{} bytes", bytes.len());
        }
        fs::write(&pack, &whole).unwrap();
        place.assert_whole();
    });
}

/// The one pack that `verify` names, and that people are told the same.
fn only_damage(place: &Place, options: &[&str]) -> Value {
    let report = place.run(&[&["verify", "--json"], options].concat()).objects().remove(0);
    let packs = report["packs"].as_array().unwrap();
    assert_eq!(packs.len(), 1, "{report}");
    let told = place.run(&[&["verify"], options].concat()).text();
    let (key, blobs, emails) = (packs[0]["object_key"].as_str().unwrap(), &packs[0]["blobs"], &packs[0]["emails"]);
    assert!(told.contains(key) && told.contains("put this object back from a backup"), "{told}");
    assert!(told.contains(&format!(": {blobs} blobs of {emails} emails cannot be read")), "{told}");
    packs[0].clone()
}

#[test]
fn a_damaged_pack_is_named_with_what_depends_on_it() {
    on_each_database(|place| {
        fill(place);
        let pack = only_pack(place);
        let key = pack.strip_prefix(place.data_dir().join("blobs")).unwrap().to_str().unwrap();
        let whole = fs::read(&pack).unwrap();
        let blobs = place.object(&["verify"])["totals"]["blobs"].clone();
        let doctor = |code: i32| {
            let done = place.run(&["doctor"]);
            assert_eq!(done.code, Some(code), "{done}");
            done.text()
        };
        assert!(doctor(0).contains("every pack is there with its size"));

        // One bit: one blob, and the email or emails that it belongs to.
        let mut bytes = whole.clone();
        bytes[0] ^= 1;
        fs::write(&pack, bytes).unwrap();
        let damage = only_damage(place, &["--deep"]);
        assert_eq!((&damage["object_key"], &damage["blobs"]), (&key.into(), &1.into()), "{damage}");
        assert_eq!((&damage["damage"]["kind"], &damage["emails"]), (&"other_bytes".into(), &1.into()), "{damage}");

        // Without its last byte: one blob is cut, and the others are whole.
        fs::write(&pack, &whole[..whole.len() - 1]).unwrap();
        for options in [&[][..], &["--deep"]] {
            let damage = only_damage(place, options);
            assert_eq!((&damage["object_key"], &damage["blobs"]), (&key.into(), &1.into()), "{damage}");
            assert_eq!(damage["damage"]["found_bytes"], whole.len() as u64 - 1, "{damage}");
        }
        let told = doctor(1);
        assert!(
            told.contains("BAD  packs") && told.contains(&format!("{key} has {} bytes", whole.len() - 1)),
            "{told}"
        );

        // Gone: everything that was in it.
        fs::remove_file(&pack).unwrap();
        for options in [&[][..], &["--deep"]] {
            let damage = only_damage(place, options);
            assert_eq!((&damage["object_key"], &damage["blobs"]), (&key.into(), &blobs), "{damage}");
            assert_eq!((&damage["damage"]["kind"], &damage["emails"]), (&"missing".into(), &12.into()), "{damage}");
        }
        assert!(doctor(1).contains(&format!("{key} is missing")));

        fs::write(&pack, &whole).unwrap();
        place.assert_whole();
        assert!(doctor(0).contains("every pack is there with its size"));
    });
}

/// Removes rows as a person with a database tool would, past all foreign keys.
fn tamper(place: &Place, sql: &str) {
    match place.is_sqlite() {
        true => place.sql(&format!("pragma foreign_keys = off; {sql}")),
        false => place.sql(&format!("set session_replication_role = replica; {sql}")),
    }
}

#[test]
fn rows_that_are_gone_are_named() {
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
        on_each_database(|place| {
            fill(place);
            tamper(place, sql);

            let found = differences(place, &[]);

            assert!(found.contains(&names.to_owned()), "after {sql}: {found:?}");
        });
    }
}

#[test]
fn an_example_is_no_command_to_the_terminal() {
    on_each_database(|place| {
        fill(place);
        tamper(place, "update packs set object_key = '\u{1b}[2J\u{7}'");

        let told = place.run(&["verify"]);

        assert!(told.text().contains(&format!("  {MISSING}: 1, for example  [2J \n")), "{told}");
        assert!(!told.text().contains(['\u{1b}', '\u{7}']), "{told}");
    });
}

#[test]
fn damage_to_one_tenant_is_not_the_others() {
    on_each_database(|place| {
        fill(place);
        let file = place.write("b.mbox", mbox(10, 3));
        place.object(&["import", &file, "--tenant", "other", "--mailbox", "o@other.test"]);
        let id = place.object(&["tenant", "show", "acme"])["tenant"]["id"].as_str().unwrap().to_owned();
        fs::remove_dir_all(place.data_dir().join("blobs").join(id)).unwrap();

        assert_eq!(place.run(&["verify", "--tenant", "acme"]).code, Some(1));
        assert_eq!(place.run(&["verify", "--tenant", "other", "--deep"]).code, Some(0));
        assert_eq!(place.run(&["verify"]).code, Some(1));
    });
}
