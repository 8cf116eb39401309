//! Gmail's batch endpoint: many messages by one call. The `multipart/mixed` response has a part with a status of its own
//! for each message and is read as a stream.

use std::collections::HashMap;

use domain::ConnectorError;
use outbound::http::StatusCode;
use outbound::http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};

use super::api::{GmailClient, GmailMessage, units};
use super::batch_receiver::BatchReceiver;
use super::error_mapping::{GmailOperation, connector_error, is_token_rejected};
use crate::http::{HttpResponse, ResponseBody, protocol, unavailable};
use crate::json_stream::Base64FieldReader;

/// Any text that occurs in no request.
const BOUNDARY: &str = "mailroom_batch";

/// The longest header or boundary line of a response.
const MAX_LINE_BYTES: usize = 8 << 10;
const MAX_ERROR_BODY_BYTES: usize = 64 << 10;

/// Reads messages. If Google throttles any of them, the call ends with that error; the messages that were received before
/// remain valid.
pub async fn get_messages(
    client: GmailClient<'_>,
    ids: &[&str],
    mut receiver: BatchReceiver<'_>,
) -> Result<(), ConnectorError> {
    let sizer = &client.gmail.batch_sizer;
    let mut left = ids.to_vec();
    let mut is_renewed = false;
    while !left.is_empty() {
        let size = sizer.size(client.account.mailbox).min(left.len());
        let later = left.split_off(size);
        let requested = std::mem::replace(&mut left, later);
        let units = units::MESSAGE * requested.len() as u32;
        client.account.access.acquire_quota(units).await?;
        receiver.reserve(&requested).await?;
        let body = multipart_body(client, &requested, receiver.format());
        let (response, token) = client.batch(units, BOUNDARY, body).await?;
        let BatchOutcome { token_rejected, throttled } = read_parts(response, &requested, &mut receiver).await?;
        if let Some(e) = throttled {
            return Err(sizer.record_error(client.account.mailbox, e));
        }
        if !token_rejected.is_empty() {
            if is_renewed {
                return Err(ConnectorError::Unauthorized("Google rejects a renewed token".to_owned()));
            }
            is_renewed = true;
            client.account.access.token(Some(&token)).await?;
            left.splice(0..0, token_rejected);
            continue;
        }
        sizer.record_success(client.account.mailbox);
    }
    Ok(())
}

fn multipart_body(client: GmailClient<'_>, ids: &[&str], format: &str) -> String {
    let mut body = String::with_capacity(ids.len() * 160);
    for (n, id) in ids.iter().enumerate() {
        let url = client.gmail.url(&["messages", id], &[]);
        body.push_str(&format!("--{BOUNDARY}\r\nContent-Type: application/http\r\nContent-ID: <{n}>\r\n\r\n"));
        body.push_str(&format!("GET {}?format={format} HTTP/1.1\r\n\r\n", url.path()));
    }
    body.push_str(&format!("--{BOUNDARY}--\r\n"));
    body
}

/// The messages of a batch that were not received.
#[derive(Default)]
struct BatchOutcome<'a> {
    /// Ids whose parts rejected the token.
    token_rejected: Vec<&'a str>,
    throttled: Option<ConnectorError>,
}

async fn read_parts<'a>(
    response: HttpResponse,
    requested: &[&'a str],
    receiver: &mut BatchReceiver<'_>,
) -> Result<BatchOutcome<'a>, ConnectorError> {
    let mut parts = PartReader::new(response)?;
    let mut open: HashMap<usize, &str> = requested.iter().copied().enumerate().collect();
    let mut outcome = BatchOutcome::default();
    while let Some(part) = parts.next().await? {
        let id = open.remove(&part.number).ok_or_else(|| protocol("a part answers no request"))?;
        if part.status == StatusCode::OK {
            receiver.begin(id);
            if let Err(e) = parts.message(id, receiver).await {
                receiver.fail(id, e.clone());
                return Err(e);
            }
            continue;
        }
        let body = parts.error_body().await?;
        if is_token_rejected(part.status) {
            outcome.token_rejected.push(id);
            continue;
        }
        match connector_error(GmailOperation::Message, part.status, &part.headers, &body) {
            e @ ConnectorError::Throttled { .. } => outcome.throttled = Some(longer_wait(outcome.throttled.take(), e)),
            // These concern the whole account.
            e @ (ConnectorError::Unauthorized(_) | ConnectorError::AppRejected(_)) => return Err(e),
            e => receiver.fail(id, e),
        }
    }
    for id in open.into_values() {
        receiver.fail(id, unavailable("the batch response has no part for it"));
    }
    Ok(outcome)
}

/// Returns the throttling error with the longer wait.
fn longer_wait(before: Option<ConnectorError>, now: ConnectorError) -> ConnectorError {
    match (before, now) {
        (Some(ConnectorError::Throttled { retry_after: a }), ConnectorError::Throttled { retry_after: b }) => {
            ConnectorError::Throttled { retry_after: a.max(b) }
        }
        (_, now) => now,
    }
}

