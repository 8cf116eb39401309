//! Listings of a mailbox, folder by folder. They are read as a first delta round, because the paging of Graph's plain lists
//! counts messages: when one is deleted meanwhile, another is skipped. Where Graph has no delta, a plain list is read by
//! date, each page with a little overlap to the one before.

use std::collections::HashMap;

use domain::ConnectorError;
use domain::connector::{Cursors, ListingPage};
use jiff::{SignedDuration, Timestamp};
use outbound::http::Url;
use serde::{Deserialize, Serialize};

use super::api::{Collection, GraphClient, GraphFailure};
use super::changes::{filter_time, first_sync_at};
use super::delta::{self, DeltaCursor};
use super::error_mapping::GraphOperation;
use super::folders;
use super::message::{GraphMessage, MESSAGE_FIELDS};
use crate::folder_diff::diff_folders;
use crate::http::protocol;

/// The only cursor scope: a listing goes through all folders.
const SCOPE: &str = "mailbox";

/// Position in a listing: a folder, and how far in it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct FolderListCursor {
    folder: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    link: Option<String>,
    /// Graph has lost the sync state of this folder once.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    is_anew: bool,
    /// The folder is read as a plain list, because Graph has no delta of it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    is_plain: bool,
    /// In a plain list: messages that were received later are listed already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    until: Option<Timestamp>,
    /// In a plain list: links to a next page that were refused. Without one the list goes on at `until`.
    #[serde(default, skip_serializing_if = "is_zero")]
    refusals: u8,
}

/// How often Graph may refuse a link of a folder's plain list before the whole listing starts over.
const MAX_REFUSED_LINKS: u8 = 3;

/// Overlap of two pages by date: `receivedDateTime` has no fractions of a second, but filters compare them.
const DATE_OVERLAP: SignedDuration = SignedDuration::from_secs(1);

/// Lists the messages from before the first sync, newest first. Later ones are left to the changes.
pub async fn list_history(
    client: GraphClient<'_>,
    cursors: &Cursors,
    changes: &Cursors,
    since: Option<Timestamp>,
) -> Result<ListingPage, ConnectorError> {
    let folders = folders_in_scope(client);
    let Some(position) = resume(cursors, &folders)? else { return finish_page(ListingPage::default(), None) };
    let Some(page_read) = read_folder(client, &position, delta::initial_url_newest_first).await? else {
        return finish_page(ListingPage::default(), next_folder(&folders, &position));
    };
    let first_sync_at = first_sync_at(changes)?;
    let mut page = ListingPage::default();
    let (mut is_older, mut is_empty) = (true, true);
    for message in page_read.present() {
        is_empty = false;
        let received = message.received_date_time;
        let is_old = received.is_some_and(|received| since.is_some_and(|since| received < since));
        is_older &= is_old;
        if !is_old && received.is_none_or(|received| received < first_sync_at) {
            page.seen.push(message.seen(&position.folder)?);
        }
    }
    let next = match page_read.next {
        Some(next) if is_empty || !is_older => Some(next),
        // The rest of the folder is older still.
        _ => next_folder(&folders, &position),
    };
    finish_page(page, next)
}

/// Lists the whole mailbox as it is now, with new messages that the changes have not reported: Graph's deltas report a
/// deletion also if they never reported the message.
pub async fn list_all(client: GraphClient<'_>, cursors: &Cursors) -> Result<ListingPage, ConnectorError> {
    let mut page = ListingPage::default();
    if cursors.is_empty() {
        let now = folders::tree(client).await?.folders;
        page.folders = now.clone();
        (_, page.missing_folders) = diff_folders(&client.account.folders, now);
    }
    let mut folders = folders_in_scope(client);
    // The next page must not begin in a folder that is missing: the listing would start over.
    folders.retain(|folder| !page.missing_folders.contains(folder));
    let Some(position) = resume(cursors, &folders)? else { return finish_page(page, None) };
    let Some(page_read) = read_folder(client, &position, delta::initial_url).await? else {
        return finish_page(page, next_folder(&folders, &position));
    };
    for message in page_read.present() {
        page.seen.push(message.seen(&position.folder)?);
        page.complete_placements.push(message.id.clone());
    }
    let next = page_read.next.or_else(|| next_folder(&folders, &position));
    finish_page(page, next)
}

