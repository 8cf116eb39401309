//! Reads lines and literals from the socket, and writes responses.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::command_parser::Piece;
use crate::body_damage::BodyDamage;
use crate::socket::Socket;

/// The maximum length of a command line, without literals.
const MAX_LINE_BYTES: usize = 64 << 10;

/// The maximum length of a literal.
const MAX_LITERAL_BYTES: usize = 64 << 20;

#[derive(Debug)]
pub struct Wire {
    socket: Socket,
    is_reset: Arc<AtomicBool>,
    /// Bytes received and not consumed yet.
    unread: Vec<u8>,
}

impl Wire {
    pub fn new(stream: TcpStream) -> Self {
        let _ = stream.set_nodelay(true);
        let is_reset = Arc::new(AtomicBool::new(false));
        Self { socket: Socket::new(stream, Arc::clone(&is_reset)), is_reset, unread: Vec::new() }
    }

    /// Makes the connection end with a TCP reset.
    pub fn reset(&self) {
        self.is_reset.store(true, Ordering::Relaxed);
    }

    pub async fn send(&mut self, text: &str) -> io::Result<()> {
        self.socket.write_all(text.as_bytes()).await
    }

    /// Sends all pieces, damaged if asked. Returns whether the connection stays open.
    pub async fn send_all(&mut self, mut pieces: Vec<Bytes>, damage: BodyDamage) -> io::Result<bool> {
        if damage.is_cut {
            let whole = pieces.concat();
            self.socket.write_all(&whole[..whole.len() / 2]).await?;
            return Ok(false);
        }
        if let Some((bytes, pause)) = damage.slow {
            for chunk in pieces.concat().chunks(bytes.max(1)) {
                tokio::time::sleep(pause).await;
                self.socket.write_all(chunk).await?;
            }
            return Ok(true);
        }
        // Small pieces are joined, because each write costs a packet.
        let mut small = Vec::new();
        for piece in pieces.drain(..) {
            small.extend_from_slice(&piece);
            if small.len() > 64 << 10 {
                self.socket.write_all(&small).await?;
                small.clear();
            }
        }
        self.socket.write_all(&small).await?;
        Ok(true)
    }

    /// Reads a line without its end. Returns `None` at the end of the connection. Cancellation loses no bytes.
    pub async fn line(&mut self) -> io::Result<Option<Vec<u8>>> {
        loop {
            if let Some(end) = self.unread.iter().position(|byte| *byte == b'\n') {
                let mut line: Vec<u8> = self.unread.drain(..=end).collect();
                line.pop();
                if line.last() == Some(&b'\r') {
                    line.pop();
                }
                return Ok(Some(line));
            }
            if self.unread.len() > MAX_LINE_BYTES || !self.fill().await? {
                return Ok(None);
            }
        }
    }

    async fn fill(&mut self) -> io::Result<bool> {
        Ok(self.socket.read_buf(&mut self.unread).await? > 0)
    }

    /// Reads the rest of a command: literals, and the lines after them.
    pub async fn rest(&mut self, first: Vec<u8>, allows_non_synchronizing: bool) -> io::Result<Option<Vec<Piece>>> {
        let mut pieces = Vec::new();
        let mut line = first;
        while let Some((length, is_non_synchronizing)) = literal(&line) {
            if length > MAX_LITERAL_BYTES || (is_non_synchronizing && !allows_non_synchronizing) {
                return Ok(None);
            }
            if !is_non_synchronizing {
                self.send("+ Ready for more\r\n").await?;
            }
            pieces.push(Piece::Line(line));
            while self.unread.len() < length {
                if !self.fill().await? {
                    return Ok(None);
                }
            }
            pieces.push(Piece::Literal(self.unread.drain(..length).collect()));
            line = match self.line().await? {
                Some(line) => line,
                None => return Ok(None),
            };
        }
        pieces.push(Piece::Line(line));
        Ok(Some(pieces))
    }
}

/// Parses `{5}` or `{5+}` at the end of a line.
fn literal(line: &[u8]) -> Option<(usize, bool)> {
    let line = std::str::from_utf8(line).ok()?.strip_suffix('}')?;
    let digits = &line[line.rfind('{')? + 1..];
    match digits.strip_suffix('+') {
        Some(digits) => Some((digits.parse().ok()?, true)),
        None => Some((digits.parse().ok()?, false)),
    }
}
