//! Providers that call us. They have no key of ours: each proves who it is in a way of its own, and nothing that somebody
//! else sends is believed.

pub mod gmail;
pub mod graph;

use axum::body::{Body, Bytes, to_bytes};
use axum::http::StatusCode;

use crate::api::Problem;

/// No more than the largest that such a provider sends.
async fn read(body: Body, largest: usize) -> Result<Bytes, Problem> {
    to_bytes(body, largest).await.map_err(|e| match crate::edge::was_too_slow(&e) {
        true => Problem::new(StatusCode::REQUEST_TIMEOUT, "the body did not arrive in time"),
        false => Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "it is larger than any push"),
    })
}
