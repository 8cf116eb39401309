//! What is in the mailbox, folder by folder. Gmail's lists name messages and nothing more; where each of them is shows when
//! it is read, with or without its bytes.

use std::collections::HashSet;

use domain::connector::{Account, Cursors, Page, Place, Seen};
use domain::{ConnectorError, Flags};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::api::{Call, Messages};
use super::changes::{SCOPE, read, seen};
use super::labels::{self, ALL_MAIL};
use crate::folders::compare;
use crate::http::protocol;

/// Ids in a page: the most that Gmail gives.
const IDS: usize = 500;

/// When each of them is read as well.
const READ: usize = 100;

/// Where we are: in which folder, and how far.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct At {
    folder: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    page: Option<String>,
    /// In the second list of the folder, that of everything.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    is_old: bool,
}

/// A page of ids.
struct Ids {
    ids: Vec<String>,
    /// Where the next page is; nothing: this was the last one of all.
    next: Option<At>,
}

/// Of what was there before the first sync, newest first. A message is named once; its other places show with its bytes.
pub async fn history(call: Call<'_>, cursors: &Cursors, since: Option<Timestamp>) -> Result<Page, ConnectorError> {
    let folders = roots(call.account);
    let Some(at) = begin(cursors, &folders)? else { return end(Page::default(), None) };
    let Ids { ids, next } = ids(call, &at, &folders, since, IDS).await?;
    let named = ids.into_iter().map(|id| somewhere(id, &at.folder)).collect();
    end(Page { named, ..Page::default() }, next)
}

/// Everything, each message read as it is now; of what is older than was ever wanted, only that it is there.
pub async fn everything(call: Call<'_>, cursors: &Cursors, since: Option<Timestamp>) -> Result<Page, ConnectorError> {
    let folders = roots(call.account);
    let Some(at) = begin(cursors, &folders)? else { return end(Page::default(), None) };
    if at.is_old {
        let Ids { ids, next } = ids(call, &at, &folders, None, IDS).await?;
        return end(Page { there: ids, ..Page::default() }, with_old(next, &at, since));
    }
    let Ids { ids, next } = ids(call, &at, &folders, since, READ).await?;
    let next = with_old(next, &at, since);
    let read = read(call, &ids.iter().map(String::as_str).collect::<Vec<_>>()).await?;
    let now = labels::folders(&call.labels().await?);
    let known: HashSet<String> = now.iter().map(|folder| folder.id.clone()).collect();
    let (folders, gone_folders) = compare(&call.account.folders, now);
    let mut page = Page { folders, gone_folders, whole: ids, ..Page::default() };
    for message in read.values() {
        page.messages.extend(seen(message, &known)?);
    }
    end(page, next)
}

/// Only what is where, to be counted: a call for many messages, and none for each. What may be too old to be wanted is
/// among `marked`.
pub async fn places(call: Call<'_>, cursors: &Cursors, since: Option<Timestamp>) -> Result<Page, ConnectorError> {
    let now = labels::folders(&call.labels().await?);
    let all: Vec<String> = now.iter().map(|folder| folder.id.clone()).collect();
    let Some(at) = begin(cursors, &all)? else { return end(Page::default(), None) };
    let Ids { ids, next } = ids(call, &at, &all, since.filter(|_| !at.is_old), IDS).await?;
    let next = with_old(next, &at, since);
    let told = ids.into_iter().map(|id| somewhere(id, &at.folder)).collect();
    let folders = if cursors.is_empty() { now } else { Vec::new() };
    let page = match at.is_old {
        true => Page { folders, marked: told, ..Page::default() },
        false => Page { folders, messages: told, ..Page::default() },
    };
    end(page, next)
}

