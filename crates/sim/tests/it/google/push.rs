//! Pushes and notifications.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use sim::google::{GmailOperation, GoogleFault, GoogleFaultKind, PushCounts, PushEndpoint};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Mutex;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::harness::{ANN, GoogleHarness};
use super::tokens;
use crate::client::HttpReply;

/// A received push: token and body.
type ReceivedPush = (String, Value);

/// A webhook endpoint that answers with these statuses in turn, then with the last.
struct PushEndpointStub {
    url: String,
    arrived: Mutex<UnboundedReceiver<ReceivedPush>>,
}

impl PushEndpointStub {
    async fn start(statuses: &'static [u16]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/hooks/gmail?x=1", listener.local_addr().unwrap());
        let (tell, arrived) = unbounded_channel();
        tokio::spawn(async move {
            for number in 0.. {
                let (mut stream, _) = listener.accept().await.unwrap();
                let pushed = read(&mut stream).await;
                let status = statuses.get(number).unwrap_or_else(|| statuses.last().unwrap());
                let answer = format!("HTTP/1.1 {status} Whatever\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
                stream.write_all(answer.as_bytes()).await.unwrap();
                if tell.send(pushed).is_err() {
                    return;
                }
            }
        });
        Self { url, arrived: Mutex::new(arrived) }
    }

    async fn next(&self) -> ReceivedPush {
        let mut arrived = self.arrived.lock().await;
        tokio::time::timeout(Duration::from_secs(60), arrived.recv()).await.expect("a push arrives").unwrap()
    }
}

async fn read(stream: &mut TcpStream) -> ReceivedPush {
    let mut request = Vec::new();
    loop {
        let mut more = [0; 4_096];
        let count = stream.read(&mut more).await.unwrap();
        request.extend_from_slice(&more[..count]);
        let text = String::from_utf8(request.clone()).unwrap();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        assert!(head.starts_with("POST /hooks/gmail?x=1 HTTP/1.1"), "{head}");
        if body.len() == field(head, "content-length").unwrap().parse::<usize>().unwrap() {
            let token = field(head, "authorization").unwrap().strip_prefix("Bearer ").unwrap().to_owned();
            return (token, serde_json::from_str(body).unwrap());
        }
    }
}

fn field<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let fields = head.lines().filter_map(|line| line.split_once(": "));
    fields.filter(|(given, _)| given.eq_ignore_ascii_case(name)).map(|(_, value)| value).next()
}

fn data(pushed: &ReceivedPush) -> Value {
    serde_json::from_slice(&STANDARD.decode(pushed.1["message"]["data"].as_str().unwrap()).unwrap()).unwrap()
}

async fn post(harness: &GoogleHarness, method: &str, body: Value) -> HttpReply {
    let authorization = format!("Bearer {}", harness.token());
    let fields = [("Authorization", authorization.as_str()), ("Content-Type", "application/json")];
    let body = if body.is_null() { String::new() } else { body.to_string() };
    harness.send("POST", &format!("/gmail/v1/users/me/{method}"), &fields, body.as_bytes()).await.unwrap()
}

async fn watched(hook: &PushEndpointStub, endpoint: impl FnOnce(&mut PushEndpoint)) -> GoogleHarness {
    let harness = GoogleHarness::with_ann(2).await;
    let mut to = PushEndpoint { retry_ms: 1, rate_limit: false, ..PushEndpoint::new(&hook.url) };
    endpoint(&mut to);
    harness.world.set_push(Some(to));
    let answered = post(&harness, "watch", json!({"topicName": "projects/p/topics/t"})).await;
    assert_eq!(answered.status, 200, "{}", answered.text());
    harness
}

