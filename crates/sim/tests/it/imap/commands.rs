//! What mail programs say, and what they are told.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sim::imap::{Fault, Kind, Operation, PASSWORD, Route};

use super::place::{ANN, Place};

fn has(lines: &[String], line: &str) -> bool {
    lines.iter().any(|given| given.starts_with(line))
}

#[tokio::test]
async fn whoever_knows_the_password_gets_in() {
    let place = Place::with_ann(0).await;
    let plain = STANDARD.encode(format!("\0{ANN}\0{PASSWORD}"));

    assert!(place.connect().await.end(&format!("AUTHENTICATE PLAIN {plain}")).await.starts_with("OK [CAPABILITY"));
    let mut asked = place.connect().await;
    asked.send("a AUTHENTICATE PLAIN\r\n").await;
    assert_eq!(asked.line().await.unwrap(), "+ ");
    asked.send(&format!("{plain}\r\n")).await;
    assert!(asked.line().await.unwrap().starts_with("a OK"));
    let wrong = place.connect().await.end(&format!("LOGIN {ANN} wrong")).await;
    assert!(wrong.starts_with("NO [AUTHENTICATIONFAILED]"), "{wrong}");
    place.world.set_password(ANN, "another");
    assert!(place.connect().await.end(&format!("LOGIN {ANN} another")).await.starts_with("OK"));
    assert_eq!(place.world.violations(), []);
    assert!(place.connect().await.end("SELECT INBOX").await.starts_with("BAD"));
    assert_eq!(place.world.violations().len(), 1);
}

#[tokio::test]
async fn folders_are_listed_with_what_they_are_for_and_how_they_stand() {
    let place = Place::with_ann(0).await;
    place.world.apply(ANN, Operation::CreateFolder { name: "Größen/A \"b\"".to_owned() }).unwrap();
    let mut program = place.log_in().await;

    let listed = program.ok("LIST \"\" \"*\" RETURN (SPECIAL-USE STATUS (MESSAGES UIDNEXT))").await;
    let top = program.ok("LIST \"\" %").await;
    program.ok("CREATE \"Kund&AOQ-\"").await;
    program.ok("RENAME \"Kund&AOQ-\" Customers").await;

    assert!(has(&listed, "* LIST (\\HasNoChildren \\Sent) \"/\" \"Sent\""), "{listed:#?}");
    assert!(has(&listed, "* STATUS \"INBOX\" (MESSAGES 0 UIDNEXT 1)"));
    assert!(has(&listed, "* LIST (\\HasChildren) \"/\" \"Gr&APYA3w-en\""));
    assert!(has(&listed, "* LIST (\\HasNoChildren) \"/\" \"Gr&APYA3w-en/A \\\"b\\\"\""));
    assert_eq!(top.len(), 7);
    assert!(place.world.truth(ANN).unwrap().folders.contains_key("Customers"));
    assert!(program.end("DELETE INBOX").await.starts_with("NO [CANNOT]"));
    assert!(program.end("STATUS Nowhere (MESSAGES)").await.starts_with("NO [NONEXISTENT]"));
}

#[tokio::test]
async fn messages_are_read_byte_by_byte_and_only_peeking_leaves_them_unseen() {
    let place = Place::with_ann(0).await;
    place.world.apply(ANN, Operation::deliver_bytes("A: b\r\n\r\nHello )\r\n")).unwrap();
    let mut program = place.log_in().await;

    program.ok("SELECT INBOX").await;
    let peeked = program.ok("UID FETCH 1:* (RFC822.SIZE BODY.PEEK[])").await;
    let unseen = program.ok("UID SEARCH UNSEEN").await;
    let header = program.ok("FETCH 1 BODY[HEADER]").await;
    let found = program.ok("UID SEARCH RETURN (ALL COUNT) UID 1:5 SINCE 1-Jan-2026").await;
    let date = program.ok("FETCH 1 INTERNALDATE").await;

    assert_eq!(peeked, ["* 1 FETCH (UID 1 RFC822.SIZE 17 BODY[] {17}", "A: b", "", "Hello )", ")"]);
    assert_eq!(unseen, ["* SEARCH 1"]);
    assert_eq!(&header[..3], ["* 1 FETCH (BODY[HEADER] {8}", "A: b", ""]);
    assert_eq!(place.world.truth(ANN).unwrap().folders["INBOX"].messages[&1].flags, ["\\Seen"]);
    assert!(has(&found, "* ESEARCH (TAG \"t6\") UID ALL 1 COUNT 1"), "{found:?}");
    assert!(has(&date, "* 1 FETCH (INTERNALDATE \"01-Feb-2026 12:00:00 +0000\")"));
    assert!(program.end("FETCH 1 BODYSTRUCTURE").await.starts_with("BAD"));
}

