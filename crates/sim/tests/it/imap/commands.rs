//! IMAP commands and responses.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sim::imap::{ImapFault, ImapFaultKind, ImapOperation, ImapRoute, PASSWORD};

use super::harness::{ANN, ImapHarness};

fn has(lines: &[String], line: &str) -> bool {
    lines.iter().any(|given| given.starts_with(line))
}

fn fault_on(route: ImapRoute, kind: ImapFaultKind) -> ImapFault {
    ImapFault { route: Some(route), ..ImapFault::once(kind) }
}

#[tokio::test]
async fn login_needs_the_password() {
    let harness = ImapHarness::with_ann(0).await;
    let plain = STANDARD.encode(format!("\0{ANN}\0{PASSWORD}"));

    assert!(harness.connect().await.end(&format!("AUTHENTICATE PLAIN {plain}")).await.starts_with("OK [CAPABILITY"));
    let mut asked = harness.connect().await;
    asked.send("a AUTHENTICATE PLAIN\r\n").await;
    assert_eq!(asked.line().await.unwrap(), "+ ");
    asked.send(&format!("{plain}\r\n")).await;
    assert!(asked.line().await.unwrap().starts_with("a OK"));
    let wrong = harness.connect().await.end(&format!("LOGIN {ANN} wrong")).await;
    assert!(wrong.starts_with("NO [AUTHENTICATIONFAILED]"), "{wrong}");
    harness.world.set_password(ANN, "another");
    assert!(harness.connect().await.end(&format!("LOGIN {ANN} another")).await.starts_with("OK"));
    assert_eq!(harness.world.violations(), []);
    assert!(harness.connect().await.end("SELECT INBOX").await.starts_with("BAD"));
    assert_eq!(harness.world.violations().len(), 1);
}

#[tokio::test]
async fn list_returns_special_use_and_status() {
    let harness = ImapHarness::with_ann(0).await;
    harness.world.apply(ANN, ImapOperation::CreateFolder { name: "Größen/A \"b\"".to_owned() }).unwrap();
    let mut program = harness.log_in().await;

    let listed = program.ok("LIST \"\" \"*\" RETURN (SPECIAL-USE STATUS (MESSAGES UIDNEXT))").await;
    let top = program.ok("LIST \"\" %").await;
    program.ok("CREATE \"Kund&AOQ-\"").await;
    program.ok("RENAME \"Kund&AOQ-\" Customers").await;

    assert!(has(&listed, "* LIST (\\HasNoChildren \\Sent) \"/\" \"Sent\""), "{listed:#?}");
    assert!(has(&listed, "* STATUS \"INBOX\" (MESSAGES 0 UIDNEXT 1)"));
    assert!(has(&listed, "* LIST (\\HasChildren) \"/\" \"Gr&APYA3w-en\""));
    assert!(has(&listed, "* LIST (\\HasNoChildren) \"/\" \"Gr&APYA3w-en/A \\\"b\\\"\""));
    assert_eq!(top.len(), 7);
    assert!(harness.world.truth(ANN).unwrap().folders.contains_key("Customers"));
    assert!(program.end("DELETE INBOX").await.starts_with("NO [CANNOT]"));
    assert!(program.end("STATUS Nowhere (MESSAGES)").await.starts_with("NO [NONEXISTENT]"));
}

#[tokio::test]
async fn fetch_without_peek_marks_messages_seen() {
    let harness = ImapHarness::with_ann(0).await;
    harness.world.apply(ANN, ImapOperation::deliver_bytes("A: b\r\n\r\nHello )\r\n")).unwrap();
    let mut program = harness.log_in().await;

    program.ok("SELECT INBOX").await;
    let peeked = program.ok("UID FETCH 1:* (RFC822.SIZE BODY.PEEK[])").await;
    let unseen = program.ok("UID SEARCH UNSEEN").await;
    let header = program.ok("FETCH 1 BODY[HEADER]").await;
    let found = program.ok("UID SEARCH RETURN (ALL COUNT) UID 1:5 SINCE 1-Jan-2026").await;
    let date = program.ok("FETCH 1 INTERNALDATE").await;

    assert_eq!(peeked, ["* 1 FETCH (UID 1 RFC822.SIZE 17 BODY[] {17}", "A: b", "", "Hello )", ")"]);
    assert_eq!(unseen, ["* SEARCH 1"]);
    assert_eq!(&header[..3], ["* 1 FETCH (BODY[HEADER] {8}", "A: b", ""]);
    assert_eq!(harness.world.truth(ANN).unwrap().folders["INBOX"].messages[&1].flags, ["\\Seen"]);
    assert!(has(&found, "* ESEARCH (TAG \"t6\") UID ALL 1 COUNT 1"), "{found:?}");
    assert!(has(&date, "* 1 FETCH (INTERNALDATE \"01-Feb-2026 12:00:00 +0000\")"));
    assert!(program.end("FETCH 1 BODYSTRUCTURE").await.starts_with("BAD"));
}

