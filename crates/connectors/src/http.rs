//! Calls over HTTP that end, whatever the other side does, and what their failures mean to the engine.
//!
//! No text of an answer and no address goes into an error: either may name a person or hold a secret.

use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use domain::ConnectorError;
use jiff::Timestamp;
use reqwest::header::{DATE, HeaderMap, RETRY_AFTER};
use reqwest::{Client, RequestBuilder, Response, StatusCode};
use serde::de::DeserializeOwned;
use tokio::time::{Instant, timeout_at};

/// The most of an answer that is read into memory: far more than any page that we ask for.
pub const LARGEST_ANSWER: usize = 16 << 20;

/// The most of a refusal: they are a few hundred bytes.
const LARGEST_REFUSAL: usize = 64 << 10;

/// When we stop waiting.
#[derive(Debug, Clone, Copy)]
pub struct Deadlines {
    pub connect: Duration,
    /// Without a single byte. Shorter than a job's lease, so that a server that hangs costs the attempt and no more.
    pub silence: Duration,
    /// For an answer that is read whole. Against servers that send a byte now and then.
    pub answer: Duration,
    /// For an answer that is read as it comes, with the messages in it.
    pub stream: Duration,
}

impl Default for Deadlines {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self { connect: seconds(10), silence: seconds(30), answer: seconds(120), stream: seconds(600) }
    }
}

#[derive(Debug, thiserror::Error)]
#[error("cannot make calls over HTTP: {0}")]
pub struct NoClient(String);

impl NoClient {
    pub fn new(why: &str) -> Self {
        Self(why.to_owned())
    }
}

/// One pool of connections for all calls.
#[derive(Debug, Clone)]
pub struct Http {
    pub client: Client,
    deadlines: Deadlines,
}

impl Http {
    pub fn new(deadlines: Deadlines) -> Result<Self, NoClient> {
        // Fails if one is installed already, which then serves us as well.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = Client::builder()
            .connect_timeout(deadlines.connect)
            .read_timeout(deadlines.silence)
            // Answers wait for their turn to be read, and must not hold up others on the same connection.
            .http1_only()
            // A token is for one server only.
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .map_err(|e| NoClient(e.without_url().to_string()))?;
        Ok(Self { client, deadlines })
    }

    /// An answer that is JSON of this shape.
    pub async fn json<T: DeserializeOwned>(&self, request: RequestBuilder) -> Result<T, ConnectorError> {
        self.attempt(request).await?.map_err(|refused| refused.error())
    }

    /// The same for who wants to see why it was refused. `Err`: there was no answer, or none that can be understood.
    pub async fn attempt<T: DeserializeOwned>(
        &self,
        request: RequestBuilder,
    ) -> Result<Result<T, Refused>, ConnectorError> {
        match self.call(request).await? {
            Err(refused) => Ok(Err(refused)),
            Ok(mut body) => read_json(&body.read_whole(LARGEST_ANSWER).await?).map(Ok),
        }
    }

    /// The same for who does not want to know what the answer says.
    pub async fn done(&self, request: RequestBuilder) -> Result<Result<(), Refused>, ConnectorError> {
        Ok(self.call(request).await?.map(drop))
    }

    async fn call(&self, request: RequestBuilder) -> Result<Result<Body, Refused>, ConnectorError> {
        let until = Instant::now() + self.deadlines.answer;
        let response = response(request, until).await?;
        let status = response.status();
        let headers = response.headers().clone();
        let mut body = Body { response, until, left: BytesMut::new() };
        if status == StatusCode::OK {
            return Ok(Ok(body));
        }
        // One that breaks off or does not end says nothing; that it was refused is known all the same.
        let said = body.read_whole(LARGEST_REFUSAL).await.unwrap_or_default();
        Ok(Err(Refused { status, headers, said }))
    }

    /// A document that anybody may read.
    pub async fn get_json<T: DeserializeOwned>(&self, url: &str) -> Result<T, ConnectorError> {
        self.json(self.client.get(url)).await
    }

