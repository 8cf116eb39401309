//! How many batches of one mailbox are fetched at once.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use domain::{Lane, MailboxId};
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};

/// As many as a mailbox has connections, but for one: it is listed meanwhile.
const ALL: usize = 3;

/// Of what was there before: one turn is for new mail.
const OLD: usize = 2;

/// Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Turns(Arc<Mutex<HashMap<MailboxId, Weak<OfMailbox>>>>);

#[derive(Debug)]
struct OfMailbox {
    all: Arc<Semaphore>,
    old: Arc<Semaphore>,
}

/// It is over when this is dropped.
#[derive(Debug)]
pub struct Turn {
    _mailbox: Arc<OfMailbox>,
    _permits: (Option<OwnedSemaphorePermit>, OwnedSemaphorePermit),
}

impl Turns {
    pub async fn take(&self, mailbox: MailboxId, lane: Lane) -> Result<Turn, AcquireError> {
        let turns = self.of(mailbox);
        let old = match lane {
            Lane::Low => Some(turns.old.clone().acquire_owned().await?),
            _ => None,
        };
        let any = turns.all.clone().acquire_owned().await?;
        Ok(Turn { _mailbox: turns, _permits: (old, any) })
    }

    fn of(&self, mailbox: MailboxId) -> Arc<OfMailbox> {
        let mut turns = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(turns) = turns.get(&mailbox).and_then(Weak::upgrade) {
            return turns;
        }
        turns.retain(|_, turns| turns.strong_count() > 0);
        let fresh = Arc::new(OfMailbox { all: Arc::new(Semaphore::new(ALL)), old: Arc::new(Semaphore::new(OLD)) });
        turns.insert(mailbox, Arc::downgrade(&fresh));
        fresh
    }
}