/// The error of a receiver that cannot take a message.
fn receiver_failed() -> ConnectorError {
    unavailable("the message cannot be stored locally")
}

/// Status and headers of a part.
struct PartHead {
    /// Index of the request that it answers.
    number: usize,
    status: StatusCode,
    headers: HeaderMap,
}

/// Reads the parts of a multipart response one after the other.
struct PartReader {
    body: ResponseBody,
    boundary: Vec<u8>,
    count: usize,
    /// A boundary line was read: `true` if it was the closing one.
    boundary_seen: Option<bool>,
}

impl PartReader {
    fn new(response: HttpResponse) -> Result<Self, ConnectorError> {
        let content_type = response.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let boundary = content_type.split(';').filter_map(|part| part.trim().strip_prefix("boundary=")).next();
        let boundary = boundary.ok_or_else(|| protocol("the batch response is not multipart"))?.trim_matches('"');
        Ok(Self { body: response.body, boundary: format!("--{boundary}").into_bytes(), count: 0, boundary_seen: None })
    }

    async fn next(&mut self) -> Result<Option<PartHead>, ConnectorError> {
        while self.boundary_seen.is_none() {
            let line = self.line().await?;
            self.boundary_seen = self.parse_boundary(&line);
        }
        if self.boundary_seen.take() == Some(true) {
            return Ok(None);
        }
        let mut number = self.count;
        self.count += 1;
        for (name, value) in &self.headers().await? {
            // `<response-7>`; without a Content-ID the parts are in the order of the requests.
            if name.as_str() == "content-id"
                && let Some(index) = value.to_str().ok().and_then(|id| id.trim_matches(['<', '>']).rsplit('-').next())
            {
                number = index.parse().map_err(|_| protocol("a part answers no request"))?;
            }
        }
        let line = self.line().await?;
        let status = line.split(|byte| *byte == b' ').nth(1).and_then(|code| StatusCode::from_bytes(code).ok());
        let status = status.ok_or_else(|| protocol("a part has no status"))?;
        Ok(Some(PartHead { number, status, headers: self.headers().await? }))
    }

    /// Reads a message; its bytes go to the receiver.
    async fn message(&mut self, id: &str, receiver: &mut BatchReceiver<'_>) -> Result<(), ConnectorError> {
        let mut json = Base64FieldReader::new("raw");

        while !json.is_done {
            let bytes = self.body.fill().await?;
            let used = json.feed(bytes, &mut |bytes: &[u8]| receiver.write(bytes).map_err(|_| receiver_failed()))?;
            self.body.consume(used);
        }
        let message: GmailMessage =
            serde_json::from_slice(&json.rest).map_err(|_| protocol("a message is not the expected JSON"))?;
        if message.id != id {
            return Err(protocol("a part has another message than requested"));
        }
        receiver.end(message).map_err(|_| receiver_failed())
    }

    /// Reads the body of a part that is an error, up to the next boundary.
    async fn error_body(&mut self) -> Result<Vec<u8>, ConnectorError> {
        let mut body_bytes = Vec::new();
        loop {
            let line = self.line().await?;
            self.boundary_seen = self.parse_boundary(&line);
            if self.boundary_seen.is_some() {
                return Ok(body_bytes);
            }
            if body_bytes.len() + line.len() > MAX_ERROR_BODY_BYTES {
                return Err(protocol("an error response is too large"));
            }
            body_bytes.extend_from_slice(&line);
        }
    }

    /// Returns `Some(true)` for the closing boundary, `Some(false)` for another one, `None` if the line is none.
    fn parse_boundary(&self, line: &[u8]) -> Option<bool> {
        match line.strip_prefix(self.boundary.as_slice())? {
            b"" => Some(false),
            b"--" => Some(true),
            _ => None,
        }
    }

    async fn headers(&mut self) -> Result<HeaderMap, ConnectorError> {
        let mut headers = HeaderMap::new();
        loop {
            let line = self.line().await?;
            if line.is_empty() {
                return Ok(headers);
            }
            let Some(colon) = line.iter().position(|byte| *byte == b':') else { continue };
            let name = HeaderName::from_bytes(line[..colon].trim_ascii());
            let value = HeaderValue::from_bytes(line[colon + 1..].trim_ascii());
            if let (Ok(name), Ok(value)) = (name, value) {
                headers.insert(name, value);
            }
        }
    }

    async fn line(&mut self) -> Result<Vec<u8>, ConnectorError> {
        let line =
            self.body.read_line(MAX_LINE_BYTES).await?.ok_or_else(|| unavailable("the response ends too early"))?;
        Ok(line.strip_suffix(b"\r").unwrap_or(&line).to_vec())
    }
}