struct FolderListPage {
    messages: Vec<GraphMessage>,
    /// Position of this folder's next page.
    next: Option<FolderListCursor>,
}

impl FolderListPage {
    /// Returns each message that is in the folder once, in their order: Graph may list one repeatedly, and its last entry
    /// counts.
    fn present(&self) -> impl Iterator<Item = &GraphMessage> {
        let last: HashMap<&str, usize> =
            self.messages.iter().enumerate().map(|(at, message)| (&*message.id, at)).collect();
        let latest = self.messages.iter().enumerate().filter(move |(at, message)| last[&*message.id] == *at);
        latest.map(|(_, message)| message).filter(|message| message.removed.is_none())
    }
}

/// Reads a page of a folder. Returns `None` if the folder no longer exists, which the changes report.
async fn read_folder(
    client: GraphClient<'_>,
    position: &FolderListCursor,
    initial_url: fn(GraphClient<'_>, &str) -> Url,
) -> Result<Option<FolderListPage>, ConnectorError> {
    let url = match &position.link {
        Some(link) => match client.link(link) {
            Ok(url) => url,
            Err(_) => return Ok(Some(restart(position))),
        },
        None if position.is_plain => plain_list_url(client, position),
        None => initial_url(client, &position.folder),
    };
    if !position.is_plain {
        match delta::page(client, url.clone(), delta::MAX_PAGE_SIZE).await {
            Ok(delta) => {
                let next = match delta.cursor {
                    DeltaCursor::Next { link, .. } => Some(FolderListCursor { link: Some(link), ..position.clone() }),
                    DeltaCursor::Delta(_) | DeltaCursor::Stuck => None,
                };
                return Ok(Some(FolderListPage { messages: delta.messages, next }));
            }
            Err(failure) => match failure.error {
                ConnectorError::Gone if position.link.is_none() => return Ok(None),
                ConnectorError::CursorExpired | ConnectorError::Gone => return Ok(Some(restart(position))),
                ConnectorError::Protocol(_) if failure.status.is_some() && position.link.is_some() => {
                    return Ok(Some(restart(position)));
                }
                ConnectorError::Protocol(_) if failure.status.is_some() => {}
                e => return Err(e),
            },
        }
    }
    let url = if position.is_plain { url } else { plain_list_url(client, position) };
    let page: Result<Collection<GraphMessage>, GraphFailure> = client.get(GraphOperation::Folder, url, "").await;
    match page {
        Ok(page) => {
            let next = page.next_link.map(|link| after_messages(position, &page.value, link));
            Ok(Some(FolderListPage { messages: page.value, next }))
        }
        Err(failure) if is_link_refused(position, &failure) => restart_plain(position),
        Err(failure) if failure.error == ConnectorError::Gone => Ok(None),
        Err(failure) => Err(failure.error),
    }
}

/// Returns whether Graph may have refused the link rather than the folder.
fn is_link_refused(position: &FolderListCursor, failure: &GraphFailure) -> bool {
    let is_refusal = matches!(failure.error, ConnectorError::Protocol(_) | ConnectorError::Gone);
    position.is_plain && position.link.is_some() && failure.status.is_some() && is_refusal
}

/// Continues a plain list without the link that was refused.
fn restart_plain(position: &FolderListCursor) -> Result<Option<FolderListPage>, ConnectorError> {
    if position.refusals == MAX_REFUSED_LINKS {
        return Err(ConnectorError::CursorExpired);
    }
    let next = Some(FolderListCursor { link: None, refusals: position.refusals + 1, ..position.clone() });
    Ok(Some(FolderListPage { messages: Vec::new(), next }))
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_zero(number: &u8) -> bool {
    *number == 0
}

/// Starts a folder over; the second time as a plain list, for which Graph keeps no sync state.
fn restart(position: &FolderListCursor) -> FolderListPage {
    let (folder, is_plain) = (position.folder.clone(), position.is_anew);
    let next = Some(FolderListCursor { folder, is_plain, is_anew: true, ..FolderListCursor::default() });
    FolderListPage { messages: Vec::new(), next }
}

fn plain_list_url(client: GraphClient<'_>, position: &FolderListCursor) -> Url {
    let mut url = client.url(&["mailFolders", &position.folder, "messages"]);
    let mut query = url.query_pairs_mut();
    query
        .append_pair("$select", MESSAGE_FIELDS)
        .append_pair("$orderby", "receivedDateTime desc")
        .append_pair("$top", &delta::MAX_PAGE_SIZE.to_string());
    if let Some(until) = position.until {
        query.append_pair("$filter", &format!("receivedDateTime le {}", filter_time(until)));
    }
    drop(query);
    url
}

/// Returns the position of a plain list after these messages. It is Graph's link, which counts messages, only if all of
/// them were received at the same time.
fn after_messages(position: &FolderListCursor, messages: &[GraphMessage], link: String) -> FolderListCursor {
    let oldest = messages.iter().filter_map(|message| message.received_date_time).min();
    let until = oldest.and_then(|oldest| oldest.checked_add(DATE_OVERLAP).ok());
    match until {
        Some(until) if position.until.is_none_or(|before| until < before) => {
            FolderListCursor { until: Some(until), link: None, is_plain: true, ..position.clone() }
        }
        _ => FolderListCursor { link: Some(link), is_plain: true, ..position.clone() },
    }
}

/// Returns the folders in scope, the inbox first.
fn folders_in_scope(client: GraphClient<'_>) -> Vec<String> {
    let mut folders: Vec<_> = client.account.folders.iter().filter(|folder| folder.is_in_scope).collect();
    // By id, which does not change: a folder that is renamed meanwhile must not be skipped.
    folders.sort_by_key(|folder| (folder.role != Some(domain::FolderRole::Inbox), &folder.id));
    folders.into_iter().map(|folder| folder.id.clone()).collect()
}

/// Reads the position, or starts at the first folder. Returns `None` if there is no folder.
fn resume(cursors: &Cursors, folders: &[String]) -> Result<Option<FolderListCursor>, ConnectorError> {
    match cursors.get(SCOPE) {
        // If its folder is no longer wanted, the listing starts over.
        Some(cursor) => match serde_json::from_str::<FolderListCursor>(cursor) {
            Ok(position) if folders.contains(&position.folder) => Ok(Some(position)),
            _ => Err(ConnectorError::CursorExpired),
        },
        None => {
            Ok(folders.first().map(|folder| FolderListCursor { folder: folder.clone(), ..FolderListCursor::default() }))
        }
    }
}

fn next_folder(folders: &[String], position: &FolderListCursor) -> Option<FolderListCursor> {
    let next = folders.iter().skip_while(|folder| **folder != position.folder).nth(1)?;
    Some(FolderListCursor { folder: next.clone(), ..FolderListCursor::default() })
}

fn finish_page(page: ListingPage, next: Option<FolderListCursor>) -> Result<ListingPage, ConnectorError> {
    let is_last = next.is_none();
    let cursor = match next {
        Some(position) => {
            serde_json::to_string(&position).map_err(|_| protocol("a list cursor cannot be serialized"))?
        }
        None => String::new(),
    };
    Ok(ListingPage { cursors: Cursors::from([(SCOPE.to_owned(), cursor)]), is_last, ..page })
}
