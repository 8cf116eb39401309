//! The bytes of a connection: answers in one buffer, read with a deadline and up to a limit.

use std::future::Future;
use std::io;
use std::ops::Range;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::{Instant, timeout_at};

use super::error::{ImapError, Step};
use super::lex::{self, literal_length};
use super::settings::{Deadlines, Limits};

/// Bytes in both directions: a socket, TLS, compression, or a test.
pub trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

/// What the buffer has room for at first, and again after an answer that needed more. Large enough that reading the
/// bodies of messages is few calls.
const BUFFER: usize = 128 << 10;

pub struct Wire {
    stream: Box<dyn Duplex>,
    buffer: Vec<u8>,
    /// What has come and is not yet consumed.
    filled: Range<usize>,
    deadlines: Deadlines,
    /// What is under way, and until when it may take.
    step: Step,
    until: Instant,
    /// The longest answer that is taken now.
    pub most: usize,
}

impl Wire {
    pub fn new(stream: Box<dyn Duplex>, deadlines: Deadlines, limits: &Limits) -> Self {
        Self {
            stream,
            buffer: vec![0; BUFFER],
            filled: 0..0,
            deadlines,
            step: Step::Greeting,
            until: Instant::now() + deadlines.silence,
            most: limits.answer,
        }
    }

    /// Everything from here on belongs to this step and has so long.
    pub fn begin(&mut self, step: Step, until: Instant) {
        self.step = step;
        self.until = until;
    }

    pub fn step(&self) -> Step {
        self.step
    }

    /// The stream below, and what has come of it that was not consumed.
    pub fn into_parts(self) -> (Box<dyn Duplex>, Vec<u8>) {
        (self.stream, self.buffer[self.filled].to_vec())
    }

    /// What has come and is not consumed.
    pub fn unread(&self) -> &[u8] {
        &self.buffer[self.filled.clone()]
    }

    pub fn consume(&mut self, count: usize) {
        self.filled.start = (self.filled.start + count).min(self.filled.end);
        if self.filled.is_empty() {
            self.filled = 0..0;
            if self.buffer.len() > BUFFER {
                self.buffer = vec![0; BUFFER];
            }
        }
    }

    pub async fn send(&mut self, bytes: &[u8]) -> Result<(), ImapError> {
        let stream = &mut self.stream;
        let sent = in_time(self.step, self.until.min(Instant::now() + self.deadlines.silence), async {
            stream.write_all(bytes).await?;
            stream.flush().await
        });
        sent.await
    }

    /// Waits for more bytes and appends them to what is unread.
    pub async fn fill(&mut self) -> Result<(), ImapError> {
        let until = self.until.min(Instant::now() + self.deadlines.silence);
        self.fill_until(until).await
    }

    /// The same with another deadline, for when silence is no fault.
    pub async fn fill_until(&mut self, until: Instant) -> Result<(), ImapError> {
        self.make_room();
        let free = &mut self.buffer[self.filled.end..];
        let count = in_time(self.step, until, self.stream.read(free)).await?;
        if count == 0 {
            return Err(ImapError::Io { step: self.step, kind: io::ErrorKind::UnexpectedEof });
        }
        self.filled.end += count;
        Ok(())
    }

    /// At least a byte of room behind what is filled.
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

    /// How long what is unread is up to the end of the line that begins at `from`. Reads until it is there.
    pub async fn line(&mut self, from: usize) -> Result<usize, ImapError> {
        let mut searched = from;
        loop {
            if let Some(at) = memchr::memchr(b'\n', &self.unread()[searched..]) {
                return Ok(searched + at + 1);
            }
            searched = self.filled.len();
            if searched > self.most {
                return Err(ImapError::TooMuch("a line of an answer is too long"));
            }
            self.fill().await?;
        }
    }

    /// Reads until so much is unread.
    pub async fn need(&mut self, count: usize) -> Result<(), ImapError> {
        if count > self.most {
            return Err(ImapError::TooMuch("an answer is too long"));
        }
        while self.filled.len() < count {
            self.fill().await?;
        }
        Ok(())
    }

    /// How long the next answer is, with all literals in it. It is unread then, as a whole.
    pub async fn answer(&mut self) -> Result<usize, ImapError> {
        let end = self.line(0).await?;
        // Only data has literals: what people are meant to read may end in a brace.
        if is_status(&self.unread()[..end]) { Ok(end) } else { self.literals(end).await }
    }

    /// The same, for an answer of which so much has been read, up to the end of a line.
    pub async fn literals(&mut self, mut end: usize) -> Result<usize, ImapError> {
        let mut from = 0;
        while let Some(length) = literal_length(&self.unread()[from..end]) {
            let length = usize::try_from(length).unwrap_or(usize::MAX);
            from = end.saturating_add(length);
            self.need(from).await?;
            end = self.line(from).await?;
        }
        Ok(end)
    }

    /// Some of the next bytes, at most so many.
    pub async fn some(&mut self, most: u64) -> Result<&[u8], ImapError> {
        if self.filled.is_empty() {
            self.fill().await?;
        }
        let count = usize::try_from(most).unwrap_or(usize::MAX).min(self.filled.len());
        Ok(&self.unread()[..count])
    }
}

/// Whether this is an OK, NO, BAD, BYE or PREAUTH, or asks us to go on.
fn is_status(line: &[u8]) -> bool {
    if line.starts_with(b"+") {
        return true;
    }
    let mut words = lex::without_line_end(line).splitn(3, |byte| *byte == b' ');
    let _tag = words.next();
    let word = words.next().unwrap_or_default();
    [&b"OK"[..], b"NO", b"BAD", b"BYE", b"PREAUTH"].iter().any(|status| word.eq_ignore_ascii_case(status))
}

pub async fn in_time<T>(step: Step, until: Instant, work: impl Future<Output = io::Result<T>>) -> Result<T, ImapError> {
    match timeout_at(until, work).await {
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
