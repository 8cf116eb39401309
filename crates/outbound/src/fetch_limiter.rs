//! Limits how many batches of one mailbox are fetched at once.

use std::time::Duration;

use domain::{Lane, MailboxId, Provider};

use crate::limits::Limit;
use crate::permits::{Permit, PermitTable};

/// What a batch is counted for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FetchScope {
    Mailbox(MailboxId),
    Backfill(MailboxId),
}

/// The permits of all mailboxes that are fetched from. Cheap to clone; clones share them.
#[derive(Debug, Clone)]
pub struct FetchLimiter(PermitTable<FetchScope>);

impl Default for FetchLimiter {
    fn default() -> Self {
        Self(PermitTable::new(Limit::FetchBatches))
    }
}

impl FetchLimiter {
    /// Waits for a permit to fetch one batch. Returns `None` if none was free in time.
    pub async fn acquire(
        &self,
        (mailbox, provider): (MailboxId, Provider),
        lane: Lane,
        max_wait: Duration,
    ) -> Option<Permit<FetchScope>> {
        let max = provider.capabilities().concurrent_batches;
        // Backfill leaves one permit to new mail.
        let scopes = [(FetchScope::Mailbox(mailbox), max), (FetchScope::Backfill(mailbox), max - 1)];
        let scopes = if lane == Lane::Low { &scopes[..] } else { &scopes[..1] };
        self.0.wait_at_most(max_wait, scopes).await
    }
}

#[cfg(test)]
mod tests {
    use domain::SystemClock;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn backfill_leaves_one_batch_to_new_mail() {
        let (limiter, mailbox) = (FetchLimiter::default(), (MailboxId::new(&SystemClock), Provider::Gmail));
        let mut held = Vec::new();
        while let Some(permit) = limiter.acquire(mailbox, Lane::Low, Duration::from_secs(5)).await {
            held.push(permit);
        }
        assert_eq!(held.len(), Provider::Gmail.capabilities().concurrent_batches - 1);

        held.extend(limiter.acquire(mailbox, Lane::Normal, Duration::from_secs(5)).await);

        assert_eq!(held.len(), Provider::Gmail.capabilities().concurrent_batches);
        assert!(limiter.acquire(mailbox, Lane::High, Duration::from_secs(5)).await.is_none());
    }
}
