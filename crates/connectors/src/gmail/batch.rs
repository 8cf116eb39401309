//! Many messages by one call. The answer has a part for each, with a status of its own, and is read as it comes.

use std::collections::HashMap;
use std::io;

use domain::ConnectorError;
use domain::connector::Answer;
use reqwest::StatusCode;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};

use super::api::{Call, Message, units};
use super::raw::RawJson;
use super::refusal::{What, is_about_the_token, refusal};
use crate::http::{Answered, Body, protocol, unavailable};

/// Any text that is in no request.
const BOUNDARY: &str = "mailroom_batch";

/// Headers and the lines between parts.
const LONGEST_LINE: usize = 8 << 10;
const LARGEST_REFUSAL: usize = 64 << 10;

/// Takes messages as they come; see [`domain::connector::Sink`].
pub trait Taker: Send {
    fn room<'a>(&'a mut self, ids: &'a [&'a str]) -> Answer<'a, ()>;
    fn begin(&mut self, id: &str);
    fn write(&mut self, bytes: &[u8]) -> io::Result<()>;
    fn end(&mut self, message: Message) -> io::Result<()>;
    fn fail(&mut self, id: &str, error: ConnectorError);
}

/// Reads messages in this format. When Google asks to wait, even for one of them, the call ends there: what came before
/// holds.
pub async fn get(call: Call<'_>, ids: &[&str], format: &str, taker: &mut dyn Taker) -> Result<(), ConnectorError> {
    let mut left = ids.to_vec();
    let mut is_renewed = false;
    while !left.is_empty() {
        let size = call.gmail.batch_size(call.account).min(left.len());
        let later = left.split_off(size);
        let asked = std::mem::replace(&mut left, later);
        let units = units::MESSAGE * asked.len() as u32;
        call.account.access.spend(units).await?;
        taker.room(&asked).await?;
        let (answered, token) = call.batch(units, BOUNDARY, body(call, &asked, format)).await?;
        let Outcome { refused, throttled } = read(answered, &asked, taker).await?;
        if let Some(e) = throttled {
            return Err(call.gmail.backoff(call.account, e));
        }
        if !refused.is_empty() {
            if is_renewed {
                return Err(ConnectorError::Unauthorized("Google refuses a new token".to_owned()));
            }
            is_renewed = true;
            call.account.access.renew(&token).await?;
            left.splice(0..0, refused);
            continue;
        }
        call.gmail.went_well(call.account);
    }
    Ok(())
}

fn body(call: Call<'_>, ids: &[&str], format: &str) -> String {
    let mut body = String::with_capacity(ids.len() * 160);
    for (n, id) in ids.iter().enumerate() {
        let path = call.gmail.message_path(id, format);
        body.push_str(&format!("--{BOUNDARY}\r\nContent-Type: application/http\r\nContent-ID: <{n}>\r\n\r\n"));
        body.push_str(&format!("GET {path} HTTP/1.1\r\n\r\n"));
    }
    body.push_str(&format!("--{BOUNDARY}--\r\n"));
    body
}

/// What is left of a batch.
#[derive(Default)]
struct Outcome<'a> {
    /// The token was refused in the middle.
    refused: Vec<&'a str>,
    throttled: Option<ConnectorError>,
}

async fn read<'a>(answered: Answered, asked: &[&'a str], taker: &mut dyn Taker) -> Result<Outcome<'a>, ConnectorError> {
    let mut parts = Parts::new(answered)?;
    let mut open: HashMap<usize, &str> = asked.iter().copied().enumerate().collect();
    let mut outcome = Outcome::default();
    while let Some(part) = parts.next().await? {
        let id = open.remove(&part.number).ok_or_else(|| protocol("a message that was not asked for"))?;
        if part.status == StatusCode::OK {
            taker.begin(id);
            if let Err(e) = parts.message(id, taker).await {
                taker.fail(id, e.clone());
                return Err(e);
            }
            continue;
        }
        let body = parts.refusal().await?;
        if is_about_the_token(part.status) {
            outcome.refused.push(id);
            continue;
        }
        match refusal(What::Message, part.status, &part.headers, &body) {
            e @ ConnectorError::Throttled { .. } => outcome.throttled = Some(longer(outcome.throttled.take(), e)),
            // These are about the account.
            e @ (ConnectorError::Unauthorized(_) | ConnectorError::Operator(_)) => return Err(e),
            e => taker.fail(id, e),
        }
    }
    for id in open.into_values() {
        taker.fail(id, unavailable("the answer leaves it out"));
    }
    Ok(outcome)
}