#[tokio::test]
async fn commands_change_the_mailbox() {
    let harness = ImapHarness::with_ann(0).await;
    let mut program = harness.log_in().await;

    program.send("a APPEND Drafts (\\Draft) \"02-Feb-2026 10:00:00 +0100\" {6}\r\n").await;
    assert!(program.line().await.unwrap().starts_with("+ "));
    program.send("A: b\r\n\r\n").await;
    assert!(program.line().await.unwrap().starts_with("a OK [APPENDUID "));
    program.ok("SELECT Drafts").await;
    let stored = program.ok("UID STORE 1 +FLAGS (\\Flagged)").await;
    let (moved, _) = program.run("UID MOVE 1 Archive").await.unwrap();
    let truth = harness.world.truth(ANN).unwrap();

    assert!(has(&stored, "* 1 FETCH (UID 1 FLAGS (\\Draft \\Flagged))"), "{stored:?}");
    assert!(moved[0].starts_with("* OK [COPYUID ") && moved[1] == "* 1 EXPUNGE", "{moved:?}");
    assert_eq!(truth.folders["Archive"].messages[&1].received, 1_770_022_800);
    program.ok("SELECT Archive").await;
    program.ok("STORE 1 FLAGS.SILENT (\\Deleted)").await;
    assert_eq!(program.ok("EXPUNGE").await, ["* 1 EXPUNGE"]);
    program.ok("EXAMINE Archive").await;
    assert!(program.end("STORE 1:* FLAGS ()").await.starts_with("NO [READ-ONLY]"));
    assert_eq!(harness.world.violations(), []);
}

#[tokio::test]
async fn qresync_reports_changes_and_removals() {
    let harness = ImapHarness::with_ann(0).await;
    for _ in 0..4 {
        harness.world.apply(ANN, ImapOperation::deliver()).unwrap();
    }
    let before = harness.world.truth(ANN).unwrap().folders["INBOX"].clone();
    harness
        .world
        .apply(ANN, ImapOperation::SetFlags { folder: "INBOX".to_owned(), uid: 2, flags: vec!["\\Flagged".to_owned()] })
        .unwrap();
    harness.world.apply(ANN, ImapOperation::Expunge { folder: "INBOX".to_owned(), uid: 3 }).unwrap();
    let mut program = harness.log_in().await;
    let resync = format!("EXAMINE INBOX (QRESYNC ({} {}))", before.uid_validity, before.highest_modseq);

    assert!(program.end(&resync).await.starts_with("BAD"), "it was not enabled");
    program.ok("ENABLE QRESYNC").await;
    let told = program.ok(&resync).await;
    let changed = program.ok(&format!("UID FETCH 1:* (FLAGS) (CHANGEDSINCE {} VANISHED)", before.highest_modseq)).await;

    assert!(
        has(&told, "* VANISHED (EARLIER) 3") && has(&told, "* 2 FETCH (UID 2 FLAGS (\\Flagged) MODSEQ"),
        "{told:#?}"
    );
    assert_eq!(changed.len(), 2);
    harness.world.apply(ANN, ImapOperation::Renumber { folder: "INBOX".to_owned() }).unwrap();
    let (lines, _) = program.run("NOOP").await.unwrap();
    assert_eq!(lines, Vec::<String>::new());
    assert!(program.line().await.unwrap().starts_with("* BYE"), "the folder is another one now");
    let mut program = harness.log_in().await;
    program.ok("ENABLE QRESYNC").await;
    let anew = program.ok(&resync).await;
    assert!(!has(&anew, "* VANISHED") && has(&anew, "* 3 EXISTS"), "{anew:#?}");
}

