//! Mailboxes.

use domain::{MailboxId, MailboxState, Provider, TenantId};
use jiff::Timestamp;
use serde::Serialize;

use super::events::{DRAFTS, SAID};
use crate::failpoint::{self, Effect};
use crate::{Dialect, Row, StoreError, TenantStore, TenantUnit, params};

#[derive(Debug, Clone, Serialize)]
pub struct Mailbox {
    pub id: MailboxId,
    pub tenant_id: TenantId,
    pub provider: Provider,
    pub address: String,
    pub state: MailboxState,
    pub state_reason: Option<String>,
    pub state_since: Timestamp,
    pub settings: serde_json::Value,
    pub secret_ref: Option<String>,
    pub is_active: bool,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub version: u64,
}

pub(crate) const COLUMNS: &str =
    "id, tenant_id, provider, address, state, is_active, created_at, state_reason, state_since, settings, secret_ref,
     updated_at, version";

/// What the provider of a mailbox `m` knows its account by. There is an index for this very text.
pub(crate) const ACCOUNT: &str = "coalesce(m.settings -> 'connection' ->> 'account', m.address)";

/// Whether a mailbox `m` is looked at, in a tenant that is not switched off; see [`Mailbox::is_looked_at`].
pub(crate) const IS_LOOKED_AT: &str = "m.is_active and m.state in ('connecting', 'active', 'error')";

impl Mailbox {
    /// Neither switched off nor waiting for somebody.
    pub fn is_looked_at(&self) -> bool {
        self.is_active && self.state.is_synced()
    }

    /// What its provider knows the account by. The mailbox may be called otherwise, where its name was taken.
    pub fn account(&self) -> &str {
        self.settings["connection"]["account"].as_str().unwrap_or(&self.address)
    }
}

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

    /// A place for files. `false`: there is a mailbox of that address.
    pub async fn add_files_mailbox(&self, id: MailboxId, address: &str) -> Result<bool, StoreError> {
        let mut unit = self.write();
        unit.unit.op_exactly(
            1,
            MAILBOX_EXISTS,
            "insert into mailboxes (id, tenant_id, provider, address, state, state_since, created_at, updated_at)
             values ($1, $2, $3, $4, $5, mailroom_now(), mailroom_now(), mailroom_now())
             on conflict (tenant_id, address) do nothing",
            params![id, self.id, Provider::Files, address, MailboxState::Active],
        );
        match unit.commit().await {
            Ok(_) => Ok(true),
            Err(StoreError::Precondition(MAILBOX_EXISTS)) => Ok(false),
            Err(e) => Err(e),
        }
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

    /// In the order in which they were made, after a given one.
    pub async fn list_mailboxes_after(&self, after: Option<MailboxId>, limit: u64) -> Result<Vec<Mailbox>, StoreError> {
        let after = after.unwrap_or(MailboxId(uuid::Uuid::nil()));
        let sql = format!("select {COLUMNS} from mailboxes where tenant_id = $1 and id > $2 order by id limit $3");
        self.query(sql, params![self.id, after, limit]).await?.iter().map(mailbox).collect()
    }
}

/// A mailbox that lives somewhere else. With the id of one that was disconnected, or that took files so far, it is that one.
#[derive(Debug, Clone)]
pub struct NewMailbox {
    pub id: MailboxId,
    pub provider: Provider,
    pub address: String,
    pub settings: serde_json::Value,
    pub secret_ref: Option<String>,
    /// What arrived before this is left out.
    pub since: Option<Timestamp>,
}

/// What somebody is told who changes what another has changed meanwhile.
pub const MAILBOX_CHANGED: &str = "the mailbox was changed meanwhile";

/// What who adds a mailbox is told when there is one of that address.
pub const MAILBOX_EXISTS: &str = "the tenant has a mailbox of this address already";

