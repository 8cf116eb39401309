//! The HTTP client of all connectors: every call is bounded in time and memory, and every failure becomes a
//! [`ConnectorError`].
//!
//! No text of a response and no URL goes into an error: either may name a person or hold a secret.

use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use domain::ConnectorError;
use jiff::Timestamp;
use reqwest::header::{DATE, HeaderMap, RETRY_AFTER};
use reqwest::{Client, RequestBuilder, Response, StatusCode};
use serde::de::DeserializeOwned;
use tokio::time::{Instant, timeout_at};

/// The largest response that is read into memory: far more than any page that we request.
pub const MAX_RESPONSE_BYTES: usize = 16 << 20;

/// The largest error response that is read; they usually have a few hundred bytes.
const MAX_ERROR_BODY_BYTES: usize = 64 << 10;

/// How long the parts of a call may take.
#[derive(Debug, Clone, Copy)]
pub struct HttpTimeouts {
    pub connect: Duration,
    /// Time without a single byte. Shorter than a job's lease, so that a server that hangs costs the attempt and no more.
    pub read: Duration,
    /// Whole call whose response is read into memory. Guards against servers that send a byte now and then.
    pub response: Duration,
    /// Whole call whose response is streamed, with the messages in it.
    pub stream: Duration,
}

impl Default for HttpTimeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            read: Duration::from_secs(30),
            response: Duration::from_secs(120),
            stream: Duration::from_secs(600),
        }
    }
}

#[derive(Debug, thiserror::Error)]
#[error("the HTTP client cannot be built: {0}")]
pub struct HttpClientError(String);

impl HttpClientError {
    pub fn new(why: &str) -> Self {
        Self(why.to_owned())
    }
}

/// An HTTP client with one connection pool for all calls.
#[derive(Debug, Clone)]
pub struct HttpClient {
    pub client: Client,
    timeouts: HttpTimeouts,
}

impl HttpClient {
    pub fn new(deadlines: HttpTimeouts) -> Result<Self, HttpClientError> {
        // Fails if a crypto provider is installed already, which then serves us as well.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = Client::builder()
            .connect_timeout(deadlines.connect)
            .read_timeout(deadlines.read)
            // A response that waits to be read must not hold up others on the same connection.
            .http1_only()
            // An access token must not be sent to another server.
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .map_err(|e| HttpClientError(e.without_url().to_string()))?;
        Ok(Self { client, timeouts: deadlines })
    }

    /// Sends a request and returns the JSON of its response.
    pub async fn json<T: DeserializeOwned>(&self, request: RequestBuilder) -> Result<T, ConnectorError> {
        self.try_json(request).await?.map_err(|response| response.error())
    }

    /// Sends a request and returns the JSON of its response, or its error response as `Ok(Err(…))`. Fails if there is no
    /// response, or not the expected JSON.
    pub async fn try_json<T: DeserializeOwned>(
        &self,
        request: RequestBuilder,
    ) -> Result<Result<T, ErrorResponse>, ConnectorError> {
        match self.call(request).await? {
            Err(response) => Ok(Err(response)),
            Ok(mut body) => read_json(&body.read_whole(MAX_RESPONSE_BYTES).await?).map(Ok),
        }
    }

    /// Sends a request and ignores the body of a successful response.
    pub async fn try_send(&self, request: RequestBuilder) -> Result<Result<(), ErrorResponse>, ConnectorError> {
        Ok(self.call(request).await?.map(drop))
    }

    async fn call(&self, request: RequestBuilder) -> Result<Result<ResponseBody, ErrorResponse>, ConnectorError> {
        let deadline = Instant::now() + self.timeouts.response;
        let response = response(request, deadline).await?;
        let status = response.status();
        let headers = response.headers().clone();
        let mut body = ResponseBody { response, deadline, buffer: BytesMut::new() };
        if status == StatusCode::OK {
            return Ok(Ok(body));
        }
        // The status counts even if the body cannot be read.
        let body = body.read_whole(MAX_ERROR_BODY_BYTES).await.unwrap_or_default();
        Ok(Err(ErrorResponse { status, headers, body }))
    }

    /// Gets a public JSON document.
    pub async fn get_json<T: DeserializeOwned>(&self, url: &str) -> Result<T, ConnectorError> {
        self.json(self.client.get(url)).await
    }