    /// An answer whatever its status says, for providers that explain themselves in the body of a refusal.
    pub async fn answer(&self, request: RequestBuilder) -> Result<Answered, ConnectorError> {
        let until = Instant::now() + self.deadlines.stream;
        let response = timeout_at(until, request.send()).await.map_err(|_| too_long())?.map_err(|e| failure(&e))?;
        let (status, headers) = (response.status(), response.headers().clone());
        Ok(Answered { status, headers, body: Body { response, until, left: BytesMut::new() } })
    }

    /// An answer that is read as it comes.
    pub async fn stream(&self, request: RequestBuilder) -> Result<Body, ConnectorError> {
        send(request, Instant::now() + self.deadlines.stream).await
    }
}

async fn response(request: RequestBuilder, until: Instant) -> Result<Response, ConnectorError> {
    timeout_at(until, request.send()).await.map_err(|_| too_long())?.map_err(|e| failure(&e))
}

async fn send(request: RequestBuilder, until: Instant) -> Result<Body, ConnectorError> {
    let response = response(request, until).await?;
    match response.status() {
        StatusCode::OK => Ok(Body { response, until, left: BytesMut::new() }),
        status => Err(refusal(status, response.headers())),
    }
}

fn read_json<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ConnectorError> {
    serde_json::from_slice(bytes).map_err(|e| {
        if e.is_eof() {
            unavailable("an answer ends too early")
        } else {
            protocol("an answer is not the JSON it should be")
        }
    })
}

/// An answer that is not what was asked for, and what it says. None of that goes into an error as it is.
pub struct Refused {
    pub status: StatusCode,
    pub headers: HeaderMap,
    said: Bytes,
}

/// Without what it says.
impl std::fmt::Debug for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Refused").field("status", &self.status).finish_non_exhaustive()
    }
}

impl Refused {
    /// What it means to the engine as far as its status says.
    pub fn error(&self) -> ConnectorError {
        refusal(self.status, &self.headers)
    }

    /// What it says, if that is JSON of this shape.
    pub fn json<T: DeserializeOwned>(&self) -> Option<T> {
        serde_json::from_slice(&self.said).ok()
    }

    /// When it was answered, by the server's clock.
    pub fn date(&self) -> Option<Timestamp> {
        date(&self.headers)
    }
}

/// What each refusal means to the engine.
pub fn refusal(status: StatusCode, headers: &HeaderMap) -> ConnectorError {
    match status.as_u16() {
        401 => ConnectorError::Unauthorized("status 401".to_owned()),
        410 => ConnectorError::CursorExpired,
        429 => ConnectorError::Throttled { retry_after: retry_after(headers) },
        // Whoever says when to come back is obeyed, whatever is wrong there.
        500.. if retry_after(headers).is_some() => ConnectorError::Throttled { retry_after: retry_after(headers) },
        408 | 425 | 500.. => ConnectorError::Unavailable(format!("status {}", status.as_u16())),
        other => ConnectorError::Protocol(format!("unexpected status {other}")),
    }
}

/// Seconds, or an instant; an instant is measured from the server's own clock, which it tells beside it.
pub fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let value = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = value.parse() {
        return Some(Duration::from_secs(seconds));
    }
    // In the past: at once.
    Some(Duration::try_from(instant(value)?.duration_since(date(headers)?)).unwrap_or_default())
}

fn date(headers: &HeaderMap) -> Option<Timestamp> {
    instant(headers.get(DATE)?.to_str().ok()?)
}

fn instant(text: &str) -> Option<Timestamp> {
    jiff::fmt::rfc2822::parse(text).ok().map(|zoned| zoned.timestamp())
}

/// An answer before anybody has looked whether it is a refusal.
#[derive(Debug)]
pub struct Answered {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Body,
}

/// An answer under way.
#[derive(Debug)]
pub struct Body {
    response: Response,
    until: Instant,
    left: BytesMut,
}

