//! Whole sessions of real servers' dialects, first as they are and then altered in every way: each run of the client ends,
//! without a panic, by its deadlines.

use std::time::Duration;

use providers::imap::client::{Client, FetchItems, FolderUpdates, ImapError, SearchCriteria, UidSet, WireName};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream};

use super::script::{BodyCollector, password, serve, settings, unescaped};

const DOVECOT: &str = include_str!("transcripts/dovecot.txt");
const GMAIL: &str = include_str!("transcripts/gmail.txt");
const EXCHANGE: &str = include_str!("transcripts/exchange.txt");

/// How often each session is altered.
const ROUNDS: u64 = 500;

#[derive(Debug, Default)]
struct SessionLog {
    folders: Vec<String>,
    uids: UidSet,
    sizes: Vec<Option<u64>>,
    bodies: BodyCollector,
    news: FolderUpdates,
}

/// Everything that the client can do, in one session.
async fn whole_routine(stream: DuplexStream, sets: &[UidSet], log: &mut SessionLog) -> Result<(), ImapError> {
    let mut client = Client::over(Box::new(stream), settings(), &password()).await?;
    log.folders = client.list_with_status().await?.into_iter().map(|folder| folder.name).collect();
    client.examine(&WireName::new(b"INBOX")).await?;
    log.uids = client.search(&SearchCriteria::default()).await?;
    let mut labels = 0;
    client
        .fetch_metadata(&log.uids, FetchItems::All, None, |one| {
            log.sizes.push(one.size_bytes);
            labels += one.labels().count() + one.flags().map_or(0, Iterator::count);
        })
        .await?;
    client.fetch_bodies(sets, &mut log.bodies).await?;
    log.news = client.idle(Duration::from_secs(300)).await?;
    client.log_out().await;
    Ok(())
}

fn sets(texts: &[&str]) -> Vec<UidSet> {
    texts.iter().map(|text| UidSet::parse(text.as_bytes()).unwrap()).collect()
}

async fn follows(transcript: &str, bodies: &[&str]) -> SessionLog {
    let (server, stream) = serve(transcript);
    let mut log = SessionLog::default();
    whole_routine(stream, &sets(bodies), &mut log).await.unwrap();
    server.was_followed().await;
    assert!(log.bodies.failed.is_empty(), "{:?}", log.bodies.failed);
    log
}

#[tokio::test(start_paused = true)]
async fn transcripts_of_three_servers_are_understood() {
    let dovecot = follows(DOVECOT, &["1:2", "3"]).await;
    assert_eq!(dovecot.folders, ["Sent", "Entwürfe", "INBOX"]);
    assert_eq!(dovecot.sizes, [Some(30), Some(6), Some(5)]);
    let bodies = [&b"Subject: one\r\n\r\nHello there.\r\n"[..], b"two)\r\n", b"A9 \r\n"];
    assert!(dovecot.bodies.whole.iter().map(|(_, bytes)| bytes.as_slice()).eq(bodies));
    assert_eq!(dovecot.news.exists, Some(4));

    let gmail = follows(GMAIL, &["10:11"]).await;
    assert_eq!(gmail.folders, ["INBOX", "[Gmail]", "[Gmail]/All Mail", "[Gmail]/Entwürfe"]);
    assert_eq!(gmail.bodies.whole, [(10, b"Subject: x\r\n\n".to_vec()), (11, Vec::new())]);

    let exchange = follows(EXCHANGE, &["6:7"]).await;
    assert_eq!(exchange.folders, ["Deleted Items", "INBOX", "R&D"]);
    assert_eq!(exchange.bodies.whole, [(6, b"Subject: yes\r\n".to_vec()), (7, b"abc".to_vec())]);
    assert_eq!(exchange.sizes, [Some(4_242), Some(17)]);
}

