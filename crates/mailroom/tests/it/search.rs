//! What scripts and people get to read.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::installation::{TestInstallation, on_each_database};
use crate::mail::{hashes, hostile_messages, mbox, names, simple};

/// The promised fields of an email.
const EMAIL: [&str; 26] = [
    "id",
    "mailbox_id",
    "provider_message_id",
    "internet_message_id",
    "thread_id",
    "conversation_id",
    "subject",
    "from",
    "to",
    "cc",
    "bcc",
    "reply_to",
    "sent_at",
    "received_at",
    "processed_at",
    "processing_status",
    "folders",
    "flags",
    "size_bytes",
    "sha256",
    "body_text",
    "body_html",
    "has_attachments",
    "headers",
    "defects",
    "attachments",
];
/// Fields beyond the promised ones.
const EMAIL_MORE: [&str; 1] = ["deleted_at"];
const ATTACHMENT: [&str; 8] =
    ["id", "filename", "content_type", "size_bytes", "sha256", "inline", "content_id", "status"];
const ATTACHMENT_MORE: [&str; 2] = ["sniffed_type", "md5"];
const LISTED: [&str; 9] =
    ["id", "mailbox_id", "subject", "from", "received_at", "folders", "has_attachments", "deleted_at", "snippet"];

const WITH_ATTACHMENT: &str = "From: Ann <Ann@acme.test>\r\nTo: Bob <bob@acme.test>, eve@acme.test\r\nCc: c@acme.test\r\n\
    Reply-To: r@acme.test\r\nSubject: Report\r\nMessage-ID: <1@acme.test>\r\nDate: Tue, 02 Jan 2024 12:00:00 +0100\r\n\
    MIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\nContent-Type: text/plain\r\n\r\nSee attached.\r\n\
    --b\r\nContent-Type: application/pdf\r\nContent-Disposition: attachment; filename=\"a.pdf\"\r\n\r\n%PDF-1.4 hello\r\n--b--\r\n";

#[test]
fn email_is_shown_with_the_promised_fields() {
    on_each_database(|mailroom| {
        mailroom.import(&mailroom.write("a.eml", WITH_ATTACHMENT));

        let full = mailroom.emails("acme").remove(0);
        let id = full["id"].as_str().unwrap();
        let shown = mailroom.object(&["email", "show", id, "--tenant", "acme"]);

        assert_eq!(shown, full);
        assert_eq!(names(&shown), EMAIL.into_iter().chain(EMAIL_MORE).collect::<BTreeSet<_>>());
        let attachment = &shown["attachments"][0];
        assert_eq!(names(attachment), ATTACHMENT.into_iter().chain(ATTACHMENT_MORE).collect::<BTreeSet<_>>());
        assert_eq!(names(&shown["from"]), BTreeSet::from(["address", "name"]));
        assert_eq!(shown["internet_message_id"], "1@acme.test");
        assert_eq!(shown["sent_at"], "2024-01-02T11:00:00Z");
        assert_eq!(shown["received_at"], "2024-01-02T11:00:00Z");
        assert_eq!(shown["processing_status"], "processed");
        assert_eq!(shown["to"].as_array().unwrap().len(), 2);
        assert_eq!(
            (&shown["cc"][0]["address"], &shown["reply_to"][0]["address"]),
            (&"c@acme.test".into(), &"r@acme.test".into())
        );
        assert_eq!(shown["size_bytes"], WITH_ATTACHMENT.len());
        assert_eq!(shown["sha256"], *hashes([WITH_ATTACHMENT]).first().unwrap());
        assert_eq!(attachment["sha256"], *hashes(["%PDF-1.4 hello"]).first().unwrap());
        assert_eq!((&attachment["filename"], &attachment["status"]), (&"a.pdf".into(), &"stored".into()));
        assert!(shown["headers"].as_array().unwrap().contains(&serde_json::json!(["Subject", "Report"])));
        assert!(shown["processed_at"].as_str().unwrap().ends_with('Z'));
    });
}

#[test]
fn search_prints_one_object_per_line() {
    on_each_database(|mailroom| {
        mailroom.import(&mailroom.write("a.mbox", mbox(7, 5)));

        for listed in mailroom.objects(&["search", "", "--tenant", "acme"]) {
            assert_eq!(names(&listed), BTreeSet::from(LISTED));
        }
    });
}

