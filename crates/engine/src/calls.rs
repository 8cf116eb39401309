//! Every call to a provider goes through here.

use domain::ConnectorError;
use domain::connector::Answer;
use store::sql::mailboxes::Mailbox;

#[derive(Debug, Clone, Default)]
pub struct Calls {}

impl Calls {
    pub async fn make<T>(&self, mailbox: &Mailbox, call: Answer<'_, T>) -> Result<T, ConnectorError> {
        let outcome = call.await;
        let word = match &outcome {
            Ok(_) => "ok",
            Err(ConnectorError::Throttled { .. }) => "throttled",
            Err(ConnectorError::Unavailable(_)) => "unavailable",
            Err(ConnectorError::Unauthorized(_)) => "unauthorized",
            Err(ConnectorError::CursorExpired) => "cursor_expired",
            Err(ConnectorError::Gone) => "gone",
            Err(ConnectorError::Protocol(_)) => "protocol",
        };
        let provider = mailbox.provider.as_str();
        metrics::counter!("mailroom_provider_requests_total", "provider" => provider, "outcome" => word).increment(1);
        outcome
    }
}
