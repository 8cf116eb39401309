//! Limits concurrent requests per mailbox, as Microsoft does.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use domain::{ConnectorError, MailboxId};
use outbound::limits::MAX_OUTLOOK_REQUESTS_PER_MAILBOX;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::http::unavailable;

/// A semaphore for each mailbox that has requests.
#[derive(Debug, Default)]
pub struct RequestLimiter(Mutex<HashMap<MailboxId, Weak<Semaphore>>>);

/// The permit for one request; it is held until the response was read and this is dropped.
#[derive(Debug)]
pub struct RequestPermit {
    _permit: OwnedSemaphorePermit,
}

impl RequestLimiter {
    /// Waits for a permit.
    pub async fn acquire(&self, mailbox: MailboxId) -> Result<RequestPermit, ConnectorError> {
        let permits = self.semaphore(mailbox);
        let permit = permits.acquire_owned().await.map_err(|_| unavailable("the request limiter is closed"))?;
        Ok(RequestPermit { _permit: permit })
    }

    fn semaphore(&self, mailbox: MailboxId) -> Arc<Semaphore> {
        let mut mailboxes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(permits) = mailboxes.get(&mailbox).and_then(Weak::upgrade) {
            return permits;
        }
        mailboxes.retain(|_, permits| permits.strong_count() > 0);
        let permits = Arc::new(Semaphore::new(MAX_OUTLOOK_REQUESTS_PER_MAILBOX));
        mailboxes.insert(mailbox, Arc::downgrade(&permits));
        permits
    }
}