#[test]
fn original_comes_back_byte_for_byte() {
    on_each_database(|mailroom| {
        for (n, mail) in hostile_messages().iter().enumerate() {
            mailroom.write(&format!("hostile/{n:02}.eml"), mail);
        }
        mailroom.import(mailroom.path("hostile").to_str().unwrap());

        for email in mailroom.emails("acme") {
            let raw = mailroom.ok(&["email", "show", email["id"].as_str().unwrap(), "--tenant", "acme", "--raw"]);
            assert_eq!(hashes([&raw.stdout]), BTreeSet::from([email["sha256"].as_str().unwrap().to_owned()]));
        }
    });
}

/// Returns all pages of a search, and how many there were.
fn pages(mailroom: &TestInstallation, args: &[&str], limit: &str) -> (Vec<String>, usize) {
    let (mut ids, mut pages, mut cursor) = (Vec::new(), 0, None::<String>);
    loop {
        let mut args = [args, &["--tenant", "acme", "--limit", limit]].concat();
        if let Some(cursor) = &cursor {
            args.extend(["--cursor", cursor]);
        }
        let done = mailroom.ok(&args);
        ids.extend(done.text().lines().filter(|line| is_id(line)).map(|line| line.trim().to_owned()));
        pages += 1;
        cursor = done.stderr.trim().rsplit_once("--cursor ").map(|(_, cursor)| cursor.to_owned());
        if cursor.is_none() {
            return (ids, pages);
        }
    }
}

fn is_id(line: &str) -> bool {
    let line = line.trim();
    line.len() == 36 && line.chars().all(|c| c == '-' || c.is_ascii_hexdigit())
}

#[test]
fn pages_have_no_gap_or_repeat() {
    on_each_database(|mailroom| {
        mailroom.import(&mailroom.write("a.mbox", mbox(8, 47)));
        let newest: Vec<Value> = mailroom.objects(&["search", "", "--tenant", "acme", "--limit", "1000"]);
        let newest: Vec<&str> = newest.iter().map(|hit| hit["id"].as_str().unwrap()).collect();

        let (paged, count) = pages(mailroom, &["search", ""], "10");
        let (ranked, ranked_count) = pages(mailroom, &["search", "", "--ranked"], "10");
        let (words, _) = pages(mailroom, &["search", "test", "--ranked"], "7");

        assert_eq!((newest.len(), count, ranked_count), (47, 5, 5));
        assert_eq!(paged, newest);
        assert_eq!(ranked.len(), 47);
        assert_eq!(ranked.iter().collect::<BTreeSet<_>>(), paged.iter().collect());
        let all = pages(mailroom, &["search", "test"], "1000").0;
        assert_eq!(words.len(), all.len());
        assert_eq!(words.iter().collect::<BTreeSet<_>>(), all.iter().collect());
    });
}

#[test]
fn snippets_mark_the_hits() {
    on_each_database(|mailroom| {
        mailroom.import(&mailroom.write("a.eml", simple("Plain", "The quarterly report is due on Friday.")));

        let found = mailroom.object(&["search", "\"quarterly report\" fri*", "--tenant", "acme"]);
        let shown = mailroom.ok(&["search", "report", "--tenant", "acme"]);

        assert_eq!(found["snippet"], "The **quarterly report** is due on **Friday**.");
        assert!(shown.text().contains("quarterly **report** is"), "{shown}");
        assert_eq!(shown.stderr, "1 found.\n");
    });
}

#[test]
fn query_language_finds_what_it_says() {
    on_each_database(|mailroom| {
        mailroom.import(&mailroom.write("a.eml", WITH_ATTACHMENT));
        mailroom.import(
            &mailroom.write("Sent/b.eml", simple("Weekly plan", "nothing attached, naïve Überraschung 東京都")),
        );

        for (query, found) in [
            ("", 2),
            ("attached", 2),
            ("attached -nothing", 1),
            ("from:ann", 2),
            ("to:eve", 1),
            ("subject:weekly", 1),
            ("filename:pdf", 1),
            ("has:attachment", 1),
            ("-has:attachment", 1),
            ("\"weekly plan\"", 1),
            ("\"plan weekly\"", 0),
            ("week*", 1),
            ("UBERRASCHUNG", 1),
            ("京都", 1),
            ("after:2024-01-02", 2),
            ("before:2024-01-02", 0),
            ("label:inbox", 2),
            ("label:nowhere", 0),
        ] {
            let listed = mailroom.objects(&["search", query, "--tenant", "acme"]).len();
            assert_eq!(listed, found, "{query}");
        }
    });
}

