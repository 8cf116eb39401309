//! Purges emails.

use domain::EmailId;
use store::TenantStore;

use crate::Engine;

/// Emails per unit: few enough that no other writer waits for it.
const EMAILS_PER_UNIT: usize = 200;

impl Engine {
    /// Purges emails and returns how many there were. Interrupted, it has purged some of them, each wholly.
    pub async fn purge(&self, store: &TenantStore, ids: &[EmailId]) -> anyhow::Result<u64> {
        let mut purged = 0;
        for ids in ids.chunks(EMAILS_PER_UNIT) {
            purged += store.purge_emails(ids).await?;
        }
        Ok(purged)
    }
}
