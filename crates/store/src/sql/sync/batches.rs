//! Syncs of many mailboxes at once: a poll of ten thousand without news must not cost as many commits.

use std::collections::HashMap;
use std::time::Duration;

use domain::connector::{Cursors, KnownFolder};
use domain::{FolderRole, MailboxId, SecretId, TenantId};
use jiff::Timestamp;

use super::{SYNC_STATE_COLUMNS, SyncState, millis, sync_state};
use crate::failpoint::Effect;
use crate::sql::jobs::later;
use crate::sql::mailboxes::{self, Mailbox};
use crate::sql::secrets::{self, SealedSecret};
use crate::sql::{column_count, given_rows};
use crate::value::ColumnType;
use crate::{Dialect, StoreError, SystemStore, Unit, Value, params};

/// The primary key of a mailbox.
pub type MailboxKey = (TenantId, MailboxId);

/// A mailbox with what a sync needs.
#[derive(Debug, Clone)]
pub struct OpenMailbox {
    pub mailbox: Mailbox,
    pub secret: Option<SealedSecret>,
    pub folders: Vec<KnownFolder>,
    /// See [`domain::connector::ConnectorAccount`].
    pub sweep_since: Option<Timestamp>,
}

/// The lease of a sync, with the state and cursors at its start.
#[derive(Debug, Clone)]
pub struct SyncClaim {
    pub token: u64,
    pub state: SyncState,
    /// Cursors by the name of their phase.
    pub cursors: HashMap<String, Cursors>,
}

pub(super) const MAILBOX_KEY_COLUMNS: &[(&str, ColumnType)] =
    &[("tenant_id", ColumnType::Uuid), ("mailbox_id", ColumnType::Uuid)];
pub(super) const LEASE_KEY_COLUMNS: &[(&str, ColumnType)] =
    &[("tenant_id", ColumnType::Uuid), ("mailbox_id", ColumnType::Uuid), ("token", ColumnType::Int)];
const SECRET_COLUMNS: &[(&str, ColumnType)] = &[("tenant_id", ColumnType::Uuid), ("secret_id", ColumnType::Uuid)];

impl SystemStore {
    /// Returns mailboxes with their secrets and folders, without inactive tenants.
    pub async fn open_mailboxes(&self, wanted: &[MailboxKey]) -> Result<HashMap<MailboxKey, OpenMailbox>, StoreError> {
        let rows = wanted.iter().map(|(tenant, mailbox)| params![*tenant, *mailbox]).collect();
        let (these, params) = given_rows(self.store.dialect(), 1, MAILBOX_KEY_COLUMNS, rows);
        let sql = format!(
            "select {} from mailboxes where (tenant_id, id) in (select tenant_id, mailbox_id from {these})
               and exists (select 1 from tenants t where t.id = mailboxes.tenant_id and t.is_active)",
            mailboxes::columns("mailboxes")
        );
        let found: Vec<Mailbox> =
            self.query(sql, params).await?.iter().map(mailboxes::mailbox).collect::<Result<_, _>>()?;
        let rows: Vec<Vec<Value>> =
            found.iter().filter_map(|found| Some(params![found.tenant_id, secret_id(found)?])).collect();
        let mut sealed: HashMap<(TenantId, SecretId), SealedSecret> = HashMap::new();
        if !rows.is_empty() {
            let (these, params) = given_rows(self.store.dialect(), 1, SECRET_COLUMNS, rows);
            let sql = format!(
                "select {}, tenant_id from secrets
                 where (tenant_id, id) in (select tenant_id, secret_id from {these})",
                secrets::SECRET_COLUMNS
            );
            for row in self.query(sql, params).await? {
                let secret = secrets::sealed(&row)?;
                sealed.insert((row.get(column_count(secrets::SECRET_COLUMNS))?, secret.id), secret);
            }
        }
        let mut folders = self.known_folders(&found).await?;
        let mut swept = self.sweeps(&found).await?;
        Ok(found
            .into_iter()
            .map(|mailbox: Mailbox| {
                let key = (mailbox.tenant_id, mailbox.id);
                let secret = secret_id(&mailbox).and_then(|id| sealed.remove(&(mailbox.tenant_id, id)));
                let folders = folders.remove(&key).unwrap_or_default();
                (key, OpenMailbox { mailbox, secret, folders, sweep_since: swept.remove(&key) })
            })
            .collect())
    }

