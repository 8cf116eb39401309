//! The client against a real server: `make test` starts a Dovecot, `make test-imap` a Cyrus, and names it in
//! MAILROOM_TEST_IMAP_URL, and its folder, with its authority and the port for TLS, in MAILROOM_TEST_IMAP_DIR.
#![expect(clippy::disallowed_methods, reason = "the tests' servers are named in the environment")]

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use domain::{Secret, SystemClock, TenantId};
use providers::imap::client::{
    Client, ClientSettings, Credentials, FetchItems, ImapError, RefusalClass, SearchCriteria, Security, TlsFault,
    UidSet, WireName,
};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

use super::script::BodyCollector;

fn port() -> u16 {
    let url = std::env::var("MAILROOM_TEST_IMAP_URL")
        .expect("MAILROOM_TEST_IMAP_URL names an IMAP server; see CONTRIBUTING.md");
    url.trim_end_matches('/').rsplit(':').next().unwrap().parse().unwrap()
}

fn in_folder(file: &str) -> String {
    let folder = std::env::var("MAILROOM_TEST_IMAP_DIR").expect("MAILROOM_TEST_IMAP_DIR is the server's folder");
    std::fs::read_to_string(format!("{folder}/{file}")).unwrap()
}

fn plain() -> ClientSettings {
    ClientSettings::new("127.0.0.1", port(), Security::None)
}

/// A user that no other test has.
fn fresh() -> String {
    static LAST: AtomicU32 = AtomicU32::new(0);
    format!("u{}-{}", TenantId::new(&SystemClock), LAST.fetch_add(1, Ordering::SeqCst))
}

fn credentials(user: &str, password: &str) -> Credentials {
    Credentials::Password { user: user.to_owned(), password: Secret::new(password.to_owned()) }
}

async fn log_in(user: &str, settings: ClientSettings) -> Client {
    Client::connect(settings, &credentials(user, "pw")).await.unwrap()
}

/// Puts messages into a folder, as a mail program would.
async fn append(user: &str, folder: &str, messages: &[Vec<u8>]) {
    let mut stream = BufReader::new(TcpStream::connect(("127.0.0.1", port())).await.unwrap());
    let mut script = format!("b CREATE {folder}\r\n").into_bytes();
    for message in messages {
        script.extend(format!("c APPEND {folder} {{{}+}}\r\n", message.len()).bytes());
        script.extend_from_slice(message);
        script.extend(b"\r\n");
    }
    script.extend(b"z NOOP\r\n");
    stream.get_mut().write_all(format!("a LOGIN {user} pw\r\n").as_bytes()).await.unwrap();
    let (mut line, mut appended) = (String::new(), 0);
    while !line.starts_with("z ") {
        line.clear();
        assert!(stream.read_line(&mut line).await.unwrap() > 0, "the server went away");
        appended += usize::from(line.starts_with("c OK"));
        if line.starts_with("a OK") {
            stream.get_mut().write_all(&script).await.unwrap();
        }
    }
    assert_eq!(appended, messages.len());
}

fn messages(count: usize) -> Vec<Vec<u8>> {
    let texts = (0..count).map(|n| format!("Subject: {n}\r\n\r\n{}\r\n", "line )\r\n".repeat(n * 50 % 7_000)));
    texts.map(String::into_bytes).collect()
}

/// Lists, opens, searches and fetches, and compares every byte.
async fn reads_everything(mut client: Client, messages: &[Vec<u8>]) {
    let folders = client.list_with_status().await.unwrap();
    let inbox = folders.iter().find(|folder| folder.wire.as_bytes() == b"INBOX").unwrap();
    let status = inbox.status.as_ref().unwrap();
    assert_eq!(status.messages, Some(u32::try_from(messages.len()).unwrap()));

    let opened = client.examine(&inbox.wire).await.unwrap();
    assert_eq!((opened.uid_validity, opened.uid_next), (status.uid_validity, status.uid_next));
    assert!(opened.highest_modseq.is_some());
    let uids = client.search(&SearchCriteria::default()).await.unwrap();
    assert_eq!(uids.len(), messages.len() as u64);
    let mut sizes = Vec::new();
    client.fetch_metadata(&uids, FetchItems::All, None, |one| sizes.push(one.size_bytes.unwrap())).await.unwrap();
    assert_eq!(sizes, messages.iter().map(|message| message.len() as u64).collect::<Vec<_>>());

    let all: Vec<u32> = uids.iter().collect();
    let mut sets: Vec<UidSet> = all.chunks(7).map(|chunk| chunk.iter().copied().collect()).collect();
    sets.push(UidSet::range(1_000_000, 1_000_000));
    let mut kept = BodyCollector::default();
    client.fetch_bodies(&sets, &mut kept).await.unwrap();
    assert!(kept.whole.iter().map(|(_, bytes)| bytes).eq(messages));
    assert_eq!(kept.failed.len(), 1);
    client.log_out().await;
}

