//! A client of the HTTP API that hides nothing: what is sent is what is written here.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Stdio;

use serde_json::Value;

use crate::installation::{PROGRAM, TestInstallation};
use crate::processes::{RunningProcess, WAIT_DEADLINE, wait_until};
use crate::servers::closed_port;

#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    /// Names in lower case; of several with one name, the last.
    pub headers: BTreeMap<String, String>,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("{self:?}"))
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// It is the problem that it says, and names the field if there is one.
    pub fn assert_problem(&self, status: u16, says: &str) {
        let problem = self.json();
        assert_eq!((self.status, problem["status"].as_u64()), (status, Some(status.into())), "{problem}");
        assert_eq!(self.headers["content-type"], "application/problem+json");
        assert!(problem["detail"].as_str().unwrap().contains(says), "{problem}");
        for field in ["title", "type", "instance"] {
            assert!(problem[field].is_string(), "{problem}");
        }
    }

    /// What was written on a connection, up to its end; fails when that comes too early.
    pub fn read(stream: &mut TcpStream) -> io::Result<Self> {
        let mut bytes = Vec::new();
        stream.set_read_timeout(Some(WAIT_DEADLINE))?;
        stream.read_to_end(&mut bytes)?;
        let answer = Self::parse(&bytes).ok_or_else(|| io::Error::other("the answer was cut off"))?;
        match answer.headers.get("content-length") {
            Some(length) if length.parse() != Ok(answer.body.len()) && !answer.body.is_empty() => {
                Err(io::Error::other("the answer was cut off"))
            }
            _ => Ok(answer),
        }
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let end = bytes.windows(4).position(|four| four == b"\r\n\r\n")?;
        let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
        let (first, rest) = head.split_once("\r\n").unwrap_or((&head, ""));
        let header = |line: &str| line.split_once(": ").map(|(name, value)| (name.to_lowercase(), value.to_owned()));
        Some(Self {
            status: first.split(' ').nth(1).unwrap().parse().unwrap(),
            headers: rest.split("\r\n").filter_map(header).collect(),
            body: bytes[end + 4..].to_vec(),
        })
    }
}

pub fn ask(address: SocketAddr, method: &str, path: &str, headers: &[(&str, &str)]) -> Answer {
    send(address, method, path, headers, b"")
}

/// On a connection of its own.
pub fn send(address: SocketAddr, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
    try_send(address, method, path, headers, body).unwrap()
}

/// With the length of the body, if there is one and nobody says another.
pub fn try_send(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> io::Result<Answer> {
    let mut stream = TcpStream::connect(address)?;
    let mut lines: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let is_said = |name: &str| headers.iter().any(|(said, _)| said.eq_ignore_ascii_case(name));
    if !body.is_empty() && !is_said("content-length") && !is_said("transfer-encoding") {
        lines += &format!("Content-Length: {}\r\n", body.len());
    }
    write!(stream, "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{lines}\r\n")?;
    // Whoever is refused need not have been heard out.
    let _ = stream.write_all(body);
    Answer::read(&mut stream)
}

/// With a key and a body of JSON, if it is not null.
pub fn try_send_json(
    address: SocketAddr,
    method: &str,
    path: &str,
    key: &str,
    body: &Value,
    more: &[(&str, &str)],
) -> io::Result<Answer> {
    let authorization = format!("Bearer {key}");
    let mut headers = vec![("Authorization", &*authorization)];
    headers.extend(more);
    if body.is_null() {
        return try_send(address, method, path, &headers, b"");
    }
    headers.push(("Content-Type", "application/json"));
    try_send(address, method, path, &headers, body.to_string().as_bytes())
}

/// A key of this tenant with these scopes.
pub fn create_key(place: &TestInstallation, tenant: &str, scopes: &str) -> String {
    let made = place.object(&["key", "create", "--tenant", tenant, "--name", "test", "--scopes", scopes]);
    made["key"].as_str().unwrap().to_owned()
}

/// With wrong keys, and with many requests.
pub const GENEROUS: [(&str, &str); 2] =
    [("MAILROOM_LIMITS__FAILED_LOGINS", "100000"), ("MAILROOM_LIMITS__REQUESTS_STANDARD", "100000")];

/// A server with its usual settings, but patient.
pub fn serve(place: &TestInstallation) -> (RunningProcess, SocketAddr) {
    serve_with(place, &GENEROUS)
}

pub fn serve_with(place: &TestInstallation, settings: &[(&str, &str)]) -> (RunningProcess, SocketAddr) {
    serve_as(place, "web,worker,scheduler", settings)
}

/// The same with these roles.
pub fn serve_as(place: &TestInstallation, roles: &str, settings: &[(&str, &str)]) -> (RunningProcess, SocketAddr) {
    let address = SocketAddr::from(([127, 0, 0, 1], closed_port()));
    let mut command = place.command(PROGRAM, &["serve", "--roles", roles]);
    command.env("MAILROOM_SERVER__LISTEN", address.to_string()).envs(settings.iter().copied());
    let server = RunningProcess::spawn(command.stdout(Stdio::null()).stderr(Stdio::null()));
    wait_until("it answers", || TcpStream::connect(address).is_ok());
    (server, address)
}
