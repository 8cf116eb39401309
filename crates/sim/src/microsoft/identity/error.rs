//! Error responses in the format of the identity platform.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::super::directory::drawn_guid;
use super::super::world::MicrosoftWorld;
use crate::response::{ResponseBody, SimResponse};

/// An error of the identity platform: OAuth code and AADSTS number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdentityError {
    pub status: u16,
    pub error: String,
    pub code: u32,
    pub message: String,
    pub suberror: Option<&'static str>,
}

impl IdentityError {
    pub fn new(error: &str, code: u32, message: impl Into<String>) -> Self {
        let status = if error == "invalid_client" { 401 } else { 400 };
        Self { status, error: error.to_owned(), code, message: message.into(), suberror: None }
    }

    pub fn grant(code: u32, message: impl Into<String>) -> Self {
        Self::new("invalid_grant", code, message)
    }

    pub fn client(code: u32, message: impl Into<String>) -> Self {
        Self::new("invalid_client", code, message)
    }

    pub fn request(code: u32, message: impl Into<String>) -> Self {
        Self::new("invalid_request", code, message)
    }

    pub fn answer(&self, world: &MicrosoftWorld) -> SimResponse {
        SimResponse::new(self.status, ResponseBody::Json(self.body(world)))
    }

    fn body(&self, world: &MicrosoftWorld) -> Value {
        let [trace_id, correlation_id] = world.provider.identity.two_guids();
        let timestamp = written(world.now());
        let described = self.described(&trace_id, &correlation_id, &timestamp);
        let mut body = json!({
            "error": self.error, "error_description": described, "error_codes": [self.code], "timestamp": timestamp,
            "trace_id": trace_id, "correlation_id": correlation_id,
            "error_uri": format!("https://login.microsoftonline.com/error?code={}", self.code),
        });
        if let Some(suberror) = self.suberror {
            body["suberror"] = json!(suberror);
        }
        body
    }

    /// Renders `error_description`, which redirects carry, too.
    pub fn description(&self, world: &MicrosoftWorld) -> String {
        let [trace_id, correlation_id] = world.provider.identity.two_guids();
        self.described(&trace_id, &correlation_id, &written(world.now()))
    }

    fn described(&self, trace_id: &str, correlation_id: &str, timestamp: &str) -> String {
        let (code, message) = (self.code, &self.message);
        format!("AADSTS{code}: {message} Trace ID: {trace_id} Correlation ID: {correlation_id} Timestamp: {timestamp}")
    }
}

/// Formats as `2026-02-01 12:00:00Z`.
fn written(now: Timestamp) -> String {
    now.strftime("%Y-%m-%d %H:%M:%SZ").to_string()
}

impl super::Identity {
    pub fn two_guids(&self) -> [String; 2] {
        let mut rng = self.rng.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        [drawn_guid(&mut rng), drawn_guid(&mut rng)]
    }
}
