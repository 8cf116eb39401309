//! Blob storage that does not take anything for a while: mail goes on coming in, and later only what is missing is
//! filled in.

use std::collections::BTreeSet;

use serde_json::json;
use store::failpoint::VARIABLE;

use crate::installation::{CommandOutput, PROGRAM, TestInstallation, on_each_database};
use crate::mail::{generated, hashes, mbox, stored_hashes};
use crate::processes::{RunningProcess, wait_until};

const MESSAGES: usize = 40;

fn import(mailroom: &TestInstallation, file: &str, refuse: &str) -> CommandOutput {
    let args = ["import", file, "--tenant", "acme", "--mailbox", "me@acme.test", "--json"];
    let mut command = mailroom.command(PROGRAM, &args);
    command.env("MAILROOM_IMPORT__BATCH_MESSAGES", "10").env("MAILROOM_LOG__LEVEL", "off").env(VARIABLE, refuse);
    CommandOutput::of(&mut command)
}

fn differences(mailroom: &TestInstallation) -> BTreeSet<String> {
    let reports = mailroom.objects_of(&["verify", "--deep"]);
    let differences = reports.iter().flat_map(|report| report["differences"].as_array().unwrap());
    differences.map(|difference| difference["what"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn repeated_import_adds_bytes_after_an_outage() {
    on_each_database(|mailroom| {
        let file = mailroom.write("all.mbox", mbox(51, MESSAGES));

        let away = import(mailroom, &file, "refuse:write_object=always");

        assert_eq!(away.code, Some(1), "{away}");
        away.assert_tells("emails are stored without some of their bytes");
        let summary = &away.objects()[0];
        assert_eq!((&summary["stored"], &summary["incomplete"]), (&json!(MESSAGES), &json!(MESSAGES)));
        let emails = mailroom.emails("acme");
        assert_eq!(emails.len(), MESSAGES, "found and read without their bytes");
        assert!(emails.iter().all(|email| email["processing_status"] == "failed"));
        let parts = emails.iter().flat_map(|email| email["attachments"].as_array().unwrap());
        assert!(parts.clone().count() > 0 && parts.clone().all(|part| part["status"] == "pending"));
        assert!(mailroom.packs().is_empty());
        assert!(differences(mailroom).contains("emails are stored without their raw bytes"));

        let back = import(mailroom, &file, "");

        assert_eq!(back.code, Some(0), "{back}");
        assert_eq!(back.objects()[0]["incomplete"], 0);
        let emails = mailroom.emails("acme");
        assert!(emails.iter().all(|email| email["processing_status"] == "processed"));
        let sent = generated(51, MESSAGES);
        assert_eq!(stored_hashes(&emails), hashes(sent.iter().map(|message| &message.raw)));
        assert_eq!(differences(mailroom), BTreeSet::new());
        let again = import(mailroom, &file, "");
        assert_eq!((&again.objects()[0]["stored"], &again.objects()[0]["duplicates"]), (&json!(0), &json!(MESSAGES)));
    });
}

#[test]
fn only_the_failed_batch_is_written_again() {
    on_each_database(|mailroom| {
        let file = mailroom.write("all.mbox", mbox(52, MESSAGES));

        let away = import(mailroom, &file, "refuse:write_object=once@2");
        let packs = mailroom.packs();
        let back = import(mailroom, &file, "");

        assert_eq!(away.objects()[0]["incomplete"], 10, "{away}");
        assert_eq!(packs.len(), 3);
        assert_eq!((back.code, &back.objects()[0]["stored"]), (Some(0), &json!(10)), "{back}");
        assert_eq!(mailroom.packs().len(), 4);
        assert!(packs.iter().all(|pack| mailroom.packs().contains(pack)));
        mailroom.assert_whole();
    });
}

/// Two messages. The second one says when it was sent, which is not yet: that moves it to tomorrow, whenever that is.
fn mbox_received_at(time: &str) -> String {
    format!(
        "From a@b.test {time}\nSubject: sooner\n\ny\n\n\
         From a@b.test {time}\nSubject: later\nDate: Tue, 05 May 2099 12:00:00 +0000\n\nx\n"
    )
}

fn email_ids(mailroom: &TestInstallation) -> BTreeSet<String> {
    mailroom.emails("acme").iter().map(|email| email["id"].as_str().unwrap().to_owned()).collect()
}

fn attachment_statuses(mailroom: &TestInstallation) -> Vec<String> {
    let email = mailroom.emails("acme").remove(0);
    let parts = email["attachments"].as_array().unwrap().clone();
    parts.iter().map(|part| part["status"].as_str().unwrap().to_owned()).collect()
}

/// The receive time decides an email's id, and the same bytes may come with another one the next time.
#[test]
fn same_bytes_with_another_time_complete_an_email() {
    on_each_database(|mailroom| {
        let first = mailroom.write("1/inbox.mbox", mbox_received_at("Tue Jan  2 12:00:00 2024"));
        let second = mailroom.write("2/inbox.mbox", mbox_received_at("Wed Jan  3 13:00:00 2024"));
        assert_eq!(import(mailroom, &first, "refuse:write_object=always").objects()[0]["incomplete"], 2);
        let before = email_ids(mailroom);

        let back = import(mailroom, &second, "");

        assert_eq!((back.code, &back.objects()[0]["incomplete"]), (Some(0), &json!(0)), "{back}");
        assert_eq!(email_ids(mailroom), before, "an id is given once");
        assert!(mailroom.emails("acme").iter().all(|email| email["processing_status"] == "processed"));
        mailroom.objects(&["gc", "--grace", "0s"]);
        mailroom.assert_whole();
    });
}

#[test]
fn email_purged_during_repair_stays_gone() {
    for new in [TestInstallation::sqlite, TestInstallation::postgres] {
        let mailroom = new();
        let file = mailroom.write("three.eml", with_three_attachments());
        assert_eq!(import(&mailroom, &file, "refuse:write_object=once@2").code, Some(1));
        let mut command = mailroom.command(PROGRAM, &["retry-blobs", "--json"]);
        let mut repair = RunningProcess::start(command.env(VARIABLE, "before:commit_batch=stop"));
        wait_until("the repair sleeps", || repair.has_ended() || repair.is_stopped());
        assert!(!repair.has_ended());

        assert_eq!(mailroom.object(&["email", "purge", "--tenant", "acme", "--query", "", "--yes"])["purged"], 1);
        repair.resume();
        repair.finish();

        assert_eq!(mailroom.emails("acme").len(), 0);
        assert_eq!(mailroom.objects(&["gc", "--grace", "0s"])[0]["problems"], json!([]));
        assert!(mailroom.packs().is_empty());
        mailroom.assert_whole();
    }
}

/// Three attachments, each large enough to be an object of its own.
fn with_three_attachments() -> String {
    let mut mail = "From: ann@acme.test\r\nSubject: three\r\nDate: Tue, 02 Jan 2024 12:00:00 +0000\r\n\
        MIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary=b\r\n\r\n"
        .to_owned();
    for letter in ["a", "b", "c"] {
        // Lines that differ, so that it stays large when it is compressed.
        let lines: String =
            (0..160_000_u64).map(|n| format!("{letter}{:016x}\r\n", n.wrapping_mul(0x9E37_79B9_7F4A_7C15))).collect();
        mail.push_str(&format!(
            "--b\r\nContent-Type: text/csv\r\nContent-Disposition: attachment; filename={letter}.csv\r\n\r\n{lines}\r\n"
        ));
    }
    mail + "--b--\r\n"
}

/// What became of the three attachments, and of the retry, when one object was not taken.
fn one_is_refused(mailroom: &TestInstallation, pass: u32) -> bool {
    let file = mailroom.write("three.eml", with_three_attachments());
    let away = import(mailroom, &file, &format!("refuse:write_object=once@{pass}"));
    assert_eq!(away.code, Some(1), "{away}");
    let (before, written) = (attachment_statuses(mailroom), mailroom.packs());

    let retried = mailroom.objects_of(&["retry-blobs"]).remove(0);

    let is_alone = before.iter().filter(|status| *status == "pending").count() == 1;
    if is_alone {
        assert_eq!(retried["completed"], 1, "{retried}");
        let more = mailroom.packs().into_iter().filter(|pack| !written.contains(pack)).count();
        assert_eq!(more, 1, "only what was missing is written");
    } else {
        assert_eq!(retried["without_original"], 1, "{retried}");
        assert_eq!(import(mailroom, &file, "").code, Some(0));
    }
    assert_eq!(attachment_statuses(mailroom), ["stored"; 3]);
    mailroom.assert_whole();
    is_alone
}

#[test]
fn failed_attachment_is_retried_from_the_original() {
    for new in [TestInstallation::sqlite, TestInstallation::postgres] {
        // The original and three parts, in whatever order they are written.
        let alone = (1..=4).filter(|pass| one_is_refused(&new(), *pass)).count();
        assert_eq!(alone, 3);
    }
}
