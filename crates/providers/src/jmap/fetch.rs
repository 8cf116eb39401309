//! Fetches the bytes of messages: their blobs by one call, and each blob by its download URL.

use std::collections::HashMap;

use domain::ConnectorError;
use domain::connector::{FetchRequest, MessageMetadata, MessageSink, message_ids};
use futures_util::{StreamExt, stream};
use outbound::http::StatusCode;
use serde_json::json;

use super::api::{JmapCall, JmapClient};
use super::changes::EmailList;
use super::error_mapping::error_of_status;
use super::message::{EMAIL_PROPERTIES, JmapEmail};
use crate::http::{HttpResponse, protocol, unavailable};
use crate::provider_text::valid_id;

/// The most downloads that a fetch begins before the first has ended.
const MAX_CONCURRENT_DOWNLOADS: usize = 4;

/// Fetches messages into the sink.
pub async fn fetch_messages(
    client: &JmapClient<'_>,
    wanted: &[FetchRequest],
    sink: &mut dyn MessageSink,
) -> Result<(), ConnectorError> {
    for ids in message_ids(wanted).chunks(client.session.max_objects) {
        let emails = read(client, ids).await?;
        let (present, gone): (Vec<&str>, Vec<&str>) = ids.iter().partition(|id| emails.contains_key(**id));
        gone.into_iter().for_each(|id| sink.fail(id, ConnectorError::Gone));
        if present.is_empty() {
            continue;
        }
        sink.reserve(&present).await?;
        download_all(client, present.iter().map(|id| &emails[*id]).collect(), sink).await?;
    }
    Ok(())
}

/// Reads which blobs the messages are; those that no longer exist are left out.
async fn read(client: &JmapClient<'_>, ids: &[&str]) -> Result<HashMap<String, JmapEmail>, ConnectorError> {
    let call = JmapCall::new("Email/get", "messages", json!({"ids": ids, "properties": EMAIL_PROPERTIES}));
    let read: EmailList = client.call(&[&call]).await?.take("messages")?;
    Ok(read.list.into_iter().map(|email| (email.id.clone(), email)).collect())
}

/// Downloads messages in their order. Others are requested while one is read, as many as the server's limit of requests
/// allows to each of the mailbox's batches.
async fn download_all(
    client: &JmapClient<'_>,
    emails: Vec<&JmapEmail>,
    sink: &mut dyn MessageSink,
) -> Result<(), ConnectorError> {
    let batches = domain::Provider::Jmap.capabilities().concurrent_batches;
    let at_once = (client.session.max_requests / batches).clamp(1, MAX_CONCURRENT_DOWNLOADS);
    let is_single = emails.len() == 1;
    let requests: Vec<_> = emails.into_iter().map(|email| request(client, email)).collect();
    let mut responses = stream::iter(requests).buffered(at_once);
    while let Some((email, response)) = responses.next().await {
        match response {
            Ok(response) => copy(response, email, sink).await?,
            Err(e @ (ConnectorError::Gone | ConnectorError::Protocol(_))) => sink.fail(&email.id, e),
            // Either the server is broken, or this message: the caller finds out with other messages.
            Err(e @ ConnectorError::Unavailable(_)) if is_single => sink.fail(&email.id, e),
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

async fn request<'a>(
    client: &JmapClient<'_>,
    email: &'a JmapEmail,
) -> (&'a JmapEmail, Result<HttpResponse, ConnectorError>) {
    (email, try_request(client, email).await)
}

async fn try_request(client: &JmapClient<'_>, email: &JmapEmail) -> Result<HttpResponse, ConnectorError> {
    let url = client.session.download_url(&email.blob_id)?;
    let response = client.jmap.http.response(client.get(url)).await?;
    match response.status {
        StatusCode::OK => Ok(response),
        StatusCode::NOT_FOUND | StatusCode::GONE => Err(ConnectorError::Gone),
        status => Err(error_of_status(status, &response.headers)),
    }
}

/// Copies the bytes of a message. Its size is known exactly, so what a proxy sends in its place is noticed.
async fn copy(mut response: HttpResponse, email: &JmapEmail, sink: &mut dyn MessageSink) -> Result<(), ConnectorError> {
    sink.begin(&email.id);
    let mut left = email.size;
    loop {
        match response.body.next().await {
            Ok(Some(bytes)) if bytes.len() as u64 > left => break,
            Ok(Some(bytes)) => {
                left -= bytes.len() as u64;
                sink.write(&bytes).map_err(|_| sink_failed())?;
            }
            Ok(None) if left == 0 => return sink.end(metadata(email)).map_err(|_| sink_failed()),
            Ok(None) => break,
            Err(e) => {
                sink.fail(&email.id, e.clone());
                return Err(e);
            }
        }
    }
    sink.fail(&email.id, protocol("the download has another size than the message"));
    Ok(())
}

fn metadata(email: &JmapEmail) -> MessageMetadata {
    MessageMetadata {
        received_at: Some(email.received_at),
        revision: None,
        thread: email.thread_id.clone().and_then(|thread| valid_id(thread).ok()),
        placements: None,
    }
}

/// The error of a sink that cannot take a message.
fn sink_failed() -> ConnectorError {
    unavailable("the message cannot be stored locally")
}
