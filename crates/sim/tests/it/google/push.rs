//! Being told that a mailbox has changed.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use sim::google::{Endpoint, Fault, Kind, Operation, PushCounts};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Mutex;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::place::{ANN, Answered, Place};
use super::tokens;

/// A push as it arrived: the token and the body.
type Pushed = (String, Value);

/// Whoever pushes go to: answers with these statuses, one after the other, then with the last.
struct Hook {
    url: String,
    arrived: Mutex<UnboundedReceiver<Pushed>>,
}

impl Hook {
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

    async fn next(&self) -> Pushed {
        let mut arrived = self.arrived.lock().await;
        tokio::time::timeout(Duration::from_secs(60), arrived.recv()).await.expect("a push arrives").unwrap()
    }
}

async fn read(stream: &mut TcpStream) -> Pushed {
    let mut request = Vec::new();
    loop {
        let mut more = [0; 4_096];
        let count = stream.read(&mut more).await.unwrap();
        request.extend_from_slice(&more[..count]);
        let text = String::from_utf8(request.clone()).unwrap();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let field = |name: &str| {
            let fields = head.lines().filter_map(|line| line.split_once(": "));
            fields.filter(|(given, _)| given.eq_ignore_ascii_case(name)).map(|(_, value)| value.to_owned()).next()
        };
        assert!(head.starts_with("POST /hooks/gmail?x=1 HTTP/1.1"), "{head}");
        if body.len() == field("content-length").unwrap().parse::<usize>().unwrap() {
            let token = field("authorization").unwrap().strip_prefix("Bearer ").unwrap().to_owned();
            return (token, serde_json::from_str(body).unwrap());
        }
    }
}

fn data(pushed: &Pushed) -> Value {
    serde_json::from_slice(&STANDARD.decode(pushed.1["message"]["data"].as_str().unwrap()).unwrap()).unwrap()
}

async fn post(place: &Place, method: &str, body: Value) -> Answered {
    let authorization = format!("Bearer {}", place.token());
    let fields = [("Authorization", authorization.as_str()), ("Content-Type", "application/json")];
    let body = if body.is_null() { String::new() } else { body.to_string() };
    place.send("POST", &format!("/gmail/v1/users/me/{method}"), &fields, body.as_bytes()).await.unwrap()
}

async fn watched(hook: &Hook, endpoint: impl FnOnce(&mut Endpoint)) -> Place {
    let place = Place::with_ann(2).await;
    let mut to = Endpoint { retry_ms: 1, rate_limit: false, ..Endpoint::new(&hook.url) };
    endpoint(&mut to);
    place.world.set_push(Some(to));
    let answered = post(&place, "watch", json!({"topicName": "projects/p/topics/t"})).await;
    assert_eq!(answered.status, 200, "{}", answered.text());
    place
}

