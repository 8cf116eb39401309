//! The probe: one call that lists recently modified messages of the whole mailbox.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use domain::{Clock, ConnectorError, SystemClock};
use jiff::{SignedDuration, Timestamp};

use super::{ChangeCollector, filter_time};
use crate::outlook::api::Collection;
use crate::outlook::error_mapping::GraphOperation;
use crate::outlook::message::{GraphMessage, MESSAGE_FIELDS};

/// Overlap of two probes: `lastModifiedDateTime` has no fractions of a second and sometimes appears a little late.
const PROBE_OVERLAP: SignedDuration = SignedDuration::from_secs(60);

/// Messages in a page. If more were modified, all folders are followed.
const PROBE_PAGE_SIZE: usize = 50;

/// Pages that one probe reads at most.
const MAX_PROBE_PAGES: usize = 100;

impl ChangeCollector<'_> {
    /// Records recently modified messages and chooses their folders for this round. Takes one call if nothing has changed.
    pub(super) async fn probe(&mut self) -> Result<(), ConnectorError> {
        let since = self.round.modified_since;
        let modified = self.list_modified(since, None).await?;
        let is_all = modified.next_link.is_none();
        // An empty page with a link to the next one says nothing.
        let is_conclusive = is_all || !modified.value.is_empty();
        if is_conclusive
            && self.round.probe_fingerprint == Some(fingerprint(&modified.value, self.round.modified_since))
        {
            self.round.pending_folders = self.folders_without_cursor();
            return Ok(());
        }
        let latest = modified.value.iter().filter_map(|message| message.last_modified_date_time).max();
        if let Some(latest) = latest {
            // A modification time in the future must not hide all changes until then.
            self.round.modified_since = self.round.modified_since.max(latest.min(SystemClock.now()) - PROBE_OVERLAP);
        }
        // The latest come first, so later changes show. Unless many were modified in one second, which may not be over yet.
        let is_settled = is_all || latest.is_none_or(|latest| SystemClock.now().duration_since(latest) > PROBE_OVERLAP);
        self.round.probe_fingerprint = is_settled.then(|| fingerprint(&modified.value, self.round.modified_since));
        let mut folders: BTreeSet<String> =
            modified.value.iter().filter_map(|message| message.parent_folder_id.clone()).collect();
        let wanted = if folders.iter().all(|folder| self.is_known(folder)) {
            self.in_scope()
        } else {
            self.refresh_folders().await?
        };
        let oldest = oldest_modified(&modified.value);
        self.record_modified(modified.value)?;
        if is_all {
            folders.retain(|folder| wanted.contains(folder));
            folders.extend(self.folders_without_cursor());
            self.round.pending_folders = folders.into_iter().collect();
            return Ok(());
        }
        // Only the probe reports changes of a stuck folder.
        if self.has_stuck_folder() {
            self.record_all_modified(since, oldest).await?;
        }
        self.round.pending_folders = wanted;
        Ok(())
    }

    /// Records the messages that were modified before `until`, a page at a time. Pages are requested by time, because
    /// Graph's own paging counts messages and skips some when others go.
    async fn record_all_modified(
        &mut self,
        since: Timestamp,
        mut until: Option<Timestamp>,
    ) -> Result<(), ConnectorError> {
        for _ in 0..MAX_PROBE_PAGES {
            let modified = self.list_modified(since, until).await?;
            let oldest = oldest_modified(&modified.value);
            self.record_modified(modified.value)?;
            if modified.next_link.is_none() {
                return Ok(());
            }
            if oldest.is_some() && oldest == until {
                break; // all of a page within a second
            }
            until = oldest.or(until);
        }
        // A full comparison is cheaper.
        Err(ConnectorError::CursorExpired)
    }

    /// Lists modified messages, the latest first.
    async fn list_modified(
        &self,
        since: Timestamp,
        until: Option<Timestamp>,
    ) -> Result<Collection<GraphMessage>, ConnectorError> {
        let since = format!("lastModifiedDateTime ge {}", filter_time(since));
        let filter = match until {
            Some(until) => format!("{since} and lastModifiedDateTime le {}", filter_time(until)),
            None => since,
        };
        let mut url = self.client.url(&["messages"]);
        url.query_pairs_mut()
            .append_pair("$select", MESSAGE_FIELDS)
            .append_pair("$filter", &filter)
            .append_pair("$orderby", "lastModifiedDateTime desc")
            .append_pair("$top", &PROBE_PAGE_SIZE.to_string());
        Ok(self.client.get(GraphOperation::Other, url, "").await?)
    }
}

/// Returns the time before which messages are still to be listed, with a second of overlap: `lastModifiedDateTime` has no
/// fractions of a second, but filters compare them.
fn oldest_modified(messages: &[GraphMessage]) -> Option<Timestamp> {
    let oldest = messages.iter().filter_map(|message| message.last_modified_date_time).min()?;
    oldest.checked_add(SignedDuration::from_secs(1)).ok()
}

/// Returns the same number for the same messages in the same state, as far as they were modified since `since`.
fn fingerprint(messages: &[GraphMessage], since: Timestamp) -> u64 {
    let mut lines: Vec<_> = messages
        .iter()
        .filter(|message| message.last_modified_date_time >= Some(since))
        .map(|message| (&message.id, &message.change_key, &message.parent_folder_id))
        .collect();
    lines.sort();
    let mut hasher = DefaultHasher::new();
    lines.hash(&mut hasher);
    hasher.finish()
}
