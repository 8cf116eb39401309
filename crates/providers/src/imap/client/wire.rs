//! The byte stream of a connection: responses are read into one buffer, with a deadline and up to a limit.

use std::future::Future;
use std::io;
use std::ops::Range;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::{Instant, timeout_at};

use super::error::{ImapError, Step};
use super::lex::{self, literal_length};
use super::settings::{ImapTimeouts, ResponseLimits};

/// A byte stream in both directions: a socket, TLS, compression, or a test.
pub trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

/// Initial size of the buffer, and again after a response that needed more. Large enough that a message takes few reads.
const BUFFER_BYTES: usize = 128 << 10;

pub struct Wire {
    stream: Box<dyn Duplex>,
    buffer: Vec<u8>,
    /// The part of the buffer that is read but not consumed.
    filled: Range<usize>,
    timeouts: ImapTimeouts,
    /// The present step and its deadline.
    step: Step,
    deadline: Instant,
    /// The longest response that is accepted now.
    pub max_response_bytes: usize,
}

impl Wire {
    pub fn new(stream: Box<dyn Duplex>, timeouts: ImapTimeouts, limits: &ResponseLimits) -> Self {
        Self {
            stream,
            buffer: vec![0; BUFFER_BYTES],
            filled: 0..0,
            timeouts,
            step: Step::Greeting,
            deadline: Instant::now() + timeouts.read,
            max_response_bytes: limits.response_bytes,
        }
    }

    /// Starts a step with this deadline.
    pub fn begin(&mut self, step: Step, deadline: Instant) {
        self.step = step;
        self.deadline = deadline;
    }

    pub fn step(&self) -> Step {
        self.step
    }

    /// Returns the underlying stream and the bytes that were not consumed.
    pub fn into_parts(self) -> (Box<dyn Duplex>, Vec<u8>) {
        (self.stream, self.buffer[self.filled].to_vec())
    }

    /// Returns the bytes that were read but not consumed.
    pub fn unread(&self) -> &[u8] {
        &self.buffer[self.filled.clone()]
    }

    pub fn consume(&mut self, count: usize) {
        self.filled.start = (self.filled.start + count).min(self.filled.end);
        if self.filled.is_empty() {
            self.filled = 0..0;
            if self.buffer.len() > BUFFER_BYTES {
                self.buffer = vec![0; BUFFER_BYTES];
            }
        }
    }

    pub async fn send(&mut self, bytes: &[u8]) -> Result<(), ImapError> {
        let stream = &mut self.stream;
        let sent = in_time(self.step, self.deadline.min(Instant::now() + self.timeouts.read), async {
            stream.write_all(bytes).await?;
            stream.flush().await
        });
        sent.await
    }

    /// Reads more bytes and appends them to the unread ones.
    pub async fn fill(&mut self) -> Result<(), ImapError> {
        let deadline = self.deadline.min(Instant::now() + self.timeouts.read);
        self.fill_until(deadline).await
    }

    /// Reads more bytes with another deadline, for IDLE.
    pub async fn fill_until(&mut self, deadline: Instant) -> Result<(), ImapError> {
        self.make_room();
        let free = &mut self.buffer[self.filled.end..];
        let count = in_time(self.step, deadline, self.stream.read(free)).await?;
        if count == 0 {
            return Err(ImapError::Io { step: self.step, kind: io::ErrorKind::UnexpectedEof });
        }
        self.filled.end += count;
        Ok(())
    }

    /// Makes room for at least one byte.
    fn make_room(&mut self) {
        if self.filled.end < self.buffer.len() {
            return;
        }
        if self.filled.start >= self.buffer.len() / 2 {
            self.buffer.copy_within(self.filled.clone(), 0);
            self.filled = 0..self.filled.len();
        } else {
            self.buffer.resize(self.buffer.len() * 2, 0);
        }
    }

    /// Reads up to the end of the line that begins at `from`. Returns the length of the unread bytes up to there.
    pub async fn read_line(&mut self, from: usize) -> Result<usize, ImapError> {
        let mut searched = from;
        loop {
            if let Some(at) = memchr::memchr(b'\n', &self.unread()[searched..]) {
                return Ok(searched + at + 1);
            }
            searched = self.filled.len();
            if searched > self.max_response_bytes {
                return Err(ImapError::LimitExceeded("a line of a response is too long"));
            }
            self.fill().await?;
        }
    }

    /// Reads until at least `count` bytes are unread.
    pub async fn read_at_least(&mut self, count: usize) -> Result<(), ImapError> {
        if count > self.max_response_bytes {
            return Err(ImapError::LimitExceeded("a response is too long"));
        }
        while self.filled.len() < count {
            self.fill().await?;
        }
        Ok(())
    }

    /// Reads the next response with all its literals and returns its length; it is not consumed.
    pub async fn read_response(&mut self) -> Result<usize, ImapError> {
        let end = self.read_line(0).await?;
        // Only data has literals: the text of a status response may end in a brace.
        if is_status(&self.unread()[..end]) { Ok(end) } else { self.read_literals(end).await }
    }

    /// Reads the rest of a response that was read up to `end`, the end of a line.
    pub async fn read_literals(&mut self, mut end: usize) -> Result<usize, ImapError> {
        let mut from = 0;
        while let Some(length) = literal_length(&self.unread()[from..end]) {
            let length = usize::try_from(length).unwrap_or(usize::MAX);
            from = end.saturating_add(length);
            self.read_at_least(from).await?;
            end = self.read_line(from).await?;
        }
        Ok(end)
    }

    /// Returns some of the next bytes, at most `max_bytes`.
    pub async fn read_some(&mut self, max_bytes: u64) -> Result<&[u8], ImapError> {
        if self.filled.is_empty() {
            self.fill().await?;
        }
        let count = usize::try_from(max_bytes).unwrap_or(usize::MAX).min(self.filled.len());
        Ok(&self.unread()[..count])
    }
}

/// Returns whether this is a status response (OK, NO, BAD, BYE, PREAUTH) or a continuation request.
fn is_status(line: &[u8]) -> bool {
    if line.starts_with(b"+") {
        return true;
    }
    let mut words = lex::without_line_end(line).splitn(3, |byte| *byte == b' ');
    let _tag = words.next();
    let word = words.next().unwrap_or_default();
    [&b"OK"[..], b"NO", b"BAD", b"BYE", b"PREAUTH"].iter().any(|status| word.eq_ignore_ascii_case(status))
}

/// Waits for an operation until the deadline.
pub async fn in_time<T>(
    step: Step,
    deadline: Instant,
    work: impl Future<Output = io::Result<T>>,
) -> Result<T, ImapError> {
    match timeout_at(deadline, work).await {
        Err(_) => Err(ImapError::Timeout(step)),
        Ok(Err(e)) => Err(ImapError::Io { step, kind: e.kind() }),
        Ok(Ok(done)) => Ok(done),
    }
}

impl std::fmt::Debug for Wire {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Wire").field("step", &self.step).field("unread", &self.filled.len()).finish_non_exhaustive()
    }
}
