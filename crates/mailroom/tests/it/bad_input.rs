//! Whatever is wrong with what we are given: one plain sentence with what to do, the right exit code, and nothing
//! half-stored.

use std::fs::{self, File, Permissions};
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::mail::{mbox, simple};
use crate::place::{PASSWORD, Place, on_each_database};
use crate::processes::Nobody;

const MEMORY: u64 = 200 << 20;

/// An import of something that cannot be imported at all makes nothing, not even the tenant.
fn assert_nothing_made(place: &Place) {
    assert_eq!(place.tenants(), Vec::<Value>::new());
    assert_eq!(place.packs(), Vec::<PathBuf>::new());
}

#[test]
fn what_is_no_mail_file_is_refused_before_anything_is_made() {
    on_each_database(|place| {
        place.write("notes/readme.txt", "nothing here");
        place.write("junk.eml", junk());
        place.write("junk.mbox", junk());
        place.write("archive.eml", b"PK\x03\x04\x14\0\0\0\x08\0zip");
        place.write("empty.eml", b"");
        fs::create_dir(place.path("empty")).unwrap();
        symlink("circle", place.path("circle")).unwrap();

        for (name, says) in [
            ("missing.mbox", "missing.mbox does not exist; check the path"),
            ("notes", "no mail was found in notes; name an mbox file, a Maildir or a folder with .eml files"),
            ("empty", "no mail was found in empty; name"),
            ("junk.eml", "junk.eml is binary data, not an email; leave it out or restore the original file"),
            ("junk.mbox", "junk.mbox is binary data, not an email; leave it out"),
            ("archive.eml", "archive.eml is a zip archive, not an email; unpack it first"),
            ("empty.eml", "empty.eml is empty; export or copy it again"),
            (
                "circle",
                "circle could not be read (Too many levels of symbolic links (os error 40)); check its permissions",
            ),
            // Opens, and cannot be read, for root and everybody else.
            (
                "/proc/self/mem",
                "/proc/self/mem could not be read (Input/output error (os error 5)); check its permissions",
            ),
            ("/dev/null", "/dev/null is neither a file nor a folder; save the mail to a file first"),
        ] {
            place.try_import(name).assert_refused(1, &[says]);
            assert_nothing_made(place);
        }
    });
}

/// Bytes without structure, the same each time.
fn junk() -> Vec<u8> {
    let mut state = 1_u64;
    let next = |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8 & !0x40
    };
    (0..100_000).map(next).collect()
}

#[test]
fn a_bad_file_among_good_ones_is_told_and_the_rest_is_stored() {
    on_each_database(|place| {
        place.ok(&["tenant", "create", "acme"]);
        place.write("mail/1.eml", simple("one", "x"));
        place.write("mail/2.eml", b"PK\x03\x04zip");
        place.write("mail/3.eml", simple("three", "x"));

        let done = place.try_import("mail");

        assert_eq!(done.code, Some(1));
        done.assert_one_sentence("not imported: ", &["mail/2.eml is a zip archive, not an email; unpack it first"]);
        let summary = done.objects().remove(0);
        assert_eq!((&summary["read"], &summary["stored"], &summary["failed"]), (&json!(3), &json!(2), &json!(1)));
        place.assert_whole();
    });
}

#[test]
fn a_name_is_no_command_to_the_terminal() {
    let place = Place::sqlite();
    place.write("mail/1.eml", simple("one", "x"));
    place.write("mail/\u{1b}[31m\n2.eml", b"PK\x03\x04zip");
    place.ok(&["tenant", "create", "acme"]);

    place.try_import("mail").assert_one_sentence("not imported: mail/ [31m 2.eml is a zip archive", &[]);
    place.try_import("\u{1b}]0;title\u{7}").assert_refused(1, &["error:  ]0;title  does not exist; check the path"]);
}

#[test]
fn a_file_without_permission_is_told_and_the_rest_is_stored() {
    let place = Place::sqlite();
    place.ok(&["tenant", "create", "acme"]);
    place.write("mail/1.eml", simple("one", "x"));
    let locked = place.write("mail/2.eml", simple("two", "x"));
    fs::set_permissions(&locked, Permissions::from_mode(0o000)).unwrap();
    let nobody = Nobody::new(&place);
    nobody.owns(&place.data_dir());

    let alone = nobody.run(&place, &["import", &locked, "--tenant", "acme", "--mailbox", "me@acme.test"]);
    let among = nobody.run(&place, &["import", "mail", "--tenant", "acme", "--mailbox", "me@acme.test", "--json"]);

    alone.assert_refused(1, &["2.eml could not be read (Permission denied (os error 13)); check its permissions"]);
    assert_eq!(among.code, Some(1));
    among.assert_one_sentence("not imported: ", &["2.eml could not be read (Permission denied"]);
    assert_eq!(among.objects()[0]["stored"], 1);
}

