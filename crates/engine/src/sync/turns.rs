//! How many batches of one mailbox are fetched at once.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use domain::MailboxId;
use tokio::sync::Semaphore;

/// As many as a mailbox has connections, but for one: it is listed meanwhile.
const PER_MAILBOX: usize = 3;

/// Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Turns(Arc<Mutex<HashMap<MailboxId, Weak<Semaphore>>>>);

impl Turns {
    pub fn of(&self, mailbox: MailboxId) -> Arc<Semaphore> {
        let mut turns = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(turn) = turns.get(&mailbox).and_then(Weak::upgrade) {
            return turn;
        }
        turns.retain(|_, turn| turn.strong_count() > 0);
        let turn = Arc::new(Semaphore::new(PER_MAILBOX));
        turns.insert(mailbox, Arc::downgrade(&turn));
        turn
    }
}
