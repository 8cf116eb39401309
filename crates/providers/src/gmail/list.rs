//! Listings of a mailbox by `messages.list`, folder by folder. A list has ids only; the placements of a message are known
//! when it is read, with or without its bytes.

use std::collections::HashSet;

use domain::connector::{ConnectorAccount, Cursors, ListingPage, Placement, SeenMessage};
use domain::{ConnectorError, Flags};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::api::{GmailClient, MessageList};
use super::changes::{MAX_REFUSED_PAGE_TOKENS, SCOPE, is_zero, placements_of, read_metadata};
use super::labels::{self, ALL_MAIL};
use crate::folder_diff::diff_folders;
use crate::http::protocol;

/// Ids in a page: Gmail's maximum.
const MAX_IDS_PER_PAGE: usize = 500;

/// Ids in a page whose messages are read as well.
const MAX_MESSAGES_PER_PAGE: usize = 100;

/// Position in a listing: a folder, and a page of it.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct ListCursor {
    folder: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    page: Option<String>,
    /// In the second list of the folder, without a date limit.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    is_old: bool,
    /// Page tokens of this folder that were refused. Without a token the folder is listed from its start.
    #[serde(default, skip_serializing_if = "is_zero")]
    refusals: u8,
}

/// A page of ids.
struct IdPage {
    ids: Vec<String>,
    /// Position of the next page; `None` after the last page of the last folder.
    next: Option<ListCursor>,
}

/// Lists the messages from before the first sync, newest first. A message is named once; its other placements come with
/// its bytes.
pub async fn list_history(
    client: GmailClient<'_>,
    cursors: &Cursors,
    since: Option<Timestamp>,
) -> Result<ListingPage, ConnectorError> {
    let folders = covering_folders(client.account);
    let Some(at) = resume(cursors, &folders)? else { return finish_page(ListingPage::default(), None) };
    let IdPage { ids, next } = list_ids(client, &at, &folders, since, MAX_IDS_PER_PAGE).await?;
    let named = ids.into_iter().map(|id| placement_only(id, &at.folder)).collect();
    finish_page(ListingPage { id_only: named, ..ListingPage::default() }, next)
}

/// Lists the whole mailbox for a comparison: recent messages as they are now, older ones than were ever wanted by id only.
pub async fn list_all(
    client: GmailClient<'_>,
    cursors: &Cursors,
    since: Option<Timestamp>,
) -> Result<ListingPage, ConnectorError> {
    let folders = covering_folders(client.account);
    let Some(at) = resume(cursors, &folders)? else { return finish_page(ListingPage::default(), None) };
    if at.is_old {
        let IdPage { ids, next } = list_ids(client, &at, &folders, None, MAX_IDS_PER_PAGE).await?;
        return finish_page(ListingPage { unchanged: ids, ..ListingPage::default() }, then_older(next, &at, since));
    }
    let IdPage { ids, next } = list_ids(client, &at, &folders, since, MAX_MESSAGES_PER_PAGE).await?;
    let next = then_older(next, &at, since);
    let read = read_metadata(client, &ids.iter().map(String::as_str).collect::<Vec<_>>()).await?;
    let now = labels::folders(&client.labels().await?);
    let known: HashSet<String> = now.iter().map(|folder| folder.id.clone()).collect();
    let (folders, missing_folders) = diff_folders(&client.account.folders, now);
    let mut page = ListingPage { folders, missing_folders, complete_placements: ids, ..ListingPage::default() };
    for message in read.values() {
        page.seen.extend(placements_of(message, &known)?);
    }
    finish_page(page, next)
}

/// Lists placements only, for counting: one call for many messages, and none for each. Messages that may be too old to be
/// wanted are in `marked`.
pub async fn list_placements(
    client: GmailClient<'_>,
    cursors: &Cursors,
    since: Option<Timestamp>,
) -> Result<ListingPage, ConnectorError> {
    let now = labels::folders(&client.labels().await?);
    let all: Vec<String> = now.iter().map(|folder| folder.id.clone()).collect();
    let Some(at) = resume(cursors, &all)? else { return finish_page(ListingPage::default(), None) };
    let IdPage { ids, next } = list_ids(client, &at, &all, since.filter(|_| !at.is_old), MAX_IDS_PER_PAGE).await?;
    let next = then_older(next, &at, since);
    let seen = ids.into_iter().map(|id| placement_only(id, &at.folder)).collect();
    let folders = if cursors.is_empty() { now } else { Vec::new() };
    let page = if at.is_old {
        ListingPage { folders, flags_only: seen, ..ListingPage::default() }
    } else {
        ListingPage { folders, seen, ..ListingPage::default() }
    };
    finish_page(page, next)
}

