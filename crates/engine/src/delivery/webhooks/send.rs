//! Sends one request to a webhook; it ends whatever the server does.

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use domain::{ConnectorError, DeliveryId};
use jiff::Timestamp;
use outbound::http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use outbound::http::{AddressPolicy, CheckedClient, CheckedResponse, HttpClientError, Resolver, Url, retry_after};
use tokio::time::Instant;

use super::sign::{SigningKey, signature};

/// The timeout of a whole request, including the look-up of the name. Receivers should answer first and work later.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(15);

/// The bytes of a response that are kept for the owner to see.
const MAX_KEPT_RESPONSE_BYTES: usize = 1024;

/// How long the body of a response may take once its status is there.
const RESPONSE_BODY_TIMEOUT: Duration = Duration::from_secs(2);

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

impl SendResult {
    /// Returns what the circuit breaker of the server learns from it. Any response means that the server works: what fails
    /// then is the webhook.
    pub(super) fn call_outcome(&self) -> Result<(), ConnectorError> {
        match (self.status, self.outcome) {
            (None, _) => Err(ConnectorError::Unavailable(self.answer.clone().unwrap_or_default())),
            (_, SendOutcome::RetryAfter(wait)) => Err(ConnectorError::Throttled { retry_after: Some(wait) }),
            _ => Ok(()),
        }
    }
}

/// The id and body of a delivery.
#[derive(Debug, Clone)]
pub struct WebhookMessage {
    pub id: DeliveryId,
    pub body: Vec<u8>,
}

/// Sends signed requests. Cheap to clone.
#[derive(Debug, Clone)]
pub struct WebhookSender {
    client: CheckedClient,
    timeout: Duration,
}

impl WebhookSender {
    pub fn new(policy: AddressPolicy, resolver: Arc<dyn Resolver>) -> Result<Self, HttpClientError> {
        Ok(Self { client: CheckedClient::new(policy, &resolver)?, timeout: REQUEST_TIMEOUT })
    }

    /// Sets the timeout, for tests of servers that do not answer.
    pub fn with_timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    pub fn policy(&self) -> &AddressPolicy {
        &self.client.policy
    }

    pub async fn send(&self, url: &Url, keys: &[SigningKey], now: Timestamp, message: WebhookMessage) -> SendResult {
        let began = Instant::now();
        let until = began + self.timeout;
        let WebhookMessage { id, body } = message;
        let headers = match signed_headers(id, keys, now, &body) {
            Ok(headers) => headers,
            Err(e) => return failed_result(e, began),
        };
        match self.client.post(url, headers, body, until).await {
            Ok(response) => read_response(response, until, began).await,
            Err(failure) => failed_result(failure, began),
        }
    }
}

fn signed_headers(
    id: DeliveryId,
    keys: &[SigningKey],
    now: Timestamp,
    body: &[u8],
) -> Result<HeaderMap, outbound::http::header::InvalidHeaderValue> {
    let (id, timestamp) = (id.to_string(), now.as_second());
    let signature = signature(keys, &id, timestamp, body);
    Ok(HeaderMap::from_iter([
        (CONTENT_TYPE, HeaderValue::from_static("application/json")),
        (HeaderName::from_static("webhook-signature"), HeaderValue::try_from(signature)?),
        (HeaderName::from_static("webhook-id"), HeaderValue::try_from(id)?),
        (HeaderName::from_static("webhook-timestamp"), HeaderValue::from(timestamp)),
    ]))
}

async fn read_response(response: CheckedResponse, until: Instant, began: Instant) -> SendResult {
    let status = response.status.as_u16();
    let outcome = match (status, retry_after(&response.headers)) {
        (200..300, _) => SendOutcome::Delivered,
        (410, _) => SendOutcome::Gone,
        (429 | 503, Some(wait)) => SendOutcome::RetryAfter(wait),
        _ => SendOutcome::Failed,
    };
    let took = began.elapsed();
    // The status counts, whether or not the body comes.
    let until = until.min(Instant::now() + RESPONSE_BODY_TIMEOUT);
    let bytes = response.read_beginning(MAX_KEPT_RESPONSE_BYTES, until).await;
    SendResult { outcome, status: Some(status), answer: Some(printable(&bytes)), took }
}

fn failed_result(why: impl Display, began: Instant) -> SendResult {
    SendResult { outcome: SendOutcome::Failed, status: None, answer: Some(why.to_string()), took: began.elapsed() }
}

/// Returns the text without control characters, safe for databases and terminals.
fn printable(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    text.chars().map(|c| if c.is_control() && c != '\n' { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kept_response_is_printable_text() {
        assert_eq!(printable(b"a\0b\x1b[31m\r\nc\xff"), "a b [31m \nc\u{fffd}");
    }
}
