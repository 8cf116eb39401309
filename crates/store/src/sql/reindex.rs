//! Replaces entries of the text index after ingest. Which version of the tokens an entry has is a token in it
//! (`domain::search::version_token`), so that both databases tell it without a column of their own.

use domain::search::{Phrase, version_token};
use domain::{EmailId, Sha256, TenantId};

use super::ingest::{search_insert, with_tenant_lexeme};
use super::search::{fts5_phrase, tsquery_phrase};
use super::{any, given_rows};
use crate::unit::{Insert, InsertBatching};
use crate::value::ColumnType;
use crate::{Dialect, Row, StoreError, TenantStore, TenantUnit, Value, params};

/// The emails that a reindex goes through, newest first.
#[derive(Debug, Clone, Copy, Default)]
pub struct ReindexRange {
    /// The lowest id.
    pub from: Option<EmailId>,
    /// All ids are lower than this.
    pub before: Option<EmailId>,
}

/// An email as it is in the text index, soft-deleted ones too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndexEntry {
    pub email: EmailId,
    pub state: IndexEntryState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IndexEntryState {
    Current,
    /// Its tokens are of another version.
    Stale,
    Missing,
}

/// The original message of an email.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OriginalMessage {
    pub email: EmailId,
    pub raw_sha256: Sha256,
    pub size_bytes: u64,
}

/// New tokens for an email.
#[derive(Debug, Clone)]
pub struct TokenReplacement {
    pub email: EmailId,
    /// The bytes that the tokens were made from.
    pub raw_sha256: Sha256,
    /// Whether the text index had no entry for it.
    pub is_missing: bool,
    pub tokens: String,
}

impl TokenReplacement {
    /// Returns the row of [`REPLACEMENT_COLUMNS`].
    fn into_row(self, tenant: TenantId) -> Vec<Value> {
        with_tenant_lexeme(params![tenant, self.email, self.raw_sha256, Value::Tokens(self.tokens)])
    }
}

impl ReindexRange {
    fn params(self, tenant: &TenantStore) -> Vec<Value> {
        let (from, before) = (self.from.map_or(uuid::Uuid::nil(), |id| id.0), self.before.map(|id| id.0));
        params![tenant.id, from, before.unwrap_or(uuid::Uuid::max())]
    }
}

/// The condition of [`ReindexRange`], of `emails`.
const IN_RANGE: &str = "tenant_id = $1 and id >= $2 and id < $3";

impl TenantStore {
    pub async fn count_emails_in(&self, range: ReindexRange) -> Result<u64, StoreError> {
        let sql = format!("select count(*) from emails where {IN_RANGE}");
        self.query_one(sql, range.params(self)).await?.map_or(Ok(0), |row| row.get(0))
    }

    /// Lists up to `limit` emails of the range, newest first, and how each is in the text index.
    pub async fn list_index_entries(
        &self,
        range: ReindexRange,
        version: u32,
        limit: u64,
    ) -> Result<Vec<IndexEntry>, StoreError> {
        let mut params = range.params(self);
        params.extend(params![limit]);
        let marker = version_token(version).map(|token| Phrase { tokens: vec![token], is_prefix: false });
        let sql = match self.store.dialect() {
            Dialect::Postgres => {
                let is_stale = if marker.is_some() { "not s.tokens @@ cast($5 as tsquery)" } else { "false" };
                params.extend(marker.iter().map(|marker| Value::from(tsquery_phrase(marker))));
                format!(
                    "select e.id, s.email_id is null, coalesce({is_stale}, false)
                     from (select tenant_id, id from emails where {IN_RANGE} order by id desc limit $4) e
                     left join email_search s on s.tenant_id = e.tenant_id and s.email_id = e.id
                     order by e.id desc"
                )
            }
            Dialect::Sqlite => {
                let is_stale = if marker.is_some() {
                    "p.search_rowid not in (select rowid from email_search where email_search match $5
                         and rowid between (select min(search_rowid) from page) and (select max(search_rowid) from page))"
                } else {
                    "false"
                };
                params.extend(marker.iter().map(|marker| Value::from(fts5_phrase(marker))));
                format!(
                    "with page as materialized (
                         select id, search_rowid from emails where {IN_RANGE} order by id desc limit $4)
                     select p.id, d.id is null, {is_stale}
                     from page p left join email_search_docsize d on d.id = p.search_rowid order by p.id desc"
                )
            }
        };
        self.query(sql, params).await?.iter().map(index_entry).collect()
    }

    /// Lists the original messages of these emails, newest first; those that were purged meanwhile are left out.
    pub async fn list_originals(&self, emails: Vec<EmailId>) -> Result<Vec<OriginalMessage>, StoreError> {
        let sql = format!(
            "select id, raw_sha256, size_bytes from emails where tenant_id = $1 and {} order by id desc",
            any(self.store.dialect(), "id", 2)
        );
        let rows = self.query(sql, params![self.id, emails]).await?;
        rows.iter()
            .map(|row: &Row| {
                Ok(OriginalMessage { email: row.get(0)?, raw_sha256: row.get(1)?, size_bytes: row.get(2)? })
            })
            .collect()
    }
}