impl TenantUnit {
    /// It is looked at from the commit on.
    pub fn add_mailbox(&mut self, new: NewMailbox) {
        let NewMailbox { id, provider, address, settings, secret_ref, since } = new;
        self.unit.op_exactly(
            1,
            MAILBOX_EXISTS,
            "insert into mailboxes (id, tenant_id, provider, address, state, state_since, settings, secret_ref, created_at,
                                    updated_at)
             values ($1, $2, $3, $4, $5, mailroom_now(), $6, $7, mailroom_now(), mailroom_now())
             on conflict (tenant_id, address) do update set provider = excluded.provider, state = excluded.state,
                 state_reason = null, state_since = excluded.state_since, settings = excluded.settings,
                 secret_ref = excluded.secret_ref, is_active = true, version = mailboxes.version + 1,
                 updated_at = excluded.updated_at
             where mailboxes.id = excluded.id and (mailboxes.state = 'disconnected' or mailboxes.provider = 'files')",
            params![id, self.tenant, provider, address, MailboxState::Connecting, settings, secret_ref],
        );
        self.start_syncing(id, since);
    }

    /// Nothing of the unit happens unless the mailbox is of this version.
    pub fn expect_mailbox(&mut self, mailbox: MailboxId, version: u64) {
        let lock = if self.store.dialect() == Dialect::Postgres { " for update" } else { "" };
        self.unit.op_returning_exactly(
            1,
            MAILBOX_CHANGED,
            format!("select id from mailboxes where tenant_id = $1 and id = $2 and version = $3{lock}"),
            params![self.tenant, mailbox, version],
        );
    }

    /// Nothing of the unit happens when our app opens the mailbox of somebody else for it by now.
    pub fn expect_user(&mut self, mailbox: MailboxId, user: &str) {
        self.unit.op_returning_exactly(
            1,
            MAILBOX_CHANGED,
            "select 1 from mailboxes where tenant_id = $1 and id = $2 and settings -> 'connection' ->> 'user' = $3",
            params![self.tenant, mailbox, user],
        );
    }

    /// How it is reached and what is wanted of it.
    pub fn change_mailbox(&mut self, mailbox: MailboxId, settings: serde_json::Value, secret_ref: Option<&str>) {
        self.unit.op(
            "update mailboxes set settings = $3, secret_ref = $4, version = version + 1, updated_at = mailroom_now()
             where tenant_id = $1 and id = $2",
            params![self.tenant, mailbox, settings, secret_ref],
        );
    }

    /// If it is in one of these states, it is in that one now, which is told.
    pub fn move_mailbox(&mut self, mailbox: MailboxId, from: &[MailboxState], to: MailboxState, reason: Option<&str>) {
        self.move_if("true", mailbox, from, to, reason);
    }

    /// The same, unless somebody has changed it since it was read.
    pub fn move_mailbox_as_it_was(
        &mut self,
        mailbox: &Mailbox,
        from: &[MailboxState],
        to: MailboxState,
        reason: Option<&str>,
    ) {
        self.move_if(&format!("version = {}", mailbox.version), mailbox.id, from, to, reason);
    }

    /// If it is in this state it stays there, and says why from now on.
    pub fn explain_mailbox(&mut self, mailbox: MailboxId, state: MailboxState, reason: &str) {
        self.unit.op(
            "update mailboxes set state_reason = $4, version = version + 1, updated_at = mailroom_now()
             where tenant_id = $1 and id = $2 and state = $3 and (state_reason is null or state_reason <> $4)",
            params![self.tenant, mailbox, state, reason],
        );
    }

    fn move_if(
        &mut self,
        condition: &str,
        mailbox: MailboxId,
        from: &[MailboxState],
        to: MailboxState,
        reason: Option<&str>,
    ) {
        let states: Vec<String> = from.iter().map(|state| format!("'{}'", state.as_str())).collect();
        let here = format!("tenant_id = $1 and id = $2 and {condition} and state in ({})", states.join(", "));
        let unit = self.drafting();
        if self.store.dialect() == Dialect::Postgres {
            // Of two who move it at once, one tells.
            let sql = "select id from mailboxes where tenant_id = $1 and id = $2 for update";
            self.unit.op(sql, params![self.tenant, mailbox]);
        }
        let data = serde_json::json!({"state": to.as_str(), "reason": reason});
        self.unit.op(
            format!(
                "insert into {DRAFTS} select tenant_id, $3, {SAID}, 'mailbox.state_changed', id, null, false, $4
                 from mailboxes where {here}"
            ),
            params![self.tenant, mailbox, unit, data],
        );
        self.unit.op(
            format!(
                "update mailboxes set state = $3, state_reason = $4, state_since = mailroom_now(), version = version + 1,
                    updated_at = mailroom_now() where {here}"
            ),
            params![self.tenant, mailbox, to, reason.map(str::to_owned)],
        );
    }
}

pub(crate) fn mailbox(row: &Row) -> Result<Mailbox, StoreError> {
    Ok(Mailbox {
        id: row.get(0)?,
        tenant_id: row.get(1)?,
        provider: row.get(2)?,
        address: row.get(3)?,
        state: row.get(4)?,
        is_active: row.get(5)?,
        created_at: row.get(6)?,
        state_reason: row.get(7)?,
        state_since: row.get(8)?,
        settings: row.get(9)?,
        secret_ref: row.get(10)?,
        updated_at: row.get(11)?,
        version: row.get(12)?,
    })
}
