//! A simulated Microsoft for one test.

use std::ops::Deref;
use std::sync::Arc;

use serde_json::Value;
use sim::microsoft::{AccountSpec, MicrosoftServer, MicrosoftWorld};

use crate::client::HttpReply;
use crate::harness::{HttpHarness, TestClock};

pub const ANN: &str = "ann@contoso.example";

/// The preference for immutable ids.
pub const IMMUTABLE: &str = "IdType=\"ImmutableId\"";

pub struct MicrosoftHarness {
    pub server: MicrosoftServer,
    pub world: Arc<MicrosoftWorld>,
    clock: TestClock,
    http: HttpHarness,
}

impl Deref for MicrosoftHarness {
    type Target = HttpHarness;

    fn deref(&self) -> &HttpHarness {
        &self.http
    }
}

impl MicrosoftHarness {
    pub async fn new() -> Self {
        let clock = TestClock::start();
        let world = Arc::new(MicrosoftWorld::new(1, 20, clock.source()));
        let server = MicrosoftServer::start_here(Arc::clone(&world)).await.unwrap();
        Self { http: HttpHarness::new(server.address(), "/control/microsoft"), server, world, clock }
    }

    /// Starts a server with Ann, who has `messages` messages.
    pub async fn with_ann(messages: usize) -> Self {
        let harness = Self::new().await;
        assert!(harness.world.create(&AccountSpec {
            address: "Ann@contoso.example".to_owned(),
            messages,
            seed: Some(5)
        }));
        harness
    }

    pub fn advance_ms(&self, ms: i64) {
        self.clock.advance_ms(ms);
    }

    pub fn now_ms(&self) -> i64 {
        self.clock.now_ms()
    }

    pub fn token(&self) -> String {
        self.world.grant(ANN).unwrap().access_token
    }

    pub fn assert_no_violations(&self) {
        assert_eq!(self.world.violations(), []);
    }

    /// Sends GET with the preference for immutable ids.
    pub async fn get(&self, path: &str, token: &str) -> HttpReply {
        let authorization = format!("Bearer {token}");
        self.send("GET", path, &[("Authorization", &authorization), ("Prefer", IMMUTABLE)], b"").await.unwrap()
    }

    /// Requests a link, or a path below `/v1.0/me`, as Ann and expects success.
    pub async fn me(&self, path: &str) -> Value {
        let path = path.strip_prefix(&self.server.url()).map_or_else(|| format!("/v1.0/me{path}"), str::to_owned);
        let answered = self.get(&path, &self.token()).await;
        assert_eq!(answered.status, 200, "{path}: {}", answered.text());
        answered.json()
    }

    pub async fn post(&self, path: &str, token: &str, body: &Value) -> HttpReply {
        let authorization = format!("Bearer {token}");
        let fields =
            [("Authorization", authorization.as_str()), ("Content-Type", "application/json"), ("Prefer", IMMUTABLE)];
        self.send("POST", path, &fields, body.to_string().as_bytes()).await.unwrap()
    }
}

/// Returns the code of a Graph error.
pub fn code(answered: &HttpReply) -> String {
    answered.json()["error"]["code"].as_str().unwrap().to_owned()
}
