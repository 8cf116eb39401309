//! Adaptive batch sizes and backoff, per mailbox: a batch grows with each success and halves when Google throttles; where
//! Google names no wait, the backoff doubles.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use domain::{ConnectorError, MailboxId};

/// Google advises against more, because it runs the calls of a batch concurrently.
pub const MAX_BATCH_SIZE: usize = 50;

/// Messages of a mailbox's first batch.
const INITIAL_BATCH_SIZE: usize = 20;

/// Limit of the backoff, which is 1, 2, 4 … seconds.
const MAX_BACKOFF_SECONDS: u64 = 64;

#[derive(Debug, Clone, Copy)]
struct BatchState {
    size: usize,
    /// Consecutive throttling errors.
    refusals: u32,
}

/// Batch sizes by mailbox, because Google's limits are per user.
#[derive(Debug)]
pub struct BatchSizer {
    max_size: usize,
    mailboxes: Mutex<HashMap<MailboxId, BatchState>>,
}

impl BatchSizer {
    pub fn new(max_size: usize) -> Self {
        Self { max_size: max_size.clamp(1, MAX_BATCH_SIZE), mailboxes: Mutex::default() }
    }

    pub fn size(&self, mailbox: MailboxId) -> usize {
        self.update(mailbox, |state| state.size)
    }

    pub fn record_success(&self, mailbox: MailboxId) {
        self.update(mailbox, |state| {
            *state = BatchState { size: (state.size + 1 + state.size / 4).min(self.max_size), refusals: 0 }
        });
    }

    /// Returns the error, with a wait if it is a throttling error; that also halves the batch size.
    pub fn record_error(&self, mailbox: MailboxId, e: ConnectorError) -> ConnectorError {
        let ConnectorError::Throttled { retry_after } = e else { return e };
        let refusals = self.update(mailbox, |state| {
            *state = BatchState { size: (state.size / 2).max(1), refusals: state.refusals.saturating_add(1) };
            state.refusals
        });
        let wait = retry_after.unwrap_or_else(|| {
            Duration::from_secs(1_u64.checked_shl(refusals - 1).unwrap_or(MAX_BACKOFF_SECONDS).min(MAX_BACKOFF_SECONDS))
        });
        ConnectorError::Throttled { retry_after: Some(wait) }
    }

    fn update<T>(&self, mailbox: MailboxId, change: impl FnOnce(&mut BatchState) -> T) -> T {
        let mut mailboxes = self.mailboxes.lock().unwrap_or_else(PoisonError::into_inner);
        change(
            mailboxes.entry(mailbox).or_insert(BatchState { size: INITIAL_BATCH_SIZE.min(self.max_size), refusals: 0 }),
        )
    }
}

#[cfg(test)]
mod tests {
    use domain::SystemClock;

    use super::*;

    #[test]
    fn batches_shrink_when_throttled_and_grow_otherwise() {
        let (sizer, mailbox) = (BatchSizer::new(50), MailboxId::new(&SystemClock));

        let waits = [None, None, Some(7), None].map(|retry_after| throttle(&sizer, mailbox, retry_after));
        assert_eq!(waits, [1, 2, 7, 8]);
        assert_eq!(sizer.size(mailbox), 1);
        (0..100).for_each(|_| sizer.record_success(mailbox));
        assert_eq!((sizer.size(mailbox), throttle(&sizer, mailbox, None)), (50, 1));
    }

    /// Returns the wait in seconds.
    fn throttle(sizer: &BatchSizer, mailbox: MailboxId, retry_after: Option<u64>) -> u64 {
        let retry_after = retry_after.map(Duration::from_secs);
        match sizer.record_error(mailbox, ConnectorError::Throttled { retry_after }) {
            ConnectorError::Throttled { retry_after } => retry_after.unwrap().as_secs(),
            e => panic!("{e}"),
        }
    }
}
