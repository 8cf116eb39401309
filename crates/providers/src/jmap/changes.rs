//! Changes of a mailbox since a state (RFC 8620, section 5.2). A page is one request: the ids that changed, and what they
//! are now. A change that happens meanwhile is in a later page, so the last state that we read is the true one.

use std::collections::HashSet;

use domain::ConnectorError;
use domain::connector::{Cursors, ListingPage};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::api::{JmapCall, JmapClient, JmapResponses, result_of};
use super::error_mapping::MethodError;
use super::folders;
use super::message::{EMAIL_PROPERTIES, JmapEmail};
use crate::http::{protocol, unavailable};
use crate::provider_text::valid_id;

/// The only cursor scope: the whole account.
pub const SCOPE: &str = "mailbox";

/// Changes in a page: it is recorded in one commit.
const MAX_CHANGES_PER_PAGE: usize = 500;

/// Requests for the messages that arrived while older ones are listed: those of far more mail than arrives meanwhile.
const MAX_ARRIVAL_REQUESTS: usize = 100;

/// Properties of a folder that change with its messages.
const COUNTS: [&str; 4] = ["totalEmails", "unreadEmails", "totalThreads", "unreadThreads"];

/// Where the next changes begin: the states of messages and of folders.
#[derive(Debug, Serialize, Deserialize)]
struct StateCursor {
    email: String,
    mailbox: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ChangedIds {
    new_state: String,
    has_more_changes: bool,
    created: Vec<String>,
    updated: Vec<String>,
    destroyed: Vec<String>,
    /// The only properties of folders that changed, if the server knows.
    #[serde(default)]
    updated_properties: Option<Vec<String>>,
}

#[derive(Debug, Deserialize)]
pub struct EmailList {
    pub list: Vec<JmapEmail>,
    pub state: String,
}

impl StateCursor {
    fn cursors(&self) -> Result<Cursors, ConnectorError> {
        let text = serde_json::to_string(self).map_err(|_| protocol("a state cursor cannot be serialized"))?;
        Ok(Cursors::from([(SCOPE.to_owned(), text)]))
    }

    fn parse(cursor: &str) -> Result<Self, ConnectorError> {
        serde_json::from_str(cursor).map_err(|_| ConnectorError::CursorExpired)
    }
}

impl ChangedIds {
    fn is_empty(&self) -> bool {
        self.created.is_empty() && self.updated.is_empty() && self.destroyed.is_empty()
    }

    /// Returns whether the server is at an earlier state than we are, as after it was restored from a backup. Cyrus, whose
    /// states are numbers, then reports that nothing has changed; other servers know no such state.
    fn goes_back(&self, since: &str) -> bool {
        let states = since.parse::<u64>().ok().zip(self.new_state.parse::<u64>().ok());
        self.is_empty() && states.is_some_and(|(since, now)| now < since)
    }

