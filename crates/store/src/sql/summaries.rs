//! Rows of email lists: as little of many emails as a page shows.

use std::collections::HashMap;

use domain::search::SearchQuery;
use domain::{Address, EmailId, MailboxId};
use jiff::{SignedDuration, Timestamp};
use uuid::Uuid;

use super::any;
use super::emails::{EmailPlacements, placements_by_email};
use super::search::SearchPage;
use crate::{Dialect, Row, StoreError, TenantStore, Value, params};

/// A row of an email list.
#[derive(Debug, Clone)]
pub struct SummaryRow {
    pub id: EmailId,
    pub mailbox_id: MailboxId,
    pub subject: Option<String>,
    pub from: Option<Address>,
    pub received_at: Timestamp,
    pub folders: Vec<String>,
    pub flags: Vec<String>,
    pub size_bytes: u64,
    pub has_attachments: bool,
    /// The beginning of the body.
    pub text: String,
    pub deleted_at: Option<Timestamp>,
}

/// How far back a page is read directly. Most lists begin with mail of the last days, and a month is in two partitions at
/// most.
const DIRECT_READ_WINDOW: SignedDuration = SignedDuration::from_hours(31 * 24);

impl TenantStore {
    /// Lists what [`TenantStore::search`] finds, with so many characters of text each.
    pub async fn list_summaries(
        &self,
        query: &SearchQuery,
        page: &SearchPage,
        text_chars: u32,
    ) -> Result<Vec<SummaryRow>, StoreError> {
        if *query == SearchQuery::default()
            && let Some(newest) = self.find_newest(page, text_chars).await?
        {
            let ids: Vec<EmailId> = newest.iter().map(|summary| summary.id).collect();
            let (sql, params) = self.live_placements(ids.into());
            return self.query(sql, params).await.and_then(|rows| with_placements(newest, rows));
        }
        let ids = self.search(query, page).await?;
        self.get_summaries(&ids, text_chars).await
    }

    /// Returns rows in the given order. Two queries and one round trip, however many.
    pub async fn get_summaries(&self, ids: &[EmailId], text_chars: u32) -> Result<Vec<SummaryRow>, StoreError> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let list = Value::from(ids.to_vec());
        let sql = format!(
            "select {} from emails where tenant_id = $1 and {}",
            columns(text_chars),
            any(self.store.dialect(), "id", 2)
        );
        let [rows, placements] =
            self.query_all([(sql, params![self.id, list.clone()]), self.live_placements(list)]).await?;
        let rows = rows.iter().map(|row| summary(row).map(|summary| (summary.id, summary)));
        let mut summaries: HashMap<EmailId, SummaryRow> = rows.collect::<Result<_, _>>()?;
        with_placements(ids.iter().filter_map(|id| summaries.remove(id)).collect(), placements)
    }

    /// Reads the page by one query, instead of one for the ids and one for the emails. Returns `None` on PostgreSQL when the
    /// last month is not enough: the search knows which partitions to open.
    async fn find_newest(&self, page: &SearchPage, text_chars: u32) -> Result<Option<Vec<SummaryRow>>, StoreError> {
        let mut params = params![self.id, page.limit];
        let mut sql = format!("select {} from emails where tenant_id = $1 and deleted_at is null", columns(text_chars));
        if let Some(mailbox) = page.mailbox {
            params.push(mailbox.into());
            sql += &format!(" and mailbox_id = ${}", params.len());
        }
        let mut newest = self.clock().now();
        if let Some(start) = page.start {
            let (than, id) = start.comparison();
            params.push(id.into());
            sql += &format!(" and id {than} ${}", params.len());
            newest = id.received_at();
        }
        if self.store.dialect() == Dialect::Postgres {
            params.push(first_id(newest.checked_sub(DIRECT_READ_WINDOW).unwrap_or(Timestamp::MIN)).into());
            sql += &format!(" and id >= ${}", params.len());
        }
        let rows = self.query(format!("{sql} order by id desc limit $2"), params).await?;
        let is_page = self.store.dialect() == Dialect::Sqlite || rows.len() as u64 == page.limit;
        is_page.then(|| rows.iter().map(summary).collect()).transpose()
    }
}

/// Returns the lowest id that an email received then can have.
fn first_id(received_at: Timestamp) -> EmailId {
    let millis = u64::try_from(received_at.as_millisecond()).unwrap_or(0);
    EmailId(Uuid::from_u128(u128::from(millis) << 80))
}

fn columns(text_chars: u32) -> String {
    format!(
        "id, mailbox_id, subject, from_name, from_address, received_at, size_bytes, has_attachments,
         substr(body_text, 1, {text_chars}), deleted_at"
    )
}

fn summary(row: &Row) -> Result<SummaryRow, StoreError> {
    let (name, address): (Option<String>, Option<String>) = (row.get(3)?, row.get(4)?);
    Ok(SummaryRow {
        id: row.get(0)?,
        mailbox_id: row.get(1)?,
        subject: row.get(2)?,
        from: address.map(|address| Address { name, address }),
        received_at: row.get(5)?,
        folders: Vec::new(),
        flags: Vec::new(),
        size_bytes: row.get(6)?,
        has_attachments: row.get(7)?,
        text: row.get::<Option<String>>(8)?.unwrap_or_default(),
        deleted_at: row.get(9)?,
    })
}

fn with_placements(mut summaries: Vec<SummaryRow>, placements: Vec<Row>) -> Result<Vec<SummaryRow>, StoreError> {
    let mut places = placements_by_email(placements)?;
    for summary in &mut summaries {
        EmailPlacements { folders: summary.folders, flags: summary.flags } =
            places.remove(&summary.id).unwrap_or_default();
    }
    Ok(summaries)
}
