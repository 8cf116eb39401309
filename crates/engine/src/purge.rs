//! Removing emails for good.

use domain::EmailId;
use store::TenantStore;

use crate::Engine;

/// Emails that go in one unit: few enough that nobody else waits for it.
const EMAILS: usize = 200;

impl Engine {
    /// How many there were. Interrupted, it has removed some of them, each wholly.
    pub async fn purge(&self, store: &TenantStore, ids: &[EmailId]) -> anyhow::Result<u64> {
        let mut purged = 0;
        for ids in ids.chunks(EMAILS) {
            purged += store.purge_emails(ids).await?;
        }
        Ok(purged)
    }
}
