//! The ledger: which messages of a mailbox a provider has shown us.

use std::collections::{HashMap, HashSet};

use domain::{EmailId, LedgerState, MailboxId, Sha256};

use super::any;
use crate::{Precondition, Row, StoreError, TenantStore, TenantUnit, params};

/// A message in the ledger.
#[derive(Debug, Clone)]
pub struct LedgerEntry {
    pub state: LedgerState,
    /// Assigned when it was first recorded, and never changed.
    pub email: Option<EmailId>,
    pub revision: Option<String>,
    /// The hash of the bytes that its email was last made of.
    pub raw_sha256: Option<Sha256>,
    /// It was removed at the provider before all of it was stored.
    pub is_gone_unfinished: bool,
    /// Its email was purged: it is not fetched again.
    pub is_purged: bool,
}

/// The reason of a message that was removed before all of it was stored: it is fetched when it comes back.
pub(crate) const UNFINISHED: &str = "unfinished";

/// The reason of a message whose email was purged.
pub(crate) const PURGED: &str = "purged";

impl TenantStore {
    /// Finds the ledger entries of the given provider ids.
    pub async fn find_ledger_entries(
        &self,
        mailbox: MailboxId,
        provider_message_ids: Vec<String>,
    ) -> Result<HashMap<String, LedgerEntry>, StoreError> {
        let sql = format!(
            "select provider_message_id, state, email_id, revision, raw_sha256, reason
             from ledger where tenant_id = $1 and mailbox_id = $2 and {}",
            any(self.store.dialect(), "provider_message_id", 3)
        );
        let rows = self.query(sql, params![self.id, mailbox, provider_message_ids]).await?;
        rows.iter()
            .map(|row: &Row| {
                let (state, email, revision) = (row.get(1)?, row.get(2)?, row.get(3)?);
                let (raw_sha256, reason): (_, Option<String>) = (row.get(4)?, row.get(5)?);
                let reason = reason.as_deref().filter(|_| state == LedgerState::Gone);
                let (is_gone_unfinished, is_purged) = (reason == Some(UNFINISHED), reason == Some(PURGED));
                Ok((row.get(0)?, LedgerEntry { state, email, revision, raw_sha256, is_gone_unfinished, is_purged }))
            })
            .collect()
    }

    /// Finds the emails that have these contents.
    pub async fn find_emails_by_content(
        &self,
        mailbox: MailboxId,
        contents: Vec<Sha256>,
    ) -> Result<HashMap<Sha256, EmailId>, StoreError> {
        let dialect = self.store.dialect();
        let sql = format!(
            "select raw_sha256, email_id from email_contents where tenant_id = $1 and mailbox_id = $2 and {}",
            any(dialect, "raw_sha256", 3)
        );
        let rows = self.query(sql, params![self.id, mailbox, contents]).await?;
        rows.iter().map(|row| Ok((row.get(0)?, row.get(1)?))).collect()
    }

    /// Finds those of the emails that lack bytes. An ingest of the same bytes under another name completes them.
    pub async fn find_unfinished_emails(&self, emails: Vec<EmailId>) -> Result<HashSet<EmailId>, StoreError> {
        if emails.is_empty() {
            return Ok(HashSet::new());
        }
        // Seldom, and not by a join: that would be planned for every partition of emails.
        let sql = format!(
            "select id from emails where tenant_id = $1 and processing_status = 'failed' and {}",
            any(self.store.dialect(), "id", 2)
        );
        self.query(sql, params![self.id, emails]).await?.iter().map(|row| row.get(0)).collect()
    }
}

impl TenantUnit {
    /// Refuses the unit unless all of these messages still wait for their bytes: one that was removed must not come back.
    pub fn expect_failed(&mut self, mailbox: MailboxId, provider_message_ids: Vec<String>) {
        let rows = provider_message_ids.len() as u64;
        let sql = format!(
            "update ledger set attempts = attempts + 1
             where tenant_id = $1 and mailbox_id = $2 and state = 'failed' and {}",
            any(self.store.dialect(), "provider_message_id", 3)
        );
        let params = params![self.tenant, mailbox, provider_message_ids];
        self.unit.op_exactly(rows, Precondition::FailedEmailsChanged, sql, params);
    }
}
