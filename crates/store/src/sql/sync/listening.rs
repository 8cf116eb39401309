//! Leases on mailboxes that processes listen to with an open connection (IMAP IDLE). One lease per mailbox, and one for each
//! listening process, by which they know how many they are; a process renews all of its own at once.

use std::collections::HashSet;
use std::time::Duration;

use domain::{MailboxId, Provider};

use super::{MailboxKey, millis};
use crate::sql::jobs::later;
use crate::sql::{any, given_rows};
use crate::value::ColumnType;
use crate::{Dialect, Row, StoreError, SystemStore, Unit, Value, params};

/// The mailboxes to listen to, and the processes that share them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ListenDemand {
    /// Mailboxes that can be listened to.
    pub mailboxes: u64,
    /// Listening processes, without the caller.
    pub other_listeners: u64,
}

/// A mailbox with the fence token of its lease.
pub type ListenLease = (MailboxKey, u64);

const MAILBOX_LEASE_PREFIX: &str = "idle:";
const LISTENER_LEASE_PREFIX: &str = "listener:";

/// Of `mailboxes m` and `tenants t`: it is active, and was synced before.
const IS_LISTENABLE: &str = "m.is_active and t.is_active and m.state in ('active', 'error')";

const LEASE_COLUMNS: &[(&str, ColumnType)] = &[
    ("name", ColumnType::Text),
    ("token", ColumnType::Int),
    ("tenant_id", ColumnType::Uuid),
    ("mailbox_id", ColumnType::Uuid),
];

impl SystemStore {
    pub async fn find_listen_demand(&self, me: &str, providers: &[Provider]) -> Result<ListenDemand, StoreError> {
        let sql = format!(
            "select (select count(*) from mailboxes m join tenants t on t.id = m.tenant_id where {} and {IS_LISTENABLE}),
                    (select count(*) from leases where name like '{LISTENER_LEASE_PREFIX}%' and until > mailroom_now() and holder <> $2)",
            any(self.store.dialect(), "m.provider", 1)
        );
        let row = self.query_one(sql, params![names(providers), me]).await?;
        row.map_or(Ok(ListenDemand::default()), |row| {
            Ok(ListenDemand { mailboxes: row.get(0)?, other_listeners: row.get(1)? })
        })
    }

    /// Renews the leases of a listening process, and returns the mailboxes that it still holds: not those that another process
    /// has by now, and not inactive ones.
    pub async fn renew_listening(
        &self,
        me: &str,
        held: &[ListenLease],
        lease: Duration,
    ) -> Result<HashSet<MailboxId>, StoreError> {
        let dialect = self.store.dialect();
        let mut unit = Unit::default();
        unit.op(
            format!(
                "insert into leases (name, holder, token, until) values ($1, $2, 1, {})
                 on conflict (name) do update set until = excluded.until",
                later(dialect, "$3")
            ),
            params![format!("{LISTENER_LEASE_PREFIX}{me}"), me, millis(lease)],
        );
        if held.is_empty() {
            return self.commit(unit).await.map(|_| HashSet::new());
        }
        let rows = rows(held);
        if dialect == Dialect::Postgres {
            // In order, so that this and a unit that takes expired leases do not deadlock.
            let names: Vec<String> = held.iter().map(|((_, mailbox), _)| name(*mailbox)).collect();
            unit.op("select 1 from leases where name = any($1) order by name for update", params![names]);
        }
        let (these, values) = given_rows(dialect, 3, LEASE_COLUMNS, rows);
        let mut all = params![me, millis(lease)];
        all.extend(values);
        let renewed = unit.op_returning(
            format!(
                "update leases set until = {} from {these}
                 where leases.name = g.name and leases.token = g.token and leases.holder = $1
                   and exists (select 1 from mailboxes m join tenants t on t.id = m.tenant_id
                               where m.tenant_id = g.tenant_id and m.id = g.mailbox_id and {IS_LISTENABLE})
                 returning leases.name",
                later(dialect, "$2")
            ),
            all,
        );
        self.commit(unit).await?.returned(renewed).iter().map(mailbox).collect()
    }

