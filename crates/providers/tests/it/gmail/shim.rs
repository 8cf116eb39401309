//! What `emulate` does not have, made of what it has: a profile, and batches. Everything else goes through as it is.

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use providers::http::{HttpClient, HttpTimeouts};
use reqwest::Client;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

#[derive(Clone)]
struct Upstream {
    url: String,
    client: Client,
}

/// Serves until it is dropped.
pub struct Shim {
    pub url: String,
    task: JoinHandle<()>,
}

impl Shim {
    pub async fn before(url: &str) -> Self {
        let upstream = Upstream { url: url.to_owned(), client: client() };
        let routes = Router::new()
            .route("/gmail/v1/users/me/profile", get(profile))
            .route("/batch/gmail/v1", post(batch))
            .fallback(pass)
            .with_state(upstream);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        Self { url, task: tokio::spawn(async move { axum::serve(listener, routes).await.unwrap() }) }
    }
}

impl Drop for Shim {
    fn drop(&mut self) {
        self.task.abort();
    }
}

pub fn client() -> Client {
    HttpClient::new(HttpTimeouts::default()).unwrap().client
}

/// The history has the same number.
async fn profile(State(upstream): State<Upstream>, headers: HeaderMap) -> Response {
    let (status, body) = upstream.get("/gmail/v1/users/me/history?startHistoryId=1", &headers).await;
    let history: serde_json::Value = serde_json::from_slice(&body).unwrap();
    (status, serde_json::json!({"historyId": history["historyId"]}).to_string()).into_response()
}

async fn batch(State(upstream): State<Upstream>, headers: HeaderMap, body: String) -> Response {
    let mut parts = String::new();
    for (n, path) in body.lines().filter_map(|line| line.strip_prefix("GET ")).enumerate() {
        let path = path.strip_suffix(" HTTP/1.1").unwrap();
        let (status, body) = upstream.get(path, &headers).await;
        let body = String::from_utf8(body.to_vec()).unwrap();
        parts.push_str(&format!(
            "--b\r\nContent-Type: application/http\r\nContent-ID: <response-{n}>\r\n\r\nHTTP/1.1 {status}\r\n\
             Content-Type: application/json\r\n\r\n{body}\r\n"
        ));
    }
    ([("content-type", "multipart/mixed; boundary=b")], format!("{parts}--b--\r\n")).into_response()
}

async fn pass(State(upstream): State<Upstream>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    let body = axum::body::to_bytes(body, 1 << 20).await.unwrap();
    let (status, body) = upstream.send(head.method, &head.uri.to_string(), &head.headers, body).await;
    (status, Body::from(body)).into_response()
}

impl Upstream {
    async fn get(&self, path: &str, headers: &HeaderMap) -> (StatusCode, Bytes) {
        self.send(Method::GET, path, headers, Bytes::new()).await
    }

    async fn send(&self, method: Method, path: &str, headers: &HeaderMap, body: Bytes) -> (StatusCode, Bytes) {
        let mut request = self.client.request(method, format!("{}{path}", self.url)).body(body);
        for name in ["authorization", "content-type"] {
            if let Some(value) = headers.get(name).filter(|_| name == "authorization" || !path.contains("messages/")) {
                request = request.header(name, value);
            }
        }
        let answer = request.send().await.unwrap();
        (answer.status(), answer.bytes().await.unwrap())
    }
}
