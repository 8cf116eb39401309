//! The one call for the whole mailbox: what was touched lately, wherever it is.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use domain::{Clock, ConnectorError, SystemClock};
use jiff::{SignedDuration, Timestamp};

use super::{Walk, whole_seconds};
use crate::outlook::api::Collection;
use crate::outlook::delta::At;
use crate::outlook::message::{FIELDS, Message};
use crate::outlook::refusal::What;

/// Graph says when a message was touched to the second, and sometimes a little late.
const OVERLAP: SignedDuration = SignedDuration::from_secs(60);

/// If more were touched, all folders are followed.
const TOUCHED: usize = 50;

/// What one probe tells of at most, in pages of fifty.
const MOST_TOUCHED_PAGES: usize = 100;

impl Walk<'_> {
    /// One call when nothing has happened.
    pub(super) async fn probe(&mut self) -> Result<(), ConnectorError> {
        let since = self.round.touched;
        let touched = self.touched(since, None).await?;
        let is_all = touched.next_link.is_none();
        if self.round.as_before == Some(fingerprint(&touched.value, self.round.touched)) {
            self.round.left = self.unfollowed();
            return Ok(());
        }
        let latest = touched.value.iter().filter_map(|message| message.last_modified_date_time).max();
        if let Some(latest) = latest {
            // Whoever says that something was touched tomorrow must not make us blind until then.
            self.round.touched = self.round.touched.max(latest.min(SystemClock.now()) - OVERLAP);
        }
        // The latest come first, so whatever happens next shows. Unless many were touched in one second, which may not be
        // over yet.
        let is_settled = is_all || latest.is_none_or(|latest| SystemClock.now().duration_since(latest) > OVERLAP);
        self.round.as_before = is_settled.then(|| fingerprint(&touched.value, self.round.touched));
        let mut folders: BTreeSet<String> =
            touched.value.iter().filter_map(|message| message.parent_folder_id.clone()).collect();
        let wanted = match folders.iter().all(|folder| self.is_known(folder)) {
            true => self.in_scope(),
            false => self.look_at_folders().await?,
        };
        let oldest = oldest_touched(&touched.value);
        self.tell_touched(touched.value)?;
        if is_all {
            folders.retain(|folder| wanted.contains(folder));
            folders.extend(self.unfollowed());
            self.round.left = folders.into_iter().collect();
            return Ok(());
        }
        // Of a folder that is stuck nobody else tells.
        if self.cursors.values().any(|at| At::read(at) == Some(At::Stuck)) {
            self.tell_all_touched(since, oldest).await?;
        }
        self.round.left = wanted;
        Ok(())
    }

    /// What was touched before the last that was told, a page at a time; by when, for Graph's pages count, and pass over
    /// some when others go.
    async fn tell_all_touched(&mut self, since: Timestamp, mut until: Option<Timestamp>) -> Result<(), ConnectorError> {
        for _ in 0..MOST_TOUCHED_PAGES {
            let touched = self.touched(since, until).await?;
            let oldest = oldest_touched(&touched.value);
            self.tell_touched(touched.value)?;
            if touched.next_link.is_none() {
                return Ok(());
            }
            if oldest.is_some() && oldest == until {
                break; // all of a page within a second
            }
            until = oldest.or(until);
        }
        // It is cheaper to compare everything.
        Err(ConnectorError::CursorExpired)
    }

    /// The latest come first.
    async fn touched(&self, since: Timestamp, until: Option<Timestamp>) -> Result<Collection<Message>, ConnectorError> {
        let since = format!("lastModifiedDateTime ge {}", whole_seconds(since));
        let filter = match until {
            Some(until) => format!("{since} and lastModifiedDateTime le {}", whole_seconds(until)),
            None => since,
        };
        let mut url = self.call.url(&["messages"]);
        url.query_pairs_mut()
            .append_pair("$select", FIELDS)
            .append_pair("$filter", &filter)
            .append_pair("$orderby", "lastModifiedDateTime desc")
            .append_pair("$top", &TOUCHED.to_string());
        Ok(self.call.get(What::Other, url, "").await?)
    }
}

/// From when on everything was told, with a second of overlap: Graph says when to the second, and compares more exactly.
fn oldest_touched(messages: &[Message]) -> Option<Timestamp> {
    let oldest = messages.iter().filter_map(|message| message.last_modified_date_time).min()?;
    oldest.checked_add(SignedDuration::from_secs(1)).ok()
}

/// The same for the same messages in the same state, as far as they were touched since then.
fn fingerprint(messages: &[Message], since: Timestamp) -> u64 {
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