#[test]
fn a_message_that_is_known_to_be_cut_is_told_and_the_rest_is_stored() {
    on_each_database(|place| {
        place.import(&place.write("all.mbox", mbox(16, 6)));
        place.ok(&["export", "--tenant", "acme", "--out", "export.mbox"]);
        let whole = fs::read(place.path("export.mbox")).unwrap();
        let apple = simple("apple", "x");
        place.write("cut/export.mbox", &whole[..whole.len() - 7]);
        place.write("cut/a.emlx", format!("{}\n{}", apple.len(), &apple[..apple.len() - 1]));
        let args = ["import", "cut", "--tenant", "other", "--mailbox", "me@other.test", "--json"];
        place.ok(&["tenant", "create", "other"]);

        let done = place.run(&args);

        assert_eq!(done.code, Some(1), "{done}");
        let told: Vec<&str> = done.stderr.lines().collect();
        assert_eq!(told.len(), 2, "{done}");
        assert_eq!(
            told[0],
            "not imported: cut/a.emlx ends in the middle of the message; copy or export the file again"
        );
        assert!(told[1].starts_with("not imported: cut/export.mbox:"), "{done}");
        assert!(told[1].ends_with(" ends in the middle of the message; copy or export the file again"), "{done}");
        let summary = done.objects().remove(0);
        assert_eq!((&summary["stored"], &summary["failed"]), (&json!(5), &json!(2)), "{summary}");
        place.assert_whole();
    });
}

/// Nothing but the end of the file ends its last message.
#[test]
fn a_truncated_mbox_without_lengths_gives_what_is_there() {
    on_each_database(|place| {
        place.ok(&["tenant", "create", "acme"]);
        let part = "From: a@acme.test\nSubject: cut\nMIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=b\n\n--b\n\
            Content-Type: application/pdf; name=a.pdf\nContent-Disposition: attachment; filename=a.pdf\n\
            Content-Transfer-Encoding: base64\n\nJVBERi0xLjQKJcOkw7zDtsOfCjIgMCBvYmoKPDwvTGVuZ3RoIDMg\n";
        let whole = [mbox(16, 5), format!("From a@x Tue Jan  2 12:00:00 2024\n{part}").into_bytes()].concat();
        let file = place.write("cut.mbox", &whole[..whole.len() - 7]);

        let done = place.try_import(&file);

        assert_eq!((done.code, done.stderr.as_str()), (Some(0), ""), "{done}");
        assert_eq!(done.objects()[0]["stored"], 6);
        let cut = place.object(&["search", "subject:cut", "--tenant", "acme", "--full"]);
        assert!(!cut["defects"].as_array().unwrap().is_empty(), "{cut}");
        assert_eq!(cut["has_attachments"], true);
        place.assert_whole();
    });
}

/// A file with a gigabyte between its beginning and its end, most of which is not on disk.
fn with_a_gigabyte(place: &Place, name: &str, start: &str, end: &str) -> String {
    let path = place.write(name, start);
    let mut file = File::options().write(true).open(&path).unwrap();
    file.seek(SeekFrom::Start(1 << 30)).unwrap();
    file.write_all(end.as_bytes()).unwrap();
    path
}

#[test]
fn a_line_of_a_gigabyte_costs_no_memory_and_only_its_own_message() {
    on_each_database(|place| {
        place.ok(&["tenant", "create", "acme"]);
        let from = "From a@x Tue Jan  2 12:00:00 2024\n";
        let start = format!("{from}{}\n{from}Subject: huge\n\n", simple("before", "x"));
        let end = format!("\n\n{from}{}", simple("after", "x"));
        let file = with_a_gigabyte(place, "huge.mbox", &start, &end);
        let alone = with_a_gigabyte(place, "huge.eml", "Subject: huge\n\n", "\n");

        let done = place.try_import(&file);

        assert_eq!(done.code, Some(1), "{done}");
        done.assert_one_sentence(
            "not imported: ",
            &["is larger than limits.message_size (256 MiB); raise it to import"],
        );
        let summary = done.objects().remove(0);
        assert_eq!((&summary["stored"], &summary["failed"]), (&json!(2), &json!(1)), "{summary}");
        assert!(summary["peak_memory_bytes"].as_u64().unwrap() < MEMORY, "{summary}");
        place
            .try_import(&alone)
            .assert_refused(1, &["huge.eml is larger than limits.message_size (256 MiB); raise it"]);
        place.assert_whole();
    });
}

