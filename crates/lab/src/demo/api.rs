//! A client of the server's HTTP API.

use providers::http::{HttpClient, HttpTimeouts, MAX_RESPONSE_BYTES};
use serde_json::Value;
use terminal::Failure;

/// Calls the API as the operator.
pub struct ApiClient {
    http: HttpClient,
    pub url: String,
    pub key: String,
}

impl ApiClient {
    /// Creates a client with the operator's key, which the server makes at its first start.
    pub fn new(url: String, key: String) -> Result<Self, Failure> {
        let http = HttpClient::new(HttpTimeouts::default()).map_err(|e| Failure::problem(e.to_string()))?;
        Ok(Self { http, url, key })
    }

    pub async fn post(&self, path: &str, tenant: Option<&str>, body: &Value) -> Result<Value, Failure> {
        self.send("POST", path, tenant, body).await
    }

    pub async fn put(&self, path: &str, tenant: Option<&str>, body: &Value) -> Result<Value, Failure> {
        self.send("PUT", path, tenant, body).await
    }

    pub async fn patch(&self, path: &str, tenant: Option<&str>, body: &Value) -> Result<Value, Failure> {
        self.send("PATCH", path, tenant, body).await
    }

    async fn send(&self, method: &str, path: &str, tenant: Option<&str>, body: &Value) -> Result<Value, Failure> {
        let url = format!("{}{path}", self.url);
        let request = match method {
            "PUT" => self.http.client.put(url),
            "PATCH" => self.http.client.patch(url),
            _ => self.http.client.post(url),
        };
        let mut request = request.bearer_auth(&self.key).header("content-type", "application/json");
        if let Some(tenant) = tenant {
            request = request.header("x-tenant-id", tenant);
        }
        let failure = |e| Failure::problem(format!("{method} {path}: {e}"));
        let mut response = self.http.response(request.body(body.to_string())).await.map_err(failure)?;
        let body = response.body.read_whole(MAX_RESPONSE_BYTES).await.map_err(failure)?;
        if !response.status.is_success() {
            let (status, body) = (response.status, String::from_utf8_lossy(&body));
            return Err(Failure::problem(format!("{method} {path} was answered with {status}: {body}")));
        }
        Ok(serde_json::from_slice(&body).unwrap_or_default())
    }
}
