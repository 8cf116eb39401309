//! What goes over the connection, in both directions.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::words::Piece;
use crate::socket::Socket;

/// No command is longer, without its literals.
const LONGEST_LINE: usize = 64 << 10;

/// No literal is longer.
const LONGEST_LITERAL: usize = 64 << 20;

#[derive(Debug)]
pub struct Wire {
    socket: Socket,
    is_reset: Arc<AtomicBool>,
    /// What came and was not taken yet.
    unread: Vec<u8>,
}

/// How an answer is spoilt on its way.
#[derive(Debug, Clone, Copy, Default)]
pub struct Spoilt {
    /// The connection ends in the middle.
    pub is_cut: bool,
    pub slow: Option<(usize, Duration)>,
}

impl Wire {
    pub fn new(stream: TcpStream) -> Self {
        let _ = stream.set_nodelay(true);
        let is_reset = Arc::new(AtomicBool::new(false));
        Self { socket: Socket::new(stream, Arc::clone(&is_reset)), is_reset, unread: Vec::new() }
    }

    /// The connection ends with a reset.
    pub fn reset(&self) {
        self.is_reset.store(true, Ordering::Relaxed);
    }

    pub async fn send(&mut self, text: &str) -> io::Result<()> {
        self.socket.write_all(text.as_bytes()).await
    }

    /// Whether the connection is to go on.
    pub async fn send_all(&mut self, mut pieces: Vec<Bytes>, spoilt: Spoilt) -> io::Result<bool> {
        if spoilt.is_cut {
            let whole = pieces.concat();
            self.socket.write_all(&whole[..whole.len() / 2]).await?;
            return Ok(false);
        }
        if let Some((bytes, pause)) = spoilt.slow {
            for chunk in pieces.concat().chunks(bytes.max(1)) {
                tokio::time::sleep(pause).await;
                self.socket.write_all(chunk).await?;
            }
            return Ok(true);
        }
        // Small pieces go together, because each on its own costs a packet.
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

    /// Without its end. Whoever is interrupted loses nothing. Nothing: the connection has ended.
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
            if self.unread.len() > LONGEST_LINE || !self.fill().await? {
                return Ok(None);
            }
        }
    }

    async fn fill(&mut self) -> io::Result<bool> {
        Ok(self.socket.read_buf(&mut self.unread).await? > 0)
    }

    /// The rest of a command that begins with this line: literals, and the lines after them.
    pub async fn rest(&mut self, first: Vec<u8>, takes_at_once: bool) -> io::Result<Option<Vec<Piece>>> {
        let mut pieces = Vec::new();
        let mut line = first;
        while let Some((length, is_at_once)) = literal(&line) {
            if length > LONGEST_LITERAL || (is_at_once && !takes_at_once) {
                return Ok(None);
            }
            if !is_at_once {
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

/// `{5}` or `{5+}` at the end of a line.
fn literal(line: &[u8]) -> Option<(usize, bool)> {
    let line = std::str::from_utf8(line).ok()?.strip_suffix('}')?;
    let digits = &line[line.rfind('{')? + 1..];
    match digits.strip_suffix('+') {
        Some(digits) => Some((digits.parse().ok()?, true)),
        None => Some((digits.parse().ok()?, false)),
    }
}
