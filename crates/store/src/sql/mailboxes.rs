//! Mailboxes.

use domain::{MailboxId, MailboxState, Provider, TenantId};
use jiff::Timestamp;
use serde::Serialize;

use crate::failpoint::{self, Effect};
use crate::{Row, StoreError, TenantStore, params};

#[derive(Debug, Clone, Serialize)]
pub struct Mailbox {
    pub id: MailboxId,
    pub tenant_id: TenantId,
    pub provider: Provider,
    pub address: String,
    pub state: MailboxState,
    pub is_active: bool,
    pub created_at: Timestamp,
}

const COLUMNS: &str = "id, tenant_id, provider, address, state, is_active, created_at";

impl TenantStore {
    /// The mailbox with this (canonical) address, made now if there is none. Two callers at once get the same one.
    pub async fn ensure_files_mailbox(&self, address: &str) -> Result<Mailbox, StoreError> {
        if let Some(found) = self.find_mailbox(address).await? {
            return Ok(found);
        }
        let mut unit = self.write();
        unit.unit.op(
            "insert into mailboxes (id, tenant_id, provider, address, state, state_since, created_at, updated_at)
             values ($1, $2, $3, $4, $5, mailroom_now(), mailroom_now(), mailroom_now())
             on conflict (tenant_id, address) do nothing",
            params![MailboxId::new(self.clock()), self.id, Provider::Files, address, MailboxState::Active],
        );
        failpoint::before(Effect::MakeMailbox);
        unit.commit().await?;
        failpoint::after(Effect::MakeMailbox);
        self.find_mailbox(address).await?.ok_or(StoreError::Precondition("the mailbox was removed meanwhile"))
    }

    /// By address or by id.
    pub async fn find_mailbox(&self, address_or_id: &str) -> Result<Option<Mailbox>, StoreError> {
        let row = match address_or_id.parse::<MailboxId>() {
            Ok(id) => {
                let sql = format!("select {COLUMNS} from mailboxes where tenant_id = $1 and id = $2");
                self.query_one(sql, params![self.id, id]).await?
            }
            Err(_) => {
                let sql = format!("select {COLUMNS} from mailboxes where tenant_id = $1 and address = $2");
                self.query_one(sql, params![self.id, address_or_id]).await?
            }
        };
        row.as_ref().map(mailbox).transpose()
    }

    pub async fn list_mailboxes(&self) -> Result<Vec<Mailbox>, StoreError> {
        let sql = format!("select {COLUMNS} from mailboxes where tenant_id = $1 order by address");
        self.query(sql, params![self.id]).await?.iter().map(mailbox).collect()
    }
}

fn mailbox(row: &Row) -> Result<Mailbox, StoreError> {
    Ok(Mailbox {
        id: row.get(0)?,
        tenant_id: row.get(1)?,
        provider: row.get(2)?,
        address: row.get(3)?,
        state: row.get(4)?,
        is_active: row.get(5)?,
        created_at: row.get(6)?,
    })
}