#[tokio::test]
async fn programs_change_what_is_there() {
    let place = Place::with_ann(0).await;
    let mut program = place.log_in().await;

    program.send("a APPEND Drafts (\\Draft) \"02-Feb-2026 10:00:00 +0100\" {6}\r\n").await;
    assert!(program.line().await.unwrap().starts_with("+ "));
    program.send("A: b\r\n\r\n").await;
    assert!(program.line().await.unwrap().starts_with("a OK [APPENDUID "));
    program.ok("SELECT Drafts").await;
    let stored = program.ok("UID STORE 1 +FLAGS (\\Flagged)").await;
    let (moved, _) = program.run("UID MOVE 1 Archive").await.unwrap();
    let truth = place.world.truth(ANN).unwrap();

    assert!(has(&stored, "* 1 FETCH (UID 1 FLAGS (\\Draft \\Flagged))"), "{stored:?}");
    assert!(moved[0].starts_with("* OK [COPYUID ") && moved[1] == "* 1 EXPUNGE", "{moved:?}");
    assert_eq!(truth.folders["Archive"].messages[&1].received, 1_770_022_800);
    program.ok("SELECT Archive").await;
    program.ok("STORE 1 FLAGS.SILENT (\\Deleted)").await;
    assert_eq!(program.ok("EXPUNGE").await, ["* 1 EXPUNGE"]);
    program.ok("EXAMINE Archive").await;
    assert!(program.end("STORE 1:* FLAGS ()").await.starts_with("NO [READ-ONLY]"));
    assert_eq!(place.world.violations(), []);
}

#[tokio::test]
async fn whoever_comes_back_is_told_what_changed_and_what_went() {
    let place = Place::with_ann(0).await;
    for _ in 0..4 {
        place.world.apply(ANN, Operation::deliver()).unwrap();
    }
    let before = place.world.truth(ANN).unwrap().folders["INBOX"].clone();
    let flags = |uid| Operation::SetFlags { folder: "INBOX".to_owned(), uid, flags: vec!["\\Flagged".to_owned()] };
    place.world.apply(ANN, flags(2)).unwrap();
    place.world.apply(ANN, Operation::Expunge { folder: "INBOX".to_owned(), uid: 3 }).unwrap();
    let mut program = place.log_in().await;
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
    place.world.apply(ANN, Operation::Renumber { folder: "INBOX".to_owned() }).unwrap();
    let (lines, _) = program.run("NOOP").await.unwrap();
    assert_eq!(lines, Vec::<String>::new());
    assert!(program.line().await.unwrap().starts_with("* BYE"), "the folder is another one now");
    let mut program = place.log_in().await;
    program.ok("ENABLE QRESYNC").await;
    let anew = program.ok(&resync).await;
    assert!(!has(&anew, "* VANISHED") && has(&anew, "* 3 EXISTS"), "{anew:#?}");
}

#[tokio::test]
async fn whoever_waits_is_told_what_happens() {
    let place = Place::with_ann(0).await;
    let mut program = place.log_in().await;
    program.ok("EXAMINE INBOX").await;
    program.send("i IDLE\r\n").await;
    assert!(program.line().await.unwrap().starts_with("+ "));

    place.world.apply(ANN, Operation::deliver()).unwrap();
    assert_eq!(program.line().await.unwrap(), "* 1 EXISTS");
    place.world.apply(ANN, Operation::Expunge { folder: "INBOX".to_owned(), uid: 1 }).unwrap();
    assert_eq!(program.line().await.unwrap(), "* 1 EXPUNGE");
    program.send("DONE\r\n").await;
    assert!(program.line().await.unwrap().starts_with("i OK"));
    program.send("i IDLE\r\n").await;
    assert!(program.line().await.unwrap().starts_with("+ "));
    assert!(place.world.disconnect(ANN));
    assert!(program.line().await.unwrap().starts_with("* BYE"));
    assert_eq!(program.line().await, None);
}

#[tokio::test]
async fn what_is_not_offered_is_no_command() {
    let place = Place::with_ann(1).await;
    place.world.set_capabilities("IMAP4rev1");
    let mut program = place.log_in().await;
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
    assert_eq!(place.world.violations().len(), 11);
}

#[tokio::test]
async fn faults_come_where_they_are_sent() {
    let place = Place::with_ann(3).await;
    let at = |route, kind| Fault { route: Some(route), ..Fault::once(kind) };
    let no = Kind::No { code: Some("LIMIT".to_owned()), text: "Too many connections.".to_owned() };

    let of_ann = Some(ANN.to_owned());
    place.world.add_fault(Fault { account: of_ann, ..at(Route::Login, no) });
    let mut program = place.connect().await;
    assert_eq!(program.end(&format!("LOGIN {ANN} {PASSWORD}")).await, "NO [LIMIT] Too many connections.");
    program.ok(&format!("LOGIN {ANN} {PASSWORD}")).await;
    program.ok("EXAMINE INBOX").await;
    place.world.add_fault(at(Route::Body, Kind::CutBody));
    assert!(program.run("UID FETCH 1:* (BODY.PEEK[])").await.is_none(), "it ends in the middle");
    let mut program = place.log_in().await;
    place.world.add_fault(at(Route::List, Kind::Bye { text: "Going down.".to_owned() }));
    program.send("x LIST \"\" *\r\n").await;
    assert_eq!(program.line().await.unwrap(), "* BYE Going down.");
    assert_eq!(program.line().await, None);
    let mut program = place.log_in().await;
    place.world.add_fault(at(Route::Other, Kind::Cut));
    assert!(program.run("NOOP").await.is_none());
    let mut program = place.log_in().await;
    place.world.add_fault(at(Route::Select, Kind::Slow { bytes: 16, ms: 1 }));
    program.ok("EXAMINE INBOX").await;
}
