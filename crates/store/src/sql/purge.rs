//! Removing emails for good.

use domain::EmailId;

use super::any;
use crate::failpoint::{self, Effect};
use crate::{Dialect, StoreError, TenantStore, params};

impl TenantStore {
    /// Removes the rows of these emails and returns how many there were. The ledger remembers their messages as gone,
    /// so that nothing fetches them again by itself; bytes that nobody else names are left to the collector.
    pub async fn purge_emails(&self, ids: &[EmailId]) -> Result<u64, StoreError> {
        let dialect = self.store.dialect();
        let of = |column| format!("tenant_id = $1 and {}", any(dialect, column, 2));
        let search = match dialect {
            Dialect::Postgres => format!("delete from email_search where {}", of("email_id")),
            Dialect::Sqlite => {
                format!("delete from email_search where rowid in (select search_rowid from emails where {})", of("id"))
            }
        };
        let (by_email, by_id) = (of("email_id"), of("id"));
        let statements = [
            search,
            format!("delete from attachments where {by_email}"),
            format!("delete from email_recipients where {by_email}"),
            format!(
                "update ledger set state = 'gone', reason = 'purged', email_id = null
                 where (mailbox_id, provider_message_id) in (
                     select mailbox_id, provider_message_id from emails where {by_id}
                     union select mailbox_id, provider_message_id from placements where {by_email})"
            ),
            format!("delete from placements where {by_email}"),
            format!(
                "delete from email_contents where (mailbox_id, raw_sha256) in (
                     select mailbox_id, raw_sha256 from emails where {by_id})"
            ),
        ];
        let mut unit = self.write();
        for sql in statements {
            unit.unit.op(sql, params![self.id, ids.to_vec()]);
        }
        let purged = unit.unit.op(format!("delete from emails where {by_id}"), params![self.id, ids.to_vec()]);
        failpoint::before(Effect::PurgeEmails);
        let committed = unit.commit().await?;
        failpoint::after(Effect::PurgeEmails);
        Ok(committed.changed(purged))
    }
}
