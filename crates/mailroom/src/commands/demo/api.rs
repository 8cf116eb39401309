//! The server's HTTP API, as a user calls it.

use connectors::http::{Deadlines, Http, LARGEST_ANSWER};
use serde_json::Value;

use crate::failure::Failure;

pub struct Api {
    http: Http,
    pub url: String,
    pub key: String,
}

impl Api {
    /// As the operator, whose key is made by the server's first start.
    pub fn new(url: String, key: String) -> Result<Self, Failure> {
        let http = Http::new(Deadlines::default()).map_err(|e| Failure::problem(e.to_string()))?;
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
        let failed = |e| Failure::problem(format!("{method} {path}: {e}"));
        let mut answered = self.http.answer(request.body(body.to_string())).await.map_err(failed)?;
        let said = answered.body.read_whole(LARGEST_ANSWER).await.map_err(failed)?;
        match answered.status.is_success() {
            true => Ok(serde_json::from_slice(&said).unwrap_or_default()),
            false => Err(Failure::problem(format!(
                "{method} {path} was answered with {}: {}",
                answered.status,
                String::from_utf8_lossy(&said)
            ))),
        }
    }
}
