//! A webhook endpoint.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use serde::Deserialize;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::Mutex;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

pub struct WebhookStub {
    pub url: String,
    /// The status of the next reply; after it 202 again.
    next_status: Arc<AtomicU16>,
    arrived: Mutex<UnboundedReceiver<Value>>,
}

#[derive(Clone)]
struct WebhookState {
    tell: UnboundedSender<Value>,
    next_status: Arc<AtomicU16>,
}

#[derive(Deserialize)]
struct ValidationQuery {
    #[serde(rename = "validationToken")]
    token: Option<String>,
}

impl WebhookStub {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (tell, arrived) = unbounded_channel();
        let next_status = Arc::new(AtomicU16::new(202));
        let ear = WebhookState { tell, next_status: Arc::clone(&next_status) };
        let routes = axum::Router::new()
            .route("/notified", post(hear))
            .route("/wrong", post(async || "something else"))
            .route(
                "/html",
                post(async |Query(asked): Query<ValidationQuery>| axum::response::Html(asked.token.unwrap())),
            )
            .with_state(ear);
        tokio::spawn(async move { axum::serve(listener, routes).await });
        Self { url, next_status, arrived: Mutex::new(arrived) }
    }

    pub fn answer_once_with(&self, status: u16) {
        self.next_status.store(status, Ordering::Relaxed);
    }

    /// Waits for the next post and returns its changes.
    pub async fn next(&self) -> Vec<Value> {
        let mut arrived = self.arrived.lock().await;
        let came = tokio::time::timeout(Duration::from_secs(60), arrived.recv()).await;
        came.expect("a notification arrives").unwrap()["value"].as_array().unwrap().clone()
    }
}

async fn hear(State(ear): State<WebhookState>, Query(asked): Query<ValidationQuery>, body: String) -> Response {
    if let Some(token) = asked.token {
        return token.into_response();
    }
    ear.tell.send(serde_json::from_str(&body).unwrap()).unwrap();
    StatusCode::from_u16(ear.next_status.swap(202, Ordering::Relaxed)).unwrap().into_response()
}
