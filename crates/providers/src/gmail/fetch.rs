//! Fetches the bytes of messages, and with them the placements that they have now.

use std::io;

use domain::ConnectorError;
use domain::connector::{ConnectorFuture, FetchRequest, MessageMetadata, MessageSink, message_ids};

use super::api::{GmailClient, GmailMessage};
use super::batch::{self, BatchSink};
use super::changes::received_at;
use super::labels;
use crate::provider_text::valid_id;

/// Fetches messages into the sink, in batches.
pub async fn fetch_messages(
    client: GmailClient<'_>,
    wanted: &[FetchRequest],
    sink: &mut dyn MessageSink,
) -> Result<(), ConnectorError> {
    batch::get_messages(client, &message_ids(wanted), "raw", &mut SinkWriter { sink, is_empty: true }).await
}

/// Passes the messages of a batch on to a [`Sink`].
struct SinkWriter<'a> {
    sink: &'a mut dyn MessageSink,
    is_empty: bool,
}

impl BatchSink for SinkWriter<'_> {
    fn room<'a>(&'a mut self, ids: &'a [&'a str]) -> ConnectorFuture<'a, ()> {
        self.sink.reserve(ids)
    }

    fn begin(&mut self, id: &str) {
        self.is_empty = true;
        self.sink.begin(id);
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.is_empty = false;
        self.sink.write(bytes)
    }

    fn end(&mut self, message: GmailMessage) -> io::Result<()> {
        if self.is_empty {
            // A response without `raw` is no message, even with status 200.
            self.sink.fail(&message.id, ConnectorError::Protocol("Gmail returned no bytes for it".to_owned()));
            return Ok(());
        }
        let facts = MessageMetadata {
            received_at: received_at(&message).unwrap_or_default(),
            revision: None,
            placements: Some(labels::placements(&message.id, &message.label_ids)),
            thread: message.thread_id.and_then(|thread| valid_id(thread).ok()),
        };
        self.sink.end(facts)
    }

    fn fail(&mut self, id: &str, error: ConnectorError) {
        self.sink.fail(id, error);
    }
}
