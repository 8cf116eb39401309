//! A simulated Google of a test's own, and a client that says exactly what it is told to.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use jiff::Timestamp;
use serde_json::Value;
use sim::google::{NewAccount, Server, World};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

pub const ANN: &str = "ann@sim.example";

pub struct Place {
    pub server: Server,
    pub world: Arc<World>,
    clock: Arc<AtomicI64>,
}

/// An answer as it came.
#[derive(Debug)]
pub struct Answered {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
}

impl Answered {
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    pub fn text(&self) -> String {
        String::from_utf8(self.body.clone()).unwrap()
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        let fields = self.head.lines().filter_map(|line| line.split_once(": "));
        fields.filter(|(given, _)| given.eq_ignore_ascii_case(name)).map(|(_, value)| value).next()
    }

    /// The reason in an error of Google's APIs.
    pub fn reason(&self) -> String {
        self.json()["error"]["errors"][0]["reason"].as_str().unwrap().to_owned()
    }
}

impl Place {
    pub async fn new() -> Self {
        let start: Timestamp = "2026-02-01T12:00:00.123Z".parse().unwrap();
        let clock = Arc::new(AtomicI64::new(start.as_millisecond()));
        let read = Arc::clone(&clock);
        let now = move || Timestamp::from_millisecond(read.load(Ordering::Relaxed)).unwrap();
        let world = Arc::new(World::new(1, 20, Arc::new(now)));
        Self { server: Server::start_here(Arc::clone(&world)).await.unwrap(), world, clock }
    }

    /// With Ann, who has so many messages.
    pub async fn with_ann(messages: usize) -> Self {
        let place = Self::new().await;
        assert!(place.world.create(&NewAccount { address: "Ann@sim.example".to_owned(), messages, seed: Some(5) }));
        place
    }

    pub fn pass_ms(&self, ms: i64) {
        self.clock.fetch_add(ms, Ordering::Relaxed);
    }

    pub fn now_ms(&self) -> i64 {
        self.clock.load(Ordering::Relaxed)
    }

    pub fn token(&self) -> String {
        self.world.grant(ANN).unwrap().access_token
    }

    /// Nothing when the connection ended without a whole answer.
    pub async fn send(&self, method: &str, path: &str, fields: &[(&str, &str)], body: &[u8]) -> Option<Answered> {
        let mut stream = TcpStream::connect(self.server.address()).await.unwrap();
        let mut request = format!("{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n");
        fields.iter().for_each(|(name, value)| request.push_str(&format!("{name}: {value}\r\n")));
        request.push_str(&format!("Content-Length: {}\r\n\r\n", body.len()));
        stream.write_all(request.as_bytes()).await.unwrap();
        stream.write_all(body).await.unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.ok()?;
        let end = answer.windows(4).position(|four| four == b"\r\n\r\n")?;
        let head = String::from_utf8(answer[..end].to_vec()).ok()?;
        let status = head.split(' ').nth(1)?.parse().ok()?;
        let answered = Answered { status, head, body: answer[end + 4..].to_vec() };
        match answered.header("transfer-encoding") {
            Some(_) => Some(Answered { body: unchunked(&answered.body)?, ..answered }),
            None => Some(answered),
        }
    }

    pub async fn get(&self, path: &str, token: &str) -> Answered {
        self.send("GET", path, &[("Authorization", &format!("Bearer {token}"))], b"").await.unwrap()
    }

    /// As Ann, what must succeed.
    pub async fn gmail(&self, path: &str) -> Value {
        let answered = self.get(&format!("/gmail/v1/users/me/{path}"), &self.token()).await;
        assert_eq!(answered.status, 200, "{path}: {}", answered.text());
        answered.json()
    }

    pub async fn form(&self, path: &str, fields: &[(&str, &str)]) -> Answered {
        let body: Vec<String> = fields.iter().map(|(name, value)| format!("{name}={}", encoded(value))).collect();
        let kind = ("Content-Type", "application/x-www-form-urlencoded");
        self.send("POST", path, &[kind], body.join("&").as_bytes()).await.unwrap()
    }

    pub async fn control(&self, method: &str, path: &str, body: Value) -> Answered {
        let kind = ("Content-Type", "application/json");
        let body = if body.is_null() { String::new() } else { body.to_string() };
        self.send(method, &format!("/control/google/{path}"), &[kind], body.as_bytes()).await.unwrap()
    }

    /// What must succeed.
    pub async fn steer(&self, method: &str, path: &str, body: Value) -> Value {
        let answered = self.control(method, path, body).await;
        assert!(matches!(answered.status, 200 | 201), "{method} {path}: {}", answered.text());
        answered.json()
    }

    pub fn assert_no_violations(&self) {
        assert_eq!(self.world.violations(), []);
    }
}

pub fn encoded(text: &str) -> String {
    text.bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => char::from(byte).to_string(),
            _ => format!("%{byte:02X}"),
        })
        .collect()
}

fn unchunked(mut body: &[u8]) -> Option<Vec<u8>> {
    let mut whole = Vec::new();
    loop {
        let end = body.windows(2).position(|two| two == b"\r\n")?;
        let length = usize::from_str_radix(std::str::from_utf8(&body[..end]).ok()?, 16).ok()?;
        body = &body[end + 2..];
        if length == 0 {
            return Some(whole);
        }
        whole.extend_from_slice(body.get(..length)?);
        body = body.get(length + 2..)?;
    }
}
