//! Mailboxes: their rows, states and settings.

use domain::{
    EventType, MailboxEvent, MailboxId, MailboxSettings, MailboxState, Provider, SettingsInForce, TenantId,
    TenantSettings,
};
use jiff::Timestamp;
use serde::Serialize;

use super::events::{EVENT_STEP, INTO_DRAFTS};
use super::mailbox_settings::{CONNECTION_USER, mailbox_settings, tenant_settings};
use super::{column_count, columns_of};
use crate::{Dialect, Precondition, Row, StoreError, TenantStore, TenantUnit, params};

#[derive(Debug, Clone, Serialize)]
pub struct Mailbox {
    pub id: MailboxId,
    pub tenant_id: TenantId,
    pub provider: Provider,
    pub address: String,
    pub state: MailboxState,
    pub state_reason: Option<String>,
    pub state_since: Timestamp,
    pub settings: MailboxSettings,
    /// What it inherits.
    #[serde(skip)]
    pub tenant_settings: TenantSettings,
    pub secret_ref: Option<String>,
    pub is_active: bool,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub version: u64,
}

/// The columns that [`mailbox`] reads, but for the settings of the tenant, which follow them.
const OWN_COLUMNS: &str = "id, tenant_id, provider, address, state, is_active, created_at, state_reason, state_since, \
    settings, secret_ref, updated_at, version";

/// How many columns [`columns`] lists.
pub(crate) const COLUMN_COUNT: usize = column_count(OWN_COLUMNS) + 1;

/// Returns the columns that [`mailbox`] reads, of `mailboxes` under this name.
pub(crate) fn columns(table: &str) -> String {
    let own = columns_of(table, OWN_COLUMNS);
    format!("{own}, (select tenants.settings from tenants where tenants.id = {table}.tenant_id)")
}

/// Whether a mailbox `m` of an active tenant is synced; see [`Mailbox::is_sync_enabled`].
pub(crate) const IS_SYNC_ENABLED: &str = "m.is_active and m.state in ('connecting', 'active', 'error')";

impl Mailbox {
    /// Returns whether the mailbox is active and does not wait for a person.
    pub fn is_sync_enabled(&self) -> bool {
        self.is_active && self.state.is_synced()
    }

    /// Returns its settings with those that it inherits from its tenant.
    pub fn settings_in_force(&self) -> SettingsInForce {
        SettingsInForce::resolve(&self.settings, &self.tenant_settings)
    }

    /// Returns the account's name at the provider. The mailbox may have another address, where that was taken.
    pub fn account(&self) -> &str {
        self.settings.connection["account"].as_str().unwrap_or(&self.address)
    }
}

impl TenantStore {
    /// Returns the mailbox with this (canonical) address, and makes it if there is none. Concurrent callers get the same one.
    #[cfg(feature = "testing")]
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
        unit.commit().await?;
        self.find_mailbox(address).await?.ok_or(StoreError::Precondition(Precondition::MailboxRemoved))
    }

    /// Finds a mailbox by address or by id.
    pub async fn find_mailbox(&self, address_or_id: &str) -> Result<Option<Mailbox>, StoreError> {
        let row = match address_or_id.parse::<MailboxId>() {
            Ok(id) => {
                let sql = format!("select {} from mailboxes where tenant_id = $1 and id = $2", columns("mailboxes"));
                self.query_one(sql, params![self.id, id]).await?
            }
            Err(_) => {
                let sql =
                    format!("select {} from mailboxes where tenant_id = $1 and address = $2", columns("mailboxes"));
                self.query_one(sql, params![self.id, address_or_id]).await?
            }
        };
        row.as_ref().map(mailbox).transpose()
    }

    pub async fn list_mailboxes(&self) -> Result<Vec<Mailbox>, StoreError> {
        let sql = format!("select {} from mailboxes where tenant_id = $1 order by address", columns("mailboxes"));
        self.query(sql, params![self.id]).await?.iter().map(mailbox).collect()
    }

    /// Lists mailboxes in the order in which they were made, after a given one.
    pub async fn list_mailboxes_after(&self, after: Option<MailboxId>, limit: u64) -> Result<Vec<Mailbox>, StoreError> {
        let after = after.unwrap_or(MailboxId(uuid::Uuid::nil()));
        let sql = format!(
            "select {} from mailboxes where tenant_id = $1 and id > $2 order by id limit $3",
            columns("mailboxes")
        );
        self.query(sql, params![self.id, after, limit]).await?.iter().map(mailbox).collect()
    }
}

