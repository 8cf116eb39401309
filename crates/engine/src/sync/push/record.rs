//! Records pushes that came at the same time, together with the syncs that follow from them, in one commit.

use std::collections::{HashMap, HashSet};

use domain::{Lane, Provider, PushKind, Sha256, redact_for_log};
use store::sql::jobs::NewJob;
use store::sql::pushes::{MailboxPush, PushedMailbox, SubscriptionChanges};
use store::{Precondition, Store, StoreError};

use super::PushOutcome;
use crate::sync::{SyncMailbox, WatchMailbox};

/// Attempts to record pushes: another process may record the same ones at this moment, but hardly again and again.
const MAX_ATTEMPTS: usize = 5;

/// A push of a provider about one account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PushMessage {
    /// The id that the provider gives it, however often it delivers it. `None`: a repetition is not recognised.
    pub id: Option<String>,
    /// In canonical case.
    pub address: String,
    pub kind: PushKind,
    /// The id of its subscription with the hash of its clientState, if the id was not recorded yet.
    pub subscription_name: Option<(Sha256, String)>,
}

/// What follows from all pushes of one account.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct PushEffects {
    /// A change was pushed, and not only news of the watch itself.
    pub received: bool,
    pub sync: bool,
    pub full_sweep: bool,
    pub renew_watch: bool,
    pub watch_ended: bool,
}

impl PushEffects {
    fn add(&mut self, kind: PushKind) {
        self.received |= matches!(kind, PushKind::Changed | PushKind::Deleted);
        self.sync |= kind != PushKind::WatchExpiring;
        self.full_sweep |= matches!(kind, PushKind::Deleted | PushKind::WatchEnded | PushKind::Missed);
        self.renew_watch |= matches!(kind, PushKind::WatchExpiring | PushKind::WatchEnded);
        self.watch_ended |= kind == PushKind::WatchEnded;
    }

    /// Returns the effects for one mailbox of the account, with its jobs.
    pub fn for_mailbox(self, store: &Store, pushed: PushedMailbox) -> Result<MailboxPush, StoreError> {
        let mailbox = pushed.mailbox;
        let mut jobs = Vec::new();
        if self.sync {
            let job = SyncMailbox::request(store.clock(), mailbox).map_err(other_error)?;
            jobs.push(NewJob { lane: Lane::High, ..job });
        }
        if self.renew_watch {
            jobs.push(WatchMailbox::request(store.clock(), mailbox).map_err(other_error)?);
        }
        Ok(MailboxPush {
            mailbox: pushed,
            jobs,
            is_received: self.received,
            needs_full_sweep: self.full_sweep,
            renews_watch: self.renew_watch,
        })
    }
}

fn other_error(e: impl std::fmt::Display) -> StoreError {
    StoreError::Other(e.to_string().into())
}

/// Records pushes and enqueues the syncs that follow, and returns the outcome of each, in order.
pub(super) async fn record(
    store: Store,
    provider: Provider,
    messages: Vec<PushMessage>,
) -> Result<Vec<PushOutcome>, StoreError> {
    for _ in 0..MAX_ATTEMPTS {
        match try_record(&store, provider, &messages).await {
            Err(StoreError::Precondition(Precondition::PushAlreadyRecorded)) => {}
            recorded => {
                if recorded.as_ref().is_ok_and(|outcomes| outcomes.contains(&PushOutcome::Accepted))
                    && let Err(e) = store.notify_other_processes().await
                {
                    tracing::debug!(error = redact_for_log(&e), "workers not notified of new jobs; they poll");
                }
                return recorded;
            }
        }
    }
    Err(StoreError::Unavailable(Precondition::PushAlreadyRecorded.to_string().into()))
}

async fn try_record(
    store: &Store,
    provider: Provider,
    messages: &[PushMessage],
) -> Result<Vec<PushOutcome>, StoreError> {
    let system = store.system();
    let ids: Vec<String> = messages.iter().filter_map(|message| message.id.clone()).collect();
    let mut known = if ids.is_empty() { HashSet::new() } else { system.find_recorded_pushes(provider, ids).await? };
    let is_fresh: Vec<bool> =
        messages.iter().map(|message| message.id.as_ref().is_none_or(|id| known.insert(id.clone()))).collect();
    let mut effects: HashMap<&str, PushEffects> = HashMap::new();
    for (message, _) in messages.iter().zip(&is_fresh).filter(|(_, is_fresh)| **is_fresh) {
        effects.entry(&message.address).or_default().add(message.kind);
    }
    let mut found: HashMap<String, Vec<PushedMailbox>> = HashMap::new();
    if !effects.is_empty() {
        for pushed in system
            .list_pushed_mailboxes(provider, effects.keys().map(|address| (*address).to_owned()).collect())
            .await?
        {
            found.entry(pushed.address.clone()).or_default().push(pushed);
        }
    }
    let outcomes = messages.iter().zip(&is_fresh).map(|(message, is_fresh)| {
        if !is_fresh {
            PushOutcome::Repeated
        } else if found.contains_key(&message.address) {
            PushOutcome::Accepted
        } else {
            PushOutcome::Unknown
        }
    });
    let outcomes: Vec<PushOutcome> = outcomes.collect();
    // Pushes of an account that no mailbox has are not recorded.
    let accepted = messages.iter().zip(&outcomes).filter(|(_, outcome)| **outcome == PushOutcome::Accepted);
    let accepted: Vec<&PushMessage> = accepted.map(|(message, _)| message).collect();
    let ids: Vec<String> = accepted.iter().filter_map(|message| message.id.clone()).collect();
    // A subscription that has ended needs no name.
    let live = accepted.iter().filter(|message| matches!(message.kind, PushKind::Changed | PushKind::Deleted));
    let mut named: Vec<_> = live.filter_map(|message| message.subscription_name.clone()).collect();
    named.sort_unstable();
    named.dedup();
    let mut learned = SubscriptionChanges { named, ended: Vec::new() };
    let mut pushed_mailboxes = Vec::new();
    for (address, pushed) in found {
        let effect = effects[&*address];
        for pushed in pushed {
            pushed_mailboxes.push(effect.for_mailbox(store, pushed)?);
        }
        learned.ended.extend(effect.watch_ended.then_some(address));
    }
    if !pushed_mailboxes.is_empty() {
        system.record_pushes(provider, &ids, pushed_mailboxes, learned).await?;
    }
    Ok(outcomes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn effect(kinds: &[PushKind]) -> [u8; 5] {
        let mut effect = PushEffects::default();
        kinds.iter().for_each(|kind| effect.add(*kind));
        let PushEffects { received, sync, full_sweep, renew_watch, watch_ended } = effect;
        [received, sync, full_sweep, renew_watch, watch_ended].map(u8::from)
    }

    #[test]
    fn effects_of_several_pushes_add_up() {
        assert_eq!(effect(&[PushKind::Changed]), [1, 1, 0, 0, 0]);
        assert_eq!(effect(&[PushKind::Deleted]), [1, 1, 1, 0, 0]);
        assert_eq!(effect(&[PushKind::WatchExpiring]), [0, 0, 0, 1, 0], "nothing has happened in the mailbox");
        assert_eq!(effect(&[PushKind::WatchEnded]), [0, 1, 1, 1, 1]);
        assert_eq!(effect(&[PushKind::Missed]), [0, 1, 1, 0, 0]);
        assert_eq!(effect(&[PushKind::Changed, PushKind::WatchExpiring]), [1, 1, 0, 1, 0]);
        assert_eq!(effect(&[PushKind::WatchEnded, PushKind::Changed]), [1, 1, 1, 1, 1]);
    }
}
