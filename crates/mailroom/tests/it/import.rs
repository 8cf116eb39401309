//! Files in: every format, once, however often and by however many at the same time.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::mail::{generated, hashes, mbox, names, simple, stored_hashes};
use crate::place::{Done, PROGRAM, Place, on_each_database};
use crate::processes::Running;

const MESSAGES: usize = 60;

fn counts(summary: &Value) -> (u64, u64, u64, u64) {
    let count = |name: &str| summary[name].as_u64().unwrap();
    (count("read"), count("stored"), count("duplicates"), count("failed"))
}

#[test]
fn an_mbox_is_stored_once_however_often_it_is_imported() {
    on_each_database(|place| {
        let file = place.write("all.mbox", mbox(1, MESSAGES));
        let n = MESSAGES as u64;

        let first = place.import(&file);
        let again = place.import(&file);

        assert_eq!((counts(&first), counts(&again)), ((n, n, 0, 0), (n, 0, n, 0)));
        let promised = ["read", "stored", "duplicates", "failed", "attachments", "bytes", "seconds"];
        let beside = ["incomplete", "peak_memory_bytes"];
        assert_eq!(names(&first), promised.into_iter().chain(beside).collect());
        let messages = generated(1, MESSAGES);
        assert_eq!(first["bytes"], messages.iter().map(|message| message.raw.len()).sum::<usize>());
        assert!(first["attachments"].as_u64().unwrap() > 0 && again["attachments"] == 0);
        assert_eq!(stored_hashes(&place.emails("acme")), hashes(messages.iter().map(|message| &message.raw)));
        place.assert_whole();
    });
}

#[test]
fn the_summary_is_a_sentence_for_people() {
    let place = Place::sqlite();
    let file = place.write("a.eml", simple("Hello", "there"));

    let done = place.ok(&["import", &file, "--tenant", "acme", "--mailbox", "me@acme.test"]);

    assert!(done.text().starts_with("Messages read: 1 (110 bytes) in "), "{done}");
    assert!(done.text().ends_with(" Stored: 1, duplicates: 0, failed: 0, attachments: 0.\n"), "{done}");
    assert_eq!(done.stderr, "Made tenant acme.\n");
}

#[test]
fn every_kind_of_mail_file_gives_the_exact_message() {
    on_each_database(|place| {
        let mails: Vec<String> = (0..8).map(|n| simple(&format!("Subject {n}"), &format!("body {n}"))).collect();
        place.write("Maildir/cur/1.host:2,FS", &mails[0]);
        place.write("Maildir/new/2.host", &mails[1]);
        place.write("Maildir/.Sent.2024/cur/3.host:2,S", &mails[2]);
        place.write("folder/a.eml", &mails[3]);
        place.write("folder/deep/b.eml", &mails[4]);
        let apple = format!("{}\n{}<?xml version=\"1.0\"?><plist><dict/></plist>\n", mails[5].len(), mails[5]);
        place.write("apple.emlx", apple);
        place.write("saved-without-a-name", &mails[6]);
        place.write("one.mbox", format!("From a@x Tue Jan  2 12:00:00 2024\r\n{}\r\n", mails[7]));

        for (name, stored) in
            [("Maildir", 3), ("folder", 2), ("apple.emlx", 1), ("saved-without-a-name", 1), ("one.mbox", 1)]
        {
            let summary = place.import(place.path(name).to_str().unwrap());
            assert_eq!(counts(&summary), (stored, stored, 0, 0), "{name}");
        }

        let emails = place.emails("acme");
        assert_eq!(stored_hashes(&emails), hashes(&mails));
        let where_is = |subject: &str| {
            let email = emails.iter().find(|email| email["subject"] == subject).unwrap();
            (email["folders"].clone(), email["flags"].clone())
        };
        assert_eq!(where_is("Subject 0"), (json!(["INBOX"]), json!(["flagged", "seen"])));
        assert_eq!(where_is("Subject 1"), (json!(["INBOX"]), json!([])));
        assert_eq!(where_is("Subject 2"), (json!(["Sent/2024"]), json!(["seen"])));
        assert_eq!(where_is("Subject 4"), (json!(["deep"]), json!([])));
    });
}

