//! Files in: every format, once, however often and by however many at the same time.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::installation::{CommandOutput, PROGRAM, TestInstallation, on_each_database};
use crate::mail::{generated, hashes, mbox, names, simple, stored_hashes};
use crate::processes::RunningProcess;

const MESSAGES: usize = 60;

fn counts(summary: &Value) -> (u64, u64, u64, u64) {
    let [read, stored, duplicates, failed] =
        ["read", "stored", "duplicates", "failed"].map(|name| summary[name].as_u64().unwrap());
    (read, stored, duplicates, failed)
}

#[test]
fn repeated_import_stores_each_message_once() {
    on_each_database(|mailroom| {
        let file = mailroom.write("all.mbox", mbox(1, MESSAGES));
        let n = MESSAGES as u64;

        let first = mailroom.import(&file);
        let again = mailroom.import(&file);

        assert_eq!((counts(&first), counts(&again)), ((n, n, 0, 0), (n, 0, n, 0)));
        let promised = ["read", "stored", "duplicates", "failed", "attachments", "bytes", "seconds"];
        let beside = ["incomplete", "skipped", "peak_memory_bytes"];
        assert_eq!(names(&first), promised.into_iter().chain(beside).collect());
        let messages = generated(1, MESSAGES);
        assert_eq!(first["bytes"], messages.iter().map(|message| message.raw.len()).sum::<usize>());
        assert!(first["attachments"].as_u64().unwrap() > 0 && again["attachments"] == 0);
        assert_eq!(stored_hashes(&mailroom.emails("acme")), hashes(messages.iter().map(|message| &message.raw)));
        mailroom.assert_whole();
    });
}

#[test]
fn summary_is_a_sentence_for_people() {
    let mailroom = TestInstallation::sqlite();
    let file = mailroom.write("a.eml", simple("Hello", "there"));

    let done = mailroom.ok(&["import", &file, "--tenant", "acme", "--mailbox", "me@acme.test"]);

    assert!(done.text().starts_with("Messages read: 1 (110 bytes) in "), "{done}");
    assert!(done.text().ends_with(" Stored: 1, duplicates: 0, failed: 0, attachments: 0.\n"), "{done}");
    assert_eq!(done.stderr, "Created tenant acme.\n");
}

fn folders_and_flags(emails: &[Value], subject: &str) -> (Value, Value) {
    let email = emails.iter().find(|email| email["subject"] == subject).unwrap();
    (email["folders"].clone(), email["flags"].clone())
}

#[test]
fn every_file_format_gives_the_exact_message() {
    on_each_database(|mailroom| {
        let mails: Vec<String> = (0..8).map(|n| simple(&format!("Subject {n}"), &format!("body {n}"))).collect();
        mailroom.write("Maildir/cur/1.host:2,FS", &mails[0]);
        mailroom.write("Maildir/new/2.host", &mails[1]);
        mailroom.write("Maildir/.Sent.2024/cur/3.host:2,S", &mails[2]);
        mailroom.write("folder/a.eml", &mails[3]);
        mailroom.write("folder/deep/b.eml", &mails[4]);
        let apple = format!("{}\n{}<?xml version=\"1.0\"?><plist><dict/></plist>\n", mails[5].len(), mails[5]);
        mailroom.write("apple.emlx", apple);
        mailroom.write("saved-without-a-name", &mails[6]);
        mailroom.write("one.mbox", format!("From a@x Tue Jan  2 12:00:00 2024\r\n{}\r\n", mails[7]));

        for (name, stored) in
            [("Maildir", 3), ("folder", 2), ("apple.emlx", 1), ("saved-without-a-name", 1), ("one.mbox", 1)]
        {
            let summary = mailroom.import(mailroom.path(name).to_str().unwrap());
            assert_eq!(counts(&summary), (stored, stored, 0, 0), "{name}");
        }

        let emails = mailroom.emails("acme");
        assert_eq!(stored_hashes(&emails), hashes(&mails));
        assert_eq!(folders_and_flags(&emails, "Subject 0"), (json!(["INBOX"]), json!(["flagged", "seen"])));
        assert_eq!(folders_and_flags(&emails, "Subject 1"), (json!(["INBOX"]), json!([])));
        assert_eq!(folders_and_flags(&emails, "Subject 2"), (json!(["Sent/2024"]), json!(["seen"])));
        assert_eq!(folders_and_flags(&emails, "Subject 4"), (json!(["deep"]), json!([])));
    });
}

#[test]
fn one_import_takes_several_paths() {
    let mailroom = TestInstallation::sqlite();
    let (a, b) = (mailroom.write("a.eml", simple("a", "x")), mailroom.write("b", simple("b", "x")));

    let summary =
        mailroom.object(&["import", &a, &b, "--format", "eml", "--tenant", "acme", "--mailbox", "me@acme.test"]);

    assert_eq!(counts(&summary), (2, 2, 0, 0));
}

fn import_counts(mailroom: &TestInstallation, name: &str) -> (u64, u64, u64, u64) {
    counts(&mailroom.import(mailroom.path(name).to_str().unwrap()))
}

