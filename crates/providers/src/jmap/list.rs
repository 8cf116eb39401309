//! Listings of the whole account by `Email/query`, newest first. A page begins after the last message of the one before,
//! wherever that is by now: mail that comes or goes meanwhile neither hides a message nor shows one twice.

use std::collections::HashSet;

use domain::ConnectorError;
use domain::connector::{Cursors, ListingPage};
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::api::{JmapCall, JmapClient, JmapResponses, result_of};
use super::changes::{EmailList, SCOPE, arrivals_call, read_call, take_arrivals};
use super::error_mapping::MethodError;
use super::folders;
use crate::http::protocol;
use crate::provider_text::valid_id;

/// Messages in a page: it is recorded in one commit.
const MAX_MESSAGES_PER_PAGE: usize = 500;

/// The last message that was listed.
#[derive(Debug, Serialize, Deserialize)]
struct AnchorCursor {
    anchor: String,
    received_at: Timestamp,
}

#[derive(Debug, Deserialize)]
struct EmailIds {
    ids: Vec<String>,
}

/// What a page of a listing is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListingPurpose {
    /// Messages that are to be synced: none from before `since` is listed.
    History,
    /// A comparison with what is stored: older messages may have been synced.
    Comparison,
}

/// Lists the messages from before the changes, a page per call.
pub async fn page(
    client: &JmapClient<'_>,
    (cursors, changes_cursors): (&Cursors, Option<&Cursors>),
    since: Option<Timestamp>,
    purpose: ListingPurpose,
) -> Result<ListingPage, ConnectorError> {
    let after = parse_cursor(cursors)?;
    let oldest = since.filter(|_| purpose == ListingPurpose::History);
    let arrivals = arrivals_call(changes_cursors);
    let (ids, mut responses) = query(client, after.as_ref(), oldest, arrivals.as_ref()).await?;
    let messages: EmailList = responses.take("messages")?;
    let now = folders::take(client, &mut responses).await?;
    // The changes report these, and their removal: of a message that is gone by then they would say nothing.
    let arrived = match arrivals {
        Some(_) => take_arrivals(client, &mut responses).await?,
        None => HashSet::new(),
    };
    let known = now.ids();
    let mut page = ListingPage::default();
    if changes_cursors.is_none() && cursors.is_empty() {
        // Whoever counts has no folders to compare with.
        page.folders = now.folders;
    } else {
        (page.folders, page.missing_folders) = now.diff(&client.account.folders);
    }
    for email in messages.list.iter().filter(|email| !arrived.contains(&email.id)) {
        let is_older = since.is_some_and(|since| email.received_at < since);
        let list = if is_older { &mut page.flags_only } else { &mut page.seen };
        list.extend(email.seen(Some(&known))?);
        page.complete_placements.push(valid_id(email.id.clone())?);
    }
    finish_page(page, &ids, &messages)
}

/// Requests a page of messages, with the folders and what has arrived since the last changes.
async fn query(
    client: &JmapClient<'_>,
    after: Option<&AnchorCursor>,
    oldest: Option<Timestamp>,
    arrivals: Option<&JmapCall>,
) -> Result<(Vec<String>, JmapResponses), ConnectorError> {
    let mut responses = request_page(client, query_arguments(client, after, oldest), arrivals).await?;
    let ids = match (responses.take::<EmailIds>("ids"), after) {
        // The message is gone: everything of its second is listed once more.
        (Err(MethodError::AnchorNotFound), Some(after)) => {
            responses = request_page(client, overlap_arguments(client, after, oldest), arrivals).await?;
            responses.take::<EmailIds>("ids")?
        }
        (ids, _) => ids?,
    };
    Ok((ids.ids, responses))
}

async fn request_page(
    client: &JmapClient<'_>,
    arguments: Value,
    arrivals: Option<&JmapCall>,
) -> Result<JmapResponses, ConnectorError> {
    let query = JmapCall::new("Email/query", "ids", arguments);
    let messages = read_call("messages", result_of(&query, "/ids"));
    let folders = folders::read_call();
    // The arrivals come last, so that none of the listed messages is missing among them.
    let mut calls = vec![&query, &messages, &folders];
    calls.extend(arrivals);
    client.call(&calls).await
}

fn query_arguments(client: &JmapClient<'_>, after: Option<&AnchorCursor>, oldest: Option<Timestamp>) -> Value {
    let mut arguments = json!({
        "filter": oldest.map(|oldest| json!({"after": utc_date(oldest)})),
        "sort": [{"property": "receivedAt", "isAscending": false}],
        "limit": client.session.max_objects.min(MAX_MESSAGES_PER_PAGE),
    });
    if let Some(after) = after {
        arguments["anchor"] = json!(after.anchor);
        arguments["anchorOffset"] = json!(1);
    }
    arguments
}

/// Returns the arguments for what is as old as the last message, or older.
fn overlap_arguments(client: &JmapClient<'_>, last: &AnchorCursor, oldest: Option<Timestamp>) -> Value {
    let mut arguments = query_arguments(client, None, oldest);
    let second = SignedDuration::from_secs(1);
    let before = last.received_at.checked_add(second).unwrap_or(Timestamp::MAX);
    let mut filter = json!({"before": utc_date(before)});
    if let Some(oldest) = oldest {
        filter["after"] = json!(utc_date(oldest));
    }
    arguments["filter"] = filter;
    arguments
}

/// Returns a time as JMAP has it, in whole seconds.
fn utc_date(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

fn parse_cursor(cursors: &Cursors) -> Result<Option<AnchorCursor>, ConnectorError> {
    match cursors.get(SCOPE) {
        Some(cursor) => serde_json::from_str(cursor).map(Some).map_err(|_| ConnectorError::CursorExpired),
        None => Ok(None),
    }
}

/// Sets the cursor after the last message that could be read. A page without any is the last: servers may list fewer at once
/// than we ask for.
fn finish_page(page: ListingPage, ids: &[String], messages: &EmailList) -> Result<ListingPage, ConnectorError> {
    let last = messages.list.iter().max_by_key(|email| ids.iter().position(|id| *id == email.id));
    let cursor = match last {
        Some(email) => {
            let cursor = AnchorCursor { anchor: email.id.clone(), received_at: email.received_at };
            serde_json::to_string(&cursor).map_err(|_| protocol("a list cursor cannot be serialized"))?
        }
        // All of them were destroyed before they were read: the same place is listed again.
        None if !ids.is_empty() => return Ok(page),
        None => String::new(),
    };
    let is_last = cursor.is_empty();
    Ok(ListingPage { cursors: Cursors::from([(SCOPE.to_owned(), cursor)]), is_last, ..page })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_of_a_filter_has_whole_seconds() {
        let at: Timestamp = "2026-02-01T12:00:00.987Z".parse().unwrap();

        assert_eq!(utc_date(at), "2026-02-01T12:00:00Z");
    }
}
