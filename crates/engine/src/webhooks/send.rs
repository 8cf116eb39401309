//! One request to somebody's server, that ends whatever the other side does.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use domain::DeliveryId;
use jiff::Timestamp;
use reqwest::header::{CONTENT_TYPE, DATE, HeaderMap, RETRY_AFTER};
use reqwest::{Client, Response, Url, redirect};
use tokio::time::{Instant, timeout_at};

use super::address::Policy;
use super::resolve::{Checked, NoAddress, Resolver};
use super::sign::{SigningKey, signature};
use super::url::host_address;

/// For the whole of a request, with looking up the name. Receivers are asked to answer first and work later.
const TIMEOUT: Duration = Duration::from_secs(15);

/// What is kept of an answer, for its owner to look at.
const KEPT_BYTES: usize = 1024;

/// How long the rest of an answer may take whose status is there.
const REST_OF_ANSWER: Duration = Duration::from_secs(2);

/// As many as are sent to one webhook at once.
const IDLE_CONNECTIONS: usize = 16;

/// A busy webhook is not connected to anew; others do not keep a connection.
const IDLE_FOR: Duration = Duration::from_secs(5);

/// An answer with more headers than this is refused.
const MOST_HEADERS: usize = 64;

/// What a request came to, one variant per thing that is done then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Delivered,
    /// Nothing is wanted there any more.
    Gone,
    /// Not now, but after so long.
    RetryAfter(Duration),
    Failed,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sent {
    pub outcome: Outcome,
    pub status: Option<u16>,
    /// The beginning of what was answered, or what went wrong.
    pub answer: Option<String>,
    pub took: Duration,
}

/// What is sent.
#[derive(Debug, Clone)]
pub struct Message {
    pub id: DeliveryId,
    pub body: Vec<u8>,
}

/// Reaches what the policy allows and nothing else. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Sender {
    encrypted: Client,
    plain: Client,
    pub policy: Policy,
    timeout: Duration,
}

impl Sender {
    pub fn new(policy: Policy, resolver: Arc<dyn Resolver>) -> anyhow::Result<Self> {
        // Fails if one is installed already, which then serves us as well.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = |is_encrypted| {
            Client::builder()
                .dns_resolver(Checked::new(resolver.clone(), policy.clone(), is_encrypted))
                // A proxy would connect to wherever the name leads it.
                .no_proxy()
                // Where it leads was not looked at.
                .redirect(redirect::Policy::none())
                .https_only(is_encrypted)
                .http1_only()
                .http1_max_headers(MOST_HEADERS)
                .pool_max_idle_per_host(IDLE_CONNECTIONS)
                .pool_idle_timeout(IDLE_FOR)
                .user_agent(concat!("Mailroom/", env!("CARGO_PKG_VERSION")))
                .build()
                .context("cannot make calls over HTTP")
        };
        Ok(Self { encrypted: client(true)?, plain: client(false)?, policy, timeout: TIMEOUT })
    }

    /// For tests of servers that do not answer.
    pub fn with_timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    pub async fn send(&self, url: &Url, keys: &[SigningKey], now: Timestamp, message: Message) -> Sent {
        let began = Instant::now();
        let until = began + self.timeout;
        let is_encrypted = url.scheme() == "https";
        // A name is looked at when it is looked up; an address is connected to without that.
        if host_address(url).is_some_and(|address| !self.policy.allows(address, is_encrypted)) {
            return failed("its address may not be reached", began);
        }
        let Message { id, body } = message;
        let (id, timestamp) = (id.to_string(), now.as_second());
        let client = if is_encrypted { &self.encrypted } else { &self.plain };
        let request = client
            .post(url.clone())
            .header(CONTENT_TYPE, "application/json")
            .header("webhook-signature", signature(keys, &id, timestamp, &body))
            .header("webhook-id", id)
            .header("webhook-timestamp", timestamp)
            .body(body);
        match timeout_at(until, request.send()).await {
            Err(_) => failed("no answer in time", began),
            Ok(Err(e)) => failed(failure(&e), began),
            Ok(Ok(response)) => self.answered(response, until, began).await,
        }
    }

    async fn answered(&self, mut response: Response, until: Instant, began: Instant) -> Sent {
        let status = response.status().as_u16();
        let outcome = match (status, retry_after(response.headers())) {
            (200..300, _) => Outcome::Delivered,
            (410, _) => Outcome::Gone,
            (429 | 503, Some(wait)) => Outcome::RetryAfter(wait),
            _ => Outcome::Failed,
        };
        let took = began.elapsed();
        let until = until.min(Instant::now() + REST_OF_ANSWER);
        let mut bytes = Vec::new();
        // What it said with its status counts, whether or not the rest comes.
        while let Ok(Ok(Some(chunk))) = timeout_at(until, response.chunk()).await {
            bytes.extend_from_slice(&chunk[..chunk.len().min(KEPT_BYTES - bytes.len())]);
            if bytes.len() >= KEPT_BYTES {
                break;
            }
        }
        Sent { outcome, status: Some(status), answer: Some(shown(&bytes)), took }
    }
}

fn failed(why: &str, began: Instant) -> Sent {
    Sent { outcome: Outcome::Failed, status: None, answer: Some(why.to_owned()), took: began.elapsed() }
}

fn failure(e: &reqwest::Error) -> &'static str {
    let mut cause: Option<&dyn Error> = Some(e);
    while let Some(error) = cause {
        if error.is::<NoAddress>() {
            return "its name leads to no address that may be reached";
        }
        cause = error.source();
    }
    match e {
        e if e.is_timeout() => "no answer in time",
        e if e.is_connect() => "no connection",
        _ => "the connection broke off, or the answer was no HTTP",
    }
}

/// Databases and terminals take it.
fn shown(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    text.chars().map(|c| if c.is_control() && c != '\n' { ' ' } else { c }).collect()
}

/// Seconds, or an instant; that is measured from the server's own clock, which it tells beside it.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let value = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = value.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let instant = |text: &str| jiff::fmt::rfc2822::parse(text).ok().map(|zoned| zoned.timestamp());
    let now = instant(headers.get(DATE)?.to_str().ok()?)?;
    Some(Duration::try_from(instant(value)?.duration_since(now)).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_of_an_answer_is_text() {
        assert_eq!(shown(b"a\0b\x1b[31m\r\nc\xff"), "a b [31m \nc\u{fffd}");
    }

    #[test]
    fn a_retry_after_is_seconds_or_an_instant_by_the_servers_clock() {
        let headers = |pairs: &[(reqwest::header::HeaderName, &'static str)]| {
            pairs.iter().map(|(name, value)| (name.clone(), value.parse().unwrap())).collect::<HeaderMap>()
        };
        let date = (DATE, "Sun, 01 Feb 2026 12:00:00 GMT");

        assert_eq!(retry_after(&headers(&[(RETRY_AFTER, " 7")])), Some(Duration::from_secs(7)));
        let later = (RETRY_AFTER, "Sun, 01 Feb 2026 12:01:30 GMT");
        assert_eq!(retry_after(&headers(&[later.clone(), date])), Some(Duration::from_secs(90)));
        assert_eq!(retry_after(&headers(&[later])), None);
        assert_eq!(retry_after(&headers(&[(RETRY_AFTER, "soon")])), None);
    }
}
