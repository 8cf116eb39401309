//! Responses, of which no more is read into memory than the caller allows, and not for longer than until its deadline.

use bytes::{Buf, Bytes, BytesMut};
use domain::ConnectorError;
use jiff::Timestamp;
use reqwest::header::HeaderMap;
use reqwest::{Response, StatusCode};
use serde::de::DeserializeOwned;
use tokio::time::{Instant, timeout_at};

use super::error_mapping::{error_for_status, overall_timeout, protocol, transport_error, unavailable};
use super::headers::date;

/// The largest response that is read into memory: far more than any page that we request.
pub const MAX_RESPONSE_BYTES: usize = 16 << 20;

/// A response with an error status. None of its text goes into an error as it is.
pub struct ErrorResponse {
    pub status: StatusCode,
    pub headers: HeaderMap,
    body: Bytes,
}

/// Omits the body.
impl std::fmt::Debug for ErrorResponse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ErrorResponse").field("status", &self.status).finish_non_exhaustive()
    }
}

impl ErrorResponse {
    pub(super) fn new(status: StatusCode, headers: HeaderMap, body: Bytes) -> Self {
        Self { status, headers, body }
    }

    /// Returns the error that its status means to the engine.
    pub fn error(&self) -> ConnectorError {
        error_for_status(self.status, &self.headers)
    }

    /// Returns its body if that is JSON of this shape.
    pub fn json<T: DeserializeOwned>(&self) -> Option<T> {
        serde_json::from_slice(&self.body).ok()
    }

    /// Returns its `Date`, by the server's clock.
    pub fn date(&self) -> Option<Timestamp> {
        date(&self.headers)
    }
}

/// A response whose status is not checked yet.
#[derive(Debug)]
pub struct HttpResponse {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: ResponseBody,
}

/// The body of a response, as a stream.
#[derive(Debug)]
pub struct ResponseBody {
    response: Response,
    deadline: Instant,
    buffer: BytesMut,
}

impl ResponseBody {
    pub(super) fn new(response: Response, deadline: Instant) -> Self {
        Self { response, deadline, buffer: BytesMut::new() }
    }

    /// Reads a line of at most `max_bytes`, without its end. Returns `None` at the end of the response.
    pub async fn read_line(&mut self, max_bytes: usize) -> Result<Option<Bytes>, ConnectorError> {
        let mut searched = 0;
        loop {
            if let Some(at) = self.buffer[searched..].iter().position(|byte| *byte == b'\n') {
                let line = self.buffer.split_to(searched + at).freeze();
                self.buffer.advance(1);
                return Ok(Some(line));
            }
            searched = self.buffer.len();
            if searched > max_bytes {
                return Err(protocol("a line of the response is too long"));
            }
            match self.chunk().await? {
                Some(chunk) => self.buffer.extend_from_slice(&chunk),
                None if self.buffer.is_empty() => return Ok(None),
                None => return Err(unavailable("the response ends too early")),
            }
        }
    }

    /// Reads some of the next bytes, at most `max_bytes`.
    pub async fn read_some(&mut self, max_bytes: u64) -> Result<Bytes, ConnectorError> {
        if self.buffer.is_empty() {
            let chunk = self.chunk().await?.ok_or_else(|| unavailable("the response ends too early"))?;
            self.buffer = BytesMut::from(chunk);
        }
        let take = usize::try_from(max_bytes).unwrap_or(usize::MAX).min(self.buffer.len());
        Ok(self.buffer.split_to(take).freeze())
    }

    /// Returns the next chunk, or `None` at the end of the response.
    pub async fn next(&mut self) -> Result<Option<Bytes>, ConnectorError> {
        self.chunk().await
    }

    /// Returns bytes that are not consumed yet, never none; fails at the end of the response.
    pub async fn fill(&mut self) -> Result<&[u8], ConnectorError> {
        if self.buffer.is_empty() {
            let chunk = self.chunk().await?.ok_or_else(|| unavailable("the response ends too early"))?;
            self.buffer = BytesMut::from(chunk);
        }
        Ok(&self.buffer)
    }

    pub fn consume(&mut self, bytes: usize) {
        self.buffer.advance(bytes);
    }

    /// Reads the response as JSON of this shape.
    pub async fn json<T: DeserializeOwned>(&mut self) -> Result<T, ConnectorError> {
        let bytes = self.read_whole(MAX_RESPONSE_BYTES).await?;
        serde_json::from_slice(&bytes).map_err(|e| {
            if e.is_eof() {
                unavailable("the response ends too early")
            } else {
                protocol("the response is not the expected JSON")
            }
        })
    }

    pub async fn read_whole(&mut self, max_bytes: usize) -> Result<Bytes, ConnectorError> {
        let first = self.chunk().await?.unwrap_or_default();
        let Some(second) = self.chunk().await? else { return check_length(first, max_bytes) };
        let mut whole = BytesMut::from(first);
        whole.extend_from_slice(&second);
        while whole.len() <= max_bytes {
            match self.chunk().await? {
                Some(chunk) => whole.extend_from_slice(&chunk),
                None => break,
            }
        }
        check_length(whole.freeze(), max_bytes)
    }

    /// Returns the next chunk that is not empty.
    async fn chunk(&mut self) -> Result<Option<Bytes>, ConnectorError> {
        loop {
            let chunk = timeout_at(self.deadline, self.response.chunk()).await.map_err(|_| overall_timeout())?;
            match chunk.map_err(|e| transport_error(&e))? {
                Some(chunk) if chunk.is_empty() => {}
                chunk => return Ok(chunk),
            }
        }
    }
}

fn check_length(bytes: Bytes, max_bytes: usize) -> Result<Bytes, ConnectorError> {
    if bytes.len() > max_bytes { Err(protocol("the response is too large")) } else { Ok(bytes) }
}