/// What the server says between two lines of the client.
fn server_turns(transcript: &str) -> Vec<Vec<u8>> {
    let mut turns = vec![Vec::new()];
    for line in transcript.lines() {
        match line.split_at(3.min(line.len())) {
            ("C: ", _) => turns.push(Vec::new()),
            ("S: ", text) => turns.last_mut().unwrap().extend([unescaped(text), b"\r\n".to_vec()].concat()),
            ("S~ ", text) => turns.last_mut().unwrap().extend(unescaped(text)),
            _ => {}
        }
    }
    turns
}

/// A small generator of numbers: the same seed gives the same.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % limit.max(1)
    }
}

fn mutate(turns: &mut [Vec<u8>], random: &mut Random) {
    let turn = random.below(turns.len());
    let other = turns[random.below(turns.len())].clone();
    let bytes = &mut turns[turn];
    let at = random.below(bytes.len());
    let to = (at + random.below(40)).min(bytes.len());
    match random.below(9) {
        0 if !bytes.is_empty() => bytes[at] = random.below(256) as u8,
        1 if !bytes.is_empty() => bytes[at] = b"(){}[]\"\\*+ \r\n\0\x7f9"[random.below(16)],
        2 => drop(bytes.drain(at..to)),
        3 => bytes.truncate(at),
        4 => {
            let again = bytes[at..to].to_vec();
            bytes.splice(at..at, again);
        }
        5 => drop(bytes.splice(at..at, other)),
        6 => {
            let mut lines: Vec<&[u8]> = bytes.split_inclusive(|byte| *byte == b'\n').collect();
            let (one, two) = (random.below(lines.len()), random.below(lines.len()));
            if !lines.is_empty() {
                lines.swap(one, two);
            }
            *bytes = lines.concat();
        }
        7 => {
            let number = ["0", "-1", "4294967295", "4294967296", "18446744073709551615", "99999999999999999999999"];
            bytes.splice(at..at, number[random.below(6)].bytes());
        }
        _ => {
            let digit = bytes.iter().position(u8::is_ascii_digit).filter(|_| !bytes.is_empty());
            if let Some(at) = digit {
                bytes[at] = b'0' + random.below(10) as u8;
            }
        }
    }
}

/// Says each turn when the client has said a line, whatever it was. Then it goes, or stays and is silent.
async fn replay(stream: DuplexStream, turns: Vec<Vec<u8>>, stays: bool) {
    let (read, mut write) = tokio::io::split(stream);
    let mut read = BufReader::new(read);
    for (at, turn) in turns.iter().enumerate() {
        let mut line = Vec::new();
        if at > 0 && !matches!(read.read_until(b'\n', &mut line).await, Ok(1..)) {
            return;
        }
        if write.write_all(turn).await.is_err() {
            return;
        }
    }
    if stays {
        std::future::pending::<()>().await;
    }
}

async fn survives(transcript: &str, bodies: &[&str], seed: u64) -> bool {
    let mut random = Random(seed);
    let mut turns = server_turns(transcript);
    for _ in 0..=random.below(4) {
        mutate(&mut turns, &mut random);
    }
    let (near, far) = tokio::io::duplex(1 << 20);
    let server = tokio::spawn(replay(far, turns, seed.is_multiple_of(2)));
    let mut log = SessionLog::default();
    let sets = sets(bodies);
    let routine = whole_routine(near, &sets, &mut log);
    // The sum of all deadlines of a session, and some.
    let ended = tokio::time::timeout(Duration::from_secs(7_200), routine).await;
    server.abort();
    ended.unwrap_or_else(|_| panic!("seed {seed} did not end")).is_ok()
}

#[tokio::test(start_paused = true)]
async fn mutated_transcripts_end_without_panic() {
    let mut whole = 0;
    for (number, (transcript, bodies)) in
        [(DOVECOT, &["1:2", "3"][..]), (GMAIL, &["10:11"]), (EXCHANGE, &["6:7"])].into_iter().enumerate()
    {
        for round in 0..ROUNDS {
            whole += u32::from(survives(transcript, bodies, number as u64 * ROUNDS + round).await);
        }
    }
    // Some alterations do no harm, and most do: else this would show nothing.
    assert!((50..1_400).contains(&whole), "{whole}");
}