impl Body {
    /// A line without its end, of at most so many bytes; nothing when the answer has ended.
    pub async fn read_line(&mut self, most: usize) -> Result<Option<Bytes>, ConnectorError> {
        let mut searched = 0;
        loop {
            if let Some(at) = self.left[searched..].iter().position(|byte| *byte == b'\n') {
                let line = self.left.split_to(searched + at).freeze();
                self.left.advance(1);
                return Ok(Some(line));
            }
            searched = self.left.len();
            if searched > most {
                return Err(protocol("a line of an answer is too long"));
            }
            match self.chunk().await? {
                Some(chunk) => self.left.extend_from_slice(&chunk),
                None if self.left.is_empty() => return Ok(None),
                None => return Err(unavailable("an answer ends too early")),
            }
        }
    }

    /// Some of the next bytes, at most so many.
    pub async fn read_some(&mut self, most: u64) -> Result<Bytes, ConnectorError> {
        if self.left.is_empty() {
            let chunk = self.chunk().await?.ok_or_else(|| unavailable("an answer ends too early"))?;
            self.left = BytesMut::from(chunk);
        }
        let take = usize::try_from(most).unwrap_or(usize::MAX).min(self.left.len());
        Ok(self.left.split_to(take).freeze())
    }

    /// What has come next; nothing when the answer has ended.
    pub async fn next(&mut self) -> Result<Option<Bytes>, ConnectorError> {
        self.chunk().await
    }

    /// What has come and is not consumed yet; there is always some, or the answer ends too early.
    pub async fn fill(&mut self) -> Result<&[u8], ConnectorError> {
        if self.left.is_empty() {
            let chunk = self.chunk().await?.ok_or_else(|| unavailable("an answer ends too early"))?;
            self.left = BytesMut::from(chunk);
        }
        Ok(&self.left)
    }

    pub fn consume(&mut self, bytes: usize) {
        self.left.advance(bytes);
    }

    pub async fn read_whole(&mut self, most: usize) -> Result<Bytes, ConnectorError> {
        let first = self.chunk().await?.unwrap_or_default();
        let Some(second) = self.chunk().await? else { return checked(first, most) };
        let mut whole = BytesMut::from(first);
        whole.extend_from_slice(&second);
        while whole.len() <= most {
            match self.chunk().await? {
                Some(chunk) => whole.extend_from_slice(&chunk),
                None => break,
            }
        }
        checked(whole.freeze(), most)
    }

    /// Never an empty one.
    async fn chunk(&mut self) -> Result<Option<Bytes>, ConnectorError> {
        loop {
            let chunk = timeout_at(self.until, self.response.chunk()).await.map_err(|_| too_long())?;
            match chunk.map_err(|e| failure(&e))? {
                Some(chunk) if chunk.is_empty() => {}
                chunk => return Ok(chunk),
            }
        }
    }
}

fn checked(bytes: Bytes, most: usize) -> Result<Bytes, ConnectorError> {
    if bytes.len() > most { Err(protocol("an answer is too large")) } else { Ok(bytes) }
}

fn failure(e: &reqwest::Error) -> ConnectorError {
    match e {
        e if e.is_timeout() && e.is_connect() => unavailable("no connection in time"),
        e if e.is_timeout() => unavailable("no answer in time"),
        e if e.is_connect() => unavailable("no connection"),
        e if e.is_builder() => protocol("a call that cannot be made"),
        _ => unavailable("the connection broke off"),
    }
}

fn too_long() -> ConnectorError {
    unavailable("an answer takes too long")
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

    #[test]
    fn a_retry_after_is_seconds_or_an_instant_by_the_servers_clock() {
        let headers = |pairs: &[(reqwest::header::HeaderName, &'static str)]| {
            pairs.iter().map(|(name, value)| (name.clone(), value.parse().unwrap())).collect::<HeaderMap>()
        };
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