#[test]
fn several_paths_and_a_forced_format_are_one_import() {
    let place = Place::sqlite();
    let (a, b) = (place.write("a.eml", simple("a", "x")), place.write("b", simple("b", "x")));

    let summary = place.object(&["import", &a, &b, "--format", "eml", "--tenant", "acme", "--mailbox", "me@acme.test"]);

    assert_eq!(counts(&summary), (2, 2, 0, 0));
}

#[test]
fn the_same_bytes_in_another_folder_bind_to_the_email_that_is_there() {
    on_each_database(|place| {
        let mail = simple("Twice", "the same bytes");
        place.write("one/cur/1.host:2,S", &mail);
        place.write("two/.Archive/cur/1.host:2,F", &mail);
        place.write("three/cur/1.host:2,R", &mail);
        let import = |name: &str| counts(&place.import(place.path(name).to_str().unwrap()));
        let union = || {
            let emails = place.emails("acme");
            assert_eq!(emails.len(), 1);
            (emails[0]["folders"].clone(), emails[0]["flags"].clone())
        };

        import("one");
        assert_eq!(import("two"), (1, 0, 1, 0));
        assert_eq!(union(), (json!(["Archive", "INBOX"]), json!(["flagged", "seen"])));
        // In the same folder again, the mail has the flags that it has now.
        assert_eq!(import("three"), (1, 0, 1, 0));
        assert_eq!(union(), (json!(["Archive", "INBOX"]), json!(["answered", "flagged"])));
        place.assert_whole();
    });
}

#[test]
fn a_forced_folder_takes_everything() {
    let place = Place::sqlite();
    let file = place.write("Sent.mbox", mbox(2, 3));

    place.object(&["import", &file, "--folder", "Old", "--tenant", "acme", "--mailbox", "me@acme.test"]);

    assert!(place.emails("acme").iter().all(|email| email["folders"] == json!(["Old"])));
}

#[test]
fn two_processes_that_import_the_same_file_store_each_message_once() {
    on_each_database(|place| {
        let file = place.write("all.mbox", mbox(3, 150));
        let args = ["import", &file, "--tenant", "acme", "--mailbox", "me@acme.test", "--json"];
        let small_batches = [("MAILROOM_IMPORT__BATCH_MESSAGES", "10")];
        let start = || Running::start(place.command(PROGRAM, &args).envs(small_batches));

        let running = [start(), start()];
        let done: Vec<Done> = running.map(Running::finish).into_iter().collect();

        let summaries: Vec<Value> = done
            .iter()
            .map(|done| {
                assert_eq!(done.code, Some(0), "{done}");
                done.objects().remove(0)
            })
            .collect();
        let total = |name: &str| summaries.iter().map(|summary| summary[name].as_u64().unwrap()).sum::<u64>();
        assert_eq!((total("read"), total("stored"), total("duplicates"), total("failed")), (300, 150, 150, 0));
        let messages = generated(3, 150);
        assert_eq!(stored_hashes(&place.emails("acme")), hashes(messages.iter().map(|message| &message.raw)));
        assert_eq!(place.emails("acme").len(), 150);
        place.assert_whole();
    });
}

#[test]
fn imports_into_two_tenants_side_by_side_wait_for_each_other() {
    on_each_database(|place| {
        let file = place.write("all.mbox", mbox(4, 150));
        let start = |tenant| {
            let args = ["import", &file, "--tenant", tenant, "--mailbox", "me@acme.test", "--json"];
            Running::start(place.command(PROGRAM, &args).env("MAILROOM_IMPORT__BATCH_MESSAGES", "5"))
        };

        let running = [start("left"), start("right")];

        for done in running.map(Running::finish) {
            assert_eq!(done.code, Some(0), "{done}");
            assert_eq!(counts(&done.objects()[0]), (150, 150, 0, 0));
        }
        assert_eq!(stored_hashes(&place.emails("left")), stored_hashes(&place.emails("right")));
        place.assert_whole();
    });
}

