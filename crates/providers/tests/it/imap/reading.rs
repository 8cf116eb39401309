//! What is read of folders and messages, in the dialects of servers.

use std::time::Duration;

use domain::connector::FolderRole;
use providers::imap::client::{
    BodyFault, ChangedSince, FetchItems, ImapError, RefusalClass, SearchCriteria, UidSet, WireName,
};

use super::script::{BodyCollector, logged_in};

fn set(text: &str) -> UidSet {
    UidSet::parse(text.as_bytes()).unwrap()
}

fn inbox() -> WireName {
    WireName::new(b"INBOX")
}

#[tokio::test(start_paused = true)]
async fn list_status_returns_folders_in_one_call() {
    let script = r#"C: A1 LIST "" "*" RETURN (SPECIAL-USE STATUS (MESSAGES UIDNEXT UIDVALIDITY))
        S: * LIST (\HasNoChildren) "/" INBOX
        S: * STATUS INBOX (MESSAGES 3 UIDNEXT 4 UIDVALIDITY 9)
        S: * LIST (\Noselect \HasChildren) "/" "[Gmail]"
        S: * LIST (\Sent) "/" {12}
        S: Entw&APw-rfe
        S: * STATUS "Entw&APw-rfe" (MESSAGES 0 UIDNEXT 1 UIDVALIDITY 9)
        S: * LIST () NIL "\xff"
        S: A1 OK"#;
    let (server, mut client) = logged_in("LIST-EXTENDED LIST-STATUS SPECIAL-USE", script).await;

    let folders = client.list_with_status().await.unwrap();

    server.was_followed().await;
    let seen: Vec<_> =
        folders.iter().map(|folder| (folder.name.as_str(), folder.role(), folder.is_selectable())).collect();
    assert_eq!(
        seen,
        [
            ("INBOX", Some(FolderRole::Inbox), true),
            ("[Gmail]", None, false),
            ("Entwürfe", Some(FolderRole::Sent), true),
            ("\u{fffd}", None, true)
        ]
    );
    assert_eq!(folders[0].status.as_ref().unwrap().messages, Some(3));
    assert_eq!(folders[2].status.as_ref().unwrap().uid_next, Some(1));
    assert_eq!((folders[3].wire.as_bytes(), folders[3].delimiter), (&b"\xff"[..], None));
}

#[tokio::test(start_paused = true)]
async fn refused_status_affects_only_its_folder() {
    let script = r#"C: A1 LIST "" "*"
        S: * LIST () "." INBOX
        S: * LIST (\NoSelect) "." x
        S: * LIST () "." a
        S: A1 OK
        C: A2 STATUS "INBOX" (MESSAGES UIDNEXT UIDVALIDITY)
        C: A3 STATUS "a" (MESSAGES UIDNEXT UIDVALIDITY)
        S: * STATUS Inbox (MESSAGES 1 UIDNEXT 2 UIDVALIDITY 3)
        S: A2 OK
        S: A3 NO [NOPERM] no"#;
    let (server, mut client) = logged_in("", script).await;

    let folders = client.list_with_status().await.unwrap();

    server.was_followed().await;
    assert_eq!(folders[0].status.as_ref().unwrap().messages, Some(1));
    assert!(folders[1].status.is_none() && folders[2].status.is_none() && client.is_usable());
}

