//! People of directories, and their mailboxes. Always many at once: an organisation has thousands.

use domain::{DirectoryPerson, EventType, ExclusionReason, MailboxId, MailboxSettings, Provider, UserId};
use jiff::Timestamp;
use serde_json::json;

use super::events::{EVENT_STEP, INTO_DRAFTS};
use super::mailboxes::{self, Mailbox, NewMailbox};
use super::{any, column_count, given_rows, truncate_chars};
use crate::unit::{Insert, InsertBatching};
use crate::value::ColumnType;
use crate::{Dialect, Precondition, Row, StoreError, TenantStore, TenantUnit, Value, params};

/// A person in a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    pub id: UserId,
    pub provider: Provider,
    pub person: DirectoryPerson,
    /// The directory lists them.
    pub is_listed: bool,
    /// Their mailbox is synced.
    pub is_active: bool,
    pub left_out: Option<ExclusionReason>,
    pub mailbox: Option<MailboxId>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

/// A user with their mailbox.
#[derive(Debug, Clone)]
pub struct UserWithMailbox {
    pub user: User,
    /// The listing that they were last in.
    pub listed: u64,
    pub mailbox: Option<Mailbox>,
}

/// The mailbox of an address, and its user if it has one.
#[derive(Debug, Clone)]
pub struct MailboxHolder {
    pub mailbox: Mailbox,
    pub user: Option<(UserId, Provider)>,
    /// The user's current address, if the directory still lists them.
    pub user_address: Option<String>,
}

/// The decision about a user: whether their mailbox is synced, and why not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UserDecision {
    pub user: UserId,
    pub is_active: bool,
    pub left_out: Option<ExclusionReason>,
    pub mailbox: Option<MailboxId>,
}

/// A filter of users; empty: all of them.
#[derive(Debug, Clone, Default)]
pub struct UserFilter {
    pub provider: Option<Provider>,
    pub is_active: Option<bool>,
    pub left_out: Option<ExclusionReason>,
    /// The address or an alias, in canonical case.
    pub address: Option<String>,
}

const USER_COLUMNS: &str =
    "u.id, u.provider, u.provider_user_id, u.address, u.aliases, u.name, u.unit, u.is_suspended, u.is_guest,
    u.is_licensed, u.is_there, u.state, u.left_out, u.mailbox_id, u.created_at, u.updated_at";

const PERSON_COLUMNS: &[(&str, ColumnType)] = &[
    ("id", ColumnType::Uuid),
    ("tenant_id", ColumnType::Uuid),
    ("provider", ColumnType::Text),
    ("provider_user_id", ColumnType::Text),
    ("address", ColumnType::Text),
    ("aliases", ColumnType::Json),
    ("name", ColumnType::Text),
    ("unit", ColumnType::Text),
    ("is_suspended", ColumnType::Bool),
    ("is_guest", ColumnType::Bool),
    ("is_licensed", ColumnType::Bool),
    ("listed", ColumnType::Int),
];

/// Mailboxes as texts: the type of a list is that of its first item, which may be null.
const SETTLEMENT_COLUMNS: &[(&str, ColumnType)] = &[
    ("tenant_id", ColumnType::Uuid),
    ("id", ColumnType::Uuid),
    ("state", ColumnType::Text),
    ("left_out", ColumnType::Text),
    ("mailbox", ColumnType::Text),
];

const NEW_MAILBOX_COLUMNS: &[(&str, ColumnType)] = &[
    ("id", ColumnType::Uuid),
    ("tenant_id", ColumnType::Uuid),
    ("provider", ColumnType::Text),
    ("address", ColumnType::Text),
    ("settings", ColumnType::Json),
    ("secret_ref", ColumnType::Text),
    ("since", ColumnType::Time),
];

/// The longest address, name or unit that is stored.
const MAX_TEXT_CHARS: usize = 500;

impl TenantStore {
    /// Lists users in the order in which they were first listed, after a given one.
    pub async fn list_users(
        &self,
        filter: &UserFilter,
        after: Option<UserId>,
        limit: u64,
    ) -> Result<Vec<User>, StoreError> {
        let is_alias = match self.store.dialect() {
            Dialect::Postgres => "u.aliases ? $7",
            Dialect::Sqlite => "exists (select 1 from json_each(u.aliases) where value = $7)",
        };
        let sql = format!(
            "select {USER_COLUMNS} from users u where u.tenant_id = $1 and u.id > $2 and (u.provider = $4 or $4 is null)
                 and (u.state = $5 or $5 is null) and (u.left_out = $6 or $6 is null)
                 and (u.address = $7 or {is_alias} or $7 is null)
             order by u.id limit $3"
        );
        let after = after.unwrap_or(UserId(uuid::Uuid::nil()));
        let values = params![
            self.id,
            after,
            limit,
            filter.provider,
            filter.is_active.map(state),
            filter.left_out,
            filter.address.clone()
        ];
        self.query(sql, values).await?.iter().map(user).collect()
    }