/// Returns folders and flags of the only email.
fn folders_and_flags_of_one(mailroom: &TestInstallation) -> (Value, Value) {
    let emails = mailroom.emails("acme");
    assert_eq!(emails.len(), 1);
    (emails[0]["folders"].clone(), emails[0]["flags"].clone())
}

#[test]
fn same_bytes_in_another_folder_are_one_email() {
    on_each_database(|mailroom| {
        let mail = simple("Twice", "the same bytes");
        mailroom.write("one/cur/1.host:2,S", &mail);
        mailroom.write("two/.Archive/cur/1.host:2,F", &mail);
        mailroom.write("three/cur/1.host:2,R", &mail);

        import_counts(mailroom, "one");
        assert_eq!(import_counts(mailroom, "two"), (1, 0, 1, 0));
        assert_eq!(folders_and_flags_of_one(mailroom), (json!(["Archive", "INBOX"]), json!(["flagged", "seen"])));
        // In the same folder again, the mail has the flags that it has now.
        assert_eq!(import_counts(mailroom, "three"), (1, 0, 1, 0));
        assert_eq!(folders_and_flags_of_one(mailroom), (json!(["Archive", "INBOX"]), json!(["answered", "flagged"])));
        mailroom.assert_whole();
    });
}

#[test]
fn forced_folder_takes_everything() {
    let mailroom = TestInstallation::sqlite();
    let file = mailroom.write("Sent.mbox", mbox(2, 3));

    mailroom.object(&["import", &file, "--folder", "Old", "--tenant", "acme", "--mailbox", "me@acme.test"]);

    assert!(mailroom.emails("acme").iter().all(|email| email["folders"] == json!(["Old"])));
}

#[test]
fn concurrent_imports_store_each_message_once() {
    on_each_database(|mailroom| {
        let file = mailroom.write("all.mbox", mbox(3, 150));
        let args = ["import", &file, "--tenant", "acme", "--mailbox", "me@acme.test", "--json"];
        let small_batches = [("MAILROOM_IMPORT__BATCH_MESSAGES", "10")];

        let running = [(), ()].map(|()| RunningProcess::start(mailroom.command(PROGRAM, &args).envs(small_batches)));
        let done: Vec<CommandOutput> = running.map(RunningProcess::finish).into_iter().collect();

        let summaries: Vec<Value> = done
            .iter()
            .map(|done| {
                assert_eq!(done.code, Some(0), "{done}");
                done.objects().remove(0)
            })
            .collect();
        let totals = ["read", "stored", "duplicates", "failed"]
            .map(|name| summaries.iter().map(|summary| summary[name].as_u64().unwrap()).sum::<u64>());
        assert_eq!(totals, [300, 150, 150, 0]);
        let messages = generated(3, 150);
        assert_eq!(stored_hashes(&mailroom.emails("acme")), hashes(messages.iter().map(|message| &message.raw)));
        assert_eq!(mailroom.emails("acme").len(), 150);
        mailroom.assert_whole();
    });
}

#[test]
fn imports_into_two_tenants_take_turns() {
    on_each_database(|mailroom| {
        let file = mailroom.write("all.mbox", mbox(4, 150));

        let running = ["left", "right"].map(|tenant| {
            let args = ["import", &file, "--tenant", tenant, "--mailbox", "me@acme.test", "--json"];
            RunningProcess::start(mailroom.command(PROGRAM, &args).env("MAILROOM_IMPORT__BATCH_MESSAGES", "5"))
        });

        for done in running.map(RunningProcess::finish) {
            assert_eq!(done.code, Some(0), "{done}");
            assert_eq!(counts(&done.objects()[0]), (150, 150, 0, 0));
        }
        assert_eq!(stored_hashes(&mailroom.emails("left")), stored_hashes(&mailroom.emails("right")));
        mailroom.assert_whole();
    });
}

#[test]
fn import_creates_tenant_and_mailbox() {
    on_each_database(|mailroom| {
        let file = mailroom.write("a.eml", simple("Hello", "there"));

        mailroom.object(&["import", &file, "--tenant", "acme", "--mailbox", "Me@ACME.test"]);
        mailroom.object(&["import", &file, "--tenant", "acme", "--mailbox", "me@acme.TEST"]);

        let shown = mailroom.object(&["tenant", "show", "acme"]);
        assert_eq!(shown["mailboxes"].as_array().unwrap().len(), 1, "{shown}");
        assert_eq!(shown["totals"]["emails"], 1);
        let (tenant, mailbox) = (&shown["tenant"]["id"], &shown["mailboxes"][0]["id"]);
        let by_id = ["import", &file, "--tenant", tenant.as_str().unwrap(), "--mailbox", mailbox.as_str().unwrap()];
        assert_eq!(counts(&mailroom.object(&by_id)), (1, 0, 1, 0));
    });
}

