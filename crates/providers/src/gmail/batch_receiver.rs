//! What becomes of the messages that a batch brings: fetched with their bytes, they go on as they arrive; read without, they
//! are collected.

use std::collections::BTreeMap;
use std::io;

use domain::ConnectorError;
use domain::connector::{MessageMetadata, MessageSink};

use super::api::GmailMessage;
use super::changes::received_at;
use super::labels;
use crate::provider_text::valid_id;

/// Receives the messages of batches as they arrive, like a [`MessageSink`].
pub enum BatchReceiver<'a> {
    Bytes {
        sink: &'a mut dyn MessageSink,
        /// The present message has brought no bytes so far.
        is_empty: bool,
    },
    Metadata {
        messages: &'a mut BTreeMap<String, GmailMessage>,
        /// Why one of them could not be read; those that no longer exist are left out.
        failure: &'a mut Option<ConnectorError>,
    },
}

impl BatchReceiver<'_> {
    /// Returns the format in which the API sends the messages.
    pub fn format(&self) -> &'static str {
        match self {
            Self::Bytes { .. } => "raw",
            Self::Metadata { .. } => "minimal",
        }
    }

    /// Waits until there is memory for these messages.
    pub async fn reserve(&mut self, ids: &[&str]) -> Result<(), ConnectorError> {
        match self {
            Self::Bytes { sink, .. } => sink.reserve(ids).await,
            Self::Metadata { .. } => Ok(()),
        }
    }

    pub fn begin(&mut self, id: &str) {
        if let Self::Bytes { sink, is_empty } = self {
            *is_empty = true;
            sink.begin(id);
        }
    }

    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Bytes { sink, is_empty } => {
                *is_empty = false;
                sink.write(bytes)
            }
            Self::Metadata { .. } => Ok(()),
        }
    }

    pub fn end(&mut self, message: GmailMessage) -> io::Result<()> {
        match self {
            // A response without `raw` is no message, even with status 200.
            Self::Bytes { sink, is_empty: true } => {
                sink.fail(&message.id, ConnectorError::Protocol("Gmail returned no bytes for it".to_owned()));
                Ok(())
            }
            Self::Bytes { sink, .. } => sink.end(MessageMetadata {
                received_at: received_at(&message).unwrap_or_default(),
                revision: None,
                placements: Some(labels::placements(&message.id, &message.label_ids)),
                thread: message.thread_id.and_then(|thread| valid_id(thread).ok()),
            }),
            Self::Metadata { messages, .. } => {
                messages.insert(message.id.clone(), message);
                Ok(())
            }
        }
    }

    pub fn fail(&mut self, id: &str, error: ConnectorError) {
        match self {
            Self::Bytes { sink, .. } => sink.fail(id, error),
            Self::Metadata { .. } if error == ConnectorError::Gone => {}
            Self::Metadata { failure, .. } => **failure = Some(error),
        }
    }
}