    /// Returns whether folders have changed, and not only the numbers of messages in them.
    fn concern_folders(&self) -> bool {
        if self.is_empty() || self.has_more_changes {
            return self.has_more_changes;
        }
        let changed = self.updated_properties.as_ref();
        let are_counts = changed.is_some_and(|changed| changed.iter().all(|name| COUNTS.contains(&name.as_str())));
        !(self.created.is_empty() && self.destroyed.is_empty() && are_counts)
    }
}

/// Returns the folders and a cursor at the present: older messages are listed by [`super::list`], afterwards.
pub async fn start(client: &JmapClient<'_>) -> Result<ListingPage, ConnectorError> {
    // The state comes first: what changes before the folders are read is reported once more.
    let present = JmapCall::new("Email/get", "present", json!({"ids": [], "properties": ["id"]}));
    let mut responses = client.call(&[&present, &folders::read_call()]).await?;
    let email = responses.take::<EmailList>("present")?.state;
    let list = folders::take(client, &mut responses).await?;
    let cursors = StateCursor { email, mailbox: list.state.clone() }.cursors()?;
    Ok(ListingPage { folders: list.folders, cursors, is_last: true, ..ListingPage::default() })
}

/// Returns the next page of changes after the cursor.
pub async fn page(client: &JmapClient<'_>, cursor: &str) -> Result<ListingPage, ConnectorError> {
    let since = StateCursor::parse(cursor)?;
    let mut responses = request_changes(client, &since).await?;
    let changed: ChangedIds = responses.take("changes")?;
    let created: EmailList = responses.take("created")?;
    let updated: EmailList = responses.take("updated")?;
    if changed.goes_back(&since.email) {
        return Err(ConnectorError::CursorExpired);
    }
    if changed.has_more_changes && changed.new_state == since.email {
        return Err(protocol("the changes do not move on"));
    }
    let mut page = ListingPage { is_last: !changed.has_more_changes, ..ListingPage::default() };
    let (mailbox, known) = list_changed_folders(client, responses.take("folder-changes"), &mut page).await?;
    page.cursors = StateCursor { email: changed.new_state, mailbox }.cursors()?;
    for email in &created.list {
        page.seen.extend(email.seen(known.as_ref())?);
    }
    for email in &updated.list {
        page.relisted.extend(email.seen(known.as_ref())?);
    }
    // Those that could not be read have been destroyed meanwhile.
    let ids = changed.created.into_iter().chain(changed.updated).chain(changed.destroyed);
    page.complete_placements = ids.map(valid_id).collect::<Result<_, _>>()?;
    Ok(page)
}

async fn request_changes(client: &JmapClient<'_>, since: &StateCursor) -> Result<JmapResponses, ConnectorError> {
    let max_changes = client.session.max_objects.min(MAX_CHANGES_PER_PAGE);
    let changes =
        JmapCall::new("Email/changes", "changes", json!({"sinceState": since.email, "maxChanges": max_changes}));
    let created = read_call("created", result_of(&changes, "/created"));
    let updated = read_call("updated", result_of(&changes, "/updated"));
    let folder_changes = JmapCall::new("Mailbox/changes", "folder-changes", json!({"sinceState": since.mailbox}));
    client.call(&[&changes, &created, &updated, &folder_changes]).await
}

/// Returns a call that reads the messages that another call names.
pub fn read_call(id: &'static str, ids: Value) -> JmapCall {
    JmapCall::new("Email/get", id, json!({"#ids": ids, "properties": EMAIL_PROPERTIES}))
}

/// Lists all folders if they have changed: the name of one may be a part of others'. Returns their new state, and the ids of
/// all of them if they were read, after the messages: one that is not among them is gone.
async fn list_changed_folders(
    client: &JmapClient<'_>,
    changes: Result<ChangedIds, MethodError>,
    page: &mut ListingPage,
) -> Result<(String, Option<HashSet<String>>), ConnectorError> {
    let destroyed = match changes {
        Ok(changes) if !changes.concern_folders() && !client.account.has_missing_folders() => {
            return Ok((changes.new_state, None));
        }
        Ok(changes) => changes.destroyed,
        // Folders are compared with the known ones, so their changes need not be known.
        Err(MethodError::CannotCalculateChanges) => Vec::new(),
        Err(e) => return Err(e.into()),
    };
    let list = folders::read(client).await?;
    let (state, known) = (list.state.clone(), list.ids());
    (page.folders, page.missing_folders) = list.diff(&client.account.folders);
    // One that a page of the same sync has listed is not known yet.
    page.missing_folders.extend(destroyed.into_iter().filter(|id| !known.contains(id)));
    page.missing_folders.sort_unstable();
    page.missing_folders.dedup();
    Ok((state, Some(known)))
}

/// Returns the call that asks for the first messages after a cursor of changes. `None`: there is no such cursor.
pub fn arrivals_call(changes_cursors: Option<&Cursors>) -> Option<JmapCall> {
    let since = StateCursor::parse(changes_cursors?.get(SCOPE)?).ok()?;
    Some(JmapCall::new("Email/changes", "arrivals", json!({"sinceState": since.email})))
}

/// Takes the response to [`arrivals_call`], and returns the ids of all messages that the changes are yet to report as new.
/// If the cursor has expired, there are none: everything will be compared.
pub async fn take_arrivals(
    client: &JmapClient<'_>,
    responses: &mut JmapResponses,
) -> Result<HashSet<String>, ConnectorError> {
    let mut arrived = HashSet::new();
    let mut page = responses.take::<ChangedIds>("arrivals");
    for _ in 0..MAX_ARRIVAL_REQUESTS {
        let changed = match page {
            Err(MethodError::CannotCalculateChanges) => return Ok(HashSet::new()),
            page => page?,
        };
        arrived.extend(changed.created);
        if !changed.has_more_changes {
            return Ok(arrived);
        }
        let next = JmapCall::new("Email/changes", "arrivals", json!({"sinceState": changed.new_state}));
        page = client.call(&[&next]).await?.take("arrivals");
    }
    Err(unavailable("mail arrives faster than it is listed"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn concerns_folders(changes: Value) -> bool {
        let mut all = json!({"newState": "2", "hasMoreChanges": false, "created": [], "updated": [], "destroyed": []});
        all.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        serde_json::from_value::<ChangedIds>(all).unwrap().concern_folders()
    }

    fn goes_back(since: &str, now: &str, created: Value) -> bool {
        let changed =
            json!({"newState": now, "hasMoreChanges": false, "created": created, "updated": [], "destroyed": []});
        serde_json::from_value::<ChangedIds>(changed).unwrap().goes_back(since)
    }

    #[test]
    fn only_numbers_without_changes_go_back() {
        assert!(goes_back("10", "9", json!([])));
        assert!(!goes_back("9", "10", json!([])));
        assert!(!goes_back("10", "9", json!(["M1"])));
        assert!(!goes_back("s10", "s9", json!([])));
    }

    #[test]
    fn counts_of_messages_are_no_change_of_folders() {
        let counts = json!(["totalEmails", "unreadEmails"]);

        assert!(!concerns_folders(json!({})));
        assert!(!concerns_folders(json!({"updated": ["1"], "updatedProperties": counts})));
        assert!(concerns_folders(json!({"updated": ["1"], "updatedProperties": null})));
        assert!(concerns_folders(json!({"updated": ["1"], "updatedProperties": ["name"]})));
        assert!(concerns_folders(json!({"created": ["2"], "updated": ["1"], "updatedProperties": counts})));
        assert!(concerns_folders(json!({"hasMoreChanges": true})));
    }
}
