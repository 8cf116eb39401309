//! The right to list a mailbox, for as long as it is renewed.

use std::time::Duration;

use domain::MailboxId;
use store::{StoreError, TenantStore};
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// Renewed by a task of its own while this lives. What is written in its name carries the token; that is what protects.
#[derive(Debug)]
pub struct Hold {
    pub token: u64,
    renewing: JoinHandle<()>,
}

impl Hold {
    /// `None`: somebody else lists it.
    pub async fn take(
        store: &TenantStore,
        mailbox: MailboxId,
        holder: &str,
        lease: Duration,
    ) -> Result<Option<Self>, StoreError> {
        let asked = Instant::now();
        let Some(token) = store.begin_sync(mailbox, holder, lease).await? else { return Ok(None) };
        let renewing = tokio::spawn(renew(store.clone(), mailbox, token, lease, asked));
        Ok(Some(Self { token, renewing }))
    }

    /// By our own clock the right has run out, or the database said so: time to stop.
    pub fn is_lost(&self) -> bool {
        self.renewing.is_finished()
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.renewing.abort();
    }
}

/// Ends when the right is lost.
async fn renew(store: TenantStore, mailbox: MailboxId, token: u64, lease: Duration, mut renewed: Instant) {
    while renewed.elapsed() < lease * 2 / 3 {
        tokio::time::sleep(lease / 4).await;
        let asked = Instant::now();
        match store.renew_sync(mailbox, token, lease).await {
            Ok(true) => renewed = asked,
            Ok(false) => return,
            Err(e) => tracing::debug!("cannot renew the right to list a mailbox: {e}"),
        }
    }
}
