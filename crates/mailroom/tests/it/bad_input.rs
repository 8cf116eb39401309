//! Whatever is wrong with what we are given: one plain sentence with what to do, the right exit code, and nothing
//! half-stored.

use std::fs::{self, File, Permissions};
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::installation::{PASSWORD, TestInstallation, on_each_database};
use crate::mail::{mbox, simple};
use crate::processes::UnprivilegedUser;

const MAX_MEMORY_BYTES: u64 = 200 << 20;

/// An import of something that cannot be imported at all makes nothing, not even the tenant.
fn assert_nothing_made(mailroom: &TestInstallation) {
    assert_eq!(mailroom.tenants(), Vec::<Value>::new());
    assert_eq!(mailroom.packs(), Vec::<PathBuf>::new());
}

#[test]
fn file_without_mail_is_refused_up_front() {
    on_each_database(|mailroom| {
        mailroom.write("notes/readme.txt", "nothing here");
        mailroom.write("junk.eml", junk());
        mailroom.write("junk.mbox", junk());
        mailroom.write("archive.eml", b"PK\x03\x04\x14\0\0\0\x08\0zip");
        mailroom.write("empty.eml", b"");
        fs::create_dir(mailroom.path("empty")).unwrap();
        symlink("circle", mailroom.path("circle")).unwrap();

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
            mailroom.try_import(name).assert_refused(1, &[says]);
            assert_nothing_made(mailroom);
        }
    });
}

/// Bytes without structure, the same each time.
fn junk() -> Vec<u8> {
    let mut state = 1_u64;
    (0..100_000)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8 & !0x40
        })
        .collect()
}

#[test]
fn bad_file_does_not_stop_an_import() {
    on_each_database(|mailroom| {
        mailroom.ok(&["tenant", "create", "acme"]);
        mailroom.write("mail/1.eml", simple("one", "x"));
        mailroom.write("mail/2.eml", b"PK\x03\x04zip");
        mailroom.write("mail/3.eml", simple("three", "x"));

        let done = mailroom.try_import("mail");

        assert_eq!(done.code, Some(1));
        done.assert_one_sentence("not imported: ", &["mail/2.eml is a zip archive, not an email; unpack it first"]);
        let summary = done.objects().remove(0);
        assert_eq!((&summary["read"], &summary["stored"], &summary["failed"]), (&json!(3), &json!(2), &json!(1)));
        mailroom.assert_whole();
    });
}

#[test]
fn file_name_cannot_control_the_terminal() {
    let mailroom = TestInstallation::sqlite();
    mailroom.write("mail/1.eml", simple("one", "x"));
    mailroom.write("mail/\u{1b}[31m\n2.eml", b"PK\x03\x04zip");
    mailroom.ok(&["tenant", "create", "acme"]);

    mailroom.try_import("mail").assert_one_sentence("not imported: mail/ [31m 2.eml is a zip archive", &[]);
    mailroom.try_import("\u{1b}]0;title\u{7}").assert_refused(1, &["error:  ]0;title  does not exist; check the path"]);
}

#[test]
fn unreadable_file_does_not_stop_an_import() {
    let mailroom = TestInstallation::sqlite();
    mailroom.ok(&["tenant", "create", "acme"]);
    mailroom.write("mail/1.eml", simple("one", "x"));
    let locked = mailroom.write("mail/2.eml", simple("two", "x"));
    fs::set_permissions(&locked, Permissions::from_mode(0o000)).unwrap();
    let nobody = UnprivilegedUser::new(&mailroom);
    nobody.owns(&mailroom.data_dir());

    let alone = nobody.run(&mailroom, &["import", &locked, "--tenant", "acme", "--mailbox", "me@acme.test"]);
    let among = nobody.run(&mailroom, &["import", "mail", "--tenant", "acme", "--mailbox", "me@acme.test", "--json"]);

    alone.assert_refused(1, &["2.eml could not be read (Permission denied (os error 13)); check its permissions"]);
    assert_eq!(among.code, Some(1));
    among.assert_one_sentence("not imported: ", &["2.eml could not be read (Permission denied"]);
    assert_eq!(among.objects()[0]["stored"], 1);
}

