//! A server with two tenants that have mail, and a client that says exactly what it is told to say.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Stdio;

use serde_json::Value;

use crate::mail;
use crate::place::{PROGRAM, Place};
use crate::processes::{Running, wait_until};
use crate::servers::closed_port;

#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: BTreeMap<String, String>,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("{self:?}"))
    }

    /// It is the problem that it says, and names the field if there is one.
    pub fn assert_problem(&self, status: u16, says: &str) {
        let problem = self.json();
        assert_eq!((self.status, problem["status"].as_u64()), (status, Some(status.into())), "{problem}");
        assert_eq!(self.headers["content-type"], "application/problem+json");
        assert!(problem["detail"].as_str().unwrap().contains(says), "{problem}");
        assert!(problem["title"].is_string() && problem["type"].is_string(), "{problem}");
    }
}

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
        let (server, address) = serve_with(place, variables);
        let operator = fs::read_to_string(place.data_dir().join("admin.key")).unwrap().trim().to_owned();
        Self { address, operator, acme, beta, acme_writer, beta_writer, server }
    }

    pub fn get(&self, path: &str, key: &str) -> Answer {
        self.ask("GET", path, &[("Authorization", &format!("Bearer {key}"))])
    }

    pub fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)]) -> Answer {
        send(self.address, method, path, headers, b"").unwrap()
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

pub fn serve(place: &Place) -> (Running, SocketAddr) {
    serve_with(place, &[])
}

pub fn serve_with(place: &Place, variables: &[(&str, &str)]) -> (Running, SocketAddr) {
    let address = SocketAddr::from(([127, 0, 0, 1], closed_port()));
    let mut command = place.command(PROGRAM, &["serve"]);
    command.envs(variables.iter().copied());
    command.env("MAILROOM_SERVER__LISTEN", address.to_string()).stdout(Stdio::null()).stderr(Stdio::null());
    let server = Running::spawn(&mut command);
    wait_until("it answers", || TcpStream::connect(address).is_ok());
    (server, address)
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
        return send(address, method, path, &headers, b"");
    }
    headers.push(("Content-Type", "application/json"));
    send(address, method, path, &headers, body.to_string().as_bytes())
}

pub fn send(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> std::io::Result<Answer> {
    let mut stream = TcpStream::connect(address)?;
    let mut head = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n");
    for (name, value) in headers {
        head += &format!("{name}: {value}\r\n");
    }
    if !body.is_empty() {
        head += &format!("Content-Length: {}\r\n", body.len());
    }
    stream.write_all(format!("{head}\r\n").as_bytes())?;
    stream.write_all(body)?;
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes)?;
    let cut_off = || std::io::Error::other("the answer was cut off");
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n").ok_or_else(cut_off)?;
    let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
    let (first, rest) = head.split_once("\r\n").unwrap();
    let header = |line: &str| line.split_once(": ").map(|(name, value)| (name.to_lowercase(), value.to_owned()));
    let headers: BTreeMap<String, String> = rest.split("\r\n").filter_map(header).collect();
    let body = bytes[end + 4..].to_vec();
    if headers.get("content-length").is_some_and(|length| length.parse() != Ok(body.len())) && method != "HEAD" {
        return Err(cut_off());
    }
    Ok(Answer { status: first.split(' ').nth(1).unwrap().parse().unwrap(), headers, body })
}