#[tokio::test]
async fn idle_announces_changes() {
    let harness = ImapHarness::with_ann(0).await;
    let mut program = harness.log_in().await;
    program.ok("EXAMINE INBOX").await;
    program.send("i IDLE\r\n").await;
    assert!(program.line().await.unwrap().starts_with("+ "));

    harness.world.apply(ANN, ImapOperation::deliver()).unwrap();
    assert_eq!(program.line().await.unwrap(), "* 1 EXISTS");
    harness.world.apply(ANN, ImapOperation::Expunge { folder: "INBOX".to_owned(), uid: 1 }).unwrap();
    assert_eq!(program.line().await.unwrap(), "* 1 EXPUNGE");
    program.send("DONE\r\n").await;
    assert!(program.line().await.unwrap().starts_with("i OK"));
    program.send("i IDLE\r\n").await;
    assert!(program.line().await.unwrap().starts_with("+ "));
    assert!(harness.world.disconnect(ANN));
    assert!(program.line().await.unwrap().starts_with("* BYE"));
    assert_eq!(program.line().await, None);
}

#[tokio::test]
async fn command_not_offered_is_bad() {
    let harness = ImapHarness::with_ann(1).await;
    harness.world.set_capabilities("IMAP4rev1");
    let mut program = harness.log_in().await;
    program.ok("EXAMINE INBOX").await;

    for command in [
        "IDLE",
        "NAMESPACE",
        "ENABLE CONDSTORE",
        "ID NIL",
        "UNSELECT",
        "EXAMINE INBOX (CONDSTORE)",
        "LIST \"\" * RETURN (SPECIAL-USE)",
        "STATUS INBOX (HIGHESTMODSEQ)",
        "UID SEARCH RETURN (ALL) ALL",
        "UID FETCH 1:* (MODSEQ)",
        "UID FETCH 1:* (EMAILID)",
    ] {
        let end = program.end(command).await;
        assert!(end.starts_with("BAD"), "{command}: {end}");
        program.ok("EXAMINE INBOX").await;
    }
    assert_eq!(harness.world.violations().len(), 11);
}

#[tokio::test]
async fn faults_fire_on_their_routes() {
    let harness = ImapHarness::with_ann(3).await;
    let no = ImapFaultKind::No { code: Some("LIMIT".to_owned()), text: "Too many connections.".to_owned() };

    let of_ann = Some(ANN.to_owned());
    harness.world.add_fault(ImapFault { account: of_ann, ..fault_on(ImapRoute::Login, no) });
    let mut program = harness.connect().await;
    assert_eq!(program.end(&format!("LOGIN {ANN} {PASSWORD}")).await, "NO [LIMIT] Too many connections.");
    program.ok(&format!("LOGIN {ANN} {PASSWORD}")).await;
    program.ok("EXAMINE INBOX").await;
    harness.world.add_fault(fault_on(ImapRoute::Body, ImapFaultKind::CutBody));
    assert!(program.run("UID FETCH 1:* (BODY.PEEK[])").await.is_none(), "it ends in the middle");
    let mut program = harness.log_in().await;
    harness.world.add_fault(fault_on(ImapRoute::List, ImapFaultKind::Bye { text: "Going down.".to_owned() }));
    program.send("x LIST \"\" *\r\n").await;
    assert_eq!(program.line().await.unwrap(), "* BYE Going down.");
    assert_eq!(program.line().await, None);
    let mut program = harness.log_in().await;
    harness.world.add_fault(fault_on(ImapRoute::Other, ImapFaultKind::Cut));
    assert!(program.run("NOOP").await.is_none());
    let mut program = harness.log_in().await;
    harness.world.add_fault(fault_on(ImapRoute::Select, ImapFaultKind::Slow { bytes: 16, ms: 1 }));
    program.ok("EXAMINE INBOX").await;
}
