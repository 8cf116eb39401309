//! Directories of tenants: their configuration, the cursor of a listing, and the results of discovery.
//!
//! A process that begins discovery takes a new fence token of the directory. Everything that it writes checks the token, so
//! that of two processes on the same directory the first stops.

use std::time::Duration;

use domain::connector::Cursors;
use domain::{Provider, TenantId};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value as Json;

use super::column_count;
use super::jobs::later;
use crate::failpoint::Effect;
use crate::{Precondition, Row, StoreError, SystemStore, TenantStore, TenantUnit, params};

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Directory {
    pub provider: Provider,
    pub settings: Json,
    pub rules: Json,
    /// `None`: all that is there.
    pub backfill_seconds: Option<u64>,
    pub interval_seconds: u64,
    pub is_paused: bool,
    pub version: u64,
    pub next_at: Timestamp,
    pub run: u64,
    pub is_listing: bool,
    pub is_whole: bool,
    pub begun_at: Option<Timestamp>,
    pub cursors: Cursors,
    pub whole_at: Option<Timestamp>,
    pub outcome: Option<String>,
    pub last_run: Option<Json>,
    pub last_run_at: Option<Timestamp>,
    pub dry_run: Option<Json>,
    pub dry_run_at: Option<Timestamp>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

/// The configuration of a directory.
#[derive(Debug, Clone, PartialEq)]
pub struct DirectoryDefinition {
    pub provider: Provider,
    pub settings: Json,
    pub rules: Json,
    pub backfill_seconds: Option<u64>,
    pub interval_seconds: u64,
    pub is_paused: bool,
}

/// A directory with the fence token of a discovery.
#[derive(Debug, Clone, PartialEq)]
pub struct DiscoveryClaim {
    pub directory: Directory,
    pub token: u64,
    pub now: Timestamp,
}

/// The fence token of a discovery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiscoveryToken {
    pub provider: Provider,
    pub token: u64,
}

/// The result of a discovery.
#[derive(Debug, Clone, PartialEq)]
pub struct DiscoveryResult {
    /// `done`, `held` or `failed`.
    pub outcome: &'static str,
    pub report: Json,
    /// The cursors are dropped: the next listing is a full one.
    pub resets_listing: bool,
}

/// Whether the discovery still holds the directory, and its tenant is active.
const IS_HELD_SQL: &str = "tenant_id = $1 and provider = $2 and token = $3
    and exists (select 1 from tenants where id = $1 and is_active)";

const DIRECTORY_COLUMNS: &str =
    "provider, settings, rules, backfill_seconds, interval_seconds, is_paused, version, next_at, run,
    is_listing, is_whole, begun_at, cursors, whole_at, outcome, last_run, last_run_at, dry_run, dry_run_at, created_at,
    updated_at";

impl TenantStore {
    pub async fn find_directory(&self, provider: Provider) -> Result<Option<Directory>, StoreError> {
        let sql = format!("select {DIRECTORY_COLUMNS} from directories where tenant_id = $1 and provider = $2");
        self.query_one(sql, params![self.id, provider]).await?.as_ref().map(directory).transpose()
    }

    pub async fn list_directories(&self) -> Result<Vec<Directory>, StoreError> {
        let sql = format!("select {DIRECTORY_COLUMNS} from directories where tenant_id = $1 order by provider");
        self.query(sql, params![self.id]).await?.iter().map(directory).collect()
    }

    /// Begins a discovery, which supersedes any other one. Returns `None` if there is no such directory.
    pub async fn begin_discovery(&self, provider: Provider) -> Result<Option<DiscoveryClaim>, StoreError> {
        let mut unit = self.write();
        let taken = unit.unit.op_returning(
            format!(
                "update directories set token = token + 1 where tenant_id = $1 and provider = $2
                 returning {DIRECTORY_COLUMNS}, token, mailroom_now()"
            ),
            params![self.id, provider],
        );
        let committed = unit.commit_at(Effect::BeginDiscovery).await?;
        committed
            .returned(taken)
            .first()
            .map(|row: &Row| {
                let at = column_count(DIRECTORY_COLUMNS);
                Ok(DiscoveryClaim { directory: directory(row)?, token: row.get(at)?, now: row.get(at + 1)? })
            })
            .transpose()
    }
}

impl SystemStore {
    /// Lists the directories that are due, the longest overdue first, without inactive tenants.
    pub async fn list_due_directories(&self, limit: u64) -> Result<Vec<(TenantId, Provider)>, StoreError> {
        let sql = "select d.tenant_id, d.provider from directories d join tenants t on t.id = d.tenant_id
                   where d.next_at <= (select mailroom_now()) and not d.is_paused and t.is_active
                   order by d.next_at limit $1";
        self.query(sql, params![limit]).await?.iter().map(|row| Ok((row.get(0)?, row.get(1)?))).collect()
    }
}

