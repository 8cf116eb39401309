//! Fetches the bytes of messages as streams: in batches of twenty and four batches at once; a single message by a call of
//! its own, in which it may have any size.

use std::collections::{HashMap, VecDeque};

use domain::ConnectorError;
use domain::connector::{FetchRequest, MessageMetadata, MessageSink, message_ids};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use outbound::http::{StatusCode, Url};
use outbound::limits::MAX_OUTLOOK_REQUESTS_PER_MAILBOX;
use serde_json::Value;

use super::api::{GraphClient, GraphFailure, GraphResponse};
use super::batch::{self, BatchItem, BatchReader};
use super::error_mapping::GraphOperation;
use crate::http::{protocol, unavailable};

/// Fetches messages into the sink.
pub async fn fetch_messages(
    client: GraphClient<'_>,
    wanted: &[FetchRequest],
    sink: &mut dyn MessageSink,
) -> Result<(), ConnectorError> {
    if let [wanted] = wanted {
        return fetch_single(client, &wanted.message, sink).await;
    }
    let token_rejected = fetch_batches(client, &message_ids(wanted), sink).await?;
    let Some((token, token_rejected)) = token_rejected else { return Ok(()) };
    client.account.access.token(Some(&token)).await?;
    match fetch_batches(client, &token_rejected, sink).await? {
        None => Ok(()),
        Some(_) => Err(ConnectorError::Unauthorized("Microsoft rejects a renewed token".to_owned())),
    }
}

/// Statuses that may mean one message that Graph cannot serve, or a server that serves none.
const AMBIGUOUS_SERVER_ERRORS: [StatusCode; 3] =
    [StatusCode::INTERNAL_SERVER_ERROR, StatusCode::BAD_GATEWAY, StatusCode::GATEWAY_TIMEOUT];

async fn fetch_single(client: GraphClient<'_>, id: &str, sink: &mut dyn MessageSink) -> Result<(), ConnectorError> {
    reserve(client, &[id], sink).await?;
    let mut response = match client.bytes(GraphOperation::Message, mime_url(client, id)).await {
        Ok(response) => response,
        Err(failure) => match failure.error {
            e @ (ConnectorError::Gone | ConnectorError::Protocol(_)) => return fail_message(sink, id, e),
            // Either one of several servers is broken, or this message: the caller finds out with other messages.
            e @ ConnectorError::Unavailable(_)
                if failure.status.is_some_and(|status| AMBIGUOUS_SERVER_ERRORS.contains(&status)) =>
            {
                return fail_message(sink, id, e);
            }
            ConnectorError::Unauthorized(_) if failure.status == Some(StatusCode::FORBIDDEN) => {
                client.check_inbox().await?;
                return fail_message(sink, id, batch::forbidden_item());
            }
            e => return Err(e),
        },
    };
    let mut is_begun = false;
    loop {
        match response.http.body.next().await {
            // A proxy between us and Graph may send a page of its own, and its content type is not reliable.
            Ok(Some(bytes)) if !is_begun && matches!(bytes.first(), Some(b'<' | b'{')) => {
                return fail_message(sink, id, protocol("the response is not a message"));
            }
            Ok(Some(bytes)) => {
                if !std::mem::replace(&mut is_begun, true) {
                    sink.begin(id);
                }
                sink.write(&bytes).map_err(|_| sink_failed())?;
            }
            Ok(None) if is_begun => return sink.end(MessageMetadata::default()).map_err(|_| sink_failed()),
            // A response without bytes is no message, even with status 200.
            Ok(None) => return fail_message(sink, id, protocol("Outlook returned no bytes for it")),
            Err(e) => {
                sink.fail(id, e.clone());
                return Err(e);
            }
        }
    }
}

/// Fails one message and not the call.
fn fail_message(sink: &mut dyn MessageSink, id: &str, error: ConnectorError) -> Result<(), ConnectorError> {
    sink.fail(id, error);
    Ok(())
}

/// The error of a sink that cannot take a message.
fn sink_failed() -> ConnectorError {
    unavailable("the message cannot be stored locally")
}

/// A rejected token, and the ids of the messages that were requested with it.
type TokenRejected<'a> = Option<(domain::Secret<String>, Vec<&'a str>)>;

