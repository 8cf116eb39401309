//! Changes of a mailbox. Graph has deltas per folder only, which are many calls when nothing has changed; so a probe lists
//! the messages that were modified in the whole mailbox, and only the folders of those are followed by delta. A deletion
//! for good shows in no list, so a sweep follows all folders once a day, and whenever a notification reports a deletion.
//!
//! A message is in one folder. Each recorded message was just read, so its placement is complete, and the last one read is
//! the true one.

mod probe;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use domain::connector::{Cursors, FolderSnapshot, KnownFolder, ListedFolder, ListingPage, Placement, SeenMessage};
use domain::{Clock, ConnectorError, FolderRole, SystemClock, redact_for_log};
use futures_util::future::join_all;
use jiff::{SignedDuration, Timestamp};
use outbound::http::{StatusCode, Url};
use outbound::limits::MAX_OUTLOOK_REQUESTS_PER_MAILBOX;
use serde::{Deserialize, Serialize};

use super::api::{GraphClient, GraphFailure};
use super::batch;
use super::delta::{self, DeltaCursor, DeltaPage};
use super::error_mapping::GraphOperation;
use super::folders::{self, FolderTree};
use super::message::{GraphMessage, MESSAGE_FIELDS};
use crate::folder_diff::diff_folders;
use crate::http::protocol;

/// Cursor scope of the mailbox itself; the other scopes are its folders.
const SCOPE: &str = "";

/// Time between two sweeps over all folders.
const SWEEP_INTERVAL: SignedDuration = SignedDuration::from_hours(24);

/// Time between two listings of the folders: they may be renamed or moved.
const FOLDER_LISTING_INTERVAL: SignedDuration = SignedDuration::from_hours(1);

/// How far Graph's clock may be behind ours. At worst some messages are reported twice.
const MAX_CLOCK_SKEW: SignedDuration = SignedDuration::from_mins(10);

/// A round that takes longer is followed by another one at once.
const LONG_ROUND: SignedDuration = SignedDuration::from_secs(60);

/// A page ends when it has so many messages or took so many calls.
const MESSAGES_PER_PAGE: usize = 400;
const MAX_CALLS_PER_PAGE: usize = 20;

/// Messages of a delta page: each that has left its folder takes a request of its own.
const DELTA_PAGE_SIZE: usize = 200;

/// After so many failures, within a minute, a folder that alone fails is left to the probe for an hour.
const MAX_FOLDER_FAILURES: u32 = 7;

/// A larger folder is not resynced by itself when Graph loses its sync state: the whole mailbox is compared instead.
const MAX_RESYNC_MESSAGES: usize = 1_000;

/// The mailbox's own cursor: a round follows some or all folders. The names in `serde(rename)` are stored.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct SyncRound {
    /// When the first round began. Older mail is listed by [`super::list`].
    #[serde(rename = "begun_at")]
    first_sync_at: Timestamp,
    /// Folders that this round has still to follow.
    #[serde(rename = "left", default, skip_serializing_if = "Vec::is_empty")]
    pending_folders: Vec<String>,
    /// When this round began, if it is a sweep.
    #[serde(rename = "sweep", default, skip_serializing_if = "Option::is_none")]
    sweep_started_at: Option<Timestamp>,
    /// When the last finished sweep began; `None` during the first round.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    swept_at: Option<Timestamp>,
    /// The last reported deletion that a sweep has taken into account.
    #[serde(rename = "answered", default, skip_serializing_if = "Option::is_none")]
    sweep_request_seen: Option<Timestamp>,
    /// Folders without mail for people.
    #[serde(rename = "apart", default, skip_serializing_if = "Vec::is_empty")]
    excluded_folders: Vec<String>,
    /// Since when the probe lists modified messages, and the fingerprint of its last result.
    #[serde(rename = "touched")]
    modified_since: Timestamp,
    #[serde(rename = "as_before", default, skip_serializing_if = "Option::is_none")]
    probe_fingerprint: Option<u64>,
    #[serde(rename = "round_at", default)]
    round_started_at: Timestamp,
    /// When the folders were listed last.
    #[serde(rename = "looked_at", default)]
    folders_listed_at: Timestamp,
    /// Consecutive failures of the only pending folder.
    #[serde(default, skip_serializing_if = "is_zero")]
    failures: u32,
    /// The earliest time of the next call, if Graph throttled in the middle of a page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    not_before: Option<Timestamp>,
}

impl SyncRound {
    fn is_first(&self) -> bool {
        self.swept_at.is_none()
    }

