//! A server with two tenants that have mail, and a client that says exactly what it is told to say.

use std::fs;
use std::net::SocketAddr;

use serde_json::Value;

use crate::http::{self, Answer, GENEROUS, try_send};
use crate::mail;
use crate::place::Place;
use crate::processes::Running;

/// Two tenants that have mail, and keys of each.
pub struct Scene {
    pub address: SocketAddr,
    pub operator: String,
    /// May read.
    pub acme: String,
    pub beta: String,
    /// May write.
    pub acme_writer: String,
    pub beta_writer: String,
    pub server: Running,
}

impl Scene {
    pub fn start(place: &Place) -> Self {
        Self::start_with(place, &[])
    }

    pub fn start_with(place: &Place, variables: &[(&str, &str)]) -> Self {
        for (tenant, seed) in [("acme", 1), ("beta", 2)] {
            let mbox = place.write(&format!("{tenant}.mbox"), mail::mbox(seed, 30));
            place.ok(&["import", &mbox, "--tenant", tenant, "--mailbox", &format!("me@{tenant}.test")]);
        }
        let key = |tenant: &str, scopes: &str| {
            let made = place.object(&["key", "create", "--tenant", tenant, "--name", "test", "--scopes", scopes]);
            made["key"].as_str().unwrap().to_owned()
        };
        let (acme, beta) = (key("acme", "read"), key("beta", "read"));
        let (acme_writer, beta_writer) = (key("acme", "read,write"), key("beta", "write"));
        let (server, address) = http::serve_with(place, &[&GENEROUS, variables].concat());
        let operator = fs::read_to_string(place.data_dir().join("admin.key")).unwrap().trim().to_owned();
        Self { address, operator, acme, beta, acme_writer, beta_writer, server }
    }

    pub fn get(&self, path: &str, key: &str) -> Answer {
        self.ask("GET", path, &[("Authorization", &format!("Bearer {key}"))])
    }

    pub fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)]) -> Answer {
        http::ask(self.address, method, path, headers)
    }

    /// With a body of JSON, if it is not null.
    pub fn tell(&self, method: &str, path: &str, key: &str, body: &Value) -> Answer {
        self.tell_with(method, path, key, body, &[])
    }

    pub fn tell_with(&self, method: &str, path: &str, key: &str, body: &Value, more: &[(&str, &str)]) -> Answer {
        try_tell(self.address, method, path, key, body, more).unwrap()
    }

    pub fn ids(&self, path: &str, key: &str) -> Vec<String> {
        let items = self.get(path, key).json()["items"].as_array().unwrap().clone();
        items.iter().map(|item| item["id"].as_str().unwrap().to_owned()).collect()
    }
}

pub fn try_tell(
    address: SocketAddr,
    method: &str,
    path: &str,
    key: &str,
    body: &Value,
    more: &[(&str, &str)],
) -> std::io::Result<Answer> {
    let authorization = format!("Bearer {key}");
    let mut headers = vec![("Authorization", &*authorization)];
    headers.extend(more);
    if body.is_null() {
        return try_send(address, method, path, &headers, b"");
    }
    headers.push(("Content-Type", "application/json"));
    try_send(address, method, path, &headers, body.to_string().as_bytes())
}
