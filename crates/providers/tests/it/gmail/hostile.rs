//! Hostile servers: their responses end in an error, and in bounded memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use domain::connector::{Cursors, FetchRequest, ListingPage};
use domain::{Connector, ConnectorError};
use providers::http::HttpTimeouts;
use testkit::contract::FetchedMessages;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::account::{account, assert_private, connector};

const TOKEN: &str = "open-sesame";

const ENDLESS: &[u8] = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n";
const ENDLESS_BATCH: &[u8] =
    b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: multipart/mixed; boundary=b\r\n\r\n";
const BLANKS: &[u8] = &[b' '; 65_536];

/// What may be sent before the connector stops to read: what is above its limits lies in the buffers of sockets.
const MAX_SENT_BYTES: usize = 64 << 20;

/// Sends the same to every client: the beginning once, then the rest as long as the client reads.
struct HostileServer {
    url: String,
    sent_bytes: Arc<AtomicUsize>,
    connections: Arc<AtomicUsize>,
}

impl HostileServer {
    async fn start(beginning: Vec<u8>, again: &'static [u8]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (sent_bytes, connections) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (counted, accepted) = (Arc::clone(&sent_bytes), Arc::clone(&connections));
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                accepted.fetch_add(1, Ordering::SeqCst);
                let (beginning, counted) = (beginning.clone(), Arc::clone(&counted));
                tokio::spawn(async move {
                    let mut request = [0; 4_096];
                    let _ = stream.read(&mut request).await;
                    let mut is_heard = stream.write_all(&beginning).await.is_ok();
                    while is_heard && !again.is_empty() {
                        is_heard = stream.write_all(again).await.is_ok();
                        counted.fetch_add(again.len(), Ordering::SeqCst);
                    }
                });
            }
        });
        Self { url, sent_bytes, connections }
    }

    async fn try_changes(&self) -> Result<ListingPage, ConnectorError> {
        connector(&self.url, HttpTimeouts::default()).changes(&account(TOKEN), &Cursors::new()).await
    }

    async fn changes(&self) -> ConnectorError {
        let error = self.try_changes().await.unwrap_err();
        assert_private(&error, TOKEN);
        error
    }

    async fn fetch(&self) -> (FetchedMessages, ConnectorError) {
        let requests = [FetchRequest { message: "m1".to_owned(), placements: Vec::new(), size_bytes: None }];
        let mut collected = FetchedMessages::at_most(64 << 20);
        let connector = connector(&self.url, HttpTimeouts::default());
        let error = connector.fetch(&account(TOKEN), &requests, &mut collected).await.unwrap_err();
        assert_private(&error, TOKEN);
        (collected, error)
    }

    fn assert_cut_off(&self) {
        assert!(self.sent_bytes.load(Ordering::SeqCst) < MAX_SENT_BYTES);
    }
}

fn response(body: &str) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len()).into_bytes()
}

/// A batch response with these parts: Content-ID and what follows it.
fn batch(parts: &[(&str, &str)], end: &str) -> Vec<u8> {
    let mut body = String::new();
    for (id, http) in parts {
        body.push_str(&format!("--b\r\nContent-Type: application/http\r\nContent-ID: <{id}>\r\n\r\n{http}\r\n"));
    }
    [ENDLESS_BATCH, body.as_bytes(), end.as_bytes()].concat()
}