/// A mailbox at a provider. With the id of one that was disconnected, or that held imported files so far, it replaces that one.
#[derive(Debug, Clone)]
pub struct NewMailbox {
    pub id: MailboxId,
    pub provider: Provider,
    pub address: String,
    pub settings: MailboxSettings,
    pub secret_ref: Option<String>,
    /// Messages that arrived before this are left out.
    pub since: Option<Timestamp>,
}

impl TenantUnit {
    /// Writes the row of a mailbox that is connected: in place of one that was disconnected or held imported files, or as a
    /// new one. Fails with [`Precondition::MailboxChanged`] or [`Precondition::MailboxExists`].
    pub fn connect_mailbox(&mut self, before: Option<&Mailbox>, after: &Mailbox) {
        if let Some(before) = before {
            return self.write_row(before.version, after);
        }
        let Mailbox { id, provider, address, state, settings, secret_ref, created_at, .. } = after;
        self.unit.op_exactly(
            1,
            Precondition::MailboxExists,
            "insert into mailboxes (id, tenant_id, provider, address, state, state_reason, state_since, settings, secret_ref,
                                    is_active, created_at, updated_at, version)
             values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13) on conflict (tenant_id, address) do nothing",
            params![
                *id,
                self.tenant,
                *provider,
                address,
                *state,
                after.state_reason.clone(),
                after.state_since,
                settings.clone(),
                secret_ref.clone(),
                after.is_active,
                *created_at,
                after.updated_at,
                after.version,
            ],
        );
    }

    /// Replaces a mailbox by its next row, and emits an event for another state and for another `is_active`. Fails with
    /// [`Precondition::MailboxChanged`] unless it is as it was read.
    pub fn replace_mailbox(&mut self, before: &Mailbox, after: &Mailbox) {
        if after.version == before.version {
            return self.expect_mailbox(before.id, before.version);
        }
        if after.state != before.state {
            let data = serde_json::json!({"state": after.state.as_str(), "reason": after.state_reason});
            self.emit_event(EventType::MailboxStateChanged, Some(after.id), data);
        }
        if after.is_active != before.is_active {
            let kind = if after.is_active { EventType::MailboxActivated } else { EventType::MailboxDeactivated };
            self.emit_event(kind, Some(after.id), serde_json::json!({"reason": null}));
        }
        self.write_row(before.version, after);
        if (after.state, after.is_active) != (before.state, before.is_active) {
            self.wake_parked_jobs(&after.id.to_string());
        }
    }

    fn write_row(&mut self, known: u64, row: &Mailbox) {
        self.unit.op_exactly(
            1,
            Precondition::MailboxChanged,
            "update mailboxes set provider = $4, state = $5, state_reason = $6, state_since = $7, settings = $8,
                 secret_ref = $9, is_active = $10, updated_at = $11, version = $12
             where tenant_id = $1 and id = $2 and version = $3",
            params![
                self.tenant,
                row.id,
                known,
                row.provider,
                row.state,
                row.state_reason.clone(),
                row.state_since,
                row.settings.clone(),
                row.secret_ref.clone(),
                row.is_active,
                row.updated_at,
                row.version,
            ],
        );
    }

    /// Adds a mailbox, which is synced from the commit on.
    pub fn add_mailbox(&mut self, new: NewMailbox) {
        let NewMailbox { id, provider, address, settings, secret_ref, since } = new;
        self.unit.op_exactly(
            1,
            Precondition::MailboxExists,
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

    /// Refuses the unit unless the mailbox has this version.
    pub fn expect_mailbox(&mut self, mailbox: MailboxId, version: u64) {
        let lock = if self.store.dialect() == Dialect::Postgres { " for update" } else { "" };
        self.unit.op_returning_exactly(
            1,
            Precondition::MailboxChanged,
            format!("select id from mailboxes where tenant_id = $1 and id = $2 and version = $3{lock}"),
            params![self.tenant, mailbox, version],
        );
    }

    /// Refuses the unit when our app opens the mailbox of another user for it by now.
    pub fn expect_impersonated_user(&mut self, mailbox: MailboxId, user: &str) {
        self.unit.op_returning_exactly(
            1,
            Precondition::MailboxChanged,
            format!("select 1 from mailboxes where tenant_id = $1 and id = $2 and {CONNECTION_USER} = $3"),
            params![self.tenant, mailbox, user],
        );
    }

    /// Changes the settings and the secret of a mailbox.
    pub fn change_mailbox(&mut self, mailbox: MailboxId, settings: MailboxSettings, secret_ref: Option<&str>) {
        self.unit.op(
            "update mailboxes set settings = $3, secret_ref = $4, version = version + 1, updated_at = mailroom_now()
             where tenant_id = $1 and id = $2",
            params![self.tenant, mailbox, settings, secret_ref],
        );
    }

    /// Applies an event to a mailbox: changes its state as [`MailboxState::after`] says, and emits
    /// `mailbox.state_changed` if it does.
    pub fn apply_mailbox_event(&mut self, mailbox: MailboxId, event: MailboxEvent, reason: Option<&str>) {
        self.move_if("true", mailbox, event, reason);
    }

    /// Applies an event like [`TenantUnit::apply_mailbox_event`], unless the mailbox was changed since it was read.
    pub fn apply_mailbox_event_if_unchanged(&mut self, mailbox: &Mailbox, event: MailboxEvent, reason: Option<&str>) {
        self.move_if(&format!("version = {}", mailbox.version), mailbox.id, event, reason);
    }

    /// Sets the reason of a state, if the mailbox is in it.
    pub fn set_mailbox_state_reason(&mut self, mailbox: MailboxId, state: MailboxState, reason: &str) {
        self.unit.op(
            "update mailboxes set state_reason = $4, version = version + 1, updated_at = mailroom_now()
             where tenant_id = $1 and id = $2 and state = $3 and (state_reason is null or state_reason <> $4)",
            params![self.tenant, mailbox, state, reason],
        );
    }

    fn move_if(&mut self, condition: &str, mailbox: MailboxId, event: MailboxEvent, reason: Option<&str>) {
        let (from, to) = event.transition();
        let states: Vec<String> = from.iter().map(|state| format!("'{}'", state.as_str())).collect();
        let here = format!("tenant_id = $1 and id = $2 and {condition} and state in ({})", states.join(", "));
        let unit = self.draft_id();
        if self.store.dialect() == Dialect::Postgres {
            // Of two concurrent changes, one drafts the event.
            let sql = "select id from mailboxes where tenant_id = $1 and id = $2 for update";
            self.unit.op(sql, params![self.tenant, mailbox]);
        }
        let data = serde_json::json!({"state": to.as_str(), "reason": reason});
        self.unit.op(
            format!(
                "insert into {INTO_DRAFTS} select tenant_id, $3, {EVENT_STEP}, '{kind}', id, null, false, $4
                 from mailboxes where {here}",
                kind = EventType::MailboxStateChanged,
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
        if to.is_synced() && !from.iter().all(|state| state.is_synced()) {
            self.wake_parked_jobs(&mailbox.to_string());
        }
    }
}

pub(crate) fn mailbox(row: &Row) -> Result<Mailbox, StoreError> {
    let (id, tenant_id) = (row.get(0)?, row.get(1)?);
    Ok(Mailbox {
        id,
        tenant_id,
        provider: row.get(2)?,
        address: row.get(3)?,
        state: row.get(4)?,
        is_active: row.get(5)?,
        created_at: row.get(6)?,
        state_reason: row.get(7)?,
        state_since: row.get(8)?,
        settings: mailbox_settings(row, 9, id)?,
        tenant_settings: tenant_settings(row, COLUMN_COUNT - 1, tenant_id)?,
        secret_ref: row.get(10)?,
        updated_at: row.get(11)?,
        version: row.get(12)?,
    })
}