    /// Acquires up to `most` leases on mailboxes that no process listens to.
    pub async fn acquire_listening(
        &self,
        me: &str,
        providers: &[Provider],
        most: u64,
        lease: Duration,
    ) -> Result<Vec<ListenLease>, StoreError> {
        let dialect = self.store.dialect();
        let id = match dialect {
            Dialect::Postgres => "m.id::text",
            Dialect::Sqlite => "m.id",
        };
        // Random ones, so that concurrent calls seldom want the same.
        let sql = format!(
            "select m.tenant_id, m.id from mailboxes m join tenants t on t.id = m.tenant_id
             left join leases l on l.name = '{MAILBOX_LEASE_PREFIX}' || {id}
             where {} and {IS_LISTENABLE} and (l.name is null or l.until <= (select mailroom_now()))
             order by random() limit $2",
            any(dialect, "m.provider", 1)
        );
        let free = self.query(sql, params![names(providers), most]).await?;
        let mut free: Vec<ListenLease> =
            free.iter().map(|row| Ok(((row.get(0)?, row.get(1)?), 0))).collect::<Result<_, StoreError>>()?;
        if free.is_empty() {
            return Ok(free);
        }
        // In order, so that two that want some of the same do not deadlock.
        free.sort_unstable_by_key(|((_, mailbox), _)| name(*mailbox));
        let (these, values) = given_rows(dialect, 3, LEASE_COLUMNS, rows(&free));
        let mut all = params![me, millis(lease)];
        all.extend(values);
        let mut unit = Unit::default();
        let taken = unit.op_returning(
            format!(
                "insert into leases (name, holder, token, until) select g.name, $1, 1, {} from {these} where true
                 on conflict (name) do update set holder = excluded.holder, token = leases.token + 1, until = excluded.until
                 where leases.until <= mailroom_now()
                 returning name, token",
                later(dialect, "$2")
            ),
            all,
        );
        let committed = self.commit(unit).await?;
        let mut tokens = std::collections::HashMap::new();
        for row in committed.returned(taken) {
            tokens.insert(mailbox(row)?, row.get(1)?);
        }
        Ok(free.into_iter().filter_map(|(key, _)| tokens.remove(&key.1).map(|token| (key, token))).collect())
    }

    /// Releases leases, so that other processes can listen at once.
    pub async fn release_listening(&self, me: &str, held: &[ListenLease]) -> Result<(), StoreError> {
        if held.is_empty() {
            return Ok(());
        }
        let mut held = held.to_vec();
        held.sort_unstable_by_key(|((_, mailbox), _)| name(*mailbox));
        let (these, values) = given_rows(self.store.dialect(), 2, LEASE_COLUMNS, rows(&held));
        let mut all = params![me];
        all.extend(values);
        let mut unit = Unit::default();
        unit.op(
            format!(
                "update leases set until = mailroom_now() from {these}
                 where leases.name = g.name and leases.token = g.token and leases.holder = $1"
            ),
            all,
        );
        self.commit(unit).await.map(drop)
    }

    /// Removes a listening process, and those whose lease expired a day ago: their names do not come back.
    pub async fn stop_listening(&self, me: &str) -> Result<(), StoreError> {
        let mut unit = Unit::default();
        let long_ago = later(self.store.dialect(), "$2");
        unit.op(
            format!(
                "delete from leases where name like '{LISTENER_LEASE_PREFIX}%' and (name = $1 or until < {long_ago})"
            ),
            params![format!("{LISTENER_LEASE_PREFIX}{me}"), -DAY_MILLIS],
        );
        self.commit(unit).await.map(drop)
    }
}

const DAY_MILLIS: i64 = 86_400_000;

fn name(mailbox: MailboxId) -> String {
    format!("{MAILBOX_LEASE_PREFIX}{mailbox}")
}

fn names(providers: &[Provider]) -> Vec<String> {
    providers.iter().map(|provider| provider.as_str().to_owned()).collect()
}

fn rows(held: &[ListenLease]) -> Vec<Vec<Value>> {
    held.iter().map(|((tenant, mailbox), token)| params![name(*mailbox), *token, *tenant, *mailbox]).collect()
}

/// Reads a mailbox from the name of its lease.
fn mailbox(row: &Row) -> Result<MailboxId, StoreError> {
    let name: String = row.get(0)?;
    let id = name.strip_prefix(MAILBOX_LEASE_PREFIX).and_then(|id| id.parse().ok());
    id.ok_or_else(|| StoreError::other("the name of a lease is not that of a mailbox"))
}
