//! Sends one request to a webhook; it ends whatever the server does.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use domain::DeliveryId;
use jiff::Timestamp;
use reqwest::header::{CONTENT_TYPE, DATE, HeaderMap, RETRY_AFTER};
use reqwest::{Client, Response, Url, redirect};
use tokio::time::{Instant, timeout_at};

use super::address::AddressPolicy;
use super::resolve::{CheckedResolver, NoAddress, Resolver};
use super::sign::{SigningKey, signature};
use super::url::host_address;

/// The timeout of a whole request, including the look-up of the name. Receivers should answer first and work later.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(15);

/// The bytes of a response that are kept for the owner to see.
const MAX_KEPT_RESPONSE_BYTES: usize = 1024;

/// How long the body of a response may take once its status is there.
const RESPONSE_BODY_TIMEOUT: Duration = Duration::from_secs(2);

/// As many as requests to one webhook at once.
const MAX_IDLE_CONNECTIONS: usize = 16;

/// A busy webhook keeps its connection; others do not.
const IDLE_CONNECTION_TTL: Duration = Duration::from_secs(5);

/// A response with more headers is refused.
const MAX_RESPONSE_HEADERS: usize = 64;

/// The outcome of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SendOutcome {
    Delivered,
    /// The endpoint answered 410: it wants no more events.
    Gone,
    /// The endpoint asks to wait.
    RetryAfter(Duration),
    Failed,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SendResult {
    pub outcome: SendOutcome,
    pub status: Option<u16>,
    /// The beginning of the response, or what went wrong.
    pub answer: Option<String>,
    pub took: Duration,
}

/// The id and body of a delivery.
#[derive(Debug, Clone)]
pub struct WebhookMessage {
    pub id: DeliveryId,
    pub body: Vec<u8>,
}

/// Sends requests to addresses that the policy allows, and to no others. Cheap to clone.
#[derive(Debug, Clone)]
pub struct WebhookSender {
    encrypted: Client,
    plain: Client,
    pub policy: AddressPolicy,
    timeout: Duration,
}

impl WebhookSender {
    pub fn new(policy: AddressPolicy, resolver: Arc<dyn Resolver>) -> anyhow::Result<Self> {
        // Fails if a provider is installed already, which serves as well.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let encrypted = build_client(&resolver, &policy, true)?;
        let plain = build_client(&resolver, &policy, false)?;
        Ok(Self { encrypted, plain, policy, timeout: REQUEST_TIMEOUT })
    }

    /// Sets the timeout, for tests of servers that do not answer.
    pub fn with_timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    pub async fn send(&self, url: &Url, keys: &[SigningKey], now: Timestamp, message: WebhookMessage) -> SendResult {
        let began = Instant::now();
        let until = began + self.timeout;
        let is_encrypted = url.scheme() == "https";
        // A name is checked by the resolver; an address is connected to without it.
        if host_address(url).is_some_and(|address| !self.policy.allows(address, is_encrypted)) {
            return failed_result("the address may not be reached", began);
        }
        let WebhookMessage { id, body } = message;
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
            Err(_) => failed_result("the request timed out", began),
            Ok(Err(e)) => failed_result(failure_text(&e), began),
            Ok(Ok(response)) => self.read_response(response, until, began).await,
        }
    }

    async fn read_response(&self, mut response: Response, until: Instant, began: Instant) -> SendResult {
        let status = response.status().as_u16();
        let outcome = match (status, retry_after(response.headers())) {
            (200..300, _) => SendOutcome::Delivered,
            (410, _) => SendOutcome::Gone,
            (429 | 503, Some(wait)) => SendOutcome::RetryAfter(wait),
            _ => SendOutcome::Failed,
        };
        let took = began.elapsed();
        let until = until.min(Instant::now() + RESPONSE_BODY_TIMEOUT);
        let mut bytes = Vec::new();
        // The status counts, whether or not the body comes.
        while let Ok(Ok(Some(chunk))) = timeout_at(until, response.chunk()).await {
            bytes.extend_from_slice(&chunk[..chunk.len().min(MAX_KEPT_RESPONSE_BYTES - bytes.len())]);
            if bytes.len() >= MAX_KEPT_RESPONSE_BYTES {
                break;
            }
        }
        SendResult { outcome, status: Some(status), answer: Some(printable(&bytes)), took }
    }
}

fn build_client(resolver: &Arc<dyn Resolver>, policy: &AddressPolicy, is_encrypted: bool) -> anyhow::Result<Client> {
    Client::builder()
        .dns_resolver(CheckedResolver::new(resolver.clone(), policy.clone(), is_encrypted))
        // A proxy would connect to wherever the name leads it.
        .no_proxy()
        // The target of a redirect is not checked.
        .redirect(redirect::Policy::none())
        .https_only(is_encrypted)
        .http1_only()
        .http1_max_headers(MAX_RESPONSE_HEADERS)
        .pool_max_idle_per_host(MAX_IDLE_CONNECTIONS)
        .pool_idle_timeout(IDLE_CONNECTION_TTL)
        .user_agent(concat!("Mailroom/", env!("CARGO_PKG_VERSION")))
        .build()
        .context("cannot create an HTTP client")
}

fn failed_result(why: &str, began: Instant) -> SendResult {
    SendResult { outcome: SendOutcome::Failed, status: None, answer: Some(why.to_owned()), took: began.elapsed() }
}

fn failure_text(e: &reqwest::Error) -> &'static str {
    let mut cause: Option<&dyn Error> = Some(e);
    while let Some(error) = cause {
        if error.is::<NoAddress>() {
            return "the host name has no address that may be reached";
        }
        cause = error.source();
    }
    match e {
        e if e.is_timeout() => "the request timed out",
        e if e.is_connect() => "the connection failed",
        _ => "the connection broke, or the response was not HTTP",
    }
}

/// Returns the text without control characters, safe for databases and terminals.
fn printable(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    text.chars().map(|c| if c.is_control() && c != '\n' { ' ' } else { c }).collect()
}

/// Parses Retry-After: seconds, or an instant, measured from the server's own clock in the Date header.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let value = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = value.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let now = parse_http_date(headers.get(DATE)?.to_str().ok()?)?;
    Some(Duration::try_from(parse_http_date(value)?.duration_since(now)).unwrap_or_default())
}

fn parse_http_date(text: &str) -> Option<Timestamp> {
    jiff::fmt::rfc2822::parse(text).ok().map(|zoned| zoned.timestamp())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kept_response_is_printable_text() {
        assert_eq!(printable(b"a\0b\x1b[31m\r\nc\xff"), "a b [31m \nc\u{fffd}");
    }

    fn headers(pairs: &[(reqwest::header::HeaderName, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.clone(), value.parse().unwrap())).collect()
    }

    #[test]
    fn retry_after_is_parsed_in_both_forms() {
        let date = (DATE, "Sun, 01 Feb 2026 12:00:00 GMT");

        assert_eq!(retry_after(&headers(&[(RETRY_AFTER, " 7")])), Some(Duration::from_secs(7)));
        let later = (RETRY_AFTER, "Sun, 01 Feb 2026 12:01:30 GMT");
        assert_eq!(retry_after(&headers(&[later.clone(), date])), Some(Duration::from_secs(90)));
        assert_eq!(retry_after(&headers(&[later])), None);
        assert_eq!(retry_after(&headers(&[(RETRY_AFTER, "soon")])), None);
    }
}