impl TenantUnit {
    /// Creates a directory or, with a version, changes the one that still has it. It is due at once.
    pub fn put_directory(&mut self, wish: &DirectoryDefinition, known: Option<u64>, now: Timestamp) {
        let DirectoryDefinition { provider, settings, rules, backfill_seconds, interval_seconds, is_paused } = wish;
        let mut values = params![
            self.tenant,
            *provider,
            settings.clone(),
            rules.clone(),
            *backfill_seconds,
            *interval_seconds,
            *is_paused,
            now,
        ];
        let Some(known) = known else {
            self.unit.op_exactly(
                1,
                Precondition::DirectoryChanged,
                "insert into directories (tenant_id, provider, settings, rules, backfill_seconds, interval_seconds, is_paused,
                                          next_at, created_at, updated_at)
                 values ($1, $2, $3, $4, $5, $6, $7, $8, $8, $8)
                 on conflict do nothing",
                values,
            );
            return;
        };
        values.extend(params![known]);
        // The cursors could belong to another directory of the same name: the next listing is a full one.
        self.unit.op_exactly(
            1,
            Precondition::DirectoryChanged,
            "update directories set settings = $3, rules = $4, backfill_seconds = $5, interval_seconds = $6, is_paused = $7,
                 version = version + 1, token = token + 1, is_listing = false, cursors = '{}', whole_at = null,
                 next_at = $8, updated_at = $8
             where tenant_id = $1 and provider = $2 and version = $9",
            values,
        );
    }

    /// Removes a directory with its people. Their mailboxes stay as they are.
    pub fn remove_directory(&mut self, provider: Provider, version: u64) {
        self.unit.op_exactly(
            1,
            Precondition::DirectoryChanged,
            "delete from directories where tenant_id = $1 and provider = $2 and version = $3",
            params![self.tenant, provider, version],
        );
        self.unit.op("delete from users where tenant_id = $1 and provider = $2", params![self.tenant, provider]);
    }

    /// Defers a directory whose discovery begins now; should that fail, it is due again after so long.
    pub fn defer_directory(&mut self, provider: Provider, again: Duration) {
        let next = later(self.store.dialect(), "$3");
        self.unit.op(
            format!("update directories set next_at = {next} where tenant_id = $1 and provider = $2"),
            params![self.tenant, provider, super::sync::millis(again)],
        );
    }

    /// Begins a listing.
    pub fn begin_listing(&mut self, by: DiscoveryToken, run: u64, is_whole: bool, cursors: &Cursors) {
        self.unit.op_exactly(
            1,
            Precondition::DiscoveryTakenOver,
            format!(
                "update directories set run = $4, is_listing = true, is_whole = $5, cursors = $6,
                     begun_at = mailroom_now()
                 where {IS_HELD_SQL}"
            ),
            params![self.tenant, by.provider, by.token, run, is_whole, cursors_json(cursors)],
        );
    }

    /// Advances the cursors of a listing. Nothing of the unit happens when the discovery was superseded.
    pub fn advance_listing(&mut self, by: DiscoveryToken, cursors: &Cursors, is_last: bool) {
        self.unit.op_exactly(
            1,
            Precondition::DiscoveryTakenOver,
            format!(
                "update directories set cursors = $4, is_listing = not $5,
                     whole_at = case when $5 and is_whole then mailroom_now() else whole_at end
                 where {IS_HELD_SQL}"
            ),
            params![self.tenant, by.provider, by.token, cursors_json(cursors), is_last],
        );
    }

    /// Refuses the unit when the discovery was superseded.
    pub fn guard_directory(&mut self, by: DiscoveryToken) {
        let lock = if self.store.dialect() == crate::Dialect::Postgres { " for share" } else { "" };
        self.unit.op_returning_exactly(
            1,
            Precondition::DiscoveryTakenOver,
            format!("select 1 from directories where {IS_HELD_SQL}{lock}"),
            params![self.tenant, by.provider, by.token],
        );
    }

    /// Records the result of a discovery, and when the next one is due.
    pub fn end_discovery(&mut self, by: DiscoveryToken, end: &DiscoveryResult, again: Duration) {
        let next = later(self.store.dialect(), "$6");
        self.unit.op_exactly(
            1,
            Precondition::DiscoveryTakenOver,
            format!(
                "update directories set outcome = $4, last_run = $5, last_run_at = mailroom_now(), next_at = {next},
                     is_listing = case when $7 then false else is_listing end,
                     cursors = case when $7 then '{{}}' else cursors end,
                     whole_at = case when $7 then null else whole_at end
                 where {IS_HELD_SQL}"
            ),
            params![
                self.tenant,
                by.provider,
                by.token,
                end.outcome,
                end.report.clone(),
                super::sync::millis(again),
                end.resets_listing,
            ],
        );
    }

    /// Records the report of a dry run. Refused for a tenant that was deactivated meanwhile.
    pub fn record_dry_run(&mut self, provider: Provider, version: u64, report: Json) {
        self.unit.op_returning_exactly(
            1,
            Precondition::DiscoveryTakenOver,
            "select 1 from tenants where id = $1 and is_active",
            params![self.tenant],
        );
        self.unit.op_exactly(
            1,
            Precondition::DirectoryChanged,
            "update directories set dry_run = $4, dry_run_at = mailroom_now()
             where tenant_id = $1 and provider = $2 and version = $3",
            params![self.tenant, provider, version, report],
        );
    }
}

fn cursors_json(cursors: &Cursors) -> Json {
    serde_json::json!(cursors)
}

fn directory(row: &Row) -> Result<Directory, StoreError> {
    let cursors: Json = row.get(12)?;
    let cursors = serde_json::from_value(cursors)
        .map_err(|_| StoreError::corrupt("the cursors of a directory are not readable"))?;
    Ok(Directory {
        provider: row.get(0)?,
        settings: row.get(1)?,
        rules: row.get(2)?,
        backfill_seconds: row.get(3)?,
        interval_seconds: row.get(4)?,
        is_paused: row.get(5)?,
        version: row.get(6)?,
        next_at: row.get(7)?,
        run: row.get(8)?,
        is_listing: row.get(9)?,
        is_whole: row.get(10)?,
        begun_at: row.get(11)?,
        cursors,
        whole_at: row.get(13)?,
        outcome: row.get(14)?,
        last_run: row.get(15)?,
        last_run_at: row.get(16)?,
        dry_run: row.get(17)?,
        dry_run_at: row.get(18)?,
        created_at: row.get(19)?,
        updated_at: row.get(20)?,
    })
}