/// Waits until no push is pending.
async fn settled(harness: &GoogleHarness) -> PushCounts {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
    loop {
        let counts = harness.world.push_counts();
        if counts.pending == 0 {
            return counts;
        }
        assert!(tokio::time::Instant::now() < deadline, "{counts:?}");
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn push_carries_a_verifiable_token() {
    let hook = PushEndpointStub::start(&[204]).await;
    let harness = watched(&hook, |to| to.audience = Some("https://mail.example/hooks".into())).await;
    let first = hook.next().await;

    let applied = harness.world.apply(ANN, GmailOperation::deliver()).unwrap();
    let pushed = hook.next().await;

    assert_eq!(data(&first)["emailAddress"], ANN, "a watch is told at once where the mailbox is");
    assert_eq!(data(&pushed)["historyId"].to_string(), applied.history_id);
    assert_ne!(first.1["message"]["messageId"], pushed.1["message"]["messageId"]);
    assert_eq!(pushed.1["message"]["publishTime"], "2026-02-01T12:00:00.123Z");
    let certs = harness.send("GET", "/oauth2/v3/certs", &[], b"").await.unwrap().json();
    let claims = tokens::open(&pushed.0, &certs).unwrap();
    assert_eq!(
        (&claims["iss"], &claims["aud"]),
        (&json!("https://accounts.google.com"), &json!("https://mail.example/hooks"))
    );
    assert_eq!(
        (&claims["email"], &claims["email_verified"]),
        (&json!("pusher@mailroom-test.iam.gserviceaccount.com"), &json!(true))
    );
    assert!(claims["exp"].as_i64().unwrap() > harness.now_ms() / 1_000);
    let counts = settled(&harness).await;
    assert_eq!((counts.published, counts.sent, counts.acked), (2, 2, 2));
    harness.assert_no_violations();
}

#[tokio::test]
async fn unacknowledged_push_is_retried() {
    let hook = PushEndpointStub::start(&[500, 302, 200]).await;
    let harness = watched(&hook, |_| {}).await;

    let all = [hook.next().await, hook.next().await, hook.next().await];

    assert!(all.iter().all(|pushed| pushed.1 == all[0].1), "the same push");
    let counts = settled(&harness).await;
    assert_eq!((counts.published, counts.refused, counts.acked), (1, 2, 1));
}

#[tokio::test]
async fn faults_lose_and_duplicate_pushes() {
    let hook = PushEndpointStub::start(&[200]).await;
    let harness = watched(&hook, |_| {}).await;
    hook.next().await;
    harness.world.add_fault(GoogleFault::once(GoogleFaultKind::Lost));
    harness.world.apply(ANN, GmailOperation::deliver()).unwrap();
    harness.world.clear_faults();
    harness.world.add_fault(GoogleFault::once(GoogleFaultKind::Duplicated { times: 2 }));

    harness.world.apply(ANN, GmailOperation::deliver()).unwrap();

    let same = [hook.next().await, hook.next().await, hook.next().await];
    assert!(same.iter().all(|pushed| pushed.1 == same[0].1));
    assert_eq!(data(&same[0])["historyId"].to_string(), harness.world.truth(ANN).unwrap().history_id);
    assert_eq!(settled(&harness).await.lost, 1);
}

#[tokio::test]
async fn delayed_push_is_overtaken() {
    let hook = PushEndpointStub::start(&[200]).await;
    let harness = watched(&hook, |_| {}).await;
    hook.next().await;
    let an_hour = 3_600_000;
    harness.world.add_fault(GoogleFault::once(GoogleFaultKind::Delayed { ms: an_hour }));

    harness.world.apply(ANN, GmailOperation::deliver()).unwrap();
    let second = harness.world.apply(ANN, GmailOperation::deliver()).unwrap().history_id;

    assert_eq!(data(&hook.next().await)["historyId"].to_string(), second);
    assert_eq!(harness.world.push_counts().published, 3);
}

#[tokio::test]
async fn pushes_are_limited_to_one_a_second() {
    let hook = PushEndpointStub::start(&[200]).await;
    let harness = watched(&hook, |to| to.rate_limit = true).await;
    for _ in 0..5 {
        harness.world.apply(ANN, GmailOperation::deliver()).unwrap();
    }
    harness.advance_ms(1_000);
    harness.world.apply(ANN, GmailOperation::deliver()).unwrap();

    let counts = settled(&harness).await;
    assert_eq!((counts.published, counts.rate_limited), (3, 4), "the watch itself, the first change and the last");
}

#[tokio::test]
async fn chaos_loses_and_repeats_pushes() {
    let hook = PushEndpointStub::start(&[200]).await;
    let harness = watched(&hook, |to| to.chaos = true).await;

    harness.world.step(ANN, 200);

    let counts = settled(&harness).await;
    assert!((20..70).contains(&counts.lost), "{counts:?}");
    assert!((300..700).contains(&counts.acked), "{counts:?}");
}

#[tokio::test]
async fn watch_expires_stops_and_filters_labels() {
    let hook = PushEndpointStub::start(&[200]).await;
    let harness = watched(&hook, |_| {}).await;
    let deliver = |labels: &[&str]| {
        let labels = Some(labels.iter().map(|label| (*label).to_owned()).collect());
        let operation = GmailOperation::Deliver { labels, count: None, reply_to: None, raw: None, received_at: None };
        harness.world.apply(ANN, operation).unwrap();
    };

    let inbox = json!({"topicName": "projects/p/topics/t", "labelIds": ["INBOX"], "labelFilterBehavior": "include"});
    let answered = post(&harness, "watch", inbox).await.json();
    assert_eq!(answered["expiration"], (harness.now_ms() + 7 * 86_400_000).to_string());
    let before = harness.world.push_counts().published;
    deliver(&["SENT"]);
    assert_eq!(harness.world.push_counts().published, before);
    deliver(&["INBOX"]);
    assert_eq!(harness.world.push_counts().published, before + 1);
    harness.advance_ms(7 * 86_400_000);
    deliver(&["INBOX"]);
    assert_eq!(harness.world.push_counts().published, before + 1);
    post(&harness, "watch", json!({"topicName": "projects/p/topics/t"})).await;
    assert_eq!(post(&harness, "stop", Value::Null).await.status, 204);
    deliver(&["INBOX"]);
    assert_eq!(harness.world.push_counts().published, before + 2, "the watch itself");
    assert_eq!(post(&harness, "watch", json!({"topicName": "t"})).await.status, 400);
    assert_eq!(harness.control_ok("GET", "push", Value::Null).await["endpoint"]["url"], hook.url);
    harness.assert_no_violations();
}