/// Continues with the same folder without a date limit once its recent messages are listed.
fn then_older(next: Option<ListCursor>, at: &ListCursor, since: Option<Timestamp>) -> Option<ListCursor> {
    match next {
        Some(next) if next.folder == at.folder => Some(ListCursor { is_old: at.is_old, ..next }),
        _ if since.is_some() && !at.is_old => {
            Some(ListCursor { folder: at.folder.clone(), is_old: true, ..ListCursor::default() })
        }
        next => next,
    }
}

/// Returns a smallest set of folders that together have every wanted message.
fn covering_folders(account: &ConnectorAccount) -> Vec<String> {
    let wanted: Vec<&str> =
        account.folders.iter().filter(|folder| folder.is_in_scope).map(|folder| &*folder.id).collect();
    let has_all = wanted.contains(&ALL_MAIL);
    let covering =
        wanted.iter().copied().filter(|folder| !has_all || *folder == ALL_MAIL || labels::is_exclusive(folder));
    let mut covering: Vec<String> = covering.map(str::to_owned).collect();
    // Folders that people look at first come first.
    covering.sort_by_key(|folder| (folder != ALL_MAIL, folder != "INBOX", folder.clone()));
    covering
}

/// Reads the position, or starts at the first folder. Returns `None` if there is no folder.
fn resume(cursors: &Cursors, folders: &[String]) -> Result<Option<ListCursor>, ConnectorError> {
    match cursors.get(SCOPE) {
        // If its folder is no longer wanted, the listing starts over.
        Some(cursor) => match serde_json::from_str::<ListCursor>(cursor) {
            Ok(at) if folders.contains(&at.folder) => Ok(Some(at)),
            _ => Err(ConnectorError::CursorExpired),
        },
        None => Ok(folders.first().map(|folder| ListCursor { folder: folder.clone(), ..ListCursor::default() })),
    }
}

/// Lists the ids of a page; of the folder's first page, if the page token is refused.
async fn list_ids(
    client: GmailClient<'_>,
    at: &ListCursor,
    folders: &[String],
    since: Option<Timestamp>,
    max_results: usize,
) -> Result<IdPage, ConnectorError> {
    match request_ids(client, at, folders, since, max_results).await {
        Err(ConnectorError::CursorExpired) if at.page.is_some() && at.refusals < MAX_REFUSED_PAGE_TOKENS => {
            let start = ListCursor { page: None, refusals: at.refusals + 1, ..at.clone() };
            request_ids(client, &start, folders, since, max_results).await
        }
        page => page,
    }
}

async fn request_ids(
    client: GmailClient<'_>,
    at: &ListCursor,
    folders: &[String],
    since: Option<Timestamp>,
    max_results: usize,
) -> Result<IdPage, ConnectorError> {
    let (label, search) = labels::query(&at.folder);
    // One second of overlap, because it is not documented whether `after:` includes its second. The ledger removes doubles.
    let search = since.map_or(search.to_owned(), |since| format!("{search} after:{}", since.as_second() - 1));
    let (search, max_results) = (search.trim_start(), max_results.to_string());
    let mut query = vec![("maxResults", &*max_results)];
    query.extend(label.map(|label| ("labelIds", label)));
    query.extend(Some(search).filter(|search| !search.is_empty()).map(|search| ("q", search)));
    query.extend(labels::is_hidden(&at.folder).then_some(("includeSpamTrash", "true")));
    query.extend(at.page.as_deref().map(|page| ("pageToken", page)));
    let found = match client.messages(&query).await {
        // The label was deleted, which the changes report; it has no messages.
        Err(ConnectorError::CursorExpired) if at.page.is_none() && label.is_some() => MessageList::default(),
        found => found?,
    };
    let next = match found.next_page_token {
        Some(page) => Some(ListCursor { page: Some(page), is_old: false, ..at.clone() }),
        None => {
            let after = folders.iter().skip_while(|folder| **folder != at.folder).nth(1);
            after.map(|folder| ListCursor { folder: folder.clone(), ..ListCursor::default() })
        }
    };
    let mut listed = HashSet::new();
    // A page may name a message twice while the mailbox changes.
    let ids = found.messages.into_iter().map(|message| message.id).filter(|id| listed.insert(id.clone())).collect();
    Ok(IdPage { ids, next })
}

/// Returns the one placement that a list shows, without flags.
fn placement_only(id: String, folder: &str) -> SeenMessage {
    SeenMessage {
        placement: Placement { folder: folder.to_owned(), uid: id.clone() },
        message: id,
        flags: Flags::default(),
        size_bytes: None,
        received_at: None,
        revision: None,
    }
}

fn finish_page(page: ListingPage, next: Option<ListCursor>) -> Result<ListingPage, ConnectorError> {
    let is_last = next.is_none();
    let cursor = match next {
        Some(at) => serde_json::to_string(&at).map_err(|_| protocol("a list cursor cannot be serialized"))?,
        None => String::new(),
    };
    Ok(ListingPage { cursors: Cursors::from([(SCOPE.to_owned(), cursor)]), is_last, ..page })
}
