//! What the harnesses of the simulated providers share: a clock, an HTTP client, the control API.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use jiff::Timestamp;
use serde_json::Value;

use crate::client::{self, HttpReply, encoded};

/// A clock that tests move.
#[derive(Clone)]
pub struct TestClock(Arc<AtomicI64>);

impl TestClock {
    pub fn start() -> Self {
        let start: Timestamp = "2026-02-01T12:00:00.123Z".parse().unwrap();
        Self(Arc::new(AtomicI64::new(start.as_millisecond())))
    }

    /// Returns the clock in the form that worlds take.
    pub fn source(&self) -> Arc<dyn Fn() -> Timestamp + Send + Sync> {
        let clock = self.clone();
        Arc::new(move || Timestamp::from_millisecond(clock.now_ms()).unwrap())
    }

    pub fn now_ms(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }

    pub fn advance_ms(&self, ms: i64) {
        self.0.fetch_add(ms, Ordering::Relaxed);
    }
}

/// A client of one simulated provider and of its control API.
pub struct HttpHarness {
    address: SocketAddr,
    /// The path of the control API.
    control: &'static str,
}

impl HttpHarness {
    pub fn new(address: SocketAddr, control: &'static str) -> Self {
        Self { address, control }
    }

    /// Sends a request. Returns `None` if the connection ended without a complete response.
    pub async fn send(&self, method: &str, path: &str, fields: &[(&str, &str)], body: &[u8]) -> Option<HttpReply> {
        client::send(self.address, method, path, fields, body).await
    }

    pub async fn form(&self, path: &str, fields: &[(&str, &str)]) -> HttpReply {
        let body: Vec<String> = fields.iter().map(|(name, value)| format!("{name}={}", encoded(value))).collect();
        let kind = ("Content-Type", "application/x-www-form-urlencoded");
        self.send("POST", path, &[kind], body.join("&").as_bytes()).await.unwrap()
    }

    pub async fn control(&self, method: &str, path: &str, body: Value) -> HttpReply {
        let kind = ("Content-Type", "application/json");
        let body = if body.is_null() { String::new() } else { body.to_string() };
        self.send(method, &format!("{}/{path}", self.control), &[kind], body.as_bytes()).await.unwrap()
    }

    /// Calls the control API and expects success.
    pub async fn control_ok(&self, method: &str, path: &str, body: Value) -> Value {
        let answered = self.control(method, path, body).await;
        assert!(matches!(answered.status, 200 | 201), "{method} {path}: {}", answered.text());
        answered.json()
    }

    /// Applies a scripted operation to an account.
    pub async fn apply(&self, address: &str, operation: Value) -> Value {
        self.control_ok("POST", &format!("accounts/{address}/apply"), operation).await
    }
}