    fn is_sweep_due(&self, now: Timestamp, sweep_since: Option<Timestamp>) -> bool {
        self.swept_at
            .is_none_or(|swept| now.duration_since(swept) >= SWEEP_INTERVAL || sweep_since > self.sweep_request_seen)
    }

    fn is_folder_listing_due(&self, now: Timestamp) -> bool {
        now.duration_since(self.folders_listed_at) >= FOLDER_LISTING_INTERVAL
    }
}

/// Returns when the first round began: messages that were received since then are left to the changes.
pub fn first_sync_at(cursors: &Cursors) -> Result<Timestamp, ConnectorError> {
    let round = cursors.get(SCOPE).and_then(|text| serde_json::from_str::<SyncRound>(text).ok());
    round.map(|round| round.first_sync_at).ok_or(ConnectorError::CursorExpired)
}

/// Returns the next page of changes.
pub async fn page(client: GraphClient<'_>, cursors: &Cursors) -> Result<ListingPage, ConnectorError> {
    let now = SystemClock.now();
    let round = match cursors.get(SCOPE) {
        Some(text) => serde_json::from_str(text).map_err(|_| ConnectorError::CursorExpired)?,
        // Graph's times have no fractions of a second.
        None => SyncRound {
            first_sync_at: truncate_to_second(now),
            modified_since: now - MAX_CLOCK_SKEW,
            ..SyncRound::default()
        },
    };
    let mut collector = ChangeCollector {
        client,
        cursors,
        round,
        page: ListingPage::default(),
        observed: BTreeMap::new(),
        conflicting: BTreeSet::new(),
        has_resynced: false,
        is_probe_due: false,
    };
    if let Some(wait) =
        collector.round.not_before.take().and_then(|until| Duration::try_from(until.duration_since(now)).ok())
        && !wait.is_zero()
    {
        return Err(ConnectorError::Throttled { retry_after: Some(wait) });
    }
    let is_resumed = !collector.round.pending_folders.is_empty();
    if !is_resumed {
        collector.plan_round().await?;
        if !collector.round.pending_folders.is_empty() {
            collector.round.round_started_at = now;
        }
    }
    // Changes during a long round are found by another one. After the first round the scope of the folders is known, too.
    let is_long = is_resumed && now.duration_since(collector.round.round_started_at) >= LONG_ROUND;
    let is_enough = !is_long && !collector.round.is_first();
    let is_whole = collector.follow_folders().await?;
    let ChangeCollector { round, mut page, observed, is_probe_due, .. } = collector;
    for FolderSnapshot { folder, uids } in &mut page.folder_snapshots {
        // Messages that moved into it since were read elsewhere.
        let there = observed.values().flatten().filter(|seen| seen.placement.folder == *folder);
        uids.extend(there.map(|seen| seen.placement.uid.clone()));
    }
    page.complete_placements = observed.keys().cloned().collect();
    page.relisted = observed.into_values().flatten().collect();
    page.is_last = is_enough && is_whole && !is_probe_due && round.pending_folders.is_empty();
    let text = serde_json::to_string(&round).map_err(|_| protocol("a cursor cannot be serialized"))?;
    if cursors.get(SCOPE) != Some(&text) {
        page.cursors.insert(SCOPE.to_owned(), text);
    }
    Ok(page)
}

/// Collects one page of changes.
struct ChangeCollector<'a> {
    client: GraphClient<'a>,
    cursors: &'a Cursors,
    round: SyncRound,
    page: ListingPage,
    /// Messages as they were last read; `None` if a message is in no folder that we know.
    observed: BTreeMap<String, Option<SeenMessage>>,
    /// Messages that were read in two folders.
    conflicting: BTreeSet<String>,
    /// A lost sync state was already recovered on this page.
    has_resynced: bool,
    /// Another probe must follow, because a folder has become stuck.
    is_probe_due: bool,
}

/// Returns the wait that a throttling failure asks for.
fn retry_after(failure: Option<&GraphFailure>) -> Option<Duration> {
    match failure.map(|failure| &failure.error) {
        Some(ConnectorError::Throttled { retry_after }) => *retry_after,
        _ => None,
    }
}