    /// Finds the requested full sweeps of mailboxes whose provider reports deletions by folder.
    async fn sweeps(&self, mailboxes: &[Mailbox]) -> Result<HashMap<MailboxKey, Timestamp>, StoreError> {
        let subscribed = mailboxes.iter().filter(|mailbox| mailbox.provider.capabilities().has_named_subscription);
        let rows: Vec<Vec<Value>> = subscribed.map(|mailbox| params![mailbox.tenant_id, mailbox.id]).collect();
        if rows.is_empty() {
            return Ok(HashMap::new());
        }
        let (these, params) = given_rows(self.store.dialect(), 1, MAILBOX_KEY_COLUMNS, rows);
        let sql = format!(
            "select tenant_id, mailbox_id, sweep_since from push_watches
             where (tenant_id, mailbox_id) in (select tenant_id, mailbox_id from {these}) and sweep_since is not null"
        );
        self.query(sql, params).await?.iter().map(|row| Ok(((row.get(0)?, row.get(1)?), row.get(2)?))).collect()
    }

    /// Finds the known folders of mailboxes whose connector compares folders.
    async fn known_folders(&self, mailboxes: &[Mailbox]) -> Result<HashMap<MailboxKey, Vec<KnownFolder>>, StoreError> {
        let by_name = mailboxes.iter().filter(|mailbox| mailbox.provider.capabilities().needs_known_folders);
        let rows: Vec<Vec<Value>> = by_name.map(|mailbox| params![mailbox.tenant_id, mailbox.id]).collect();
        let mut folders: HashMap<MailboxKey, Vec<KnownFolder>> = HashMap::new();
        if rows.is_empty() {
            return Ok(folders);
        }
        let (these, params) = given_rows(self.store.dialect(), 1, MAILBOX_KEY_COLUMNS, rows);
        let sql = format!(
            "select tenant_id, mailbox_id, provider_folder_id, name, uid_validity, is_in_scope, role, delimiter,
                    missing_since from folders
             where (tenant_id, mailbox_id) in (select tenant_id, mailbox_id from {these})
               and gone_at is null and not is_imported"
        );
        for row in self.query(sql, params).await? {
            let folder = KnownFolder {
                id: row.get(2)?,
                name: row.get(3)?,
                uid_validity: row.get(4)?,
                is_in_scope: row.get(5)?,
                role: row.get::<Option<String>>(6)?.as_deref().and_then(FolderRole::parse),
                delimiter: row.get(7)?,
                missing_since: row.get(8)?,
            };
            folders.entry((row.get(0)?, row.get(1)?)).or_default().push(folder);
        }
        Ok(folders)
    }