/// Ten thousand parts, in each other or after one another, and the defect of each. An attached message is one
/// attachment, whatever is in it.
fn hostile_structures() -> [(&'static str, String, &'static str); 4] {
    const PARTS: usize = 10_000;
    let open = |n| format!("Content-Type: multipart/mixed; boundary=b{n}\n\n--b{n}\n");
    let multiparts: String = (0..PARTS).map(open).collect();
    let messages = "Content-Type: message/rfc822\n\n".repeat(PARTS);
    let siblings = "--b\nContent-Disposition: attachment; filename=a.txt\n\nx\n".repeat(PARTS);
    let both: String = (0..PARTS).map(|n| format!("{}Content-Type: message/rfc822\n\n", open(n))).collect();
    let in_one = "Content-Type: multipart/mixed; boundary=b";
    [
        ("multiparts", format!("Subject: multiparts\n{multiparts}\ndeep\n"), "nesting_too_deep"),
        ("messages", format!("Subject: messages\n{messages}Subject: deep\n\nx\n"), "no_receive_time"),
        ("siblings", format!("Subject: siblings\n{in_one}\n\n{siblings}--b--\n"), "too_many_parts"),
        ("both", format!("Subject: both\n{both}\ndeep\n"), "unclosed_multipart"),
    ]
}

#[test]
fn ten_thousand_parts_are_a_defect_of_a_stored_email() {
    on_each_database(|place| {
        for (name, mail, defect) in hostile_structures() {
            let summary = place.import(&place.write(&format!("{name}.eml"), &mail));

            assert_eq!((&summary["stored"], &summary["failed"]), (&json!(1), &json!(0)), "{name}");
            assert!(summary["peak_memory_bytes"].as_u64().unwrap() < MEMORY, "{name}: {summary}");
            let email = place.object(&["search", &format!("subject:{name}"), "--tenant", "acme", "--full"]);
            assert!(email["defects"].as_array().unwrap().contains(&json!(defect)), "{name}: {}", email["defects"]);
            let raw = place.ok(&["email", "show", email["id"].as_str().unwrap(), "--raw", "--tenant", "acme"]);
            assert!(raw.stdout == mail.as_bytes(), "{name} does not come back as it was");
        }
        place.assert_whole();
    });
}

#[test]
fn settings_that_are_not_understood_refuse_to_start() {
    let place = Place::sqlite();
    let unknown = place.write("unknown.toml", "[limits]\nmesage_size = \"5 MB\"\n");
    let broken = place.write("broken.toml", "limits = [\n");
    let unit = place.write("unit.toml", "[limits]\nmessage_size = \"5 bananas\"\n");
    let secret = format!("mysql://u:{PASSWORD}@h/db");

    for (file, says) in [
        (&unknown, "unknown setting `limits.mesage_size`"),
        (&unknown, "did you mean `limits.message_size`?"),
        (&broken, "broken.toml"),
        (&unit, "`limits.message_size` wants a size like \"50 MB\", not 5 bananas"),
        (&"absent.toml".to_owned(), "absent.toml"),
    ] {
        place.run(&["tenant", "list", "--config", file]).assert_refused(2, &[says]);
    }
    for (name, value, says) in [
        ("MAILROOM_DATABSE__URL", "x", "did you mean `database.url`, which is MAILROOM_DATABASE__URL?"),
        ("MAILROOM_LIMITS__MESSAGE_SIZE", "50", "wants a unit after 50, one of B, KB, MB"),
        ("MAILROOM_LIMITS__MESSAGE_SIZE", "50 MW", "wants a size like \"50 MB\""),
        ("MAILROOM_IMPORT__IN_FLIGHT", "lots", "wants a whole number from 1 to 64"),
        ("MAILROOM_DATABASE__URL", &secret, "wants sqlite://PATH or postgres://"),
        ("MAILROOM_BLOBS__URL", "ftp://bucket", "s3://BUCKET/PREFIX, az://CONTAINER/PREFIX or gs://BUCKET/PREFIX"),
        ("MAILROOM_BLOBS__RETRY_FOR", "30", "wants a unit after 30, one of ms, s, m, h or d"),
        ("MAILROOM_BLOBS__RETRY_FOR", "1h", "may be from 1s to 600s"),
    ] {
        place.run_with(&[(name, value)], &["tenant", "list"]).assert_refused(2, &[says]);
    }
    assert!(!place.data_dir().exists(), "nothing is made before the settings are understood");
}