#[test]
fn wrong_date_or_cursor_is_refused() {
    on_each_database(|mailroom| {
        mailroom.import(&mailroom.write("a.eml", simple("a", "b")));

        for (args, says) in [
            (["after:yesterday", "--limit", "5"], "after: wants a date like 2024-01-31, not \"yesterday\""),
            (["before:2024-13-01", "--limit", "5"], "before: wants a date like"),
            (["has:wings", "--limit", "5"], "has: knows only has:attachment"),
            (["", "--cursor", "nonsense"], "--cursor is not a cursor of this search; start again without it"),
        ] {
            let done = mailroom.run(&[&["search"], args.as_slice(), &["--tenant", "acme"]].concat());
            done.assert_refused(2, &[says]);
        }
    });
}

#[test]
fn any_query_text_is_safe() {
    on_each_database(|mailroom| {
        mailroom.import(&mailroom.write("a.eml", simple("a", "b")));

        for query in [
            "'",
            "\"",
            "\"\"\"",
            "''; drop table emails; --",
            "a' or '1'='1",
            "%",
            "_",
            "*",
            "**",
            "a*b",
            "-",
            "--",
            "- -",
            ":",
            "a:b:c",
            ":has:attachment",
            "from:",
            "from:\"",
            "(a",
            "a)",
            "a AND OR NOT b",
            "NEAR(a b)",
            "a <-> b",
            "a & b",
            "a | !b",
            "!",
            "\\",
            "\\'",
            "\u{1}\u{2}",
            "\u{1b}[31m",
            "\u{feff}",
            "\u{202e}abc",
            "🎉",
            "𝒳",
            "e\u{301}",
            "$1",
            "{}",
            "tenant:x",
            "^a",
            "a^2",
            "+a",
            "rowid:1",
            "tokens:a",
            "label:'",
            "label:%",
            "subject:\"a\" \"b",
        ] {
            let done = mailroom.run(&["search", "--tenant", "acme", "--", query]);
            assert_eq!(done.code, Some(0), "{query:?}: {done}");
        }
        let long = "word ".repeat(20_000);
        assert_eq!(mailroom.run(&["search", &long, "--tenant", "acme"]).code, Some(0));
        assert_eq!(mailroom.emails("acme").len(), 1);
    });
}

#[test]
fn control_characters_never_reach_the_terminal() {
    let mailroom = TestInstallation::sqlite();
    let hostile = "From: \"\x1b[31mAnn\x07\" <ann@acme.test>\r\nTo: \"\x1b]0;x\x07\" <b@acme.test>\r\n\
        Subject: =?utf-8?Q?=1B=5B2J=C2=9B31m?=\r\nDate: Tue, 02 Jan 2024 12:00:00 +0000\r\nContent-Type: multipart/mixed; boundary=b\r\n\r\n\
        --b\r\nContent-Type: text/plain; charset=utf-8\r\n\r\nhello \x1b[31m red \x08\x7f \u{9b}31m\r\n--b\r\n\
        Content-Disposition: attachment; filename=\"\x1b[1m.pdf\"\r\n\r\nx\r\n--b--\r\n";
    mailroom.import(&mailroom.write("a.eml", hostile));
    let id = mailroom.emails("acme")[0]["id"].as_str().unwrap().to_owned();

    for args in [
        vec!["search", "", "--tenant", "acme"],
        vec!["search", "hello", "--tenant", "acme"],
        vec!["search", "hello", "--tenant", "acme", "--full"],
        vec!["email", "show", &id, "--tenant", "acme"],
        vec!["search", "hello", "--tenant", "acme", "--json"],
        vec!["email", "show", &id, "--tenant", "acme", "--json"],
    ] {
        let done = mailroom.ok(&args);
        let is_json = args.contains(&"--json");
        // JSON escapes what is below a space; a terminal shows C1 controls of UTF-8 text as they are.
        let text: String = done.text().chars().filter(|c| !is_json || *c < '\u{7f}').collect();
        assert!(!text.contains(|c: char| c.is_control() && c != '\n'), "{args:?}: {text:?}");
    }
}
