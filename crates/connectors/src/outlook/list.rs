//! What is in the mailbox, folder by folder. It is asked for as changes since the beginning, for Graph's plain lists count
//! messages: when one goes while we read, another is passed over. Where Graph does not tell changes, a plain list is read by
//! when messages came, each page from a little later on than the one before has ended.

use std::collections::BTreeMap;

use domain::ConnectorError;
use domain::connector::{Cursors, Page};
use jiff::{SignedDuration, Timestamp};
use reqwest::Url;
use serde::{Deserialize, Serialize};

use super::api::{Call, Collection, Refusal};
use super::changes::{begun_at, whole_seconds};
use super::delta::{self, At};
use super::folders;
use super::message::{FIELDS, Message};
use super::refusal::What;
use crate::folders::compare;
use crate::http::protocol;

/// There is one scope: a list goes through all folders.
const SCOPE: &str = "mailbox";

/// Where we are: in which folder, and how far.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Place {
    folder: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    link: Option<String>,
    /// Graph has forgotten once where we were in it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    is_anew: bool,
    /// Graph does not tell this folder's changes, so it is a plain list after all.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    is_plain: bool,
    /// Of a plain list: what came later was told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    until: Option<Timestamp>,
}

/// Graph says when a message came to the second, and compares more exactly.
const OVERLAP: SignedDuration = SignedDuration::from_secs(1);

/// What was there before the first sync, newest first. What came since is left to the changes.
pub async fn history(
    call: Call<'_>,
    cursors: &Cursors,
    told: &Cursors,
    since: Option<Timestamp>,
) -> Result<Page, ConnectorError> {
    let folders = wanted(call);
    let Some(place) = begin(cursors, &folders)? else { return end(Page::default(), None) };
    let Some(found) = read(call, &place, delta::newest_first).await? else {
        return end(Page::default(), after(&folders, &place));
    };
    let begun = begun_at(told)?;
    let mut page = Page::default();
    let (mut is_older, mut is_empty) = (true, true);
    for message in found.messages.iter().filter(|message| message.removed.is_none()) {
        is_empty = false;
        let received = message.received_date_time;
        let is_old = received.is_some_and(|received| since.is_some_and(|since| received < since));
        is_older &= is_old;
        if !is_old && received.is_none_or(|received| received < begun) {
            page.messages.push(message.seen(&place.folder)?);
        }
    }
    let next = match found.next {
        Some(next) if is_empty || !is_older => Some(next),
        // The rest of it is older still.
        _ => after(&folders, &place),
    };
    end(page, next)
}

/// Everything, as it is now. What has only just come is told too: Graph tells that it went also to who never heard of it.
pub async fn everything(call: Call<'_>, cursors: &Cursors) -> Result<Page, ConnectorError> {
    let mut page = Page::default();
    if cursors.is_empty() {
        let now = folders::tree(call).await?.folders;
        page.folders = now.clone();
        (_, page.gone_folders) = compare(&call.account.folders, now);
    }
    let folders = wanted(call);
    let Some(place) = begin(cursors, &folders)? else { return end(page, None) };
    let Some(found) = read(call, &place, delta::beginning).await? else { return end(page, after(&folders, &place)) };
    // The last word on each holds.
    let latest: BTreeMap<&str, _> = found.messages.iter().map(|message| (&*message.id, message)).collect();
    for message in latest.values().filter(|message| message.removed.is_none()) {
        page.messages.push(message.seen(&place.folder)?);
        page.whole.push(message.id.clone());
    }
    let next = found.next.or_else(|| after(&folders, &place));
    end(page, next)
}

struct Found {
    messages: Vec<Message>,
    /// Where this folder goes on.
    next: Option<Place>,
}

