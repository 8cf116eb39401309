//! A simulated Microsoft of a test's own.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use jiff::Timestamp;
use serde_json::Value;
use sim::microsoft::{NewAccount, Server, World};

use crate::client::{self, Answered, encoded};

pub const ANN: &str = "ann@contoso.example";

/// Ids stay when messages move.
pub const IMMUTABLE: &str = "IdType=\"ImmutableId\"";

pub struct Place {
    pub server: Server,
    pub world: Arc<World>,
    clock: Arc<AtomicI64>,
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
        assert!(place.world.create(&NewAccount { address: "Ann@contoso.example".to_owned(), messages, seed: Some(5) }));
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
        client::send(self.server.address(), method, path, fields, body).await
    }

    /// With the preference for ids that stay.
    pub async fn get(&self, path: &str, token: &str) -> Answered {
        let authorization = format!("Bearer {token}");
        self.send("GET", path, &[("Authorization", &authorization), ("Prefer", IMMUTABLE)], b"").await.unwrap()
    }

    /// As Ann, what must succeed. A whole link or what comes after `/v1.0/me`.
    pub async fn me(&self, path: &str) -> Value {
        let path = path.strip_prefix(&self.server.url()).map_or_else(|| format!("/v1.0/me{path}"), str::to_owned);
        let answered = self.get(&path, &self.token()).await;
        assert_eq!(answered.status, 200, "{path}: {}", answered.text());
        answered.json()
    }

    pub async fn form(&self, path: &str, fields: &[(&str, &str)]) -> Answered {
        let body: Vec<String> = fields.iter().map(|(name, value)| format!("{name}={}", encoded(value))).collect();
        let kind = ("Content-Type", "application/x-www-form-urlencoded");
        self.send("POST", path, &[kind], body.join("&").as_bytes()).await.unwrap()
    }

    pub async fn post(&self, path: &str, token: &str, body: &Value) -> Answered {
        let authorization = format!("Bearer {token}");
        let fields =
            [("Authorization", authorization.as_str()), ("Content-Type", "application/json"), ("Prefer", IMMUTABLE)];
        self.send("POST", path, &fields, body.to_string().as_bytes()).await.unwrap()
    }

    pub async fn control(&self, method: &str, path: &str, body: Value) -> Answered {
        let kind = ("Content-Type", "application/json");
        let body = if body.is_null() { String::new() } else { body.to_string() };
        self.send(method, &format!("/control/microsoft/{path}"), &[kind], body.as_bytes()).await.unwrap()
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

/// The code in an error of Graph.
pub fn code(answered: &Answered) -> String {
    answered.json()["error"]["code"].as_str().unwrap().to_owned()
}
