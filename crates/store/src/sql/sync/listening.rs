//! Who keeps a connection open to which mailbox. One lease a mailbox, and one for each process that listens at all, by
//! which they know how many they are; a process renews all of its own at once.

use std::collections::HashSet;
use std::time::Duration;

use domain::{MailboxId, Provider};

use super::{Key, millis};
use crate::sql::jobs::later;
use crate::sql::{any, given};
use crate::value::Kind;
use crate::{Dialect, Row, StoreError, SystemStore, Unit, Value, params};

/// What there is to share out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ToListen {
    /// Mailboxes that can be listened to.
    pub mailboxes: u64,
    /// Processes that listen, but for the one that asks.
    pub others: u64,
}

/// A mailbox with the token of its lease.
pub type Held = (Key, u64);

const PREFIX: &str = "idle:";
const LISTENER: &str = "listener:";

/// Of `mailboxes m` and `tenants t`: it is at work, and was looked at before.
const LISTENED: &str = "m.is_active and t.is_active and m.state in ('active', 'error')";

const LEASE: &[(&str, Kind)] =
    &[("name", Kind::Text), ("token", Kind::Int), ("tenant_id", Kind::Uuid), ("mailbox_id", Kind::Uuid)];

impl SystemStore {
    pub async fn count_to_listen(&self, me: &str, providers: &[Provider]) -> Result<ToListen, StoreError> {
        let sql = format!(
            "select (select count(*) from mailboxes m join tenants t on t.id = m.tenant_id where {} and {LISTENED}),
                    (select count(*) from leases where name like '{LISTENER}%' and until > mailroom_now() and holder <> $2)",
            any(self.store.dialect(), "m.provider", 1)
        );
        let row = self.query_one(sql, params![names(providers), me]).await?;
        row.map_or(Ok(ToListen::default()), |row| Ok(ToListen { mailboxes: row.get(0)?, others: row.get(1)? }))
    }

    /// Says that this process listens, and keeps what it listens to. Those that it may go on with: not what somebody else
    /// has by now, and not what was switched off.
    pub async fn renew_listening(
        &self,
        me: &str,
        held: &[Held],
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
            params![format!("{LISTENER}{me}"), me, millis(lease)],
        );
        if held.is_empty() {
            return self.commit(unit).await.map(|_| HashSet::new());
        }
        let rows = rows(held);
        if dialect == Dialect::Postgres {
            // Who takes some that have run out must not wait for us while we wait for them.
            let names: Vec<String> = held.iter().map(|((_, mailbox), _)| name(*mailbox)).collect();
            unit.op("select 1 from leases where name = any($1) order by name for update", params![names]);
        }
        let (these, values) = given(dialect, 3, LEASE, rows);
        let mut all = params![me, millis(lease)];
        all.extend(values);
        let renewed = unit.op_returning(
            format!(
                "update leases set until = {} from {these}
                 where leases.name = g.name and leases.token = g.token and leases.holder = $1
                   and exists (select 1 from mailboxes m join tenants t on t.id = m.tenant_id
                               where m.tenant_id = g.tenant_id and m.id = g.mailbox_id and {LISTENED})
                 returning leases.name",
                later(dialect, "$2")
            ),
            all,
        );
        self.commit(unit).await?.returned(renewed).iter().map(mailbox).collect()
    }

    /// At most so many that nobody listens to.
    pub async fn take_listening(
        &self,
        me: &str,
        providers: &[Provider],
        most: u64,
        lease: Duration,
    ) -> Result<Vec<Held>, StoreError> {
        let dialect = self.store.dialect();
        let id = match dialect {
            Dialect::Postgres => "m.id::text",
            Dialect::Sqlite => "m.id",
        };
        // Any of them, so that those who look at the same time seldom want the same.
        let sql = format!(
            "select m.tenant_id, m.id from mailboxes m join tenants t on t.id = m.tenant_id
             left join leases l on l.name = '{PREFIX}' || {id}
             where {} and {LISTENED} and (l.name is null or l.until <= (select mailroom_now()))
             order by random() limit $2",
            any(dialect, "m.provider", 1)
        );
        let free = self.query(sql, params![names(providers), most]).await?;
        let mut free: Vec<Held> =
            free.iter().map(|row| Ok(((row.get(0)?, row.get(1)?), 0))).collect::<Result<_, StoreError>>()?;
        if free.is_empty() {
            return Ok(free);
        }
        // In order, so that two who want some of the same do not wait for each other.
        free.sort_unstable_by_key(|((_, mailbox), _)| name(*mailbox));
        let (these, values) = given(dialect, 3, LEASE, rows(&free));
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

    /// Others may listen to them at once.
    pub async fn release_listening(&self, me: &str, held: &[Held]) -> Result<(), StoreError> {
        if held.is_empty() {
            return Ok(());
        }
        let mut held = held.to_vec();
        held.sort_unstable_by_key(|((_, mailbox), _)| name(*mailbox));
        let (these, values) = given(self.store.dialect(), 2, LEASE, rows(&held));
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

    /// This process listens no more. With it go those that ended long ago without a word: their names do not come back.
    pub async fn leave_listening(&self, me: &str) -> Result<(), StoreError> {
        let mut unit = Unit::default();
        let long_ago = later(self.store.dialect(), "$2");
        unit.op(
            format!("delete from leases where name like '{LISTENER}%' and (name = $1 or until < {long_ago})"),
            params![format!("{LISTENER}{me}"), -DAY_MILLIS],
        );
        self.commit(unit).await.map(drop)
    }
}

const DAY_MILLIS: i64 = 86_400_000;

fn name(mailbox: MailboxId) -> String {
    format!("{PREFIX}{mailbox}")
}

fn names(providers: &[Provider]) -> Vec<String> {
    providers.iter().map(|provider| provider.as_str().to_owned()).collect()
}

fn rows(held: &[Held]) -> Vec<Vec<Value>> {
    held.iter().map(|((tenant, mailbox), token)| params![name(*mailbox), *token, *tenant, *mailbox]).collect()
}

/// From the name of its lease.
fn mailbox(row: &Row) -> Result<MailboxId, StoreError> {
    let name: String = row.get(0)?;
    let id = name.strip_prefix(PREFIX).and_then(|id| id.parse().ok());
    id.ok_or_else(|| StoreError::other("a lease has a name that is no mailbox's"))
}
