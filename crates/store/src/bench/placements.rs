//! What is stored of a mailbox, placement by placement, to be compared with what a simulated provider holds.

use domain::{EmailId, LedgerState, MailboxId, Sha256};

use crate::{Row, StoreError, TenantStore, params};

/// A live placement of a message, and its email.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredPlacement {
    /// Message, folder and uid by the names that the provider has for them.
    pub message: String,
    pub folder: String,
    pub uid: String,
    pub folder_name: String,
    pub flags: Vec<String>,
    pub state: LedgerState,
    /// `None`: it has not been stored yet.
    pub email: Option<(EmailId, Sha256)>,
    /// The email or its folder counts as deleted although the placement is live.
    pub is_deleted: bool,
}

/// Lists every live placement of the messages that came from the provider.
pub async fn list_stored_placements(
    tenant: &TenantStore,
    mailbox: MailboxId,
) -> Result<Vec<StoredPlacement>, StoreError> {
    let sql = "select p.provider_message_id, f.provider_folder_id, p.provider_uid, f.name, p.flags, l.state, e.id,
                          e.raw_sha256, e.deleted_at is not null or f.gone_at is not null
                   from placements p
                   join folders f on f.tenant_id = p.tenant_id and f.id = p.folder_id
                   join ledger l on l.tenant_id = p.tenant_id and l.mailbox_id = p.mailbox_id
                        and l.provider_message_id = p.provider_message_id
                   left join emails e on e.tenant_id = p.tenant_id and e.id = p.email_id
                   where p.tenant_id = $1 and p.mailbox_id = $2 and p.is_live
                     and p.provider_message_id not like 'sha256:%'";
    tenant.query(sql, params![tenant.id, mailbox]).await?.iter().map(placement).collect()
}

/// Counts the emails of a mailbox that are not deleted.
pub async fn count_live_emails(tenant: &TenantStore, mailbox: MailboxId) -> Result<u64, StoreError> {
    let sql = "select count(*) from emails where tenant_id = $1 and mailbox_id = $2 and deleted_at is null";
    let row = tenant.query_one(sql, params![tenant.id, mailbox]).await?;
    row.map_or(Ok(0), |row| row.get(0))
}

fn placement(row: &Row) -> Result<StoredPlacement, StoreError> {
    let flags: serde_json::Value = row.get(4)?;
    let mut flags: Vec<String> =
        flags.as_array().into_iter().flatten().filter_map(|flag| flag.as_str().map(str::to_owned)).collect();
    flags.sort();
    let (email, sha256): (Option<EmailId>, Option<Sha256>) = (row.get(6)?, row.get(7)?);
    Ok(StoredPlacement {
        message: row.get(0)?,
        folder: row.get(1)?,
        uid: row.get(2)?,
        folder_name: row.get(3)?,
        flags,
        state: row.get(5)?,
        email: email.zip(sha256),
        is_deleted: row.get(8)?,
    })
}
