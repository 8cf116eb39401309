//! Searching as a person does: typed text in, emails with a marked snippet out.

use content::tokens::{EmailText, Field};
use content::{query, snippet};
use domain::search::{Order, Query};
use domain::{EmailId, MailboxId};
use store::TenantStore;
use store::sql::emails::{Email, SEARCHED_CHARS};
use store::sql::search::{Page, Start};
use store::sql::summaries::Summary;

use crate::Engine;

/// Among how many of the newest matches the best are looked for: ranking reads each of them, and statistics over all
/// mail, which would avoid that, tell one tenant about another.
pub const RANKED_WINDOW: u64 = 500;

/// Emails that are read at once to be scored.
const SCORED_AT_ONCE: usize = 50;

/// Ids are read this many at a time when all are wanted.
const IDS: u64 = 10_000;

const SNIPPET_CHARS: usize = 160;

/// Of the text, when nothing in it is to be marked: a snippet, and white space around its words.
const BEGINNING_CHARS: u32 = 400;

#[derive(Debug, Clone)]
pub struct Search {
    pub mailbox: Option<MailboxId>,
    pub limit: u64,
    pub order: Order,
    /// What the page before gave as `next_cursor`.
    pub cursor: Option<String>,
    /// Put around each hit in a snippet.
    pub marks: (&'static str, &'static str),
}

#[derive(Debug)]
pub struct Hit {
    pub email: Summary,
    pub snippet: String,
}

#[derive(Debug)]
pub struct Found {
    pub hits: Vec<Hit>,
    pub next_cursor: Option<String>,
}

#[derive(Debug, thiserror::Error)]
pub enum SearchError {
    #[error("{0}")]
    Query(#[from] query::QueryError),
    #[error("the cursor is not one that a search gave; start again without it")]
    Cursor,
    #[error(transparent)]
    Store(#[from] store::StoreError),
}

impl Engine {
    pub async fn search(&self, store: &TenantStore, text: &str, search: &Search) -> Result<Found, SearchError> {
        let query = query::parse(text)?;
        let (emails, next_cursor) = match search.order {
            Order::Newest => newest(store, &query, search).await?,
            Order::Ranked => ranked(store, &query, search).await?,
        };
        let hit = |email: Summary| {
            let snippet = snippet_of(&email, &query, search.marks);
            Hit { email, snippet }
        };
        Ok(Found { hits: emails.into_iter().map(hit).collect(), next_cursor })
    }
}

async fn newest(
    store: &TenantStore,
    query: &Query,
    search: &Search,
) -> Result<(Vec<Summary>, Option<String>), SearchError> {
    let after = search.cursor.as_deref().map(|cursor| cursor.parse::<EmailId>().map_err(|_| SearchError::Cursor));
    let start = after.transpose()?.map(Start::After);
    // One more than asked for tells whether there is another page.
    let page = Page { mailbox: search.mailbox, start, limit: search.limit.saturating_add(1) };
    let text_chars = if query.all_of.is_empty() { BEGINNING_CHARS } else { SEARCHED_CHARS };
    let mut emails = store.list_summaries(query, &page, text_chars).await?;
    let has_more = emails.len() as u64 > search.limit;
    if has_more {
        emails.pop();
    }
    let next_cursor = emails.last().filter(|_| has_more).map(|email| email.id.to_string());
    Ok((emails, next_cursor))
}

/// The cursor is the newest match of the first page and how many were shown: later mail does not move the list.
async fn ranked(
    store: &TenantStore,
    query: &Query,
    search: &Search,
) -> Result<(Vec<Summary>, Option<String>), SearchError> {
    let (start, shown) = match search.cursor.as_deref() {
        None => (None, 0),
        Some(cursor) => {
            let (id, shown) = cursor.split_once('+').ok_or(SearchError::Cursor)?;
            let id: EmailId = id.parse().map_err(|_| SearchError::Cursor)?;
            (Some(Start::At(id)), shown.parse::<usize>().map_err(|_| SearchError::Cursor)?)
        }
    };
    let ids = store.search(query, &Page { mailbox: search.mailbox, start, limit: RANKED_WINDOW }).await?;
    let newest = ids.first().copied();
    let mut scored: Vec<(u32, EmailId)> = Vec::with_capacity(ids.len());
    for ids in ids.chunks(SCORED_AT_ONCE) {
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

/// From the body; from the subject when only that has a hit.
fn snippet_of(email: &Summary, query: &Query, marks: (&str, &str)) -> String {
    let of_body = snippet::snippet(&email.text, None, query, SNIPPET_CHARS, marks);
    if of_body.contains(marks.0) || query.all_of.is_empty() {
        return of_body;
    }
    let subject = email.subject.as_deref().unwrap_or_default();
    let of_subject = snippet::snippet(subject, Some(Field::Subject), query, SNIPPET_CHARS, marks);
    if of_subject.contains(marks.0) { of_subject } else { of_body }
}

fn score_of(email: &Email, query: &Query) -> u32 {
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

/// Every email that the query finds, oldest first.
pub async fn all_matching(
    store: &TenantStore,
    query: &Query,
    mailbox: Option<MailboxId>,
) -> anyhow::Result<Vec<EmailId>> {
    let mut ids: Vec<EmailId> = Vec::new();
    loop {
        let page = Page { mailbox, start: ids.last().copied().map(Start::After), limit: IDS };
        let found = store.search(query, &page).await?;
        let is_last = (found.len() as u64) < IDS;
        ids.extend(found);
        if is_last {
            ids.reverse();
            return Ok(ids);
        }
    }
}
