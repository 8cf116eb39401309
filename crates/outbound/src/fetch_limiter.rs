//! Limits how many batches of one mailbox are fetched at once.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use domain::{Lane, MailboxId, Provider};
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};

use crate::limits::{Limit, count_in_use};

/// The permits of all mailboxes that are fetched from. Cheap to clone; clones share them.
#[derive(Debug, Clone, Default)]
pub struct FetchLimiter(Arc<Mutex<HashMap<MailboxId, Weak<MailboxSemaphores>>>>);

#[derive(Debug)]
struct MailboxSemaphores {
    all: Arc<Semaphore>,
    backfill: Arc<Semaphore>,
}

/// Permits one batch to be fetched, until it is dropped.
#[derive(Debug)]
pub struct FetchPermit {
    _mailbox: Arc<MailboxSemaphores>,
    _permits: (Option<OwnedSemaphorePermit>, OwnedSemaphorePermit),
}

impl FetchLimiter {
    pub async fn acquire(
        &self,
        mailbox: MailboxId,
        provider: Provider,
        lane: Lane,
    ) -> Result<FetchPermit, AcquireError> {
        let permits = self.of(mailbox, provider);
        let backfill = match lane {
            Lane::Low => Some(permits.backfill.clone().acquire_owned().await?),
            _ => None,
        };
        let any = permits.all.clone().acquire_owned().await?;
        count_in_use(Limit::FetchBatches, 1.0);
        Ok(FetchPermit { _mailbox: permits, _permits: (backfill, any) })
    }

    fn of(&self, mailbox: MailboxId, provider: Provider) -> Arc<MailboxSemaphores> {
        let mut permits = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(permits) = permits.get(&mailbox).and_then(Weak::upgrade) {
            return permits;
        }
        permits.retain(|_, permits| permits.strong_count() > 0);
        let all = provider.capabilities().concurrent_batches;
        // Backfill leaves one permit to new mail.
        let (all, backfill) = (Arc::new(Semaphore::new(all)), Arc::new(Semaphore::new(all - 1)));
        let fresh = Arc::new(MailboxSemaphores { all, backfill });
        permits.insert(mailbox, Arc::downgrade(&fresh));
        fresh
    }
}

impl Drop for FetchPermit {
    fn drop(&mut self) {
        count_in_use(Limit::FetchBatches, -1.0);
    }
}