    /// Sends a request and returns its response whatever the status, for providers that explain an error in its body.
    pub async fn response(&self, request: RequestBuilder) -> Result<HttpResponse, ConnectorError> {
        let deadline = Instant::now() + self.timeouts.stream;
        let response = timeout_at(deadline, request.send())
            .await
            .map_err(|_| overall_timeout())?
            .map_err(|e| transport_error(&e))?;
        let (status, headers) = (response.status(), response.headers().clone());
        Ok(HttpResponse { status, headers, body: ResponseBody { response, deadline, buffer: BytesMut::new() } })
    }

    /// Sends a request and returns the body of its response as a stream.
    pub async fn stream(&self, request: RequestBuilder) -> Result<ResponseBody, ConnectorError> {
        send(request, Instant::now() + self.timeouts.stream).await
    }
}

async fn response(request: RequestBuilder, deadline: Instant) -> Result<Response, ConnectorError> {
    timeout_at(deadline, request.send()).await.map_err(|_| overall_timeout())?.map_err(|e| transport_error(&e))
}

async fn send(request: RequestBuilder, deadline: Instant) -> Result<ResponseBody, ConnectorError> {
    let response = response(request, deadline).await?;
    match response.status() {
        StatusCode::OK => Ok(ResponseBody { response, deadline, buffer: BytesMut::new() }),
        status => Err(error_for_status(status, response.headers())),
    }
}

fn read_json<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ConnectorError> {
    serde_json::from_slice(bytes).map_err(|e| {
        if e.is_eof() {
            unavailable("the response ends too early")
        } else {
            protocol("the response is not the expected JSON")
        }
    })
}

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

/// Returns the error that an error status means to the engine.
pub fn error_for_status(status: StatusCode, headers: &HeaderMap) -> ConnectorError {
    match status.as_u16() {
        401 => ConnectorError::Unauthorized("status 401".to_owned()),
        410 => ConnectorError::CursorExpired,
        429 => ConnectorError::Throttled { retry_after: retry_after(headers) },
        // A Retry-After is obeyed whatever the error is.
        500.. if retry_after(headers).is_some() => ConnectorError::Throttled { retry_after: retry_after(headers) },
        408 | 425 | 500.. => ConnectorError::Unavailable(format!("status {}", status.as_u16())),
        other => ConnectorError::Protocol(format!("unexpected status {other}")),
    }
}

/// Reads a `Retry-After` of seconds or of a date; a date is relative to the response's own `Date`.
pub fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let value = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = value.parse() {
        return Some(Duration::from_secs(seconds));
    }
    // A date in the past means at once.
    Some(Duration::try_from(parse_http_date(value)?.duration_since(date(headers)?)).unwrap_or_default())
}

fn date(headers: &HeaderMap) -> Option<Timestamp> {
    parse_http_date(headers.get(DATE)?.to_str().ok()?)
}

fn parse_http_date(text: &str) -> Option<Timestamp> {
    jiff::fmt::rfc2822::parse(text).ok().map(|zoned| zoned.timestamp())
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

fn transport_error(e: &reqwest::Error) -> ConnectorError {
    match e {
        e if e.is_timeout() && e.is_connect() => unavailable("connecting timed out"),
        e if e.is_timeout() => unavailable("no response in time"),
        e if e.is_connect() => unavailable("connecting failed"),
        e if e.is_builder() => protocol("the request cannot be built"),
        _ => unavailable("the connection broke off"),
    }
}

fn overall_timeout() -> ConnectorError {
    unavailable("the response takes too long")
}

pub fn unavailable(what: &str) -> ConnectorError {
    ConnectorError::Unavailable(what.to_owned())
}

pub fn protocol(what: &str) -> ConnectorError {
    ConnectorError::Protocol(what.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(reqwest::header::HeaderName, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.clone(), value.parse().unwrap())).collect()
    }

    #[test]
    fn retry_after_is_seconds_or_a_date_by_the_servers_clock() {
        let date = (DATE, "Sun, 01 Feb 2026 12:00:00 GMT");

        assert_eq!(retry_after(&headers(&[(RETRY_AFTER, " 7")])), Some(Duration::from_secs(7)));
        let later = (RETRY_AFTER, "Sun, 01 Feb 2026 12:01:30 GMT");
        assert_eq!(retry_after(&headers(&[later.clone(), date.clone()])), Some(Duration::from_secs(90)));
        assert_eq!(retry_after(&headers(&[later])), None);
        let before = (RETRY_AFTER, "Sun, 01 Feb 2026 11:00:00 GMT");
        assert_eq!(retry_after(&headers(&[before, date])), Some(Duration::ZERO));
        assert_eq!(retry_after(&headers(&[(RETRY_AFTER, "soon")])), None);
    }
}