    /// Lists the users of one directory with their mailboxes, in the order of ids.
    pub async fn list_users_with_mailboxes(
        &self,
        provider: Provider,
        after: Option<UserId>,
        limit: u64,
    ) -> Result<Vec<UserWithMailbox>, StoreError> {
        let after = after.unwrap_or(UserId(uuid::Uuid::nil()));
        let sql = format!(
            "select {USER_COLUMNS}, u.listed, {} from users u
             left join mailboxes m on m.tenant_id = u.tenant_id and m.id = u.mailbox_id
             where u.tenant_id = $1 and u.provider = $2 and u.id > $3 order by u.id limit $4",
            mailboxes::columns("m")
        );
        self.query(sql, params![self.id, provider, after, limit])
            .await?
            .iter()
            .map(|row: &Row| {
                let at = column_count(USER_COLUMNS);
                let mailbox = row.get::<Option<MailboxId>>(at + 1)?.map(|_| mailbox_at(row, at + 1)).transpose()?;
                Ok(UserWithMailbox { user: user(row)?, listed: row.get(at)?, mailbox })
            })
            .collect()
    }

    /// Counts the users of a directory whose mailbox is synced.
    pub async fn count_active_users(&self, provider: Provider) -> Result<u64, StoreError> {
        let sql = "select count(*) from users where tenant_id = $1 and provider = $2 and state = 'active'";
        let row = self.query_one(sql, params![self.id, provider]).await?;
        row.map_or(Ok(0), |row| row.get(0))
    }

    /// Returns whether the mailbox belongs to a user of a directory, which then decides whether it is synced.
    pub async fn has_owner(&self, mailbox: MailboxId) -> Result<bool, StoreError> {
        let sql = "select 1 from users where tenant_id = $1 and mailbox_id = $2 limit 1";
        Ok(self.query_one(sql, params![self.id, mailbox]).await?.is_some())
    }

    /// Finds why the mailbox's user is excluded, if it has one who is.
    pub async fn find_exclusion(&self, mailbox: MailboxId) -> Result<Option<ExclusionReason>, StoreError> {
        let sql =
            "select left_out from users where tenant_id = $1 and mailbox_id = $2 and left_out is not null limit 1";
        self.query_one(sql, params![self.id, mailbox]).await?.map_or(Ok(None), |row| row.get(0))
    }

    /// Lists the mailboxes that have these addresses.
    pub async fn list_mailbox_holders(&self, addresses: Vec<String>) -> Result<Vec<MailboxHolder>, StoreError> {
        if addresses.is_empty() {
            return Ok(Vec::new());
        }
        let sql = format!(
            "select {}, u.id, u.provider, case when u.is_there then u.address end from mailboxes m
             left join users u on u.tenant_id = m.tenant_id and u.mailbox_id = m.id
             where m.tenant_id = $1 and {}",
            mailboxes::columns("m"),
            any(self.store.dialect(), "m.address", 2)
        );
        self.query(sql, params![self.id, addresses])
            .await?
            .iter()
            .map(|row: &Row| {
                let at = mailboxes::COLUMN_COUNT;
                let user: Option<UserId> = row.get(at)?;
                let user = user.map(|id| Ok::<_, StoreError>((id, row.get(at + 1)?))).transpose()?;
                Ok(MailboxHolder { mailbox: mailboxes::mailbox(row)?, user, user_address: row.get(at + 2)? })
            })
            .collect()
    }
}

impl TenantUnit {
    /// Records the people of a page. In a delta, facts that are omitted stay as they were.
    pub fn record_people(&mut self, provider: Provider, run: u64, people: &[DirectoryPerson], is_whole: bool) {
        if people.is_empty() {
            return;
        }
        let clock = self.store.clock();
        let text =
            |text: &Option<String>| Value::from(text.as_deref().map(|text| truncate_chars(text, MAX_TEXT_CHARS)));
        let rows = people
            .iter()
            .map(|person: &DirectoryPerson| -> Vec<Value> {
                let aliases = person.aliases.as_ref().map(|aliases| json!(aliases));
                vec![
                    UserId::new(clock).into(),
                    self.tenant.into(),
                    provider.into(),
                    (&person.id).into(),
                    text(&person.address),
                    aliases.into(),
                    text(&person.name),
                    text(&person.unit),
                    person.is_suspended.into(),
                    person.is_guest.into(),
                    person.is_licensed.into(),
                    run.into(),
                ]
            })
            .collect();
        let facts = ["address", "aliases", "name", "unit", "is_suspended", "is_guest", "is_licensed"];
        let set = facts.map(|column| {
            if is_whole {
                format!("{column} = excluded.{column}")
            } else {
                format!("{column} = coalesce(excluded.{column}, users.{column})")
            }
        });
        self.unit.insert(Insert {
            into: "users (id, tenant_id, provider, provider_user_id, address, aliases, name, unit, is_suspended, is_guest, \
                   is_licensed, listed, state, created_at, updated_at)"
                .into(),
            columns: PERSON_COLUMNS,
            rows,
            select: "u.id, u.tenant_id, u.provider, u.provider_user_id, u.address, u.aliases, u.name, u.unit, \
                     u.is_suspended, u.is_guest, u.is_licensed, u.listed, 'inactive', mailroom_now(), mailroom_now()"
                .into(),
            join_where: "",
            on_conflict: format!(
                "on conflict (tenant_id, provider, provider_user_id) do update set {}, is_there = true, listed = excluded.listed, updated_at = excluded.updated_at",
                set.join(", "),
            )
            .into(),
            batching: InsertBatching::Many,
        });
    }