#[test]
fn truncated_message_does_not_stop_an_import() {
    on_each_database(|mailroom| {
        mailroom.import(&mailroom.write("all.mbox", mbox(16, 6)));
        mailroom.ok(&["export", "--tenant", "acme", "--out", "export.mbox"]);
        let whole = fs::read(mailroom.path("export.mbox")).unwrap();
        let apple = simple("apple", "x");
        mailroom.write("cut/export.mbox", &whole[..whole.len() - 7]);
        mailroom.write("cut/a.emlx", format!("{}\n{}", apple.len(), &apple[..apple.len() - 1]));
        let args = ["import", "cut", "--tenant", "other", "--mailbox", "me@other.test", "--json"];
        mailroom.ok(&["tenant", "create", "other"]);

        let done = mailroom.run(&args);

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
        mailroom.assert_whole();
    });
}

/// Nothing but the end of the file ends its last message.
#[test]
fn truncated_mbox_gives_what_is_there() {
    on_each_database(|mailroom| {
        mailroom.ok(&["tenant", "create", "acme"]);
        let part = "From: a@acme.test\nSubject: cut\nMIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=b\n\n--b\n\
            Content-Type: application/pdf; name=a.pdf\nContent-Disposition: attachment; filename=a.pdf\n\
            Content-Transfer-Encoding: base64\n\nJVBERi0xLjQKJcOkw7zDtsOfCjIgMCBvYmoKPDwvTGVuZ3RoIDMg\n";
        let whole = [mbox(16, 5), format!("From a@x Tue Jan  2 12:00:00 2024\n{part}").into_bytes()].concat();
        let file = mailroom.write("cut.mbox", &whole[..whole.len() - 7]);

        let done = mailroom.try_import(&file);

        assert_eq!((done.code, done.stderr.as_str()), (Some(0), ""), "{done}");
        assert_eq!(done.objects()[0]["stored"], 6);
        let cut = mailroom.object(&["search", "subject:cut", "--tenant", "acme", "--full"]);
        assert!(!cut["defects"].as_array().unwrap().is_empty(), "{cut}");
        assert_eq!(cut["has_attachments"], true);
        mailroom.assert_whole();
    });
}

/// A file with a gigabyte between its beginning and its end, most of which is not on disk.
fn with_a_gigabyte(mailroom: &TestInstallation, name: &str, start: &str, end: &str) -> String {
    let path = mailroom.write(name, start);
    let mut file = File::options().write(true).open(&path).unwrap();
    file.seek(SeekFrom::Start(1 << 30)).unwrap();
    file.write_all(end.as_bytes()).unwrap();
    path
}

#[test]
fn gigabyte_line_costs_only_its_message() {
    on_each_database(|mailroom| {
        mailroom.ok(&["tenant", "create", "acme"]);
        let from = "From a@x Tue Jan  2 12:00:00 2024\n";
        let start = format!("{from}{}\n{from}Subject: huge\n\n", simple("before", "x"));
        let end = format!("\n\n{from}{}", simple("after", "x"));
        let file = with_a_gigabyte(mailroom, "huge.mbox", &start, &end);
        let alone = with_a_gigabyte(mailroom, "huge.eml", "Subject: huge\n\n", "\n");

        let done = mailroom.try_import(&file);

        assert_eq!(done.code, Some(1), "{done}");
        done.assert_one_sentence(
            "not imported: ",
            &["is larger than limits.message_size (256 MiB); raise it to import"],
        );
        let summary = done.objects().remove(0);
        assert_eq!((&summary["stored"], &summary["failed"]), (&json!(2), &json!(1)), "{summary}");
        assert!(summary["peak_memory_bytes"].as_u64().unwrap() < MAX_MEMORY_BYTES, "{summary}");
        mailroom
            .try_import(&alone)
            .assert_refused(1, &["huge.eml is larger than limits.message_size (256 MiB); raise it"]);
        mailroom.assert_whole();
    });
}

fn open_multipart(n: usize) -> String {
    format!("Content-Type: multipart/mixed; boundary=b{n}\n\n--b{n}\n")
}

