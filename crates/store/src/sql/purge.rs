//! Purges emails: removes them for good.

use domain::{EmailId, MailboxId, Sha256};

use super::any;
use super::ledger::PURGED;
use crate::failpoint::Effect;
use crate::{Dialect, StoreError, TenantStore, Unit, params};

impl Unit {
    /// Asks for a scrub, in the unit that erases something. See [`crate::SystemStore::scrub`].
    pub(super) fn request_scrub(&mut self, dialect: Dialect) {
        if dialect == Dialect::Sqlite {
            self.is_erasing = true;
            self.op("update scrubs set wanted = wanted + 1", vec![]);
        }
    }
}

impl TenantStore {
    /// Removes the rows of these emails and returns how many there were. The ledger remembers their messages as gone,
    /// so that they are not fetched again; bytes that no other row refers to are left to the collector. Refused while the
    /// tenant is on legal hold.
    pub async fn purge_emails(&self, ids: &[EmailId]) -> Result<u64, StoreError> {
        let dialect = self.store.dialect();
        let (mailboxes, keys) = self.content_keys(ids).await?;
        let by_email = format!("tenant_id = $1 and {}", any(dialect, "email_id", 2));
        let by_id = format!("tenant_id = $1 and {}", any(dialect, "id", 2));
        let search = match dialect {
            Dialect::Postgres => format!("delete from email_search where {by_email}"),
            Dialect::Sqlite => {
                format!("delete from email_search where rowid in (select search_rowid from emails where {by_id})")
            }
        };
        let statements = [
            search,
            format!("delete from discarded_emails where {by_email}"),
            format!("delete from restored_emails where {by_email}"),
            format!("delete from attachments where {by_email}"),
            format!("delete from email_recipients where {by_email}"),
            format!(
                "update ledger set state = 'gone', reason = '{PURGED}', email_id = null
                 where (mailbox_id, provider_message_id) in (
                     select mailbox_id, provider_message_id from emails where {by_id}
                     union select mailbox_id, provider_message_id from placements where {by_email})"
            ),
            format!("delete from placements where {by_email}"),
        ];
        let mut unit = self.write();
        unit.unit.expect_not_held(dialect, self.id);
        unit.unit.request_scrub(dialect);
        for sql in statements {
            unit.unit.op(sql, params![self.id, ids.to_vec()]);
        }
        unit.unit.op(
            format!(
                "delete from email_contents where {by_email} and {} and {}",
                any(dialect, "mailbox_id", 3),
                any(dialect, "raw_sha256", 4)
            ),
            params![self.id, ids.to_vec(), mailboxes, keys],
        );
        let purged = unit.unit.op(format!("delete from emails where {by_id}"), params![self.id, ids.to_vec()]);
        let committed = unit.commit_at(Effect::PurgeEmails).await?;
        Ok(committed.changed(purged))
    }

    /// Returns the keys of emails in their mailboxes: the hash of their bytes, or of their provider's id.
    async fn content_keys(&self, ids: &[EmailId]) -> Result<(Vec<MailboxId>, Vec<Sha256>), StoreError> {
        let sql = format!(
            "select mailbox_id, provider_message_id, raw_sha256 from emails where tenant_id = $1 and {}",
            any(self.store.dialect(), "id", 2)
        );
        let (mut mailboxes, mut keys) = (Vec::new(), Vec::new());
        for row in self.query(sql, params![self.id, ids.to_vec()]).await? {
            mailboxes.push(row.get(0)?);
            keys.push(Sha256::of(row.get::<String>(1)?.as_bytes()));
            keys.push(row.get(2)?);
        }
        Ok((mailboxes, keys))
    }
}