#[tokio::test]
async fn every_byte_is_read_with_any_compression_and_tls() {
    let user = fresh();
    let messages = messages(40);
    append(&user, "INBOX", &messages).await;
    let authority = Some(in_folder("ca.pem"));
    let implicit = in_folder("imaps-port").trim().parse().unwrap();

    reads_everything(log_in(&user, plain()).await, &messages).await;
    reads_everything(log_in(&user, ClientSettings { compress: true, ..plain() }).await, &messages).await;
    let secured = ClientSettings {
        custom_ca: authority.clone(),
        ..ClientSettings::new("localhost", implicit, Security::Implicit)
    };
    reads_everything(log_in(&user, ClientSettings { compress: true, ..secured }).await, &messages).await;
    let upgraded = ClientSettings { custom_ca: authority, security: Security::StartTls, ..plain() };
    reads_everything(log_in(&user, upgraded).await, &messages).await;
}

#[tokio::test]
async fn wrong_certificate_password_and_port_are_distinguished() {
    let implicit = in_folder("imaps-port").trim().parse().unwrap();
    let refused =
        async |settings: ClientSettings| Client::connect(settings, &credentials("ann", "pw")).await.unwrap_err();

    let unknown = refused(ClientSettings::new("localhost", implicit, Security::Implicit)).await;
    assert!(matches!(unknown, ImapError::Tls(TlsFault::UnknownIssuer)), "{unknown:?}");
    let custom_ca = Some(in_folder("ca.pem"));
    let name = ClientSettings { custom_ca, ..ClientSettings::new("127.0.0.2", implicit, Security::Implicit) };
    let other = TcpStream::connect(("127.0.0.1", implicit)).await.unwrap();
    let mismatch = Client::over(Box::new(other), name, &credentials("ann", "pw")).await.unwrap_err();
    assert!(matches!(mismatch, ImapError::Tls(TlsFault::NameMismatch)), "{mismatch:?}");
    let no_tls = refused(ClientSettings { security: Security::Implicit, ..plain() }).await;
    assert!(matches!(no_tls, ImapError::Tls(TlsFault::NotTls)), "{no_tls:?}");
    let password = Client::connect(plain(), &credentials("ann", "wrong")).await.unwrap_err();
    assert_eq!(password.refusal().unwrap().class, RefusalClass::BadCredentials);
    assert!(!format!("{password:?}").contains("wrong"));
}

#[tokio::test]
async fn idle_sees_new_mail_and_resync_vanished_mail() {
    let user = fresh();
    append(&user, "INBOX", &messages(3)).await;
    let inbox = WireName::new(b"INBOX");
    let mut client = log_in(&user, plain()).await;
    let before = client.examine(&inbox).await.unwrap();
    assert!(client.idle(Duration::from_millis(1)).await.unwrap().is_empty());

    let new = [b"Subject: new\r\n\r\nnew\r\n".to_vec()];
    let (news, ()) = tokio::join!(client.idle(Duration::from_secs(60)), append(&user, "INBOX", &new));

    assert_eq!(news.unwrap().exists, Some(4));
    let mut other = TcpStream::connect(("127.0.0.1", port())).await.unwrap();
    let script = format!(
        "a LOGIN {user} pw\r\nb SELECT INBOX\r\nc STORE 2 +FLAGS.SILENT \\Deleted\r\nd EXPUNGE\r\ne STORE 1 +FLAGS.SILENT \\Seen\r\nf LOGOUT\r\n"
    );
    other.write_all(script.as_bytes()).await.unwrap();
    tokio::io::copy(&mut other, &mut tokio::io::sink()).await.unwrap();
    let mut again = log_in(&user, plain()).await;
    let mut changed = Vec::new();
    let (validity, modseq) = (before.uid_validity.unwrap(), before.highest_modseq.unwrap());
    let after = again.resync(&inbox, validity, modseq, |one| changed.push(one.uid)).await.unwrap();
    assert_eq!((after.exists, after.vanished.to_string().as_str()), (3, "2"));
    assert_eq!(changed, [1, 4]);
}
