//! Liveness (`/healthz`) and readiness (`/readyz`) probes.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde_json::{Value, json};

use crate::App;

/// Longer than a busy database takes to answer, shorter than the timeout of common probes.
const DATABASE_TIMEOUT: Duration = Duration::from_secs(2);

pub(crate) async fn healthz() -> Json<Value> {
    Json(json!({"status": "ok"}))
}

pub(crate) async fn readyz(State(app): State<App>) -> (StatusCode, Json<Value>) {
    match not_ready_reason(&app).await {
        None => (StatusCode::OK, Json(ready(&app))),
        Some(reason) => (StatusCode::SERVICE_UNAVAILABLE, Json(json!({"status": "not ready", "reason": reason}))),
    }
}

/// Our own storage being in trouble takes nothing away from what this process answers, so it stays ready and says so.
fn ready(app: &App) -> Value {
    match app.engine.storage_trouble() {
        None => json!({"status": "ready"}),
        Some(trouble) => json!({"status": "ready", "trouble": trouble.reason()}),
    }
}

async fn not_ready_reason(app: &App) -> Option<String> {
    if !*app.is_open.borrow() {
        return Some("this process is shutting down".to_owned());
    }
    match tokio::time::timeout(DATABASE_TIMEOUT, app.engine.store.system().now()).await {
        Ok(Ok(_)) => None,
        // Without details: the endpoint is open to everybody.
        Ok(Err(_)) => Some("the database cannot be reached".to_owned()),
        Err(_) => Some("the database does not answer in time".to_owned()),
    }
}
