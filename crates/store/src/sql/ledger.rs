//! Which messages of a mailbox we have met.

use std::collections::HashSet;

use domain::MailboxId;

use super::any;
use crate::{StoreError, TenantStore, params};

impl TenantStore {
    /// Those of the given provider ids that are processed already.
    pub async fn processed_messages(
        &self,
        mailbox: MailboxId,
        provider_message_ids: Vec<String>,
    ) -> Result<HashSet<String>, StoreError> {
        let sql = format!(
            "select provider_message_id from ledger
             where tenant_id = $1 and mailbox_id = $2 and state = 'processed' and {}",
            any(self.store.dialect(), "provider_message_id", 3)
        );
        let rows = self.query(sql, params![self.id, mailbox, provider_message_ids]).await?;
        rows.iter().map(|row| row.get(0)).collect()
    }
}
