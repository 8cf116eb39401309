//! Servers that mean harm: their answers end in an error, and in bounded memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use connectors::http::Deadlines;
use domain::connector::{Cursors, Wanted};
use domain::{Connector, ConnectorError};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::model::Taken;
use crate::place::{account, assert_says_nothing, connector};

/// Says the same to everybody: the beginning once, then the rest for as long as somebody listens.
struct Hostile {
    url: String,
    said: Arc<AtomicUsize>,
    connections: Arc<AtomicUsize>,
}

impl Hostile {
    async fn start(beginning: Vec<u8>, again: &'static [u8]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (said, connections) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (counted, accepted) = (Arc::clone(&said), Arc::clone(&connections));
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
        Self { url, said, connections }
    }

    async fn changes(&self) -> ConnectorError {
        let error = connector(Deadlines::default()).changes(&account(&self.url), &Cursors::new()).await.unwrap_err();
        assert_says_nothing(&error);
        error
    }

    async fn fetch(&self) -> (Taken, ConnectorError) {
        let wanted = [Wanted { message: "m1".to_owned(), places: Vec::new(), size_bytes: None }];
        let mut taken = Taken::at_most(64 << 20);
        let outcome = connector(Deadlines::default()).fetch(&account(&self.url), &wanted, &mut taken).await;
        let error = outcome.unwrap_err();
        assert_says_nothing(&error);
        (taken, error)
    }
}

fn answer(body: &str) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

fn page(messages: &str, folders: &str) -> Vec<u8> {
    answer(&format!(
        r#"{{"folders":{folders},"gone_folders":[],"messages":{messages},"vanished":[],"present":[],"cursor":"c1-1","is_last":true}}"#
    ))
}

const ENDLESS: &[u8] = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n";
const BLANKS: &[u8] = &[b' '; 65_536];

fn is_protocol(error: &ConnectorError) -> bool {
    matches!(error, ConnectorError::Protocol(_))
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endless_answer_is_read_only_so_far() {
    let server = Hostile::start(ENDLESS.to_vec(), BLANKS).await;

    assert_eq!(server.changes().await, ConnectorError::Protocol("an answer is too large".to_owned()));

    // What is above the limit lies in the buffers of sockets.
    assert!(server.said.load(Ordering::SeqCst) < 64 << 20);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endless_line_or_message_or_head_is_read_only_so_far() {
    let line = Hostile::start(ENDLESS.to_vec(), BLANKS).await;
    let (taken, error) = line.fetch().await;
    assert!(is_protocol(&error) && taken.failed.is_empty() && line.said.load(Ordering::SeqCst) < 64 << 20);

    let announced = format!("{}\n", r#"{"message":"m1","status":200,"length":18446744073709551615}"#);
    let message = Hostile::start([ENDLESS, announced.as_bytes()].concat(), BLANKS).await;
    let (taken, error) = message.fetch().await;
    assert!(matches!(error, ConnectorError::Unavailable(_)), "{error:?}");
    assert!(taken.whole.is_empty() && taken.failed.len() == 1);

    let head = Hostile::start(b"HTTP/1.1 200 OK\r\nX-Long: ".to_vec(), b"aaaaaaaaaaaaaaaaaaaaaaaa").await;
    assert!(matches!(head.changes().await, ConnectorError::Unavailable(_)));
    assert!(head.said.load(Ordering::SeqCst) < 64 << 20);
}

#[tokio::test]
async fn names_that_no_database_takes_are_refused_or_cleaned() {
    let message = |id: &str, folder: &str, flag: &str| {
        format!(
            r#"[{{"id":"{id}","folder":"{folder}","uid":"1","flags":["{flag}"],"size":1,"received_at":"2026-01-01T00:00:00Z","revision":null}}]"#
        )
    };
    let long = "x".repeat(5_000);
    for (id, folder, flag) in [
        (r"m\u0000", "f1", "seen"),
        ("m1", r"\u0000", "seen"),
        ("m1", "f1", r"a\u0000"),
        ("", "f1", "seen"),
        (&long, "f1", "seen"),
    ] {
        let server = Hostile::start(page(&message(id, folder, flag), "[]"), b"").await;
        let error = server.changes().await;
        assert!(is_protocol(&error), "{error:?}");
    }

    let folders = r#"[{"id":"f1","name":"a\u0000b\nc","role":"weird","delimiter":null}]"#;
    let server = Hostile::start(page("[]", folders), b"").await;
    let page = connector(Deadlines::default()).changes(&account(&server.url), &Cursors::new()).await.unwrap();
    assert_eq!((page.folders[0].name.as_str(), page.folders[0].role), ("abc", None));
}

#[tokio::test]
async fn answers_of_the_wrong_shape_make_no_sense() {
    let deep = format!("{}{}", "[".repeat(1_000_000), "]".repeat(1_000_000));
    let deep_inside = format!(r#"{{"more":{deep}}}"#);
    let bodies = [
        "null",
        "[]",
        "{}",
        "\0\0\0",
        r#"{"folders":7,"gone_folders":[],"messages":[],"vanished":[],"present":[],"cursor":"c","is_last":true}"#,
        r#"{"folders":[],"gone_folders":[],"messages":[],"vanished":[],"present":[],"cursor":"","is_last":true}"#,
        r#"{"folders":[],"gone_folders":[],"messages":[],"vanished":[],"present":[],"cursor":null,"is_last":1}"#,
        &deep,
        &deep_inside,
    ];
    for body in bodies {
        let error = Hostile::start(answer(body), b"").await.changes().await;

        assert!(is_protocol(&error), "{}: {error:?}", &body[..body.len().min(60)]);
    }
}

#[tokio::test]
async fn messages_that_nobody_asked_for_and_lines_out_of_place_make_no_sense() {
    let whole = "{\"message\":\"m1\",\"status\":200,\"length\":1}\nx\n{\"end\":\"m1\"}\n";
    let bodies = [
        "{\"message\":\"m2\",\"status\":404}\n",
        "{\"message\":\"m1\",\"status\":200}\n",
        "{\"message\":\"m1\",\"status\":7}\n",
        "{\"message\":\"m1\",\"status\":200,\"length\":-1}\n",
        "{\"end\":\"m1\"}\n",
        "{\"done\":false}\n",
        &format!("{whole}{whole}"),
    ];
    for body in bodies {
        let (_, error) = Hostile::start(answer(body), b"").await.fetch().await;

        assert!(is_protocol(&error), "{body}: {error:?}");
    }

    // Well-formed so far, but nobody said that this was all.
    let (taken, error) = Hostile::start(answer(whole), b"").await.fetch().await;
    assert!(matches!(error, ConnectorError::Unavailable(_)) && taken.whole.len() == 1);
}

#[tokio::test]
async fn a_token_is_not_carried_elsewhere() {
    let thief = Hostile::start(answer("{}"), b"").await;
    let redirect = format!("HTTP/1.1 302 Found\r\nLocation: {}/x\r\nContent-Length: 0\r\n\r\n", thief.url);
    let server = Hostile::start(redirect.into_bytes(), b"").await;

    let error = server.changes().await;

    assert!(is_protocol(&error));
    assert_eq!(thief.connections.load(Ordering::SeqCst), 0);
}