#[tokio::test(start_paused = true)]
async fn folder_ids_are_requested_apart_and_validated() {
    let script = r#"C: A1 LIST "" "*" RETURN (STATUS (MESSAGES UIDNEXT UIDVALIDITY))
        S: * LIST () "/" INBOX
        S: * STATUS INBOX (MESSAGES 3 UIDNEXT 4 UIDVALIDITY 9)
        S: * LIST () "/" a
        S: * STATUS a (MESSAGES 0 UIDNEXT 1 UIDVALIDITY 9)
        S: * LIST () "/" b
        S: * STATUS b (MESSAGES 0 UIDNEXT 1 UIDVALIDITY 9)
        S: A1 OK
        C: A2 LIST "" "*" RETURN (STATUS (UIDVALIDITY MAILBOXID))
        S: * LIST () "/" INBOX
        S: * STATUS INBOX (UIDVALIDITY 9 MAILBOXID (nw4e7-_A))
        S: * LIST () "/" a
        S: * STATUS a (UIDVALIDITY 10 MAILBOXID (another))
        S: * LIST () "/" b
        S: * STATUS b (UIDVALIDITY 9 MAILBOXID (;\xbb%U))
        S: A2 OK"#;
    let (server, mut client) = logged_in("LIST-STATUS OBJECTID", script).await;

    let folders = client.list_with_status().await.unwrap();

    server.was_followed().await;
    let ids: Vec<_> = folders.iter().map(|folder| folder.status.as_ref().unwrap().mailbox_id.as_deref()).collect();
    assert_eq!(ids, [Some("nw4e7-_A"), None, None]);
    assert_eq!(folders[0].status.as_ref().unwrap().messages, Some(3));
}

#[tokio::test(start_paused = true)]
async fn examine_returns_the_folders_state() {
    let script = r#"C: A1 EXAMINE "INBOX" (CONDSTORE)
        S: * 10000000 EXISTS
        S: * OK [UIDVALIDITY 0] odd
        S: * OK [UIDNEXT 4392] next
        S: * OK [HIGHESTMODSEQ 715194045007] yes
        S: * OK [MAILBOXID (F22)] id
        S: A1 OK [READ-ONLY] done
        C: A2 EXAMINE "gone" (CONDSTORE)
        S: A2 NO [NONEXISTENT] no such folder"#;
    let (server, mut client) = logged_in("CONDSTORE", script).await;

    let opened = client.examine(&inbox()).await.unwrap();

    assert_eq!((opened.exists, opened.uid_validity, opened.uid_next), (10_000_000, None, Some(4_392)));
    assert_eq!((opened.highest_modseq, opened.mailbox_id.as_deref()), (Some(715_194_045_007), Some("F22")));
    let error = client.examine(&WireName::new(b"gone")).await.unwrap_err();
    assert_eq!(error.refusal().unwrap().class, RefusalClass::NoSuchFolder);
    assert!(client.is_usable());
    server.was_followed().await;
}

#[tokio::test(start_paused = true)]
async fn resync_returns_changed_and_vanished_messages() {
    let script = r#"C: A2 EXAMINE "INBOX" (QRESYNC (67890007 90060115194045000))
        S: * 5 EXISTS
        S: * OK [CLOSED]
        S: * 314 EXISTS
        S: * OK [UIDVALIDITY 67890007] v
        S: * OK [NOMODSEQ] x
        S: * OK [HIGHESTMODSEQ 90060115205545359] m
        S: * VANISHED (EARLIER) 41,43:116,118
        S: * 49 FETCH (UID 117 FLAGS (\Seen) MODSEQ (90060115194045001))
        S: A2 OK
        C: A3 UID FETCH 1:* (UID FLAGS INTERNALDATE RFC822.SIZE MODSEQ) (CHANGEDSINCE 7 VANISHED)
        S: * VANISHED (EARLIER) 1:4294967295
        S: * 50 FETCH (UID 118 FLAGS () INTERNALDATE " 1-Jan-2026 00:00:00 +0000" RFC822.SIZE 12 MODSEQ (8))
        S: A3 OK"#;
    let (server, mut client) = logged_in("ENABLE CONDSTORE QRESYNC", script).await;
    let mut changed = Vec::new();

    let opened = client
        .resync(&inbox(), 67_890_007, 90_060_115_194_045_000, |one| {
            changed.push((one.uid, one.flags().unwrap().map(str::to_owned).collect::<Vec<_>>()));
        })
        .await
        .unwrap();

    assert_eq!((opened.exists, opened.highest_modseq), (314, Some(90_060_115_205_545_359)));
    assert_eq!(opened.vanished, set("41,43:116,118"));
    assert_eq!(changed, [(117, vec!["\\Seen".to_owned()])]);
    let since = Some(ChangedSince { modseq: 7, vanished: true });
    let mut sizes = Vec::new();
    let vanished =
        client.fetch_metadata(&set("1:*"), FetchItems::All, since, |one| sizes.push(one.size_bytes)).await.unwrap();
    assert_eq!((vanished, sizes), (set("1:*"), vec![Some(12)]));
    server.was_followed().await;
}