    /// Records people that left the directory, by their ids there.
    pub fn record_departures(&mut self, provider: Provider, run: u64, gone: &[String]) {
        if gone.is_empty() {
            return;
        }
        self.unit.op(
            format!(
                "update users set is_there = false, listed = $4, updated_at = mailroom_now()
                 where tenant_id = $1 and provider = $2 and {}",
                any(self.store.dialect(), "provider_user_id", 3)
            ),
            params![self.tenant, provider, gone.to_vec(), run],
        );
    }

    /// Marks people as departed that a full listing did not contain.
    pub fn mark_unlisted_departed(&mut self, provider: Provider, run: u64) {
        self.unit.op(
            "update users set is_there = false, updated_at = mailroom_now()
             where tenant_id = $1 and provider = $2 and listed <> $3 and is_there",
            params![self.tenant, provider, run],
        );
    }

    pub fn settle_users(&mut self, settled: &[UserDecision]) {
        if settled.is_empty() {
            return;
        }
        let rows = settled
            .iter()
            .map(|one| {
                let mailbox = one.mailbox.map(|id| id.to_string());
                params![self.tenant, one.user, state(one.is_active), one.left_out, mailbox]
            })
            .collect();
        // With the tenant in each row, for SQLite would otherwise look through all of them for each of its people.
        let (these, values) = given_rows(self.store.dialect(), 1, SETTLEMENT_COLUMNS, rows);
        let mailbox = if self.store.dialect() == Dialect::Postgres { "cast(g.mailbox as uuid)" } else { "g.mailbox" };
        self.unit.op(
            format!(
                "update users set state = g.state, left_out = g.left_out, mailbox_id = {mailbox},
                     updated_at = mailroom_now()
                 from {these} where users.tenant_id = g.tenant_id and users.id = g.id"
            ),
            values,
        );
    }

