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
const WRONG_HASH: &str = "blobs do not match their hash";

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

        assert!(told.text().ends_with(&format!("  {MISSING}: 1, for example  [2J \n")), "{told}");
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
