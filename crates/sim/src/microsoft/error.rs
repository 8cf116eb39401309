//! Error responses in the format of Graph.

use axum::http::header::WWW_AUTHENTICATE;
use serde_json::json;

use super::directory::guid;
use super::world::MicrosoftWorld;
use crate::response::{ResponseBody, SimResponse};

/// A Graph error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GraphError {
    pub status: u16,
    pub code: String,
    pub message: String,
    pub retry_after: Option<u64>,
}

impl GraphError {
    pub fn new(status: u16, code: &str, message: impl Into<String>) -> Self {
        Self { status, code: code.to_owned(), message: message.into(), retry_after: None }
    }

    pub fn item_not_found() -> Self {
        Self::new(404, "ErrorItemNotFound", "The specified object was not found in the store.")
    }

    pub fn bad(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    pub fn answer(&self, world: &MicrosoftWorld) -> SimResponse {
        let now = world.now();
        let request_id = guid(&format!("request {} {}", world.next_error_number(), now));
        let inner = json!({
            "date": now.strftime("%Y-%m-%dT%H:%M:%S").to_string(), "request-id": request_id,
            "client-request-id": request_id,
        });
        let error = json!({"code": self.code, "message": self.message, "innerError": inner});
        let answer =
            SimResponse::new(self.status, ResponseBody::Json(json!({"error": error}))).retry_after(self.retry_after);
        match self.status {
            401 => {
                let uri = format!("{}/common/oauth2/authorize", world.url());
                answer.with(WWW_AUTHENTICATE, &format!("Bearer realm=\"\", authorization_uri=\"{uri}\", client_id=\"00000003-0000-0000-c000-000000000000\""))
            }
            _ => answer,
        }
    }
}