    /// Adds mailboxes, which are synced from the commit on; the caller enqueues the jobs. Refused with
    /// [`Precondition::MailboxExists`] when one of the addresses is taken by now.
    pub fn add_mailboxes(&mut self, new: Vec<NewMailbox>) {
        if new.is_empty() {
            return;
        }
        let pushing: Vec<MailboxId> =
            new.iter().filter(|new| new.provider.capabilities().supports_push).map(|new| new.id).collect();
        let count = new.len() as u64;
        let rows: Vec<Vec<Value>> = new
            .into_iter()
            .map(|new: NewMailbox| -> Vec<Value> {
                let NewMailbox { id, provider, address, settings, secret_ref, since } = new;
                params![id, self.tenant, provider, address, settings, secret_ref, since]
            })
            .collect();
        let (these, values) = given_rows(self.store.dialect(), 1, NEW_MAILBOX_COLUMNS, rows.clone());
        self.unit.op_exactly(
            count,
            Precondition::MailboxExists,
            format!(
                "insert into mailboxes (id, tenant_id, provider, address, state, state_since, settings, secret_ref, created_at,
                                        updated_at)
                 select g.id, g.tenant_id, g.provider, g.address, 'connecting', mailroom_now(), g.settings, g.secret_ref,
                        mailroom_now(), mailroom_now()
                 from {these} where true on conflict (tenant_id, address) do nothing"
            ),
            values,
        );
        let (these, values) = given_rows(self.store.dialect(), 1, NEW_MAILBOX_COLUMNS, rows);
        self.unit.op(
            format!(
                "insert into sync_states (tenant_id, mailbox_id, next_sync_at, since, updated_at)
                 select g.tenant_id, g.id, mailroom_now(), g.since, mailroom_now() from {these}"
            ),
            values,
        );
        self.request_watches(&pushing);
    }

    /// Requests watches for mailboxes, due at once.
    pub fn request_watches(&mut self, mailboxes: &[MailboxId]) {
        if mailboxes.is_empty() {
            return;
        }
        self.unit.op(
            format!(
                "insert into push_watches (tenant_id, mailbox_id, next_at, wanted_at)
                 select tenant_id, id, mailroom_now(), mailroom_now() from mailboxes where tenant_id = $1 and {}
                 on conflict (tenant_id, mailbox_id) do update set next_at = excluded.next_at,
                     wanted_at = excluded.wanted_at, sweep_since = excluded.wanted_at, version = push_watches.version + 1",
                any(self.store.dialect(), "id", 2)
            ),
            params![self.tenant, mailboxes.to_vec()],
        );
    }

    /// Switches the sync of mailboxes on or off, with an event for each that changes; their mail stays.
    pub fn set_mailboxes_active(&mut self, mailboxes: &[(MailboxId, Option<ExclusionReason>)], is_active: bool) {
        if mailboxes.is_empty() {
            return;
        }
        let dialect = self.store.dialect();
        let columns: &[(&str, ColumnType)] = &[("id", ColumnType::Uuid), ("reason", ColumnType::Text)];
        let mut rows: Vec<Vec<Value>> = Vec::with_capacity(mailboxes.len());
        let mut sorted = mailboxes.to_vec();
        sorted.sort_unstable();
        for (id, reason) in sorted {
            rows.push(params![id, reason]);
        }
        let unit = self.draft_id();
        let kind = if is_active { EventType::MailboxActivated } else { EventType::MailboxDeactivated };
        let object = match dialect {
            Dialect::Postgres => "jsonb_build_object('reason', g.reason)",
            Dialect::Sqlite => "json_object('reason', g.reason)",
        };
        let (these, values) = given_rows(dialect, 4, columns, rows.clone());
        let mut all = params![self.tenant, unit, is_active];
        all.extend(values);
        self.unit.op(
            format!(
                "insert into {INTO_DRAFTS} select m.tenant_id, $2, {EVENT_STEP}, '{kind}', m.id, null, false, {object}
                 from mailboxes m join {these} on g.id = m.id where m.tenant_id = $1 and m.is_active <> $3"
            ),
            all,
        );
        let (these, values) = given_rows(dialect, 3, columns, rows);
        let mut all = params![self.tenant, is_active];
        all.extend(values);
        self.unit.op(
            format!(
                "update mailboxes set is_active = $2, version = version + 1, updated_at = mailroom_now()
                 from {these} where mailboxes.tenant_id = $1 and mailboxes.id = g.id and is_active <> $2"
            ),
            all,
        );
    }

    /// Renames a mailbox. Refused with [`Precondition::MailboxExists`] when another one has the address.
    pub fn rename_mailbox(&mut self, mailbox: MailboxId, address: &str, settings: MailboxSettings) {
        self.unit.op_exactly(
            1,
            Precondition::MailboxExists,
            "update mailboxes set address = $3, settings = $4, version = version + 1, updated_at = mailroom_now()
             where tenant_id = $1 and id = $2
               and not exists (select 1 from mailboxes where tenant_id = $1 and address = $3 and id <> $2)",
            params![self.tenant, mailbox, address, settings],
        );
        let data = json!({"address": address});
        self.emit_event(EventType::MailboxRenamed, Some(mailbox), data);
    }
}

fn state(is_active: bool) -> &'static str {
    if is_active { "active" } else { "inactive" }
}

fn mailbox_at(row: &Row, first: usize) -> Result<Mailbox, StoreError> {
    mailboxes::mailbox(&Row(row.0[first..].to_vec()))
}

fn user(row: &Row) -> Result<User, StoreError> {
    let aliases: Option<serde_json::Value> = row.get(4)?;
    Ok(User {
        id: row.get(0)?,
        provider: row.get(1)?,
        person: DirectoryPerson {
            id: row.get(2)?,
            address: row.get(3)?,
            aliases: aliases.and_then(|aliases| serde_json::from_value(aliases).ok()),
            name: row.get(5)?,
            unit: row.get(6)?,
            is_suspended: row.get(7)?,
            is_guest: row.get(8)?,
            is_licensed: row.get(9)?,
        },
        is_listed: row.get(10)?,
        is_active: row.get::<String>(11)? == "active",
        left_out: row.get(12)?,
        mailbox: row.get(13)?,
        created_at: row.get(14)?,
        updated_at: row.get(15)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn column_counts_match_the_queries() {
        assert_eq!(USER_COLUMNS.split(',').count(), column_count(USER_COLUMNS));
        assert_eq!(mailboxes::columns("m").split(',').count(), mailboxes::COLUMN_COUNT);
    }
}