/// A response that serves as profile and as labels.
fn labels(labels: &str) -> Vec<u8> {
    response(&format!(r#"{{"emailAddress":"a","historyId":"7","labels":{labels}}}"#))
}

fn is_protocol(error: &ConnectorError) -> bool {
    matches!(error, ConnectorError::Protocol(_))
}

#[tokio::test(flavor = "multi_thread")]
async fn endless_response_is_cut_off() {
    let server = HostileServer::start(ENDLESS.to_vec(), BLANKS).await;

    assert_eq!(server.changes().await, ConnectorError::Protocol("the response is too large".to_owned()));

    server.assert_cut_off();
}

#[tokio::test(flavor = "multi_thread")]
async fn endless_line_is_cut_off() {
    let server = HostileServer::start(ENDLESS_BATCH.to_vec(), BLANKS).await;

    let (collected, error) = server.fetch().await;

    assert!(is_protocol(&error) && collected.failed.is_empty());
    server.assert_cut_off();
}

#[tokio::test(flavor = "multi_thread")]
async fn endless_message_is_cut_off() {
    let part = "HTTP/1.1 200 OK\r\n\r\n{\"id\":\"m1\",\"raw\":\"";
    let server = HostileServer::start(batch(&[("response-0", part)], ""), &[b'A'; 65_536]).await;

    let (collected, error) = server.fetch().await;

    assert!(matches!(error, ConnectorError::Unavailable(_)), "{error:?}");
    assert!(collected.whole.is_empty() && collected.failed.len() == 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn endless_header_is_cut_off() {
    let head = HostileServer::start(b"HTTP/1.1 200 OK\r\nX-Long: ".to_vec(), b"aaaaaaaaaaaaaaaaaaaaaaaa").await;

    assert!(matches!(head.changes().await, ConnectorError::Unavailable(_)));

    head.assert_cut_off();
}

#[tokio::test]
async fn unstorable_ids_are_protocol_errors() {
    let long = "x".repeat(5_000);
    for id in [r"L\u0000", "", &long] {
        let server = HostileServer::start(labels(&format!(r#"[{{"id":"{id}","name":"Taxes"}}]"#)), b"").await;

        let error = server.changes().await;

        assert!(is_protocol(&error), "{error:?}");
    }
}

#[tokio::test]
async fn control_characters_are_removed_from_names() {
    let server = HostileServer::start(labels(r#"[{"id":"L1","name":"a\u0000b\nc"}]"#), b"").await;

    let page = server.try_changes().await.unwrap();

    let folder = page.folders.iter().find(|folder| folder.id == "L1").unwrap();
    assert_eq!((folder.name.as_str(), folder.role), ("abc", None));
}

#[tokio::test]
async fn malformed_responses_are_protocol_errors() {
    let deep = format!("{}{}", "[".repeat(1_000_000), "]".repeat(1_000_000));
    let deep_inside = format!(r#"{{"more":{deep}}}"#);
    let bodies =
        ["null", "[]", "{}", "\0\0\0", r#"{"historyId":7}"#, r#"{"historyId":"7","labels":7}"#, &deep, &deep_inside];
    for body in bodies {
        let error = HostileServer::start(response(body), b"").await.changes().await;

        assert!(is_protocol(&error), "{}: {error:?}", &body[..body.len().min(60)]);
    }
}

#[tokio::test]
async fn unrequested_messages_are_protocol_errors() {
    let whole = "HTTP/1.1 200 OK\r\n\r\n{\"id\":\"m1\",\"raw\":\"eA\"}";
    let other = "HTTP/1.1 200 OK\r\n\r\n{\"id\":\"m2\",\"raw\":\"eA\"}";
    let responses: [&[(&str, &str)]; 6] = [
        &[("response-1", whole)],
        &[("response-x", whole)],
        &[("response-0", "nothing\r\n\r\n{}")],
        &[("response-0", other)],
        &[("response-0", "HTTP/1.1 200 OK\r\n\r\n[]")],
        &[("response-0", whole), ("response-0", whole)],
    ];
    for parts in responses {
        let (_, error) = HostileServer::start(batch(parts, "--b--\r\n"), b"").await.fetch().await;

        assert!(is_protocol(&error), "{parts:?}: {error:?}");
    }
}

#[tokio::test]
async fn batch_without_an_end_is_unavailable() {
    let whole = "HTTP/1.1 200 OK\r\n\r\n{\"id\":\"m1\",\"raw\":\"eA\"}";

    let (collected, error) = HostileServer::start(batch(&[("response-0", whole)], ""), b"").await.fetch().await;

    assert!(matches!(error, ConnectorError::Unavailable(_)), "{error:?}");
    assert_eq!(collected.whole.len(), 1);
}

#[tokio::test]
async fn redirect_does_not_leak_the_token() {
    let thief = HostileServer::start(response("{}"), b"").await;
    let redirect = format!("HTTP/1.1 302 Found\r\nLocation: {}/x\r\nContent-Length: 0\r\n\r\n", thief.url);
    let server = HostileServer::start(redirect.into_bytes(), b"").await;

    let error = server.changes().await;

    assert!(is_protocol(&error));
    assert_eq!(thief.connections.load(Ordering::SeqCst), 0);
}
