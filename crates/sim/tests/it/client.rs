//! A raw HTTP client.

use std::net::SocketAddr;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// An HTTP response as received.
#[derive(Debug)]
pub struct HttpReply {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
}

impl HttpReply {
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    pub fn text(&self) -> String {
        String::from_utf8(self.body.clone()).unwrap()
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        let fields = self.head.lines().filter_map(|line| line.split_once(": "));
        fields.filter(|(given, _)| given.eq_ignore_ascii_case(name)).map(|(_, value)| value).next()
    }

    /// Returns the reason in an error of Google's APIs.
    pub fn reason(&self) -> String {
        self.json()["error"]["errors"][0]["reason"].as_str().unwrap().to_owned()
    }
}

/// Sends a request. Returns `None` if the connection ended without a complete response.
pub async fn send(
    address: SocketAddr,
    method: &str,
    path: &str,
    fields: &[(&str, &str)],
    body: &[u8],
) -> Option<HttpReply> {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let mut request = format!("{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n");
    fields.iter().for_each(|(name, value)| request.push_str(&format!("{name}: {value}\r\n")));
    request.push_str(&format!("Content-Length: {}\r\n\r\n", body.len()));
    stream.write_all(request.as_bytes()).await.unwrap();
    stream.write_all(body).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.ok()?;
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n")?;
    let head = String::from_utf8(answer[..end].to_vec()).ok()?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    let answered = HttpReply { status, head, body: answer[end + 4..].to_vec() };
    match answered.header("transfer-encoding") {
        Some(_) => Some(HttpReply { body: unchunked(&answered.body)?, ..answered }),
        None => Some(answered),
    }
}

pub fn encoded(text: &str) -> String {
    text.bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => char::from(byte).to_string(),
            _ => format!("%{byte:02X}"),
        })
        .collect()
}

fn unchunked(mut body: &[u8]) -> Option<Vec<u8>> {
    let mut whole = Vec::new();
    loop {
        let end = body.windows(2).position(|two| two == b"\r\n")?;
        let length = usize::from_str_radix(std::str::from_utf8(&body[..end]).ok()?, 16).ok()?;
        body = &body[end + 2..];
        if length == 0 {
            return Some(whole);
        }
        whole.extend_from_slice(body.get(..length)?);
        body = body.get(length + 2..)?;
    }
}
