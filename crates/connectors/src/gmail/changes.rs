//! What has changed: Gmail's history tells which messages, and each is read as it is now. What changes while we read is
//! told by a later page, so whatever we read last is true in the end.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::io;

use domain::ConnectorError;
use domain::connector::{Answer, Cursors, Page, Seen};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::api::{Call, History, Message};
use super::batch::{self, Taker};
use super::labels;
use crate::http::protocol;

/// There is one scope: the whole mailbox.
pub const SCOPE: &str = "mailbox";

/// Batches that the messages of a page take. A page is recorded whole or not at all, so it must not cost more than can be
/// had at once.
const BATCHES: usize = 4;

/// Where we are in the history. It moves on only after the last page: of what comes before, Google may tell again.
#[derive(Debug, Serialize, Deserialize)]
struct At {
    history: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    page: Option<String>,
}

impl At {
    fn text(&self) -> Result<String, ConnectorError> {
        serde_json::to_string(self).map_err(|_| protocol("a place in the history that cannot be written down"))
    }
}

/// The folders, and the place from which on changes are told: everything from before is told by lists, which come later.
pub async fn begin(call: Call<'_>) -> Result<Page, ConnectorError> {
    let at = At { history: call.profile().await?.history_id, page: None };
    let (folders, gone_folders) = labels::compare(&[], labels::folders(&call.labels().await?));
    let cursors = Cursors::from([(SCOPE.to_owned(), at.text()?)]);
    Ok(Page { folders, gone_folders, cursors, is_last: true, ..Page::default() })
}

pub async fn page(call: Call<'_>, cursor: &str) -> Result<Page, ConnectorError> {
    let at: At = serde_json::from_str(cursor).map_err(|_| ConnectorError::CursorExpired)?;
    let records = (call.gmail.batch_size(call.account) * BATCHES).clamp(10, 100).to_string();
    let mut query = vec![("startHistoryId", &*at.history), ("maxResults", &*records)];
    query.extend(at.page.as_deref().map(|page| ("pageToken", page)));
    let History { history, next_page_token, history_id } = call.history(&query).await?;
    let is_last = next_page_token.is_none();
    let next = match next_page_token {
        Some(page) => At { history: at.history, page: Some(page) },
        None => At { history: history_id, page: None },
    };
    let cursors = Cursors::from([(SCOPE.to_owned(), next.text()?)]);
    let (mut added, mut changed, mut deleted) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for record in history {
        added.extend(record.messages_added.into_iter().map(|happened| happened.message.id));
        changed.extend(record.labels_added.into_iter().map(|happened| happened.message.id));
        changed.extend(record.labels_removed.into_iter().map(|happened| happened.message.id));
        deleted.extend(record.messages_deleted.into_iter().map(|happened| happened.message.id));
    }
    let touched: BTreeSet<String> = added.iter().chain(&changed).chain(&deleted).cloned().collect();
    if touched.is_empty() {
        return Ok(Page { cursors, is_last, ..Page::default() });
    }
    let to_read: Vec<&str> = touched.difference(&deleted).map(String::as_str).collect();
    let messages = read(call, &to_read).await?;
    // After the messages, so that every label of theirs is there.
    let now = labels::folders(&call.labels().await?);
    let known: HashSet<String> = now.iter().map(|folder| folder.id.clone()).collect();
    let (folders, gone_folders) = labels::compare(&call.account.folders, now);
    let mut page = Page { folders, gone_folders, cursors, is_last, ..Page::default() };
    for message in messages.into_values() {
        let list = if added.contains(&message.id) { &mut page.messages } else { &mut page.again };
        list.extend(seen(&message, &known)?);
    }
    page.whole = touched.into_iter().collect();
    Ok(page)
}

/// A message in all its places, as far as we know the folders.
pub fn seen(message: &Message, known: &HashSet<String>) -> Result<Vec<Seen>, ConnectorError> {
    let received_at = received_at(message)?;
    let places = labels::places(&message.id, &message.label_ids).into_iter();
    let places = places.filter(|(place, _)| known.contains(&place.folder));
    let seen = |(place, flags)| Seen {
        message: message.id.clone(),
        place,
        flags,
        size_bytes: message.size_estimate,
        received_at,
        revision: None,
    };
    Ok(places.map(seen).collect())
}

pub fn received_at(message: &Message) -> Result<Option<Timestamp>, ConnectorError> {
    let time = |text: &String| text.parse().ok().and_then(|millis| Timestamp::from_millisecond(millis).ok());
    let told = message.internal_date.as_ref();
    told.map(|text| time(text).ok_or_else(|| protocol("a time that is none"))).transpose()
}

/// Messages without their bytes; those that are no more are left out.
pub async fn read(call: Call<'_>, ids: &[&str]) -> Result<BTreeMap<String, Message>, ConnectorError> {
    let mut heads = Heads::default();
    batch::get(call, ids, "minimal", &mut heads).await?;
    match heads.failure {
        Some(e) => Err(e),
        None => Ok(heads.messages),
    }
}

#[derive(Default)]
struct Heads {
    messages: BTreeMap<String, Message>,
    /// Why one of them could not be read. A page tells everything or nothing.
    failure: Option<ConnectorError>,
}

impl Taker for Heads {
    fn room<'a>(&'a mut self, _ids: &'a [&'a str]) -> Answer<'a, ()> {
        Box::pin(async { Ok(()) })
    }

    fn begin(&mut self, _id: &str) {}

    fn write(&mut self, _bytes: &[u8]) -> io::Result<()> {
        Ok(())
    }

    fn end(&mut self, message: Message) -> io::Result<()> {
        self.messages.insert(message.id.clone(), message);
        Ok(())
    }

    fn fail(&mut self, _id: &str, error: ConnectorError) {
        if error != ConnectorError::Gone {
            self.failure = Some(error);
        }
    }
}