#[test]
fn typo_in_a_tenants_name_creates_no_tenant() {
    on_each_database(|mailroom| {
        let file = mailroom.write("a.eml", simple("Hello", "there"));
        mailroom.ok(&["tenant", "create", "acme"]);
        let typo = ["import", &file, "--tenant", "Acmee", "--mailbox", "me@acme.test"];

        mailroom.run(&typo).assert_refused(2, &["did you mean \"acme\"?", "--create-tenant"]);

        assert_eq!(mailroom.tenants().len(), 1);
        let meant = [&typo[..], &["--create-tenant"]].concat();
        assert_eq!(counts(&mailroom.object(&meant)), (1, 1, 0, 0));
        assert_eq!(counts(&mailroom.object(&typo)), (1, 0, 1, 0), "it exists by now");
    });
}

#[test]
fn passed_over_files_are_named_and_counted() {
    let mailroom = TestInstallation::sqlite();
    std::fs::create_dir(mailroom.path("mail")).unwrap();
    mailroom.write("mail/a.eml", simple("Hello", "there"));
    mailroom.write("mail/archive.pst", b"!BDN");
    mailroom.write("mail/2019.zip", b"PK\x03\x04");
    mailroom.write("mail/photo.jpg", b"\xff\xd8\xff");

    let done = mailroom.run(&["import", "mail", "--tenant", "acme", "--mailbox", "me@acme.test", "--json"]);

    assert_eq!((done.code, counts(&done.objects()[0])), (Some(0), (1, 1, 0, 0)), "{done}");
    assert_eq!(done.objects()[0]["skipped"], 3);
    done.assert_tells("archive.pst is an Outlook data file, not an email; export its mail as mbox or .eml first");
    done.assert_tells("2019.zip is an archive, not an email; unpack it first");
}

#[test]
fn deactivated_tenant_refuses_imports() {
    on_each_database(|mailroom| {
        let file = mailroom.write("a.eml", simple("Hello", "there"));
        let args = ["import", &file, "--tenant", "acme", "--mailbox", "me@acme.test"];
        mailroom.ok(&["tenant", "create", "acme"]);
        mailroom.ok(&["tenant", "deactivate", "acme"]);

        mailroom.run(&args).assert_refused(1, &["acme is deactivated", "`mailroom tenant activate acme`"]);

        assert_eq!(mailroom.emails("acme"), Vec::<Value>::new());
        mailroom.ok(&["tenant", "activate", "acme"]);
        assert_eq!(counts(&mailroom.object(&args)), (1, 1, 0, 0));
    });
}

#[test]
fn refused_name_or_address_leaves_nothing() {
    on_each_database(|mailroom| {
        let file = mailroom.write("a.eml", simple("Hello", "there"));

        mailroom
            .run(&["import", &file, "--tenant", "acme", "--mailbox", "no address"])
            .assert_refused(2, &["--mailbox must be an email address, such as me@acme.test"]);
        mailroom
            .run(&["import", &file, "--tenant", " not a name ", "--mailbox", "me@acme.test"])
            .assert_refused(2, &["a tenant's name must have "]);

        assert_eq!(mailroom.tenants(), Vec::<Value>::new());
    });
}

#[test]
fn each_mailbox_stores_its_own_copy() {
    on_each_database(|mailroom| {
        let file = mailroom.write("a.eml", simple("Hello", "there"));

        for address in ["a@acme.test", "b@acme.test"] {
            let summary = mailroom.object(&["import", &file, "--tenant", "acme", "--mailbox", address]);
            assert_eq!(counts(&summary), (1, 1, 0, 0));
        }

        let emails = mailroom.emails("acme");
        let ids: BTreeSet<&str> = emails.iter().map(|email| email["id"].as_str().unwrap()).collect();
        assert_eq!((emails.len(), ids.len()), (2, 2));
        assert_eq!(mailroom.object(&["tenant", "show", "acme"])["totals"]["blobs"], 1);
    });
}

#[test]
fn folders_of_any_name_are_stored() {
    on_each_database(|mailroom| {
        // Of digits that no compression makes short enough for an index.
        let deep =
            (0..16).map(|n| hashes([n.to_string()]).pop_first().unwrap().repeat(3)).collect::<Vec<_>>().join("/");
        mailroom.write("Maildir/cur/1", simple("inbox", "x"));
        mailroom.write("Maildir/.nul&AAA-here.&AAo-/cur/2", simple("control", "x"));
        mailroom.write(&format!("mail/{deep}/a/1.eml"), simple("deep", "a"));
        mailroom.write(&format!("mail/{deep}/b/1.eml"), simple("deep", "b"));

        assert_eq!(mailroom.import(mailroom.path("Maildir").to_str().unwrap())["stored"], 2);
        assert_eq!(mailroom.import(mailroom.path("mail").to_str().unwrap())["stored"], 2);

        let mut names = mailroom.select("select name from folders order by name");
        names.retain(|name| !deep.starts_with(&name[..name.len().min(64)]));
        assert_eq!(names, ["INBOX", "nulhere"]);
        assert_eq!(mailroom.select("select name from folders").len(), 4, "two long names are two folders");
    });
}