/// Fetches messages in concurrent batches. Returns those for which Graph rejected the token.
async fn fetch_batches<'a>(
    client: GraphClient<'_>,
    ids: &[&'a str],
    sink: &mut dyn MessageSink,
) -> Result<TokenRejected<'a>, ConnectorError> {
    let mut left: VecDeque<Vec<&'a str>> = ids.chunks(batch::MAX_BATCH_REQUESTS).map(<[_]>::to_vec).collect();
    // Responses are read in the order of arrival: a request that waits for a permit must not block one that holds it.
    let mut in_flight = FuturesUnordered::new();
    let mut token_rejected: TokenRejected<'a> = None;
    let (mut forbidden, mut stopped) = (Vec::new(), None);
    loop {
        while in_flight.len() < MAX_OUTLOOK_REQUESTS_PER_MAILBOX && stopped.is_none() {
            let Some(requested) = left.pop_front() else { break };
            match reserve(client, &requested, sink).await {
                Ok(()) => in_flight.push(request_batch(client, requested)),
                // The requests in flight are still read.
                Err(e) => stopped = Some(e),
            }
        }
        let Some((requested, response)) = in_flight.next().await else { break };
        match read_batch(response?, &requested, &mut forbidden, sink).await? {
            BatchReadOutcome::Whole => {}
            BatchReadOutcome::TokenRejected(token, ids) => {
                token_rejected.get_or_insert((token, Vec::new())).1.extend(ids);
            }
            BatchReadOutcome::Stopped(e) => stopped = Some(longer_wait(stopped.take(), e)),
        }
    }
    // Now that no permit is held.
    if !forbidden.is_empty() {
        client.check_inbox().await?;
    }
    for id in forbidden {
        sink.fail(id, batch::forbidden_item());
    }
    match stopped {
        Some(e) => Err(e),
        None => Ok(token_rejected),
    }
}

/// Spends the quota of these messages and waits until the sink has room for them.
async fn reserve(
    client: GraphClient<'_>,
    requested: &[&str],
    sink: &mut dyn MessageSink,
) -> Result<(), ConnectorError> {
    client.account.access.acquire_quota(requested.len() as u32).await?;
    sink.reserve(requested).await
}

async fn request_batch<'a>(
    client: GraphClient<'_>,
    requested: Vec<&'a str>,
) -> (Vec<&'a str>, Result<GraphResponse, GraphFailure>) {
    let requests: Vec<Value> = requested
        .iter()
        .enumerate()
        .map(|(number, id)| batch::request(client, number, &mime_url(client, id)))
        .collect();
    let response = client.batch(&requests).await;
    (requested, response)
}

/// Returns the URL of a message's MIME content.
fn mime_url(client: GraphClient<'_>, id: &str) -> Url {
    client.url(&["messages", id, "$value"])
}

enum BatchReadOutcome<'a> {
    Whole,
    /// Graph rejected the token for these ids.
    TokenRejected(domain::Secret<String>, Vec<&'a str>),
    /// Graph throttles: no more calls for now.
    Stopped(ConnectorError),
}

async fn read_batch<'a>(
    response: GraphResponse,
    requested: &[&'a str],
    forbidden: &mut Vec<&'a str>,
    sink: &mut dyn MessageSink,
) -> Result<BatchReadOutcome<'a>, ConnectorError> {
    let mut reader = BatchReader::new(response);
    let mut open: HashMap<usize, &'a str> = requested.iter().copied().enumerate().collect();
    let (mut token_rejected, mut stopped) = (Vec::new(), None);
    loop {
        let mut begun: Option<&'a str> = None;
        let on_bytes = &mut |item: &BatchItem, bytes: &[u8]| {
            if !item.is_success() {
                return Ok(());
            }
            let id = *open.get(&item.number()?).ok_or_else(|| protocol("a batch item answers no request"))?;
            if begun.is_none() {
                begun = Some(id);
                sink.begin(id);
            }
            sink.write(bytes).map_err(|_| sink_failed())
        };
        let item = match reader.next(on_bytes).await {
            Ok(Some(item)) => item,
            Ok(None) => break,
            Err(e) => {
                if let Some(id) = begun {
                    sink.fail(id, e.clone());
                }
                return Err(e);
            }
        };
        let id = open.remove(&item.number()?).ok_or_else(|| protocol("a batch item answers no request"))?;
        match (item.is_success(), begun) {
            (true, Some(_)) => {
                sink.end(MessageMetadata::default()).map_err(|_| sink_failed())?;
            }
            // An item without bytes is no message, even with status 200.
            (true, None) => sink.fail(id, protocol("Outlook returned no bytes for it")),
            (false, _) if item.is_token_rejected() => token_rejected.push(id),
            (false, _) => match item.error(GraphOperation::Message) {
                e @ ConnectorError::Throttled { .. } => stopped = Some(longer_wait(stopped.take(), e)),
                ConnectorError::Unauthorized(_) if item.is_forbidden() => forbidden.push(id),
                e @ ConnectorError::Unauthorized(_) => return Err(e),
                e => sink.fail(id, e),
            },
        }
    }
    for id in open.into_values() {
        sink.fail(id, unavailable("the batch response has no item for it"));
    }
    Ok(match stopped {
        Some(e) => BatchReadOutcome::Stopped(e),
        None if token_rejected.is_empty() => BatchReadOutcome::Whole,
        None => BatchReadOutcome::TokenRejected(reader.token().clone(), token_rejected),
    })
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