/// `None`: the folder is no more, which somebody will tell.
async fn read(
    call: Call<'_>,
    place: &Place,
    beginning: fn(Call<'_>, &str) -> Url,
) -> Result<Option<Found>, ConnectorError> {
    // Once more from its beginning; the second time as a plain list, of which Graph need not remember anything.
    let anew = || {
        let (folder, is_plain) = (place.folder.clone(), place.is_anew);
        let next = Some(Place { folder, is_plain, is_anew: true, ..Place::default() });
        Ok(Some(Found { messages: Vec::new(), next }))
    };
    let url = match &place.link {
        Some(link) => match call.link(link) {
            Ok(url) => url,
            Err(_) => return anew(),
        },
        None if place.is_plain => plain(call, place),
        None => beginning(call, &place.folder),
    };
    if !place.is_plain {
        match delta::page(call, url.clone(), delta::PAGE).await {
            Ok(told) => {
                let next = |link| Place { link: Some(link), ..place.clone() };
                let next = if let At::Next(link) = told.at { Some(next(link)) } else { None };
                return Ok(Some(Found { messages: told.messages, next }));
            }
            Err(refusal) => match refusal.error {
                ConnectorError::Gone => return Ok(None),
                ConnectorError::CursorExpired => return anew(),
                ConnectorError::Protocol(_) if refusal.status.is_some() && place.link.is_some() => return anew(),
                ConnectorError::Protocol(_) if refusal.status.is_some() => {}
                e => return Err(e),
            },
        }
    }
    let url = if place.is_plain { url } else { plain(call, place) };
    let page: Result<Collection<Message>, Refusal> = call.get(What::Folder, url, "").await;
    match page {
        Ok(page) => {
            let next = page.next_link.map(|link| older(place, &page.value, link));
            Ok(Some(Found { messages: page.value, next }))
        }
        Err(refusal) if refusal.error == ConnectorError::Gone => Ok(None),
        Err(refusal) => Err(refusal.error),
    }
}

fn plain(call: Call<'_>, place: &Place) -> Url {
    let mut url = call.url(&["mailFolders", &place.folder, "messages"]);
    let mut query = url.query_pairs_mut();
    query
        .append_pair("$select", FIELDS)
        .append_pair("$orderby", "receivedDateTime desc")
        .append_pair("$top", &delta::PAGE.to_string());
    if let Some(until) = place.until {
        query.append_pair("$filter", &format!("receivedDateTime le {}", whole_seconds(until)));
    }
    drop(query);
    url
}

/// Where a plain list goes on after these messages. Only what came all at once is counted, as the link does.
fn older(place: &Place, messages: &[Message], link: String) -> Place {
    let oldest = messages.iter().filter_map(|message| message.received_date_time).min();
    let until = oldest.and_then(|oldest| oldest.checked_add(OVERLAP).ok());
    match until {
        Some(until) if place.until.is_none_or(|before| until < before) => {
            Place { until: Some(until), link: None, is_plain: true, ..place.clone() }
        }
        _ => Place { link: Some(link), is_plain: true, ..place.clone() },
    }
}

/// The folders that mail is taken in from; what people look at first comes first.
fn wanted(call: Call<'_>) -> Vec<String> {
    let mut folders: Vec<_> = call.account.folders.iter().filter(|folder| folder.is_in_scope).collect();
    // By what does not change meanwhile: whoever is renamed must not be passed over.
    folders.sort_by_key(|folder| (folder.role != Some(domain::FolderRole::Inbox), &folder.id));
    folders.into_iter().map(|folder| folder.id.clone()).collect()
}

/// `None`: there is no folder at all.
fn begin(cursors: &Cursors, folders: &[String]) -> Result<Option<Place>, ConnectorError> {
    match cursors.get(SCOPE) {
        // A folder that is not wanted any more: the list begins anew.
        Some(cursor) => match serde_json::from_str::<Place>(cursor) {
            Ok(place) if folders.contains(&place.folder) => Ok(Some(place)),
            _ => Err(ConnectorError::CursorExpired),
        },
        None => Ok(folders.first().map(|folder| Place { folder: folder.clone(), ..Place::default() })),
    }
}

fn after(folders: &[String], place: &Place) -> Option<Place> {
    let next = folders.iter().skip_while(|folder| **folder != place.folder).nth(1)?;
    Some(Place { folder: next.clone(), ..Place::default() })
}

fn end(page: Page, next: Option<Place>) -> Result<Page, ConnectorError> {
    let is_last = next.is_none();
    let cursor = match next {
        Some(place) => serde_json::to_string(&place).map_err(|_| protocol("a place that cannot be written down"))?,
        None => String::new(),
    };
    Ok(Page { cursors: Cursors::from([(SCOPE.to_owned(), cursor)]), is_last, ..page })
}
