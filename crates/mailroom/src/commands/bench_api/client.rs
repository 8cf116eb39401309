//! As little of HTTP/1.1 as our own server needs, so that asking costs next to nothing beside what is measured.

use std::io;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::failure::Failure;

/// An answer is a page of emails at most; more than this is a mistake.
const MOST_BYTES: usize = 16 << 20;

/// Where the server listens: `host:port`.
#[derive(Debug, Clone)]
pub struct Server(String);

impl Server {
    pub fn parse(url: &str) -> Result<Self, Failure> {
        match url.strip_prefix("http://").map(|rest| rest.trim_end_matches('/')) {
            Some(place) if place.contains(':') && !place.contains('/') => Ok(Self(place.to_owned())),
            _ => Err(Failure::usage(format!("--url wants http://HOST:PORT, not {url:?}"))),
        }
    }

    pub async fn connect(&self) -> io::Result<Connection> {
        let stream = TcpStream::connect(&self.0).await?;
        stream.set_nodelay(true)?;
        Ok(Connection { stream, read: Vec::new() })
    }

    /// What goes over the wire for it.
    pub fn get(&self, path: &str, key: &str) -> Vec<u8> {
        format!("GET {path} HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {key}\r\n\r\n", self.0).into_bytes()
    }

    /// Outside of what is measured.
    pub async fn get_json(&self, path: &str, key: &str) -> Result<Value, Failure> {
        let mut connection = self.connect().await?;
        let status = connection.ask(&self.get(path, key)).await?;
        let body = String::from_utf8_lossy(connection.body()).into_owned();
        match serde_json::from_str(&body) {
            Ok(value) if status == 200 => Ok(value),
            _ => Err(Failure::problem(format!("the server answers {path} with {status}: {body}"))),
        }
    }
}

/// Kept open from one request to the next.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    read: Vec<u8>,
}

impl Connection {
    /// The status, once all of the answer is here.
    pub async fn ask(&mut self, request: &[u8]) -> io::Result<u16> {
        let (status, head) = self.begin(request).await?;
        let length = content_length(&self.read[..head])
            .filter(|length| *length <= MOST_BYTES)
            .ok_or_else(|| io::Error::other("an answer without a length"))?;
        while self.read.len() < head + length {
            self.more().await?;
        }
        self.read.drain(..head);
        Ok(status)
    }

    /// The status, and where the head of the answer ends.
    pub async fn begin(&mut self, request: &[u8]) -> io::Result<(u16, usize)> {
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

    /// Without room for answers, of which none is expected for long.
    pub fn at_rest(self) -> Self {
        Self { read: Vec::new(), ..self }
    }

    /// Whether the server has not closed it, as far as can be told without waiting.
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
    let header = |line: &str| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok())?
    };
    head.lines().find_map(header)
}