impl ChangeCollector<'_> {
    /// Chooses the folders that this round follows.
    async fn plan_round(&mut self) -> Result<(), ConnectorError> {
        let now = SystemClock.now();
        let is_folder_listing_due = self.round.is_folder_listing_due(now) || self.client.account.has_missing_folders();
        // Only a sweep finds deletions in a stuck folder.
        if self.round.is_sweep_due(now, self.client.account.sweep_since)
            || (is_folder_listing_due && self.has_stuck_folder())
        {
            self.round.sweep_started_at = Some(now);
            self.round.sweep_request_seen = self.client.account.sweep_since;
            self.round.pending_folders = self.refresh_folders().await?;
            return Ok(());
        }
        if is_folder_listing_due {
            self.refresh_folders().await?;
        }
        self.probe().await
    }

    fn has_stuck_folder(&self) -> bool {
        self.cursors.values().any(|cursor| DeltaCursor::parse(cursor) == Some(DeltaCursor::Stuck))
    }

    /// Lists the folders and records their changes. Returns the ids of those that are to be followed.
    async fn refresh_folders(&mut self) -> Result<Vec<String>, ConnectorError> {
        let known = &self.client.account.folders;
        let FolderTree { folders: now, excluded } = folders::tree(self.client).await?;
        self.round.excluded_folders = excluded;
        self.round.folders_listed_at = SystemClock.now();
        let wanted = now.iter().filter(|folder| is_wanted(folder, known)).map(|folder| folder.id.clone()).collect();
        let is_first = self.cursors.is_empty();
        (self.page.folders, self.page.missing_folders) = diff_folders(if is_first { &[] } else { known }, now);
        Ok(wanted)
    }

    /// Returns folders that have come into scope and were never followed.
    fn folders_without_cursor(&self) -> Vec<String> {
        let mut folders = self.in_scope();
        folders.retain(|folder| !self.cursors.contains_key(folder) && !self.page.missing_folders.contains(folder));
        folders
    }

    fn in_scope(&self) -> Vec<String> {
        let known = &self.client.account.folders;
        let wanted = known.iter().filter(|known| known.is_in_scope).map(|known| &known.id);
        // Folders that were reported only a page ago.
        let new =
            self.cursors.keys().filter(|scope| !scope.is_empty() && known.iter().all(|known| known.id != **scope));
        wanted.chain(new).cloned().collect()
    }

    /// Returns whether the folder was reported, perhaps on an earlier page, or is an excluded one.
    fn is_known(&self, folder: &str) -> bool {
        self.client.account.folders.iter().any(|known| known.id == folder)
            || self.cursors.contains_key(folder)
            || self.page.folders.iter().any(|reported| reported.id == folder)
            || self.round.pending_folders.iter().any(|pending| pending == folder)
            || self.is_excluded(folder)
    }

    fn is_excluded(&self, folder: &str) -> bool {
        self.round.excluded_folders.iter().any(|excluded| excluded == folder)
    }

    fn record_modified(&mut self, messages: Vec<GraphMessage>) -> Result<(), ConnectorError> {
        for message in messages {
            if let Some(folder) = message.parent_folder_id.clone() {
                self.record_message(&message, &folder)?;
            }
        }
        Ok(())
    }

    fn record_message(&mut self, message: &GraphMessage, folder: &str) -> Result<(), ConnectorError> {
        let seen = message.seen(folder)?;
        // A folder that no tree shows has no mail.
        let has_mail = self.is_known(folder) && !self.is_excluded(folder);
        let id = seen.message.clone();
        let seen = Some(seen).filter(|_| has_mail);
        let placement = seen.as_ref().map(|seen| &seen.placement);
        if self.observed.get(&id).is_some_and(|before| before.as_ref().map(|seen| &seen.placement) != placement) {
            self.conflicting.insert(id.clone());
        }
        self.observed.insert(id, seen);
        Ok(())
    }

    /// Follows the pending folders as far as there is room on the page. Returns `false` if an error ended it early.
    async fn follow_folders(&mut self) -> Result<bool, ConnectorError> {
        let mut new_cursors: BTreeMap<String, DeltaCursor> = BTreeMap::new();
        let (mut is_whole, mut has_failed, mut calls) = (true, false, 0);
        while is_whole
            && calls < MAX_CALLS_PER_PAGE
            && self.observed.len() < MESSAGES_PER_PAGE
            && !self.round.pending_folders.is_empty()
        {
            // Only the first round is long. In later ones the order matters, because the last state read must be the true one.
            let concurrency = if self.round.is_first() { MAX_OUTLOOK_REQUESTS_PER_MAILBOX } else { 1 };
            let next = self.round.pending_folders.iter().take(concurrency).map(|folder| {
                let cursor = new_cursors.get(folder).cloned();
                let cursor = cursor.or_else(|| self.cursors.get(folder).and_then(|text| DeltaCursor::parse(text)));
                (folder.clone(), cursor)
            });
            let next: Vec<_> = next.collect();
            let responses =
                join_all(next.iter().map(|(folder, cursor)| self.request_page(folder, cursor.as_ref()))).await;
            calls += next.len();
            let longest = responses.iter().flatten().filter_map(|response| retry_after(response.as_ref().err())).max();
            for ((folder, cursor), response) in next.into_iter().zip(responses) {
                let is_broken = matches!(&response, Some(Err(failure)) if failure.is_server_error());
                let is_alone = self.round.pending_folders.iter().all(|pending| *pending == folder);
                let next_cursor = match self.apply_page(&folder, cursor, response).await {
                    // It alone fails repeatedly: the rest of the mailbox must not wait for it.
                    Err(ConnectorError::Unavailable(why)) if is_alone && is_broken => {
                        self.round.failures += 1;
                        if self.round.failures < MAX_FOLDER_FAILURES {
                            // No wait at first, then a longer one each time.
                            let wait = Duration::from_secs((1 << (self.round.failures - 1)) - 1);
                            self.round.not_before = SystemClock.now().checked_add(wait).ok();
                            is_whole = false;
                            break;
                        }
                        Some(self.mark_stuck(&why))
                    }
                    // The other folders go first; if the next one fails as well, the folder is not the cause.
                    Err(ConnectorError::Unavailable(_)) if !is_alone && !has_failed => {
                        has_failed = true;
                        self.round.pending_folders.retain(|pending| *pending != folder);
                        self.round.pending_folders.push(folder);
                        continue;
                    }
                    // Records what was read so far, so that it is not read again and again.
                    Err(e)
                        if !(new_cursors.is_empty() && self.observed.is_empty())
                            && self.defer_until_retry(&e, longest) =>
                    {
                        is_whole = false;
                        break;
                    }
                    next_cursor => next_cursor?,
                };
                if !matches!(next_cursor, Some(DeltaCursor::Next { .. })) {
                    self.round.pending_folders.retain(|pending| *pending != folder);
                    self.round.failures = 0;
                }
                match next_cursor {
                    Some(cursor) => drop(new_cursors.insert(folder, cursor)),
                    // The folder no longer exists.
                    None => drop(self.page.cursors.insert(folder, String::new())),
                }
            }
        }
        self.reread_conflicting().await?;
        new_cursors.retain(|folder, _| !self.page.missing_folders.contains(folder));
        self.page.cursors.extend(new_cursors.into_iter().map(|(folder, cursor)| (folder, cursor.text())));
        if self.round.pending_folders.is_empty()
            && let Some(sweep_started_at) = self.round.sweep_started_at.take()
        {
            self.round.swept_at = Some(sweep_started_at);
        }
        Ok(is_whole)
    }

    /// Returns whether the error may pass; if it is throttling, sets the earliest time of the next call.
    fn defer_until_retry(&mut self, e: &ConnectorError, longest: Option<Duration>) -> bool {
        match e {
            ConnectorError::Throttled { retry_after } => {
                let wait = longest.max(*retry_after);
                self.round.not_before = wait.and_then(|wait| SystemClock.now().checked_add(wait).ok());
                true
            }
            e => matches!(e, ConnectorError::RateLimited(_) | ConnectorError::Unavailable(_)),
        }
    }

    /// Reads messages once more that concurrent reads have shown in two folders.
    async fn reread_conflicting(&mut self) -> Result<(), ConnectorError> {
        let conflicting = std::mem::take(&mut self.conflicting);
        self.locate_messages(conflicting.into_iter().collect(), None).await
    }

    /// Requests the next page of a folder's changes. Returns `None` if there is nothing to request.
    async fn request_page(
        &self,
        folder: &str,
        cursor: Option<&DeltaCursor>,
    ) -> Option<Result<DeltaPage, GraphFailure>> {
        let url = match cursor {
            Some(DeltaCursor::Stuck) => return None,
            Some(DeltaCursor::Next { link, .. } | DeltaCursor::Delta(link)) => self.client.link(link).ok()?,
            None => delta::initial_url(self.client, folder),
        };
        let size = if self.round.is_first() { delta::MAX_PAGE_SIZE } else { DELTA_PAGE_SIZE };
        Some(delta::page(self.client, url, size).await)
    }

    /// Records a page of a folder's changes. Returns the folder's next cursor, or `None` if the folder no longer exists.
    async fn apply_page(
        &mut self,
        folder: &str,
        cursor: Option<DeltaCursor>,
        response: Option<Result<DeltaPage, GraphFailure>>,
    ) -> Result<Option<DeltaCursor>, ConnectorError> {
        let Some(response) = response else {
            return match cursor {
                // The probe reports changes of a stuck folder; its deletions show when it is no longer stuck.
                Some(DeltaCursor::Stuck) if self.round.sweep_started_at.is_none() => Ok(Some(DeltaCursor::Stuck)),
                Some(DeltaCursor::Stuck) => self.retry_stuck_folder(folder).await,
                // The link is for another Graph URL than the present one.
                _ => self.recover_sync_state(folder, None).await,
            };
        };
        match response {
            Ok(DeltaPage { messages, cursor: next }) => {
                if cursor.is_none() && !self.round.is_first() && matches!(next, DeltaCursor::Delta(_)) {
                    self.record_snapshot(folder, &messages)?;
                } else {
                    self.record_changes(folder, messages).await?;
                }
                Ok(Some(next.after(cursor.as_ref())))
            }
            Err(failure) => match failure.error {
                // The tree says whether it still exists.
                ConnectorError::Gone => {
                    let exists = self.refresh_folders().await?.iter().any(|existing| existing == folder);
                    Ok(exists.then(|| self.mark_stuck("the folder is listed but its changes are not found")))
                }
                ConnectorError::CursorExpired if cursor.is_none() && !self.round.is_first() => {
                    Ok(Some(self.mark_stuck("a new sync state was lost at once")))
                }
                ConnectorError::CursorExpired => self.recover_sync_state(folder, failure.location).await,
                ConnectorError::Protocol(_)
                    if failure.status == Some(StatusCode::BAD_REQUEST)
                        && let Some(DeltaCursor::Next { round_start, .. }) = &cursor
                        && (round_start.is_some() || self.round.is_first()) =>
                {
                    self.restart_round(folder, round_start.as_deref()).await
                }
                // The link may be the cause.
                ConnectorError::Protocol(_) if failure.status.is_some() && cursor.is_some() => {
                    self.retry_stuck_folder(folder).await
                }
                ConnectorError::Protocol(why) if failure.status.is_some() => Ok(Some(self.mark_stuck(&why))),
                e => Err(e),
            },
        }
    }

    fn mark_stuck(&mut self, why: &str) -> DeltaCursor {
        self.is_probe_due = true;
        tracing::warn!(
            tenant.id = %self.client.account.tenant,
            mailbox.id = %self.client.account.mailbox,
            provider = "outlook",
            error = redact_for_log(why),
            "folder delta unavailable, left to the probe"
        );
        DeltaCursor::Stuck
    }

    /// Follows a round from its start again, because Graph refuses the link to its next page. From there on a refusal is one
    /// of the folder.
    async fn restart_round(
        &mut self,
        folder: &str,
        start: Option<&str>,
    ) -> Result<Option<DeltaCursor>, ConnectorError> {
        match start {
            Some(start) => Ok(Some(DeltaCursor::next(start))),
            None => self.recover_sync_state(folder, None).await,
        }
    }

    /// Starts a folder over because Graph has lost its sync state. Does so once per page: if Graph keeps losing it, the next
    /// attempt is left to a later call.
    async fn recover_sync_state(
        &mut self,
        folder: &str,
        location: Option<String>,
    ) -> Result<Option<DeltaCursor>, ConnectorError> {
        let is_again = std::mem::replace(&mut self.has_resynced, true);
        match (self.round.is_first(), is_again) {
            // Only messages that arrived since were reported yet.
            (true, false) => Ok(Some(DeltaCursor::next(delta::initial_url(self.client, folder)))),
            // A plain list reports what is in it.
            (true, true) => Ok(Some(self.mark_stuck("Graph keeps losing the sync state"))),
            (false, false) => self.resync_folder(folder, location).await.map(Some),
            (false, true) => Err(delta::sync_state_lost()),
        }
    }

    /// Tries a stuck folder again from its beginning.
    async fn retry_stuck_folder(&mut self, folder: &str) -> Result<Option<DeltaCursor>, ConnectorError> {
        match self.resync_folder(folder, None).await {
            Err(ConnectorError::Protocol(why)) => Ok(Some(self.mark_stuck(&why))),
            Err(ConnectorError::Gone) => Ok(None),
            Err(ConnectorError::CursorExpired) if self.round.is_first() => {
                Ok(Some(self.mark_stuck("the folder is too large to be read at once")))
            }
            cursor => cursor.map(Some),
        }
    }

    async fn record_changes(&mut self, folder: &str, messages: Vec<GraphMessage>) -> Result<(), ConnectorError> {
        // The last entry of each message counts.
        let latest: BTreeMap<String, GraphMessage> =
            messages.into_iter().map(|message| (message.id.clone(), message)).collect();
        let mut removed = Vec::new();
        for (id, message) in latest {
            if message.removed.is_some() {
                removed.push(id);
            } else if !self.round.is_first() || message.received_date_time >= Some(self.round.first_sync_at) {
                self.record_message(&message, folder)?;
            }
        }
        // They were deleted, or moved to another folder.
        self.locate_messages(removed, Some(folder)).await
    }

    /// Reads where these messages are now; they are not in the folder `not_in`.
    async fn locate_messages(&mut self, ids: Vec<String>, not_in: Option<&str>) -> Result<(), ConnectorError> {
        let urls = ids.iter().map(|id| {
            let mut url = self.client.url(&["messages", id]);
            url.query_pairs_mut().append_pair("$select", MESSAGE_FIELDS);
            url
        });
        let urls: Vec<Url> = urls.collect();
        let mut found = batch::get_all::<GraphMessage>(self.client, GraphOperation::Message, urls.clone()).await?;
        // Graph may repeat an old removal of a message that is back in its folder. Nothing else would report it, so a single
        // answer that is missing must not remove it.
        let missing: Vec<usize> =
            (0..found.len()).filter(|at| matches!(found[*at], Err(ConnectorError::Unavailable(_)))).collect();
        let urls = missing.iter().map(|at| urls[*at].clone()).collect();
        let again = batch::get_all::<GraphMessage>(self.client, GraphOperation::Message, urls).await?;
        for (at, message) in missing.into_iter().zip(again) {
            found[at] = message;
        }
        for (id, found) in ids.into_iter().zip(found) {
            match found {
                Ok(message) => {
                    let now =
                        message.parent_folder_id.clone().ok_or_else(|| protocol("a message has no parentFolderId"))?;
                    if !self.is_known(&now) {
                        self.refresh_folders().await?;
                    }
                    self.observed.remove(&id);
                    self.record_message(&GraphMessage { id, ..message }, &now)?;
                }
                Err(ConnectorError::Gone) => drop(self.observed.insert(id, None)),
                // At least it is not in this folder; the folder that it is in reports it.
                Err(ConnectorError::Protocol(_) | ConnectorError::Unavailable(_)) => {
                    let placement = not_in.map(|folder| Placement { folder: folder.to_owned(), uid: id });
                    self.page.removed_placements.extend(placement);
                }
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// Records all messages of a folder as a snapshot: others that we have there are gone.
    async fn resync_folder(&mut self, folder: &str, location: Option<String>) -> Result<DeltaCursor, ConnectorError> {
        let whole = delta::read_whole_folder(self.client, folder, location, MAX_RESYNC_MESSAGES).await?;
        let Some(DeltaPage { messages, cursor }) = whole else { return Err(ConnectorError::CursorExpired) };
        self.record_snapshot(folder, &messages)?;
        Ok(cursor)
    }

    fn record_snapshot(&mut self, folder: &str, messages: &[GraphMessage]) -> Result<(), ConnectorError> {
        let latest: BTreeMap<&str, &GraphMessage> = messages.iter().map(|message| (&*message.id, message)).collect();
        let present: Vec<&GraphMessage> = latest.into_values().filter(|message| message.removed.is_none()).collect();
        let uids = present.iter().map(|message| message.id.clone()).collect();
        for message in present {
            if !self.round.is_first() || message.received_date_time >= Some(self.round.first_sync_at) {
                self.record_message(message, folder)?;
            }
        }
        self.page.folder_snapshots.push(FolderSnapshot { folder: folder.to_owned(), uids });
        Ok(())
    }
}

/// Returns whether a folder is in scope; of an unknown one, whether it usually is.
fn is_wanted(folder: &ListedFolder, known: &[KnownFolder]) -> bool {
    match known.iter().find(|known| known.id == folder.id) {
        Some(known) => known.is_in_scope,
        None => {
            !matches!(folder.role, Some(FolderRole::Drafts | FolderRole::Spam | FolderRole::Trash | FolderRole::Chats))
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

fn truncate_to_second(at: Timestamp) -> Timestamp {
    Timestamp::from_second(at.as_second()).unwrap_or(at)
}

/// Formats a time for a `$filter`.
pub fn filter_time(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