    /// Acquires the sync leases of mailboxes that no process holds, or whose lease has expired. None of inactive tenants: a unit
    /// that deactivates one takes the rows that are locked here, so the second statement sees it.
    pub async fn begin_syncs(
        &self,
        wanted: &[MailboxKey],
        holder: &str,
        lease: Duration,
    ) -> Result<HashMap<MailboxKey, SyncClaim>, StoreError> {
        let dialect = self.store.dialect();
        let mut rows: Vec<Vec<Value>> = Vec::with_capacity(wanted.len());
        for (tenant, mailbox) in sorted(wanted) {
            rows.push(params![tenant, mailbox]);
        }
        let mut unit = Unit::default();
        self.lock_in_order(&mut unit, rows.clone());
        let (these, listed) = given_rows(dialect, 3, MAILBOX_KEY_COLUMNS, rows.clone());
        let mut values = params![holder, millis(lease)];
        values.extend(listed);
        let until = later(dialect, "$2");
        let taken = unit.op_returning(
            format!(
                "update sync_states set holder = $1, token = token + 1, held_until = {until}, status = 'syncing'
                 where (tenant_id, mailbox_id) in (select tenant_id, mailbox_id from {these})
                   and (held_until is null or held_until <= mailroom_now())
                   and exists (select 1 from tenants t where t.id = sync_states.tenant_id and t.is_active)
                 returning {SYNC_STATE_COLUMNS}, tenant_id, mailbox_id, token"
            ),
            values,
        );
        let (these, values) = given_rows(dialect, 1, MAILBOX_KEY_COLUMNS, rows);
        let cursors = unit.op_returning(
            format!(
                "select tenant_id, mailbox_id, phase, scope, cursor from sync_cursors
                 where (tenant_id, mailbox_id) in (select tenant_id, mailbox_id from {these})"
            ),
            values,
        );
        let committed = self.commit_at(Effect::BeginSync, unit).await?;
        let mut begun = HashMap::new();
        for row in committed.returned(taken) {
            let state = sync_state(row)?;
            let at = column_count(SYNC_STATE_COLUMNS);
            let key = (row.get(at)?, row.get(at + 1)?);
            begun.insert(key, SyncClaim { token: row.get(at + 2)?, state, cursors: HashMap::new() });
        }
        for row in committed.returned(cursors) {
            let Some(begun) = begun.get_mut(&(row.get(0)?, row.get(1)?)) else { continue };
            begun.cursors.entry(row.get(2)?).or_default().insert(row.get(3)?, row.get(4)?);
        }
        Ok(begun)
    }

    /// Ends syncs that found nothing new. A mailbox that another process holds by now is unchanged.
    pub async fn end_unchanged_syncs(&self, held: &[(MailboxKey, u64)]) -> Result<(), StoreError> {
        let mut held = held.to_vec();
        held.sort_unstable();
        let mut unit = Unit::default();
        self.lock_in_order(&mut unit, held.iter().map(|((tenant, mailbox), _)| params![*tenant, *mailbox]).collect());
        let rows = held.iter().map(|((tenant, mailbox), token)| params![*tenant, *mailbox, *token]).collect();
        let (these, values) = given_rows(self.store.dialect(), 1, LEASE_KEY_COLUMNS, rows);
        unit.op(
            format!(
                "update sync_states set status = 'idle', last_sync_at = mailroom_now(), error_count = 0, last_error = null,
                    holder = null, held_until = null, updated_at = mailroom_now()
                 where (tenant_id, mailbox_id, token) in (select tenant_id, mailbox_id, token from {these})"
            ),
            values,
        );
        self.commit(unit).await.map(drop)
    }

    /// Locks sync states in order, so that two units that change some of the same do not deadlock.
    pub(super) fn lock_in_order(&self, unit: &mut Unit, rows: Vec<Vec<Value>>) {
        let dialect = self.store.dialect();
        if dialect == Dialect::Postgres {
            let (these, values) = given_rows(dialect, 1, MAILBOX_KEY_COLUMNS, rows);
            unit.op(
                format!(
                    "select count(*) from {these} cross join lateral (
                         select 1 from sync_states s where s.tenant_id = g.tenant_id and s.mailbox_id = g.mailbox_id
                         offset 0 for update) f"
                ),
                values,
            );
        }
    }
}

fn secret_id(mailbox: &Mailbox) -> Option<SecretId> {
    mailbox.secret_ref.as_ref()?.parse().ok()
}

fn sorted(keys: &[MailboxKey]) -> Vec<MailboxKey> {
    let mut keys = keys.to_vec();
    keys.sort_unstable();
    keys
}
