//! A simulated Google for one test.

use std::ops::Deref;
use std::sync::Arc;

use serde_json::Value;
use sim::google::{AccountSpec, GoogleServer, GoogleWorld};

use crate::client::HttpReply;
use crate::harness::{HttpHarness, TestClock};

pub const ANN: &str = "ann@sim.example";

pub struct GoogleHarness {
    pub server: GoogleServer,
    pub world: Arc<GoogleWorld>,
    clock: TestClock,
    http: HttpHarness,
}

impl Deref for GoogleHarness {
    type Target = HttpHarness;

    fn deref(&self) -> &HttpHarness {
        &self.http
    }
}

impl GoogleHarness {
    pub async fn new() -> Self {
        let clock = TestClock::start();
        let world = Arc::new(GoogleWorld::new(1, 20, clock.source()));
        let server = GoogleServer::start_here(Arc::clone(&world)).await.unwrap();
        Self { http: HttpHarness::new(server.address(), "/control/google"), server, world, clock }
    }

    /// Starts a server with Ann, who has `messages` messages.
    pub async fn with_ann(messages: usize) -> Self {
        let harness = Self::new().await;
        assert!(harness.world.create(&AccountSpec { address: "Ann@sim.example".to_owned(), messages, seed: Some(5) }));
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

    pub async fn get(&self, path: &str, token: &str) -> HttpReply {
        self.send("GET", path, &[("Authorization", &format!("Bearer {token}"))], b"").await.unwrap()
    }

    /// Calls the Gmail API as Ann and expects success.
    pub async fn gmail(&self, path: &str) -> Value {
        let answered = self.get(&format!("/gmail/v1/users/me/{path}"), &self.token()).await;
        assert_eq!(answered.status, 200, "{path}: {}", answered.text());
        answered.json()
    }
}