#[tokio::test(start_paused = true)]
async fn unrequested_messages_are_left_out() {
    let script = r"C: A1 UID FETCH 10:* (UID FLAGS)
        S: * 4 FETCH (UID 9 FLAGS ())
        S: * 5 FETCH (FLAGS (\Seen))
        S: * 6 EXPUNGE
        S: * 6 FETCH (UID 11 FLAGS (\Deleted))
        S: A1 OK";
    let (server, mut client) = logged_in("", script).await;
    let mut uids = Vec::new();

    client.fetch_metadata(&UidSet::from(10), FetchItems::Flags, None, |one| uids.push(one.uid)).await.unwrap();

    assert_eq!(uids, [11]);
    server.was_followed().await;
}

#[tokio::test(start_paused = true)]
async fn search_and_esearch_responses_are_read() {
    let long = r"C: A1 UID SEARCH SINCE 1-Feb-2026
        S: * SEARCH 1 2 3 7 (MODSEQ 5)
        S: * SEARCH
        S: A1 OK
        C: A2 UID SEARCH UID 5:*
        S: * SEARCH 4
        S: A2 OK";
    let (server, mut client) = logged_in("", long).await;
    let since = SearchCriteria { since: Some(jiff::civil::date(2026, 2, 1)), within: None };
    assert_eq!(client.search(&since).await.unwrap(), set("1:3,7"));
    assert!(client.search(&SearchCriteria { since: None, within: Some(UidSet::from(5)) }).await.unwrap().is_empty());
    server.was_followed().await;

    let short = r#"C: A1 UID SEARCH RETURN (ALL) ALL
        S: * ESEARCH (TAG "A1") UID MIN 2 ALL 2,10:4294967295 COUNT 9
        S: A1 OK
        C: A2 UID SEARCH RETURN (ALL) ALL
        S: * ESEARCH (TAG "A2") UID
        S: A2 OK"#;
    let (server, mut client) = logged_in("ESEARCH", short).await;
    assert_eq!(client.search(&SearchCriteria::default()).await.unwrap(), set("2,10:*"));
    assert!(client.search(&SearchCriteria::default()).await.unwrap().is_empty());
    server.was_followed().await;
}

#[tokio::test(start_paused = true)]
async fn bodies_come_in_any_form_or_fail() {
    let script = r#"C: A1 UID FETCH 1:4 (UID BODY.PEEK[])
        C: A2 UID FETCH 7:8 (UID BODY.PEEK[])
        S: * 1 FETCH (UID 1 RFC822.SIZE 99 BODY[] {6}
        S~ ab\r\ncd
        S:  FLAGS ({1}
        S: x))
        S: * 2 FETCH (BODY[] {3}
        S~ two
        S:  UID 2)
        S: * 1 FETCH (UID 1 BODY[] {5}
        S~ again
        S: )
        S: * 99 FETCH (UID 99 BODY[] {5}
        S~ wrong
        S: )
        S: * 3 FETCH (UID 3 BODY[] NIL)
        S: * 9 FETCH (UID 7 BODY[] "se\"ven")
        S: A1 OK
        S: A2 NO [EXPUNGEISSUED] some are gone"#;
    let (server, mut client) = logged_in("", &script.replace("se\"ven", "se\\\"ven")).await;
    let mut kept = BodyCollector::default();

    client.fetch_bodies(&[set("1:4"), set("7:8")], &mut kept).await.unwrap();

    server.was_followed().await;
    let expected = [(1, b"ab\r\ncd".to_vec()), (2, b"two".to_vec()), (7, b"se\"ven".to_vec())];
    assert_eq!(kept.whole, expected);
    assert_eq!(kept.failed, [(3, BodyFault::Empty), (4, BodyFault::Missing), (8, BodyFault::Missing)]);
}