/// Who is told to wait twice waits for the longer time.
fn longer(before: Option<ConnectorError>, now: ConnectorError) -> ConnectorError {
    match (before, now) {
        (Some(ConnectorError::Throttled { retry_after: a }), ConnectorError::Throttled { retry_after: b }) => {
            ConnectorError::Throttled { retry_after: a.max(b) }
        }
        (_, now) => now,
    }
}

/// A part's head.
struct Part {
    /// Which of the calls it answers.
    number: usize,
    status: StatusCode,
    headers: HeaderMap,
}

/// The parts of an answer, one after the other.
struct Parts {
    body: Body,
    boundary: Vec<u8>,
    count: usize,
    /// The line that begins the next part was read; whether nothing follows.
    begun: Option<bool>,
}

impl Parts {
    fn new(answered: Answered) -> Result<Self, ConnectorError> {
        let kind = answered.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let boundary = kind.split(';').filter_map(|part| part.trim().strip_prefix("boundary=")).next();
        let boundary = boundary.ok_or_else(|| protocol("an answer without parts"))?.trim_matches('"');
        Ok(Self { body: answered.body, boundary: format!("--{boundary}").into_bytes(), count: 0, begun: None })
    }

    async fn next(&mut self) -> Result<Option<Part>, ConnectorError> {
        while self.begun.is_none() {
            let line = self.line().await?;
            self.begun = self.begins(&line);
        }
        if self.begun.take() == Some(true) {
            return Ok(None);
        }
        let mut number = self.count;
        self.count += 1;
        for (name, value) in &self.headers().await? {
            // `<response-7>`; who leaves it out answers in order.
            if name.as_str() == "content-id"
                && let Some(told) = value.to_str().ok().and_then(|id| id.trim_matches(['<', '>']).rsplit('-').next())
            {
                number = told.parse().map_err(|_| protocol("a part that answers nothing"))?;
            }
        }
        let line = self.line().await?;
        let status = line.split(|byte| *byte == b' ').nth(1).and_then(|code| StatusCode::from_bytes(code).ok());
        let status = status.ok_or_else(|| protocol("a part without a status"))?;
        Ok(Some(Part { number, status, headers: self.headers().await? }))
    }

    /// Its bytes go to the taker.
    async fn message(&mut self, id: &str, taker: &mut dyn Taker) -> Result<(), ConnectorError> {
        let mut json = RawJson::default();
        let not_written = |_| unavailable("the message cannot be written down here");
        while !json.is_done {
            let bytes = self.body.fill().await?;
            let used = json.feed(bytes, &mut |bytes: &[u8]| taker.write(bytes).map_err(not_written))?;
            self.body.consume(used);
        }
        let message: Message =
            serde_json::from_slice(&json.rest).map_err(|_| protocol("a message is not what it should be"))?;
        if message.id != id {
            return Err(protocol("another message than was asked for"));
        }
        taker.end(message).map_err(not_written)
    }

    /// What a refusal says, up to the next part.
    async fn refusal(&mut self) -> Result<Vec<u8>, ConnectorError> {
        let mut said = Vec::new();
        loop {
            let line = self.line().await?;
            self.begun = self.begins(&line);
            if self.begun.is_some() {
                return Ok(said);
            }
            if said.len() + line.len() > LARGEST_REFUSAL {
                return Err(protocol("an answer is too large"));
            }
            said.extend_from_slice(&line);
        }
    }

    fn begins(&self, line: &[u8]) -> Option<bool> {
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
        let line = self.body.read_line(LONGEST_LINE).await?.ok_or_else(|| unavailable("an answer ends too early"))?;
        Ok(line.strip_suffix(b"\r").unwrap_or(&line).to_vec())
    }
}