#[test]
fn an_import_makes_the_tenant_and_the_mailbox() {
    on_each_database(|place| {
        let file = place.write("a.eml", simple("Hello", "there"));

        place.object(&["import", &file, "--tenant", "acme", "--mailbox", "Me@ACME.test"]);
        place.object(&["import", &file, "--tenant", "acme", "--mailbox", "me@acme.TEST"]);

        let shown = place.object(&["tenant", "show", "acme"]);
        assert_eq!(shown["mailboxes"].as_array().unwrap().len(), 1, "{shown}");
        assert_eq!(shown["totals"]["emails"], 1);
        let (tenant, mailbox) = (&shown["tenant"]["id"], &shown["mailboxes"][0]["id"]);
        let by_id = ["import", &file, "--tenant", tenant.as_str().unwrap(), "--mailbox", mailbox.as_str().unwrap()];
        assert_eq!(counts(&place.object(&by_id)), (1, 0, 1, 0));
    });
}

#[test]
fn a_deactivated_tenant_refuses_mail_until_it_is_activated() {
    on_each_database(|place| {
        let file = place.write("a.eml", simple("Hello", "there"));
        let args = ["import", &file, "--tenant", "acme", "--mailbox", "me@acme.test"];
        place.ok(&["tenant", "create", "acme"]);
        place.ok(&["tenant", "deactivate", "acme"]);

        place.run(&args).assert_refused(1, &["acme is deactivated", "`mailroom tenant activate acme`"]);

        assert_eq!(place.emails("acme"), Vec::<Value>::new());
        place.ok(&["tenant", "activate", "acme"]);
        assert_eq!(counts(&place.object(&args)), (1, 1, 0, 0));
    });
}

#[test]
fn a_refused_name_or_address_leaves_nothing_behind() {
    on_each_database(|place| {
        let file = place.write("a.eml", simple("Hello", "there"));

        place
            .run(&["import", &file, "--tenant", "acme", "--mailbox", "no address"])
            .assert_refused(2, &["--mailbox wants an address like me@acme.test"]);
        place
            .run(&["import", &file, "--tenant", " not a name ", "--mailbox", "me@acme.test"])
            .assert_refused(2, &["cannot be a tenant's name; use "]);

        assert_eq!(place.tenants(), Vec::<Value>::new());
    });
}

#[test]
fn mail_of_one_mailbox_is_stored_again_in_another() {
    on_each_database(|place| {
        let file = place.write("a.eml", simple("Hello", "there"));

        for address in ["a@acme.test", "b@acme.test"] {
            let summary = place.object(&["import", &file, "--tenant", "acme", "--mailbox", address]);
            assert_eq!(counts(&summary), (1, 1, 0, 0));
        }

        let emails = place.emails("acme");
        let ids: BTreeSet<&str> = emails.iter().map(|email| email["id"].as_str().unwrap()).collect();
        assert_eq!((emails.len(), ids.len()), (2, 2));
        assert_eq!(place.object(&["tenant", "show", "acme"])["totals"]["blobs"], 1);
    });
}

#[test]
fn folders_of_any_name_are_stored() {
    on_each_database(|place| {
        // Of digits that no compression makes short enough for an index.
        let level = |n: usize| hashes([n.to_string()]).pop_first().unwrap().repeat(3);
        let deep = (0..16).map(level).collect::<Vec<_>>().join("/");
        place.write("Maildir/cur/1", simple("inbox", "x"));
        place.write("Maildir/.nul&AAA-here.&AAo-/cur/2", simple("control", "x"));
        place.write(&format!("mail/{deep}/a/1.eml"), simple("deep", "a"));
        place.write(&format!("mail/{deep}/b/1.eml"), simple("deep", "b"));

        assert_eq!(place.import(place.path("Maildir").to_str().unwrap())["stored"], 2);
        assert_eq!(place.import(place.path("mail").to_str().unwrap())["stored"], 2);

        let mut names = place.select("select name from folders order by name");
        names.retain(|name| !deep.starts_with(&name[..name.len().min(64)]));
        assert_eq!(names, ["INBOX", "nulhere"]);
        assert_eq!(place.select("select name from folders").len(), 4, "two long names are two folders");
    });
}
