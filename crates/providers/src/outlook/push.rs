//! Notifications of Microsoft Graph, many in one call. Each is authenticated by its clientState, which only Graph and the
//! process that subscribed know. When a subscription begins, Graph validates our URL with a token that is sent back.

use std::time::Duration;

use domain::push::PushVerification;
use domain::{Clock, Provider, PushBatch, PushEndpoint, PushReader};

use super::push_message;

const ENDPOINT: PushEndpoint = PushEndpoint {
    // Graph sends many notifications in one call, each of some hundred bytes.
    max_body_bytes: 1 << 20,
    // Graph counts an answer after three seconds as none, and repeats the call for four hours.
    deadline: Some(Duration::from_millis(2500)),
    recorded_status: 202,
    accepts_malformed: false,
    validation_parameter: Some("validationToken"),
};

/// Parses notifications of Graph.
#[derive(Debug, Clone, Copy)]
pub struct GraphPushReader;

impl PushReader for GraphPushReader {
    fn provider(&self) -> Provider {
        Provider::Outlook
    }

    fn endpoint(&self) -> &'static PushEndpoint {
        &ENDPOINT
    }

    /// Accepts any call: its notifications are authenticated one by one.
    fn verify<'a>(&'a self, _token: Option<&'a str>, _clock: &'a dyn Clock) -> PushVerification<'a> {
        Box::pin(async { Ok(()) })
    }

    fn read(&self, body: &[u8]) -> Result<PushBatch, &'static str> {
        push_message::read(body)
    }
}
