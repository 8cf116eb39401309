//! Full-text search: query text in, emails with a marked snippet out.

use content::tokens::{EmailText, SearchField};
use content::{query, snippet};
use domain::search::{SearchOrder, SearchQuery};
use domain::{EmailId, MailboxId};
use store::TenantStore;
use store::sql::emails::{Email, SEARCHED_CHARS};
use store::sql::search::{PageStart, SearchPage};
use store::sql::summaries::SummaryRow;

use crate::Engine;

/// How many of the newest matches are ranked: ranking reads each of them, and statistics over all mail, which would
/// avoid that, would reveal one tenant's mail to another.
pub const RANKED_WINDOW: u64 = 500;

/// Emails that are read per query to be scored.
const SCORE_BATCH_EMAILS: usize = 50;

/// Ids that are read per query.
const IDS_PER_QUERY: u64 = 10_000;

const SNIPPET_CHARS: usize = 160;

/// The text that is read when nothing in it is to be marked: a snippet, and white space around its words.
const PREVIEW_CHARS: u32 = 400;

#[derive(Debug, Clone, Default)]
pub struct SearchRequest {
    pub mailbox: Option<MailboxId>,
    /// Soft-deleted emails are found, too.
    pub includes_deleted: bool,
    pub limit: u64,
    pub order: SearchOrder,
    /// The `next_cursor` of the page before.
    pub cursor: Option<String>,
    /// Texts around each hit in a snippet.
    pub marks: (&'static str, &'static str),
}

#[derive(Debug)]
pub struct SearchHit {
    pub email: SummaryRow,
    pub snippet: String,
}

#[derive(Debug)]
pub struct SearchResults {
    pub hits: Vec<SearchHit>,
    pub next_cursor: Option<String>,
}

#[derive(Debug, thiserror::Error)]
pub enum SearchError {
    #[error("{0}")]
    Query(#[from] query::QueryError),
    #[error("is not a cursor of this search; start again without it")]
    Cursor,
    #[error(transparent)]
    Store(#[from] store::StoreError),
}

impl Engine {
    pub async fn search(
        &self,
        store: &TenantStore,
        text: &str,
        search: &SearchRequest,
    ) -> Result<SearchResults, SearchError> {
        let mut query = query::parse(text)?;
        if search.includes_deleted {
            query = query.including_deleted();
        }
        let (emails, next_cursor) = match search.order {
            SearchOrder::Newest => newest(store, &query, search).await?,
            SearchOrder::Ranked => ranked(store, &query, search).await?,
        };
        let hits = emails.into_iter().map(|email| {
            let snippet = snippet_of(&email, &query, search.marks);
            SearchHit { email, snippet }
        });
        Ok(SearchResults { hits: hits.collect(), next_cursor })
    }
}

async fn newest(
    store: &TenantStore,
    query: &SearchQuery,
    search: &SearchRequest,
) -> Result<(Vec<SummaryRow>, Option<String>), SearchError> {
    let after = search.cursor.as_deref().map(|cursor| cursor.parse::<EmailId>().map_err(|_| SearchError::Cursor));
    let start = after.transpose()?.map(PageStart::After);
    // One more than requested tells whether there is another page.
    let page = SearchPage { mailbox: search.mailbox, start, limit: search.limit.saturating_add(1) };
    let text_chars = if query.all_of.is_empty() { PREVIEW_CHARS } else { SEARCHED_CHARS };
    let mut emails = store.list_summaries(query, &page, text_chars).await?;
    let has_more = emails.len() as u64 > search.limit;
    if has_more {
        emails.pop();
    }
    let next_cursor = emails.last().filter(|_| has_more).map(|email| email.id.to_string());
    Ok((emails, next_cursor))
}

/// Returns a page of ranked emails. The cursor is the newest match of the first page and how many were shown, so that
/// later mail does not move the list.
async fn ranked(
    store: &TenantStore,
    query: &SearchQuery,
    search: &SearchRequest,
) -> Result<(Vec<SummaryRow>, Option<String>), SearchError> {
    let (start, shown) = match search.cursor.as_deref() {
        None => (None, 0),
        Some(cursor) => {
            let (id, shown) = cursor.split_once('+').ok_or(SearchError::Cursor)?;
            let id: EmailId = id.parse().map_err(|_| SearchError::Cursor)?;
            (Some(PageStart::At(id)), shown.parse::<usize>().map_err(|_| SearchError::Cursor)?)
        }
    };
    let ids = store.search(query, &SearchPage { mailbox: search.mailbox, start, limit: RANKED_WINDOW }).await?;
    let newest = ids.first().copied();
    let mut scored: Vec<(u32, EmailId)> = Vec::with_capacity(ids.len());
    for ids in ids.chunks(SCORE_BATCH_EMAILS) {
        let emails = store.get_searched_emails(ids).await?;
        scored.extend(emails.iter().map(|email| (score_of(email, query), email.id)));
    }
    scored.sort_by(|a, b| b.cmp(a));
    let limit = usize::try_from(search.limit).unwrap_or(usize::MAX);
    let has_more = scored.len() > shown.saturating_add(limit);
    let page: Vec<EmailId> = scored.into_iter().map(|(_, id)| id).skip(shown).take(limit).collect();
    let next_cursor = newest.filter(|_| has_more).map(|id| format!("{id}+{}", shown + page.len()));
    Ok((store.get_summaries(&page, SEARCHED_CHARS).await?, next_cursor))
}

/// Returns a snippet of the body, or of the subject if only that has a hit.
fn snippet_of(email: &SummaryRow, query: &SearchQuery, marks: (&str, &str)) -> String {
    let of_body = snippet::snippet(&email.text, None, query, SNIPPET_CHARS, marks);
    if of_body.contains(marks.0) || query.all_of.is_empty() {
        return of_body;
    }
    let subject = email.subject.as_deref().unwrap_or_default();
    let of_subject = snippet::snippet(subject, Some(SearchField::Subject), query, SNIPPET_CHARS, marks);
    if of_subject.contains(marks.0) { of_subject } else { of_body }
}

fn score_of(email: &Email, query: &SearchQuery) -> u32 {
    let recipients = [&email.to, &email.cc, &email.bcc].into_iter().flatten().collect();
    let filenames = email.attachments.iter().filter_map(|attachment| attachment.filename.as_deref()).collect();
    let text = EmailText {
        subject: email.subject.as_deref(),
        from: email.from.as_ref(),
        recipients,
        filenames,
        body: email.body_text.as_deref(),
        has_attachment: email.has_attachments,
    };
    snippet::score(&text, query)
}

/// Returns the ids of all emails that match a query, oldest first.
pub async fn all_matching(
    store: &TenantStore,
    query: &SearchQuery,
    mailbox: Option<MailboxId>,
) -> anyhow::Result<Vec<EmailId>> {
    let mut ids: Vec<EmailId> = Vec::new();
    loop {
        let page = SearchPage { mailbox, start: ids.last().copied().map(PageStart::After), limit: IDS_PER_QUERY };
        let found = store.search(query, &page).await?;
        let is_last = (found.len() as u64) < IDS_PER_QUERY;
        ids.extend(found);
        if is_last {
            ids.reverse();
            return Ok(ids);
        }
    }
}
