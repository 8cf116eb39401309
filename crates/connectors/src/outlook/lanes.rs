//! Microsoft answers four requests for a mailbox at once and refuses the fifth.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use domain::{ConnectorError, MailboxId};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::http::unavailable;

pub const AT_ONCE: usize = 4;

#[derive(Debug, Default)]
pub struct Lanes(Mutex<HashMap<MailboxId, Weak<Semaphore>>>);

/// One of them, until its answer was read and this is dropped.
#[derive(Debug)]
pub struct Lane {
    _permit: OwnedSemaphorePermit,
}

impl Lanes {
    pub async fn take(&self, mailbox: MailboxId) -> Result<Lane, ConnectorError> {
        let lanes = self.of(mailbox);
        let permit = lanes.acquire_owned().await.map_err(|_| unavailable("nobody may call"))?;
        Ok(Lane { _permit: permit })
    }

    fn of(&self, mailbox: MailboxId) -> Arc<Semaphore> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(lanes) = all.get(&mailbox).and_then(Weak::upgrade) {
            return lanes;
        }
        all.retain(|_, lanes| lanes.strong_count() > 0);
        let lanes = Arc::new(Semaphore::new(AT_ONCE));
        all.insert(mailbox, Arc::downgrade(&lanes));
        lanes
    }
}
