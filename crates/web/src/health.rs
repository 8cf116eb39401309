//! Whether the process lives, and whether it can do its work.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde_json::{Value, json};

use crate::App;

/// Longer than a busy database takes, shorter than a probe waits.
const PATIENCE: Duration = Duration::from_secs(2);

pub(crate) async fn healthz() -> Json<Value> {
    Json(json!({"status": "ok"}))
}

pub(crate) async fn readyz(State(app): State<App>) -> (StatusCode, Json<Value>) {
    match unready(&app).await {
        None => (StatusCode::OK, Json(json!({"status": "ready"}))),
        Some(reason) => (StatusCode::SERVICE_UNAVAILABLE, Json(json!({"status": "not ready", "reason": reason}))),
    }
}

async fn unready(app: &App) -> Option<String> {
    if !*app.is_open.borrow() {
        return Some("this process is shutting down".to_owned());
    }
    match tokio::time::timeout(PATIENCE, app.engine.store.system().now()).await {
        Ok(Ok(_)) => None,
        // Without details: whoever asks may be anybody.
        Ok(Err(_)) => Some("the database cannot be reached".to_owned()),
        Err(_) => Some("the database does not answer in time".to_owned()),
    }
}
