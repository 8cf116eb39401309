//! Retry-After: until when a provider asked not to be called for a mailbox.

use std::collections::HashMap;
use std::time::Duration;

use domain::MailboxId;
use tokio::time::Instant;

/// The longest Retry-After that is believed.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(365 * 86_400);

/// The waits that providers have asked for, by mailbox. They are of this process: another one that calls for the same
/// mailbox is asked to wait in turn.
#[derive(Debug, Default)]
pub struct RetryAfterTable(HashMap<MailboxId, Instant>);

impl RetryAfterTable {
    /// Records a wait, unless a longer one is known.
    pub fn record(&mut self, mailbox: MailboxId, wait: Duration, now: Instant) {
        let until = now + wait.min(MAX_RETRY_AFTER);
        let known = self.0.entry(mailbox).or_insert(until);
        *known = until.max(*known);
    }

    /// Returns how long the provider asked to wait, exactly.
    pub fn wait(&self, mailbox: Option<MailboxId>, now: Instant) -> Option<Duration> {
        let until = self.0.get(&mailbox?).filter(|until| **until > now)?;
        Some(*until - now)
    }

    pub fn evict_past(&mut self, now: Instant) {
        self.0.retain(|_, until| *until > now);
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.0.len()
    }
}
