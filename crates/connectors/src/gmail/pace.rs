//! How many messages a batch has, and how long to wait where Google does not say: less when it complains, more when it
//! does not.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use domain::{ConnectorError, MailboxId};

/// More than this Google advises against, for it runs them at once.
pub const MOST: usize = 50;

/// To begin with.
const USUAL: usize = 20;

/// After 1, 2, 4 … and at most so many seconds.
const LONGEST: u64 = 64;

#[derive(Debug, Clone, Copy)]
struct Pace {
    size: usize,
    /// In a row.
    refusals: u32,
}

/// By mailbox: Google's limits are those of a user.
#[derive(Debug)]
pub struct Paces {
    most: usize,
    mailboxes: Mutex<HashMap<MailboxId, Pace>>,
}

impl Paces {
    pub fn new(most: usize) -> Self {
        Self { most: most.clamp(1, MOST), mailboxes: Mutex::default() }
    }

    pub fn size(&self, mailbox: MailboxId) -> usize {
        self.with(mailbox, |pace| pace.size)
    }

    pub fn went_well(&self, mailbox: MailboxId) {
        self.with(mailbox, |pace| *pace = Pace { size: (pace.size + 1 + pace.size / 4).min(self.most), refusals: 0 });
    }

    /// The same error with a time in it, if it is one that needs one.
    pub fn refused(&self, mailbox: MailboxId, e: ConnectorError) -> ConnectorError {
        let ConnectorError::Throttled { retry_after } = e else { return e };
        let refusals = self.with(mailbox, |pace| {
            *pace = Pace { size: (pace.size / 2).max(1), refusals: pace.refusals.saturating_add(1) };
            pace.refusals
        });
        let wait = retry_after
            .unwrap_or_else(|| Duration::from_secs(1_u64.checked_shl(refusals - 1).unwrap_or(LONGEST).min(LONGEST)));
        ConnectorError::Throttled { retry_after: Some(wait) }
    }

    fn with<T>(&self, mailbox: MailboxId, look: impl FnOnce(&mut Pace) -> T) -> T {
        let mut mailboxes = self.mailboxes.lock().unwrap_or_else(PoisonError::into_inner);
        look(mailboxes.entry(mailbox).or_insert(Pace { size: USUAL.min(self.most), refusals: 0 }))
    }
}

#[cfg(test)]
mod tests {
    use domain::SystemClock;

    use super::*;

    #[test]
    fn batches_shrink_when_google_complains_and_grow_when_it_does_not() {
        let (paces, mailbox) = (Paces::new(50), MailboxId::new(&SystemClock));
        let wait = |retry_after| match paces.refused(mailbox, ConnectorError::Throttled { retry_after }) {
            ConnectorError::Throttled { retry_after } => retry_after.unwrap().as_secs(),
            e => panic!("{e}"),
        };

        assert_eq!((wait(None), wait(None), wait(Some(Duration::from_secs(7))), wait(None)), (1, 2, 7, 8));
        assert_eq!(paces.size(mailbox), 1);
        (0..100).for_each(|_| paces.went_well(mailbox));
        assert_eq!((paces.size(mailbox), wait(None)), (50, 1));
    }
}