/// Once nothing is under way any more.
async fn settled(place: &Place) -> PushCounts {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
    loop {
        let counts = place.world.push_counts();
        if counts.pending == 0 {
            return counts;
        }
        assert!(tokio::time::Instant::now() < deadline, "{counts:?}");
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_change_is_pushed_with_a_token_that_the_published_keys_open() {
    let hook = Hook::start(&[204]).await;
    let place = watched(&hook, |to| to.audience = Some("https://mail.example/hooks".into())).await;
    let first = hook.next().await;

    let applied = place.world.apply(ANN, Operation::deliver()).unwrap();
    let pushed = hook.next().await;

    assert_eq!(data(&first)["emailAddress"], ANN, "a watch is told at once where the mailbox is");
    assert_eq!(data(&pushed)["historyId"].to_string(), applied.history_id);
    assert_ne!(first.1["message"]["messageId"], pushed.1["message"]["messageId"]);
    assert_eq!(pushed.1["message"]["publishTime"], "2026-02-01T12:00:00.123Z");
    let certs = place.send("GET", "/oauth2/v3/certs", &[], b"").await.unwrap().json();
    let claims = tokens::open(&pushed.0, &certs).unwrap();
    assert_eq!(
        (&claims["iss"], &claims["aud"]),
        (&json!("https://accounts.google.com"), &json!("https://mail.example/hooks"))
    );
    assert_eq!(
        (&claims["email"], &claims["email_verified"]),
        (&json!("pusher@mailroom-test.iam.gserviceaccount.com"), &json!(true))
    );
    assert!(claims["exp"].as_i64().unwrap() > place.now_ms() / 1_000);
    let counts = settled(&place).await;
    assert_eq!((counts.published, counts.sent, counts.acked), (2, 2, 2));
    place.assert_no_violations();
}

#[tokio::test]
async fn a_push_that_is_not_acked_comes_again() {
    let hook = Hook::start(&[500, 302, 200]).await;
    let place = watched(&hook, |_| {}).await;

    let all = [hook.next().await, hook.next().await, hook.next().await];

    assert!(all.iter().all(|pushed| pushed.1 == all[0].1), "the same push");
    let counts = settled(&place).await;
    assert_eq!((counts.published, counts.refused, counts.acked), (1, 2, 1));
}

#[tokio::test]
async fn pushes_are_lost_and_come_twice_when_it_is_scripted() {
    let hook = Hook::start(&[200]).await;
    let place = watched(&hook, |_| {}).await;
    hook.next().await;
    place.world.add_fault(Fault::once(Kind::Lost));
    place.world.apply(ANN, Operation::deliver()).unwrap();
    place.world.clear_faults();
    place.world.add_fault(Fault::once(Kind::Duplicated { times: 2 }));

    place.world.apply(ANN, Operation::deliver()).unwrap();

    let same = [hook.next().await, hook.next().await, hook.next().await];
    assert!(same.iter().all(|pushed| pushed.1 == same[0].1));
    assert_eq!(data(&same[0])["historyId"].to_string(), place.world.truth(ANN).unwrap().history_id);
    assert_eq!(settled(&place).await.lost, 1);
}

#[tokio::test]
async fn a_delayed_push_is_overtaken() {
    let hook = Hook::start(&[200]).await;
    let place = watched(&hook, |_| {}).await;
    hook.next().await;
    let an_hour = 3_600_000;
    place.world.add_fault(Fault::once(Kind::Delayed { ms: an_hour }));

    place.world.apply(ANN, Operation::deliver()).unwrap();
    let second = place.world.apply(ANN, Operation::deliver()).unwrap().history_id;

    assert_eq!(data(&hook.next().await)["historyId"].to_string(), second);
    assert_eq!(place.world.push_counts().published, 3);
}

#[tokio::test]
async fn a_user_is_pushed_for_once_a_second_at_most() {
    let hook = Hook::start(&[200]).await;
    let place = watched(&hook, |to| to.rate_limit = true).await;
    for _ in 0..5 {
        place.world.apply(ANN, Operation::deliver()).unwrap();
    }
    place.pass_ms(1_000);
    place.world.apply(ANN, Operation::deliver()).unwrap();

    let counts = settled(&place).await;
    assert_eq!((counts.published, counts.rate_limited), (3, 4), "the watch itself, the first change and the last");
}

#[tokio::test]
async fn in_chaos_a_fifth_is_never_told_and_the_rest_up_to_five_times() {
    let hook = Hook::start(&[200]).await;
    let place = watched(&hook, |to| to.chaos = true).await;

    place.world.step(ANN, 200);

    let counts = settled(&place).await;
    assert!((20..70).contains(&counts.lost), "{counts:?}");
    assert!((300..700).contains(&counts.acked), "{counts:?}");
}

#[tokio::test]
async fn a_watch_ends_after_a_week_and_when_it_is_stopped_and_looks_at_its_labels_only() {
    let hook = Hook::start(&[200]).await;
    let place = watched(&hook, |_| {}).await;
    let published = || place.world.push_counts().published;
    let deliver = |labels: &[&str]| {
        let labels = Some(labels.iter().map(|label| (*label).to_owned()).collect());
        let operation = Operation::Deliver { labels, count: None, reply_to: None, raw: None, received_at: None };
        place.world.apply(ANN, operation).unwrap();
    };

    let inbox = json!({"topicName": "projects/p/topics/t", "labelIds": ["INBOX"], "labelFilterBehavior": "include"});
    let answered = post(&place, "watch", inbox).await.json();
    assert_eq!(answered["expiration"], (place.now_ms() + 7 * 86_400_000).to_string());
    let before = published();
    deliver(&["SENT"]);
    assert_eq!(published(), before);
    deliver(&["INBOX"]);
    assert_eq!(published(), before + 1);
    place.pass_ms(7 * 86_400_000);
    deliver(&["INBOX"]);
    assert_eq!(published(), before + 1);
    post(&place, "watch", json!({"topicName": "projects/p/topics/t"})).await;
    assert_eq!(post(&place, "stop", Value::Null).await.status, 204);
    deliver(&["INBOX"]);
    assert_eq!(published(), before + 2, "the watch itself");
    assert_eq!(post(&place, "watch", json!({"topicName": "t"})).await.status, 400);
    assert_eq!(place.steer("GET", "push", Value::Null).await["endpoint"]["url"], hook.url);
    place.assert_no_violations();
}
