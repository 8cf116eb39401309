//! A client with as little of HTTP/1.1 as our own server needs, so that a request costs next to nothing beside what is
//! measured.

use std::io;

use serde_json::Value;
use terminal::Failure;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Largest response: a page of emails at most, so more than this is a mistake.
const MAX_RESPONSE_BYTES: usize = 16 << 20;

/// The address of the server: `host:port`.
#[derive(Debug, Clone)]
pub struct ApiServer(String);

impl ApiServer {
    pub fn parse(url: &str) -> Result<Self, Failure> {
        match url.strip_prefix("http://").map(|rest| rest.trim_end_matches('/')) {
            Some(address) if address.contains(':') && !address.contains('/') => Ok(Self(address.to_owned())),
            _ => Err(Failure::usage(format!("--url wants http://HOST:PORT, not {url:?}"))),
        }
    }

    pub async fn connect(&self) -> io::Result<HttpConnection> {
        let stream = TcpStream::connect(&self.0).await?;
        stream.set_nodelay(true)?;
        Ok(HttpConnection { stream, read: Vec::new() })
    }

    /// Returns the bytes of a request.
    pub fn get(&self, path: &str, key: &str) -> Vec<u8> {
        format!("GET {path} HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {key}\r\n\r\n", self.0).into_bytes()
    }

    /// Fetches a JSON document over a connection of its own; not for what is measured.
    pub async fn get_json(&self, path: &str, key: &str) -> Result<Value, Failure> {
        let mut connection = self.connect().await?;
        let status = connection.send_request(&self.get(path, key)).await?;
        let body = String::from_utf8_lossy(connection.body()).into_owned();
        match serde_json::from_str(&body) {
            Ok(value) if status == 200 => Ok(value),
            _ => Err(Failure::problem(format!("the server answers {path} with {status}: {body}"))),
        }
    }
}

/// A connection that stays open from one request to the next.
#[derive(Debug)]
pub struct HttpConnection {
    stream: TcpStream,
    read: Vec<u8>,
}

impl HttpConnection {
    /// Sends a request and reads the whole response; returns its status.
    pub async fn send_request(&mut self, request: &[u8]) -> io::Result<u16> {
        let (status, head) = self.read_head(request).await?;
        let length = content_length(&self.read[..head])
            .filter(|length| *length <= MAX_RESPONSE_BYTES)
            .ok_or_else(|| io::Error::other("an answer without a length"))?;
        while self.read.len() < head + length {
            self.more().await?;
        }
        self.read.drain(..head);
        Ok(status)
    }

    /// Sends a request and reads the head of the response; returns its status, and where the head ends.
    pub async fn read_head(&mut self, request: &[u8]) -> io::Result<(u16, usize)> {
        self.read.clear();
        self.stream.write_all(request).await?;
        let head = loop {
            self.more().await?;
            if let Some(end) = self.read.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
                break end + 4;
            }
        };
        let status = self.read.get(9..12).and_then(|digits| std::str::from_utf8(digits).ok()?.parse().ok());
        Ok((status.ok_or_else(|| io::Error::other("not an answer in HTTP"))?, head))
    }

    pub fn body(&self) -> &[u8] {
        &self.read
    }

    /// Frees the buffer: no response is expected for long.
    pub fn without_buffer(self) -> Self {
        Self { read: Vec::new(), ..self }
    }

    /// Returns whether the server has not closed it, as far as can be known without waiting.
    pub fn is_open(&self) -> bool {
        let mut bytes = [0; 1024];
        loop {
            match self.stream.try_read(&mut bytes) {
                Ok(0) => return false,
                Ok(_) => {}
                Err(e) => return e.kind() == io::ErrorKind::WouldBlock,
            }
        }
    }

    async fn more(&mut self) -> io::Result<()> {
        self.read.reserve(64 << 10);
        match self.stream.read_buf(&mut self.read).await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }
}

fn content_length(head: &[u8]) -> Option<usize> {
    let head = std::str::from_utf8(head).ok()?;
    head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok())?
    })
}