/// Ten thousand parts, in each other or after one another, and the defect of each. An attached message is one
/// attachment, whatever is in it.
fn hostile_structures() -> [(&'static str, String, &'static str); 4] {
    const PARTS: usize = 10_000;
    let multiparts: String = (0..PARTS).map(open_multipart).collect();
    let messages = "Content-Type: message/rfc822\n\n".repeat(PARTS);
    let siblings = "--b\nContent-Disposition: attachment; filename=a.txt\n\nx\n".repeat(PARTS);
    let both: String = (0..PARTS).map(|n| format!("{}Content-Type: message/rfc822\n\n", open_multipart(n))).collect();
    let in_one = "Content-Type: multipart/mixed; boundary=b";
    [
        ("multiparts", format!("Subject: multiparts\n{multiparts}\ndeep\n"), "nesting_too_deep"),
        ("messages", format!("Subject: messages\n{messages}Subject: deep\n\nx\n"), "no_receive_time"),
        ("siblings", format!("Subject: siblings\n{in_one}\n\n{siblings}--b--\n"), "too_many_parts"),
        ("both", format!("Subject: both\n{both}\ndeep\n"), "unclosed_multipart"),
    ]
}

#[test]
fn ten_thousand_parts_are_stored_as_a_defect() {
    on_each_database(|mailroom| {
        for (name, mail, defect) in hostile_structures() {
            let summary = mailroom.import(&mailroom.write(&format!("{name}.eml"), &mail));

            assert_eq!((&summary["stored"], &summary["failed"]), (&json!(1), &json!(0)), "{name}");
            assert!(summary["peak_memory_bytes"].as_u64().unwrap() < MAX_MEMORY_BYTES, "{name}: {summary}");
            let email = mailroom.object(&["search", &format!("subject:{name}"), "--tenant", "acme", "--full"]);
            assert!(email["defects"].as_array().unwrap().contains(&json!(defect)), "{name}: {}", email["defects"]);
            let raw = mailroom.ok(&["email", "show", email["id"].as_str().unwrap(), "--raw", "--tenant", "acme"]);
            assert!(raw.stdout == mail.as_bytes(), "{name} does not come back as it was");
        }
        mailroom.assert_whole();
    });
}

#[test]
fn unknown_settings_refuse_to_start() {
    let mailroom = TestInstallation::sqlite();
    let unknown = mailroom.write("unknown.toml", "[limits]\nmesage_size = \"5 MB\"\n");
    let broken = mailroom.write("broken.toml", "limits = [\n");
    let unit = mailroom.write("unit.toml", "[limits]\nmessage_size = \"5 bananas\"\n");
    let secret = format!("mysql://u:{PASSWORD}@h/db");

    for (file, says) in [
        (&unknown, "unknown setting `limits.mesage_size`"),
        (&unknown, "did you mean `limits.message_size`?"),
        (&broken, "broken.toml"),
        (&unit, "`limits.message_size` must be a size such as \"50 MB\", not 5 bananas"),
        (&"absent.toml".to_owned(), "absent.toml"),
    ] {
        mailroom.run(&["tenant", "list", "--config", file]).assert_refused(2, &[says]);
    }
    for (name, value, says) in [
        ("MAILROOM_DATABSE__URL", "x", "did you mean `database.url`, which is MAILROOM_DATABASE__URL?"),
        ("MAILROOM_LIMITS__MESSAGE_SIZE", "50", "must have a unit after 50, one of B, KB, MB"),
        ("MAILROOM_LIMITS__MESSAGE_SIZE", "50 MW", "must be a size such as \"50 MB\""),
        ("MAILROOM_IMPORT__IN_FLIGHT", "lots", "must be a whole number from 1 to 64"),
        ("MAILROOM_DATABASE__URL", &secret, "must be sqlite://PATH or postgres://"),
        ("MAILROOM_BLOBS__URL", "ftp://bucket", "s3://BUCKET/PREFIX, az://CONTAINER/PREFIX or gs://BUCKET/PREFIX"),
        ("MAILROOM_BLOBS__RETRY_FOR", "30", "must have a unit after 30, one of ms, s, m, h or d"),
        ("MAILROOM_BLOBS__RETRY_FOR", "1h", "must be from 1s to 600s"),
    ] {
        mailroom.run_with(&[(name, value)], &["tenant", "list"]).assert_refused(2, &[says]);
    }
    assert!(!mailroom.data_dir().exists(), "nothing is made before the settings are understood");
}