/// Behind what is new enough to be wanted comes a list of everything in the same folder.
fn with_old(next: Option<At>, at: &At, since: Option<Timestamp>) -> Option<At> {
    match next {
        Some(next) if next.folder == at.folder => Some(At { is_old: at.is_old, ..next }),
        _ if since.is_some() && !at.is_old => Some(At { folder: at.folder.clone(), page: None, is_old: true }),
        next => next,
    }
}

/// The folders that together have every message that is wanted, each as seldom as can be.
fn roots(account: &Account) -> Vec<String> {
    let wanted: Vec<&str> =
        account.folders.iter().filter(|folder| folder.is_in_scope).map(|folder| &*folder.id).collect();
    let has_all = wanted.contains(&ALL_MAIL);
    let is_root = |folder: &&str| !has_all || *folder == ALL_MAIL || labels::is_apart(folder);
    let mut roots: Vec<String> = wanted.iter().copied().filter(is_root).map(str::to_owned).collect();
    // What people look at first comes first.
    roots.sort_by_key(|folder| (folder != ALL_MAIL, folder != "INBOX", folder.clone()));
    roots
}

/// `None`: there is no folder at all.
fn begin(cursors: &Cursors, folders: &[String]) -> Result<Option<At>, ConnectorError> {
    match cursors.get(SCOPE) {
        // A folder that is not wanted any more: the list begins anew.
        Some(cursor) => match serde_json::from_str::<At>(cursor) {
            Ok(at) if folders.contains(&at.folder) => Ok(Some(at)),
            _ => Err(ConnectorError::CursorExpired),
        },
        None => Ok(folders.first().map(|folder| At { folder: folder.clone(), ..At::default() })),
    }
}

async fn ids(
    call: Call<'_>,
    at: &At,
    folders: &[String],
    since: Option<Timestamp>,
    most: usize,
) -> Result<Ids, ConnectorError> {
    let (label, words) = labels::query(&at.folder);
    // A second more, for nobody says whether it counts itself. The ledger makes overlap free.
    let words = since.map_or(words.to_owned(), |since| format!("{words} after:{}", since.as_second() - 1));
    let (words, most) = (words.trim_start(), most.to_string());
    let mut query = vec![("maxResults", &*most)];
    query.extend(label.map(|label| ("labelIds", label)));
    query.extend(Some(words).filter(|words| !words.is_empty()).map(|words| ("q", words)));
    query.extend(labels::is_hidden(&at.folder).then_some(("includeSpamTrash", "true")));
    query.extend(at.page.as_deref().map(|page| ("pageToken", page)));
    let found = match call.messages(&query).await {
        // The label is no more, which somebody will tell: there is nothing in it.
        Err(ConnectorError::CursorExpired) if at.page.is_none() && label.is_some() => Messages::default(),
        found => found?,
    };
    let next = match found.next_page_token {
        Some(page) => Some(At { folder: at.folder.clone(), page: Some(page), is_old: false }),
        None => {
            let after = folders.iter().skip_while(|folder| **folder != at.folder).nth(1);
            after.map(|folder| At { folder: folder.clone(), ..At::default() })
        }
    };
    let mut met = HashSet::new();
    // A page may name one twice while the mailbox changes.
    let ids = found.messages.into_iter().map(|message| message.id).filter(|id| met.insert(id.clone())).collect();
    Ok(Ids { ids, next })
}

/// In this folder at least; how it is marked is not known.
fn somewhere(id: String, folder: &str) -> Seen {
    Seen {
        place: Place { folder: folder.to_owned(), uid: id.clone() },
        message: id,
        flags: Flags::default(),
        size_bytes: None,
        received_at: None,
        revision: None,
    }
}

fn end(page: Page, next: Option<At>) -> Result<Page, ConnectorError> {
    let is_last = next.is_none();
    let cursor = match next {
        Some(at) => serde_json::to_string(&at).map_err(|_| protocol("a place that cannot be written down"))?,
        None => String::new(),
    };
    Ok(Page { cursors: Cursors::from([(SCOPE.to_owned(), cursor)]), is_last, ..page })
}
