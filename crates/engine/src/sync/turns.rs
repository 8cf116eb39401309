//! How many batches of one mailbox are fetched at once.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use domain::{Lane, MailboxId, Provider};
use store::sql::mailboxes::Mailbox;
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};

/// As many as a mailbox has connections, but for one: it is listed meanwhile.
const ALL: usize = 3;

/// Who answers twenty messages by a call and four calls at once is to be asked again while what came is read.
const ALL_OF_OUTLOOK: usize = 4;

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
    pub async fn take(&self, mailbox: &Mailbox, lane: Lane) -> Result<Turn, AcquireError> {
        let turns = self.of(mailbox);
        let old = match lane {
            Lane::Low => Some(turns.old.clone().acquire_owned().await?),
            _ => None,
        };
        let any = turns.all.clone().acquire_owned().await?;
        Ok(Turn { _mailbox: turns, _permits: (old, any) })
    }

    fn of(&self, mailbox: &Mailbox) -> Arc<OfMailbox> {
        let mut turns = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(turns) = turns.get(&mailbox.id).and_then(Weak::upgrade) {
            return turns;
        }
        turns.retain(|_, turns| turns.strong_count() > 0);
        let all = if mailbox.provider == Provider::Outlook { ALL_OF_OUTLOOK } else { ALL };
        // Of what was there before: one turn is for new mail.
        let (all, old) = (Arc::new(Semaphore::new(all)), Arc::new(Semaphore::new(all - 1)));
        let fresh = Arc::new(OfMailbox { all, old });
        turns.insert(mailbox.id, Arc::downgrade(&fresh));
        fresh
    }
}
