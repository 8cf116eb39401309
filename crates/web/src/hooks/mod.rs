//! Endpoints that providers push to. They have no API key: each authenticates in its own way.

pub mod gmail;
pub mod graph;

use axum::body::{Body, Bytes, to_bytes};
use axum::http::StatusCode;

use crate::api::Problem;

/// Reads a request body of at most `max_bytes`.
async fn read_body(body: Body, max_bytes: usize) -> Result<Bytes, Problem> {
    to_bytes(body, max_bytes).await.map_err(|e| {
        if crate::edge::is_body_timeout(&e) {
            Problem::new(StatusCode::REQUEST_TIMEOUT, "the body did not arrive in time")
        } else {
            Problem::new(StatusCode::PAYLOAD_TOO_LARGE, format!("the body is larger than {max_bytes} bytes"))
        }
    })
}
