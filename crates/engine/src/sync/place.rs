//! Where messages are, for providers that say it only with their bytes. It is recorded before the emails are: who dies in
//! between has recorded what is so.

use std::collections::{BTreeMap, HashMap, HashSet};

use domain::connector::{Cursors, Place, Seen};
use domain::{Flags, MailboxId};
use jobs::{Held, JobError};
use store::failpoint::{self, Effect};
use store::sql::sync::{MESSAGES_TOLD, PageRows, Phase, Queued};
use store::{StoreError, TenantStore};

use super::Syncer;
use crate::ingest::{Message, Source};

/// By message.
pub(super) type Places = BTreeMap<String, Vec<(Place, Flags)>>;

/// What came of a batch.
pub(super) struct Came {
    pub messages: Vec<Message>,
    pub places: Places,
}

/// What is left of a batch, and how often each of its messages was told of.
pub(super) struct Placed {
    pub messages: Vec<Message>,
    pub told: Vec<(String, u64)>,
}

/// A listing tells of some of them meanwhile, but hardly again and again.
const TRIES: usize = 5;

impl Syncer {
    /// Gives the messages that may be stored, each with how often it was told of by now: the folders of some may not be
    /// wanted. What a listing has told since we began to read is newer than what we have read, and holds; those messages
    /// are read once more.
    pub(super) async fn place(
        &self,
        held: &Held,
        store: &TenantStore,
        mailbox: MailboxId,
        queued: &[Queued],
        came: Came,
    ) -> Result<Placed, JobError> {
        let Came { mut messages, mut places } = came;
        if places.is_empty() {
            return Ok(Placed { messages, told: Vec::new() });
        }
        let with_places: HashSet<String> = places.keys().cloned().collect();
        let scopes = store.list_folder_scopes(mailbox).await?;
        for places in places.values_mut() {
            places.retain(|(place, _)| scopes.get(&place.folder).copied().unwrap_or(false));
        }
        let told: HashMap<&str, u64> = queued.iter().map(|queued| (&*queued.message, queued.told)).collect();
        for attempt in 1.. {
            let mut unit = store.write();
            unit.hold_sync(mailbox);
            unit.guard_job(&held.job);
            unit.expect_told(
                mailbox,
                places.keys().map(|id| (id.clone(), told.get(&**id).copied().unwrap_or(0))).collect(),
            );
            unit.record_page(mailbox, rows(&places));
            failpoint::before(Effect::RecordPage);
            let committed = unit.commit().await;
            failpoint::after(Effect::RecordPage);
            match committed {
                Err(StoreError::Precondition(MESSAGES_TOLD)) if attempt < TRIES => {
                    let now = store.list_queued(mailbox, places.keys().cloned().collect()).await?;
                    let now: HashMap<&str, u64> = now.iter().map(|queued| (&*queued.message, queued.told)).collect();
                    places.retain(|id, _| now.contains_key(&**id) && now.get(&**id) == told.get(&**id));
                }
                committed => {
                    committed?;
                    break;
                }
            }
            if places.is_empty() {
                break;
            }
        }
        let is_wanted = |message: &Message| match &message.source {
            Source::Provider(fetched) if with_places.contains(&fetched.message) => {
                places.get(&fetched.message).is_some_and(|places| !places.is_empty())
            }
            _ => true,
        };
        messages.retain(is_wanted);
        places.retain(|_, places| !places.is_empty());
        // This was one more time.
        let now = |id: &String| (id.clone(), told.get(&**id).copied().unwrap_or(0) + 1);
        Ok(Placed { messages, told: places.keys().map(now).collect() })
    }
}

/// A page that tells every place of these messages, and nothing else.
fn rows(places: &Places) -> PageRows {
    let seen = |(message, (place, flags)): (&String, &(Place, Flags))| Seen {
        message: message.clone(),
        place: place.clone(),
        flags: flags.clone(),
        size_bytes: None,
        received_at: None,
        revision: None,
    };
    let all = places.iter().flat_map(|(message, places)| places.iter().map(move |place| (message, place)));
    PageRows {
        phase: Phase::History,
        folders: Vec::new(),
        gone_folders: Vec::new(),
        messages: all.map(seen).collect(),
        whole: places.keys().cloned().collect(),
        told: places.keys().cloned().collect(),
        there: Vec::new(),
        vanished: Vec::new(),
        present: Vec::new(),
        cursors: Cursors::new(),
        // It does not count for a comparison under way: it may have been read before one that it is not in.
        listing: None,
        is_listed: false,
        is_history_done: false,
        found: 0,
        is_backfill: false,
        left_folders: Vec::new(),
    }
}