#[tokio::test(start_paused = true)]
async fn unreadable_message_does_not_affect_others() {
    let script = r"C: A1 UID FETCH 1:3 (UID BODY.PEEK[])
        S: * 1 FETCH (UID 1 BODY[] {3}
        S~ one
        S: )
        S: A1 NO The requested message could not be converted
        C: A2 UID FETCH 2 (UID BODY.PEEK[])
        S: A2 NO The requested message could not be converted
        C: A3 UID FETCH 3 (UID BODY.PEEK[])
        S: * 3 FETCH (BODY[] {5}
        S~ three
        S:  UID 3)
        S: A3 OK";
    let (server, mut client) = logged_in("", script).await;
    let mut kept = BodyCollector::default();

    client.fetch_bodies(&[set("1:3")], &mut kept).await.unwrap();

    server.was_followed().await;
    assert_eq!(kept.whole, [(1, b"one".to_vec()), (3, b"three".to_vec())]);
    assert!(matches!(kept.failed.as_slice(), [(2, BodyFault::Refused(_))]));
}

#[tokio::test(start_paused = true)]
async fn throttling_ends_the_call_and_not_the_connection() {
    let script = r"C: A1 UID FETCH 1:2 (UID BODY.PEEK[])
        C: A2 UID FETCH 5 (UID BODY.PEEK[])
        S: A1 NO [THROTTLED] slower
        S: * 3 FETCH (UID 5 BODY[] {1}
        S~ x
        S: )
        S: A2 OK";
    let (server, mut client) = logged_in("", script).await;
    let mut kept = BodyCollector::default();

    let error = client.fetch_bodies(&[set("1:2"), set("5")], &mut kept).await.unwrap_err();

    server.was_followed().await;
    assert!(matches!(domain::ConnectorError::from(&error), domain::ConnectorError::Throttled { .. }));
    assert!(client.is_usable() && kept.failed.is_empty());
    assert_eq!(kept.whole, [(5, b"x".to_vec())]);
}

#[tokio::test(start_paused = true)]
async fn long_message_with_late_uid_is_fetched_alone() {
    let long = "m".repeat(5 << 20);
    let script = format!(
        "C: A1 UID FETCH 1:2 (UID BODY.PEEK[])
        S: * 1 FETCH (BODY[] {{{0}}}
        S~ {long}
        S:  UID 1)
        S: A1 OK
        C: A2 UID FETCH 1 (UID BODY.PEEK[])
        S: * 1 FETCH (BODY[] {{{0}}}
        S~ {long}
        S:  UID 1)
        S: A2 OK",
        long.len()
    );
    let (server, mut client) = logged_in("", &script).await;
    let mut kept = BodyCollector::default();

    client.fetch_bodies(&[set("1:2")], &mut kept).await.unwrap();

    server.was_followed().await;
    assert!(kept.whole.len() == 1 && kept.whole[0].1 == long.as_bytes());
    assert_eq!(kept.failed, [(2, BodyFault::Missing)]);
}

#[tokio::test(start_paused = true)]
async fn idle_ends_with_an_update_or_in_time() {
    let script = r"C: A1 IDLE
        S: + idling
        S: * OK Still here
        S: * 4 EXISTS
        C: DONE
        S: * 2 EXPUNGE
        S: A1 OK
        C: A2 IDLE
        S: + idling
        S~ * 1 FET
        C: DONE
        S: CH (FLAGS ())
        S: A2 OK
        C: A3 IDLE
        S: + idling
        S: * BYE Disconnected for inactivity.";
    let (server, mut client) = logged_in("IDLE", script).await;

    let news = client.idle(Duration::from_secs(600)).await.unwrap();
    assert_eq!((news.exists, news.expunged), (Some(4), 1));
    let began = tokio::time::Instant::now();
    assert_eq!(client.idle(Duration::from_secs(600)).await.unwrap().changed, 1);
    assert!(began.elapsed() >= Duration::from_secs(600));
    let error = client.idle(Duration::from_secs(600)).await.unwrap_err();
    assert!(matches!(error, ImapError::Bye(_)), "{error:?}");
    server.was_followed().await;
}
