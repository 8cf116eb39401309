//! Hostile servers: each call ends with an error, by its deadline, and in bounded memory.

use std::time::Duration;

use providers::imap::client::{
    BodyFault, BodySink, Client, FetchItems, ImapError, ResponseLimits, SearchCriteria, Step, UidSet, WireName,
};
use tokio::io::AsyncWriteExt;

use super::script::{BodyCollector, logged_in, password, serve, settings};

fn set(text: &str) -> UidSet {
    UidSet::parse(text.as_bytes()).unwrap()
}

/// A server that says this once and then the same for as long as somebody listens.
async fn endless(beginning: &str, again: &'static [u8]) -> Client {
    let (near, mut far) = tokio::io::duplex(1 << 16);
    let beginning = format!("* PREAUTH [CAPABILITY IMAP4rev1 ESEARCH IDLE] hi\r\n{beginning}");
    tokio::spawn(async move {
        far.write_all(beginning.as_bytes()).await.unwrap();
        while far.write_all(again).await.is_ok() {}
    });
    Client::over(Box::new(near), settings(), &password()).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn endless_lines_and_floods_exceed_limits() {
    let blanks = &[b' '; 65_536];
    let mut client = endless("* LIST ", blanks).await;
    assert!(matches!(client.list().await, Err(ImapError::LimitExceeded("a line of a response is too long"))));
    assert!(!client.is_usable() && matches!(client.list().await, Err(ImapError::Broken)));

    let mut client = endless("* SEARCH ", b"1 ").await;
    assert!(matches!(client.search(&SearchCriteria::default()).await, Err(ImapError::LimitExceeded(_))));

    let unsolicited = "too many unsolicited responses";
    for flood in [
        &b"* 1 EXISTS\r\n"[..],
        b"* 1 EXPUNGE\r\n",
        b"* OK hi\r\n",
        b"\r\n",
        b"* 1 FETCH (UID 7 FLAGS ())\r\n",
        b"+\r\n",
    ] {
        let mut client = endless("", flood).await;
        assert!(matches!(client.list().await, Err(ImapError::LimitExceeded(text)) if text == unsolicited));
        let mut client = endless("", flood).await;
        let metadata = client.fetch_metadata(&set("1:5"), FetchItems::All, None, |_| {}).await;
        assert!(matches!(metadata, Err(ImapError::LimitExceeded(text)) if text == unsolicited));
        let mut client = endless("", flood).await;
        let bodies = client.fetch_bodies(&[set("1:5")], &mut BodyCollector::default()).await;
        assert!(matches!(bodies, Err(ImapError::LimitExceeded(text)) if text == unsolicited));
    }
    let mut client = endless("+ idling\r\n", b"* OK Still here\r\n").await;
    assert!(matches!(client.idle(Duration::from_secs(60)).await, Err(ImapError::LimitExceeded(_))));

    let mut client = endless("", b"* VANISHED 1,3,5,7,9,11,13,15,17,19,21,23\r\n").await;
    let metadata = client.fetch_metadata(&set("1:5"), FetchItems::All, None, |_| {}).await;
    assert!(matches!(metadata, Err(ImapError::LimitExceeded(text)) if text == unsolicited));
}

#[tokio::test(start_paused = true)]
async fn too_many_folders_exceed_the_limit() {
    let (near, mut far) = tokio::io::duplex(1 << 16);
    tokio::spawn(async move {
        far.write_all(b"* PREAUTH [CAPABILITY IMAP4rev1] hi\r\n").await.unwrap();
        for number in 0.. {
            if far.write_all(format!("* LIST () \"/\" f{number}\r\n").as_bytes()).await.is_err() {
                break;
            }
        }
    });
    let mut client = Client::over(Box::new(near), settings(), &password()).await.unwrap();
    assert!(matches!(client.list().await, Err(ImapError::LimitExceeded("too many folders"))));
}

/// Says one answer to a FETCH of the UIDs 1 to 5.
async fn fetched(said: &str) -> (BodyCollector, Result<(), ImapError>) {
    let script = format!("C: A1 UID FETCH 1:5 (UID BODY.PEEK[])\n{said}");
    let (_server, mut client) = logged_in("", &script).await;
    let mut kept = BodyCollector::default();
    let outcome = client.fetch_bodies(&[set("1:5")], &mut kept).await;
    (kept, outcome)
}

#[tokio::test(start_paused = true)]
async fn message_of_wrong_length_is_not_delivered() {
    let (kept, outcome) = fetched("S: * 1 FETCH (UID 1 BODY[] {10}\nS~ abc").await;
    assert!(matches!(outcome, Err(ImapError::Io { step: Step::Fetch, .. })), "{outcome:?}");
    assert!(kept.whole.is_empty() && kept.failed == [(1, BodyFault::Cut)]);

    let (kept, outcome) = fetched("S: * 1 FETCH (UID 1 BODY[] {10}\nS~ abc\nWAIT").await;
    assert!(matches!(outcome, Err(ImapError::Timeout(Step::Fetch))), "{outcome:?}");
    assert!(kept.whole.is_empty() && kept.failed == [(1, BodyFault::Cut)]);

    for (length, text) in [(2, "abc"), (6, "abc")] {
        let said = format!("S: * 1 FETCH (UID 1 BODY[] {{{length}}}\nS~ {text}\nS: )\nS: A1 OK\nWAIT");
        let (kept, outcome) = fetched(&said).await;
        assert!(matches!(outcome, Err(ImapError::Protocol("a message is not as long as announced"))), "{outcome:?}");
        assert!(kept.whole.is_empty() && kept.failed == [(1, BodyFault::Cut)]);
    }
    // The size that was told is only that; what is announced with the bytes counts.
    let (kept, outcome) = fetched("S: * 1 FETCH (RFC822.SIZE 1 UID 1 BODY[] {3}\nS~ abc\nS: )\nS: A1 OK").await;
    assert!(outcome.is_ok() && kept.whole == [(1, b"abc".to_vec())]);
}

#[tokio::test(start_paused = true)]
async fn too_large_message_is_skipped_or_ends_the_call() {
    let limits = ResponseLimits { message_bytes: 5, ..ResponseLimits::default() };
    let script = "S: * PREAUTH [CAPABILITY IMAP4rev1] hi
        C: A1 UID FETCH 1:3 (UID BODY.PEEK[])
        S: * 1 FETCH (UID 1 BODY[] {6}
        S~ abcdef
        S: )
        S: * 2 FETCH (UID 2 BODY[] {2}
        S~ ab
        S: )
        S: * 3 FETCH (UID 3 BODY[] {18446744073709551615}
        WAIT";
    let (_server, stream) = serve(script);
    let mut settings = settings();
    settings.limits = limits;
    let mut client = Client::over(Box::new(stream), settings, &password()).await.unwrap();
    let mut kept = BodyCollector::default();

    let outcome = client.fetch_bodies(&[set("1:3")], &mut kept).await;

    assert!(matches!(outcome, Err(ImapError::LimitExceeded(_))), "{outcome:?}");
    assert_eq!(kept.whole, [(2, b"ab".to_vec())]);
    assert_eq!(kept.failed, [(1, BodyFault::TooLarge(6)), (3, BodyFault::TooLarge(u64::MAX))]);
}

#[tokio::test(start_paused = true)]
async fn malformed_responses_end_the_call() {
    for said in [
        "S: * 1 FETCH (UID 1 BODY[] {3}\nS~ abc\nS:  UID",
        "S: * 1 FETCH (UID",
        "S: * 1 FETCH UID 1",
        "S: * 1 FETCH (UID \\0)",
        "S: * 1 FETCH (UID 1 FLAGS {99999999}",
        "S: A2 OK",
        "S: A9 OK",
        "S: garbage",
        "S: * BYE enough",
        "S: A1 BAD what",
        "S: * 1 FETCH (((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((",
    ] {
        let (kept, outcome) = fetched(said).await;
        assert!(outcome.is_err(), "{said}");
        assert!(kept.whole.is_empty(), "{said}");
    }
}

/// A byte now and then.
#[tokio::test(start_paused = true)]
async fn slow_server_is_cut_off_at_the_command_timeout() {
    let (near, mut far) = tokio::io::duplex(1 << 16);
    tokio::spawn(async move {
        far.write_all(b"* PREAUTH [CAPABILITY IMAP4rev1] hi\r\n").await.unwrap();
        while far.write_all(b" ").await.is_ok() {
            tokio::time::sleep(Duration::from_secs(29)).await;
        }
    });
    let mut client = Client::over(Box::new(near), settings(), &password()).await.unwrap();
    let began = tokio::time::Instant::now();

    let outcome = client.examine(&WireName::new(b"INBOX")).await;

    assert!(matches!(outcome, Err(ImapError::Timeout(Step::Examine))), "{outcome:?}");
    assert_eq!(began.elapsed().as_secs(), settings().timeouts.command.as_secs());
}

#[tokio::test(start_paused = true)]
async fn cancelled_call_makes_the_connection_unusable() {
    let (_server, mut client) = logged_in("", "C: A1 NOOP\nWAIT").await;

    assert!(tokio::time::timeout(Duration::from_secs(1), client.noop()).await.is_err());

    assert!(!client.is_usable());
    assert!(matches!(client.noop().await, Err(ImapError::Broken)));
}

#[tokio::test(start_paused = true)]
async fn failing_sink_ends_the_call() {
    struct FullSink(Vec<u32>);
    impl BodySink for FullSink {
        fn begin(&mut self, _uid: u32, _length: u64) {}
        fn write(&mut self, _bytes: &[u8]) -> std::io::Result<()> {
            Err(std::io::ErrorKind::StorageFull.into())
        }
        fn end(&mut self) -> std::io::Result<()> {
            unreachable!("nothing was written")
        }
        fn fail(&mut self, uid: u32, _fault: BodyFault) {
            self.0.push(uid);
        }
    }
    let script = "C: A1 UID FETCH 1 (UID BODY.PEEK[])\nS: * 1 FETCH (UID 1 BODY[] {3}\nS~ abc\nS: )\nWAIT";
    let (_server, mut client) = logged_in("", script).await;
    let mut full = FullSink(Vec::new());

    let outcome = client.fetch_bodies(&[set("1")], &mut full).await;

    assert!(matches!(outcome, Err(ImapError::Sink(_))));
    assert_eq!(full.0, [1]);
}
