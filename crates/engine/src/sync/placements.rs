//! Placements of messages (in which folders they are), for providers that tell them only with the bytes. They are
//! recorded before the emails are: a process that dies in between has recorded what is true.

use std::collections::{BTreeMap, HashMap, HashSet};

use domain::connector::{Cursors, Placement, SeenMessage};
use domain::{Flags, MailboxId};
use jobs::{JobContext, JobError};
use store::failpoint::Effect;
use store::sql::sync::{ListingPhase, PageRows, QueuedMessage};
use store::{Precondition, StoreError, TenantStore};

use super::Syncer;
use crate::archive::ingest::{IncomingMessage, MessageSource};

/// The placements and flags of each message, by its provider id.
pub(super) type PlacementsByMessage = BTreeMap<String, Vec<(Placement, Flags)>>;

/// The messages that a provider returned for a batch, with their placements where it tells them.
pub(super) struct FetchOutcome {
    pub messages: Vec<IncomingMessage>,
    pub placements: PlacementsByMessage,
}

/// The messages of a batch that may be stored, and the placements version of each.
pub(super) struct PlacedBatch {
    pub messages: Vec<IncomingMessage>,
    pub versions: Vec<(String, u64)>,
}

/// Attempts to record placements: a listing may update some of them meanwhile, but hardly again and again.
const MAX_ATTEMPTS: usize = 5;

impl Syncer {
    /// Records the placements of fetched messages and returns the messages that may be stored, each with its placements
    /// version: some may be in no folder that is in scope. Placements that a listing has recorded since we began to
    /// fetch are newer and stay; those messages are fetched once more.
    pub(super) async fn record_placements(
        &self,
        ctx: &JobContext,
        store: &TenantStore,
        mailbox: MailboxId,
        queued: &[QueuedMessage],
        fetched_batch: FetchOutcome,
    ) -> Result<PlacedBatch, JobError> {
        let FetchOutcome { mut messages, mut placements } = fetched_batch;
        if placements.is_empty() {
            return Ok(PlacedBatch { messages, versions: Vec::new() });
        }
        let placed_ids: HashSet<String> = placements.keys().cloned().collect();
        let scopes = store.list_folder_scopes(mailbox).await?;
        for placements in placements.values_mut() {
            placements.retain(|(place, _)| scopes.get(&place.folder).copied().unwrap_or(false));
        }
        let versions: HashMap<&str, u64> =
            queued.iter().map(|queued| (&*queued.message, queued.placements_version)).collect();
        for attempt in 1.. {
            let mut unit = store.write();
            unit.lock_sync(mailbox);
            unit.guard_job(&ctx.job);
            unit.expect_placements_version(
                mailbox,
                placements.keys().map(|id| (id.clone(), versions.get(&**id).copied().unwrap_or(0))).collect(),
            );
            unit.record_page(mailbox, rows(&placements));
            let committed = unit.commit_at(Effect::RecordPage).await;
            match committed {
                Err(StoreError::Precondition(Precondition::PlacementsChanged)) if attempt < MAX_ATTEMPTS => {
                    let now = store.list_queued_messages(mailbox, placements.keys().cloned().collect()).await?;
                    let now: HashMap<&str, u64> =
                        now.iter().map(|queued| (&*queued.message, queued.placements_version)).collect();
                    placements.retain(|id, _| now.contains_key(&**id) && now.get(&**id) == versions.get(&**id));
                }
                committed => {
                    committed?;
                    break;
                }
            }
            if placements.is_empty() {
                break;
            }
        }
        messages.retain(|message| match &message.source {
            MessageSource::Provider(fetched) if placed_ids.contains(&fetched.message) => {
                placements.get(&fetched.message).is_some_and(|placements| !placements.is_empty())
            }
            _ => true,
        });
        placements.retain(|_, placements| !placements.is_empty());
        // This commit has raised each version by one.
        let versions =
            placements.keys().map(|id| (id.clone(), versions.get(&**id).copied().unwrap_or(0) + 1)).collect();
        Ok(PlacedBatch { messages, versions })
    }
}

/// Returns a page that states every placement of these messages and nothing else.
fn rows(placements: &PlacementsByMessage) -> PageRows {
    let all = placements.iter().flat_map(|(message, placements)| placements.iter().map(move |place| (message, place)));
    PageRows {
        phase: ListingPhase::History,
        folders: Vec::new(),
        missing_folders: Vec::new(),
        confirmed_missing_folders: Vec::new(),
        messages: all.map(|(message, (place, flags))| seen(message, place, flags)).collect(),
        fully_placed: placements.keys().cloned().collect(),
        outdated_placements: placements.keys().cloned().collect(),
        unchanged: Vec::new(),
        removed_placements: Vec::new(),
        binds_by_content: false,
        snapshots: Vec::new(),
        cursors: Cursors::new(),
        // It does not count for a comparison that is running: it may have been fetched before that began.
        listing: None,
        is_comparison_done: false,
        is_history_done: false,
        new_messages: 0,
        is_backfill: false,
        excluded_folders: Vec::new(),
    }
}

fn seen(message: &str, place: &Placement, flags: &Flags) -> SeenMessage {
    SeenMessage {
        message: message.to_owned(),
        placement: place.clone(),
        flags: flags.clone(),
        size_bytes: None,
        received_at: None,
        revision: None,
    }
}
