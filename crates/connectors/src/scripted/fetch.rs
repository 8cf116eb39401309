//! The bytes of messages, out of one long answer. A message is handed over as whole only after the line that ends it.

use std::collections::HashSet;

use domain::ConnectorError;
use domain::connector::{Facts, Sink, Wanted};
use reqwest::StatusCode;
use reqwest::header::HeaderMap;

use super::api::Frame;
use crate::http::{Body, protocol, refusal, unavailable};
use crate::names::name;

/// The longest line between two messages; an id has a handful of letters.
const LONGEST_LINE: usize = 4_096;

pub async fn messages(mut body: Body, wanted: &[Wanted], sink: &mut dyn Sink) -> Result<(), ConnectorError> {
    let mut open: HashSet<&str> = wanted.iter().map(|wanted| wanted.message.as_str()).collect();
    loop {
        match next_frame(&mut body).await? {
            Frame::Message { message, status, length, received_at, revision } => {
                if !open.remove(message.as_str()) {
                    return Err(protocol("a message that was not asked for"));
                }
                if status != 200 {
                    sink.fail(&message, failure(status)?);
                    continue;
                }
                let length = length.ok_or_else(|| protocol("a message without a length"))?;
                let revision = revision.map(name).transpose()?;
                let facts = Facts { received_at, revision, ..Facts::default() };
                sink.begin(&message);
                if let Err(error) = copy(&mut body, (&message, length), facts, sink).await {
                    sink.fail(&message, error.clone());
                    return Err(error);
                }
            }
            Frame::Done { done: true } => break,
            Frame::Done { .. } | Frame::End { .. } => return Err(protocol("a line in the wrong place")),
        }
    }
    for message in open {
        sink.fail(message, unavailable("the answer leaves it out"));
    }
    Ok(())
}

/// What is wrong with one message alone. The statuses that are about the account end the whole call.
fn failure(status: u16) -> Result<ConnectorError, ConnectorError> {
    let status = StatusCode::from_u16(status).map_err(|_| protocol("a status that is none"))?;
    match (status, refusal(status, &HeaderMap::new())) {
        (StatusCode::NOT_FOUND | StatusCode::GONE, _) => Ok(ConnectorError::Gone),
        (_, account @ (ConnectorError::Unauthorized(_) | ConnectorError::Throttled { .. })) => Err(account),
        (_, message) => Ok(message),
    }
}

async fn copy(
    body: &mut Body,
    (message, length): (&str, u64),
    facts: Facts,
    sink: &mut dyn Sink,
) -> Result<(), ConnectorError> {
    let refused = |_| unavailable("the message cannot be written down here");
    let mut left = length;
    while left > 0 {
        let bytes = body.read_some(left).await?;
        sink.write(&bytes).map_err(refused)?;
        left -= bytes.len() as u64;
    }
    if !is_ended(body, message).await? {
        // Fewer bytes than announced, and the rest taken from what follows. Another try may go better.
        return Err(unavailable("a message is not as long as announced"));
    }
    sink.end(facts).map_err(refused)
}

/// Whether the line that ends this message is exactly here.
async fn is_ended(body: &mut Body, message: &str) -> Result<bool, ConnectorError> {
    let ended = match body.read_line(0).await {
        Ok(Some(line)) if line.is_empty() => next_frame(body).await,
        Ok(_) => return Ok(false),
        Err(error) => Err(error),
    };
    match ended {
        Ok(frame) => Ok(matches!(frame, Frame::End { end } if end == message)),
        Err(ConnectorError::Protocol(_)) => Ok(false),
        Err(error) => Err(error),
    }
}

async fn next_frame(body: &mut Body) -> Result<Frame, ConnectorError> {
    let line = body.read_line(LONGEST_LINE).await?.ok_or_else(|| unavailable("an answer ends too early"))?;
    serde_json::from_slice(&line).map_err(|_| protocol("a line that is not what it should be"))
}
