//! Changes of a mailbox by `history.list`: the history names the messages that changed, and each of them is read as it is
//! now. A change that happens meanwhile is in a later page, so the last state that we read is the true one.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use domain::ConnectorError;
use domain::connector::{Cursors, ListingPage, SeenMessage};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::api::{GmailClient, GmailMessage, HistoryPage};
use super::batch;
use super::batch_receiver::BatchReceiver;
use super::labels;
use crate::folder_diff::diff_folders;
use crate::http::protocol;

/// The only cursor scope: the whole mailbox.
pub const SCOPE: &str = "mailbox";

/// Batches that the messages of one page may take. A page is recorded as a whole or not at all, so it must not cost more
/// quota than is available at once.
const BATCHES_PER_PAGE: usize = 4;

/// How often Google may refuse page tokens of a listing before its cursor counts as expired. A first page needs no token.
pub const MAX_REFUSED_PAGE_TOKENS: u8 = 3;

/// Position in the history. `history`, where its window starts, moves only after the last page; Google may repeat what
/// earlier pages reported. So the page token only saves calls: once it is refused, the window is listed from its start.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct HistoryCursor {
    history: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    page: Option<String>,
    /// Page tokens of this window that were refused.
    #[serde(default, skip_serializing_if = "is_zero")]
    refusals: u8,
}

impl HistoryCursor {
    fn text(&self) -> Result<String, ConnectorError> {
        serde_json::to_string(self).map_err(|_| protocol("a history cursor cannot be serialized"))
    }

    /// Returns the start of the window, after its page token was refused; `None` without a token, or after too many.
    fn window_start(&self) -> Option<Self> {
        let may_restart = self.page.is_some() && self.refusals < MAX_REFUSED_PAGE_TOKENS;
        may_restart.then(|| Self { history: self.history.clone(), page: None, refusals: self.refusals + 1 })
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
pub fn is_zero(number: &u8) -> bool {
    *number == 0
}

/// Returns the folders and a cursor at the present: older messages are listed by [`super::list`], afterwards.
pub async fn start(client: GmailClient<'_>) -> Result<ListingPage, ConnectorError> {
    let at = HistoryCursor { history: client.profile().await?.history_id, page: None, refusals: 0 };
    let folders = labels::folders(&client.labels().await?);
    let cursors = Cursors::from([(SCOPE.to_owned(), at.text()?)]);
    Ok(ListingPage { folders, cursors, is_last: true, ..ListingPage::default() })
}

/// Returns the next page of changes after the cursor.
pub async fn page(client: GmailClient<'_>, cursor: &str) -> Result<ListingPage, ConnectorError> {
    let at: HistoryCursor = serde_json::from_str(cursor).map_err(|_| ConnectorError::CursorExpired)?;
    let (at, HistoryPage { history, next_page_token, history_id }) =
        match (history_page(client, &at).await, at.window_start()) {
            (Err(ConnectorError::CursorExpired), Some(start)) => (start.clone(), history_page(client, &start).await?),
            (page, _) => (at, page?),
        };
    let is_last = next_page_token.is_none();
    let next = match next_page_token {
        Some(page) => HistoryCursor { page: Some(page), ..at },
        None => HistoryCursor { history: history_id, page: None, refusals: 0 },
    };
    let cursors = Cursors::from([(SCOPE.to_owned(), next.text()?)]);
    let (mut added, mut changed, mut deleted) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for record in history {
        added.extend(record.messages_added.into_iter().map(|happened| happened.message.id));
        changed.extend(record.labels_added.into_iter().map(|happened| happened.message.id));
        changed.extend(record.labels_removed.into_iter().map(|happened| happened.message.id));
        deleted.extend(record.messages_deleted.into_iter().map(|happened| happened.message.id));
    }
    let touched_ids: BTreeSet<String> = added.iter().chain(&changed).chain(&deleted).cloned().collect();
    if touched_ids.is_empty() && !client.account.has_missing_folders() {
        return Ok(ListingPage { cursors, is_last, ..ListingPage::default() });
    }
    let to_read: Vec<&str> = touched_ids.difference(&deleted).map(String::as_str).collect();
    let messages = read_metadata(client, &to_read).await?;
    // Read after the messages, so that it has all their labels.
    let now = labels::folders(&client.labels().await?);
    let known: HashSet<String> = now.iter().map(|folder| folder.id.clone()).collect();
    let (folders, missing_folders) = diff_folders(&client.account.folders, now);
    let mut page = ListingPage { folders, missing_folders, cursors, is_last, ..ListingPage::default() };
    for message in messages.into_values() {
        let list = if added.contains(&message.id) { &mut page.seen } else { &mut page.relisted };
        list.extend(placements_of(&message, &known)?);
    }
    page.complete_placements = touched_ids.into_iter().collect();
    Ok(page)
}

async fn history_page(client: GmailClient<'_>, at: &HistoryCursor) -> Result<HistoryPage, ConnectorError> {
    let records = (client.gmail.batch_sizer.size(client.account.mailbox) * BATCHES_PER_PAGE).clamp(10, 100).to_string();
    let mut query = vec![("startHistoryId", &*at.history), ("maxResults", &*records)];
    query.extend(at.page.as_deref().map(|page| ("pageToken", page)));
    client.history(&query).await
}

/// Returns all placements of a message in known folders.
pub fn placements_of(message: &GmailMessage, known: &HashSet<String>) -> Result<Vec<SeenMessage>, ConnectorError> {
    let received_at = received_at(message)?;
    let places = labels::placements(&message.id, &message.label_ids).into_iter();
    let places = places.filter(|(place, _)| known.contains(&place.folder));
    let seen = places.map(|(place, flags)| SeenMessage {
        message: message.id.clone(),
        placement: place,
        flags,
        size_bytes: message.size_estimate,
        received_at,
        revision: None,
    });
    Ok(seen.collect())
}

/// Returns the message's `internalDate`.
pub fn received_at(message: &GmailMessage) -> Result<Option<Timestamp>, ConnectorError> {
    let Some(text) = &message.internal_date else { return Ok(None) };
    let received_at = text.parse().ok().and_then(|millis| Timestamp::from_millisecond(millis).ok());
    received_at.map(Some).ok_or_else(|| protocol("an internalDate is not a time"))
}

/// Reads messages without their bytes; those that no longer exist are left out.
pub async fn read_metadata(
    client: GmailClient<'_>,
    ids: &[&str],
) -> Result<BTreeMap<String, GmailMessage>, ConnectorError> {
    let (mut messages, mut failure) = (BTreeMap::new(), None);
    let receiver = BatchReceiver::Metadata { messages: &mut messages, failure: &mut failure };
    batch::get_messages(client, ids, receiver).await?;
    failure.map_or(Ok(messages), Err)
}