fn index_entry(row: &Row) -> Result<IndexEntry, StoreError> {
    let state = if row.get::<bool>(1)? {
        IndexEntryState::Missing
    } else if row.get::<bool>(2)? {
        IndexEntryState::Stale
    } else {
        IndexEntryState::Current
    };
    Ok(IndexEntry { email: row.get(0)?, state })
}

impl TenantUnit {
    /// Replaces the tokens of emails, and adds entries that the text index lacks. An email that was purged, or that has
    /// other bytes by now, is left alone.
    pub fn replace_tokens(&mut self, mut replacements: Vec<TokenReplacement>) {
        // All units in the same order, so that two that change the same entries do not deadlock.
        replacements.sort_by_key(|replacement| replacement.email);
        let [Some(first), Some(last)] = [replacements.first(), replacements.last()] else { return };
        let range = (first.email, last.email);
        match self.store.dialect() {
            Dialect::Postgres => self.replace_tokens_postgres(replacements, range),
            Dialect::Sqlite => self.replace_tokens_sqlite(replacements),
        }
    }

    /// Deletes the entries and inserts them again, with the new mail of the same group commit. The tenant's writes come
    /// one after the other, so the entry of a purged email cannot come back: the insert joins the email.
    fn replace_tokens_sqlite(&mut self, replacements: Vec<TokenReplacement>) {
        let tenant = self.tenant;
        let bytes = replacements.iter().map(|replacement| params![replacement.email, replacement.raw_sha256]);
        let columns = [("email_id", ColumnType::Uuid), ("raw_sha256", ColumnType::Hash)];
        let (given, given_params) = given_rows(Dialect::Sqlite, 2, &columns, bytes.collect());
        let mut params = params![tenant];
        params.extend(given_params);
        self.unit.op(
            format!(
                "delete from email_search where rowid in (
                     select e.search_rowid from {given} cross join emails e
                     on e.tenant_id = $1 and e.id = g.email_id and e.raw_sha256 = g.raw_sha256)"
            ),
            params,
        );
        let rows = replacements.into_iter().map(|replacement| {
            let TokenReplacement { email, raw_sha256, tokens, .. } = replacement;
            let (mailbox, received_at, content_key) = (Value::Null, Value::Null, Value::Null); // PostgreSQL's
            params![tenant, email, mailbox, received_at, content_key, raw_sha256, Value::Tokens(tokens)]
        });
        let rows = rows.collect();
        self.unit.insert(search_insert(Dialect::Sqlite, rows));
    }

    /// Updates the entries that are there. One that a purge or a new revision is just deleting is waited for, and is gone
    /// to this statement then; that is why it is no `insert … on conflict do update`, which would find the revision's.
    fn replace_tokens_postgres(&mut self, replacements: Vec<TokenReplacement>, (first, last): (EmailId, EmailId)) {
        let tenant = self.tenant;
        let (missing, indexed): (Vec<_>, Vec<_>) =
            replacements.into_iter().partition(|replacement| replacement.is_missing);
        if !missing.is_empty() {
            self.add_missing_entries(missing);
        }
        if indexed.is_empty() {
            return;
        }
        let rows = indexed.into_iter().map(|replacement| replacement.into_row(tenant)).collect();
        let (given, given_params) = given_rows(Dialect::Postgres, 4, REPLACEMENT_COLUMNS, rows);
        let mut params = params![tenant, first, last];
        params.extend(given_params);
        // With bounds, so that only the partitions of these emails are opened. Equal tokens are not written again.
        self.unit.op(
            format!(
                "update email_search s set tokens = g.tokens
                 from {given} join emails e on e.tenant_id = $1 and e.id = g.email_id and e.raw_sha256 = g.raw_sha256
                     and e.id between $2 and $3
                 where s.tenant_id = $1 and s.email_id = g.email_id and s.email_id between $2 and $3
                   and s.tokens is distinct from g.tokens"
            ),
            params,
        );
    }

    fn add_missing_entries(&mut self, missing: Vec<TokenReplacement>) {
        let tenant = self.tenant;
        self.unit.insert(Insert {
            into: "email_search (tenant_id, email_id, mailbox_id, received_at, is_live, tokens)".into(),
            columns: REPLACEMENT_COLUMNS,
            rows: missing.into_iter().map(|replacement| replacement.into_row(tenant)).collect(),
            select: "e.tenant_id, e.id, e.mailbox_id, e.received_at, e.deleted_at is null, u.tokens".into(),
            // The lock keeps the email as it is until the commit: what purges or revises it comes before or after.
            join_where: "join emails e on e.tenant_id = u.tenant_id and e.id = u.email_id
                         and e.raw_sha256 = u.raw_sha256 where true for share of e",
            on_conflict: "on conflict (tenant_id, email_id) do nothing".into(),
            batching: InsertBatching::Many,
        });
    }
}

/// The given rows on PostgreSQL.
const REPLACEMENT_COLUMNS: &[(&str, ColumnType)] = &[
    ("tenant_id", ColumnType::Uuid),
    ("email_id", ColumnType::Uuid),
    ("raw_sha256", ColumnType::Hash),
    ("tokens", ColumnType::Tokens),
];
