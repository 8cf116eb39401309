//! The event source: a response that tells of changes as they happen, and does not end.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::HeaderValue;
use axum::http::header::CONTENT_TYPE;
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream;
use serde_json::json;
use tokio::sync::watch;
use tokio::time::timeout;

use super::super::world::JmapAccountHolder;
use super::objects;

pub struct EventSource {
    mailbox: Arc<JmapAccountHolder>,
    changes: watch::Receiver<u64>,
    types: Vec<String>,
    ping: Duration,
    /// Whether changes are told of.
    sends: bool,
}

impl EventSource {
    pub fn new(mailbox: Arc<JmapAccountHolder>, types: Vec<String>, ping_seconds: u64, sends: bool) -> Self {
        let changes = mailbox.state.changes.subscribe();
        // Not more often than once a second.
        Self { mailbox, changes, types, ping: Duration::from_secs(ping_seconds.max(1)), sends }
    }

    /// Builds the response. `is_single`: it ends after the first change.
    pub fn into_response(self, is_single: bool) -> Response {
        let events = stream::unfold((self, false), move |(mut source, is_over)| async move {
            if is_over {
                return None;
            }
            let (event, is_change) = source.next().await?;
            Some((Ok::<_, Infallible>(event), (source, is_change && is_single)))
        });
        let mut response = Response::new(Body::from_stream(events));
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
        response
    }

    /// Waits for a change, or until it is time for a ping.
    async fn next(&mut self) -> Option<(Bytes, bool)> {
        match timeout(self.ping, self.changes.changed()).await {
            Ok(Err(_)) => None,
            Ok(Ok(())) if self.sends => Some((self.state_event(), true)),
            Ok(Ok(())) => Some((Bytes::from_static(b": lost\n\n"), false)),
            Err(_) => {
                let data = json!({"interval": self.ping.as_secs()});
                Some((Bytes::from(format!("event: ping\ndata: {data}\n\n")), false))
            }
        }
    }

    fn state_event(&self) -> Bytes {
        let account = self.mailbox.account();
        let states: BTreeMap<&str, String> = [
            ("Email", objects::message_state(account.message_log.state())),
            ("Mailbox", objects::folder_state(account.folder_log.state())),
        ]
        .into_iter()
        .filter(|(of, _)| self.types.iter().any(|wanted| wanted == of || wanted == "*"))
        .collect();
        let data = json!({"@type": "StateChange", "changed": {&self.mailbox.id: states}});
        Bytes::from(format!("event: state\ndata: {data}\n\n"))
    }
}
