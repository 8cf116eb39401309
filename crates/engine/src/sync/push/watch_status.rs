//! The push status of a mailbox, for people.

use domain::Provider;
use jiff::Timestamp;
use serde::Serialize;
use store::sql::mailboxes::Mailbox;
use store::sql::watches::WatchState;
use store::{StoreError, TenantStore};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PushState {
    /// The mailbox is only polled, and that is as it should be.
    Off,
    On,
    /// Pushes are expected and do not come.
    Failing,
}

impl PushState {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::On => "on",
            Self::Failing => "failing",
        }
    }
}

const NOT_REQUESTED: &str = "the watch was not requested yet";

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PushStatus {
    pub state: PushState,
    pub expires_at: Option<Timestamp>,
    pub last_push_at: Option<Timestamp>,
    /// Why pushes fail or are off.
    pub reason: Option<String>,
}

impl PushStatus {
    /// Returns the status, or `None` if the provider never pushes.
    pub fn of(mailbox: &Mailbox, watch: Option<&WatchState>, now: Timestamp) -> Option<Self> {
        mailbox.provider.capabilities().supports_push.then(|| {
            let (state, reason) = match watch.filter(|_| mailbox.is_sync_enabled()) {
                Some(watch) => evaluate(mailbox.provider, watch, now),
                None if !mailbox.is_active => (PushState::Off, Some("the mailbox is inactive".to_owned())),
                None if mailbox.is_sync_enabled() => (PushState::Off, Some(NOT_REQUESTED.to_owned())),
                None => (PushState::Off, Some(format!("the mailbox is in state {}", mailbox.state.as_str()))),
            };
            let (expires_at, last_push_at) = watch.map_or((None, None), |watch| (watch.expires_at, watch.last_push_at));
            Self { state, expires_at, last_push_at, reason }
        })
    }
}

/// Finds the push status of a mailbox, or `None` if its provider never pushes.
pub async fn find_push_status(store: &TenantStore, mailbox: &Mailbox) -> Result<Option<PushStatus>, StoreError> {
    if !mailbox.provider.capabilities().supports_push {
        return Ok(None);
    }
    let watch = store.find_watch(mailbox.id).await?;
    Ok(PushStatus::of(mailbox, watch.as_ref(), store.clock().now()))
}

fn evaluate(provider: Provider, watch: &WatchState, now: Timestamp) -> (PushState, Option<String>) {
    let is_alive = watch.expires_at.is_some_and(|expires_at| expires_at > now);
    if let Some(problem) = &watch.problem {
        // What the provider agreed to before goes on until it ends.
        let state = if is_alive && watch.lost_at.is_none() { PushState::On } else { PushState::Failing };
        return (state, Some(problem.clone()));
    }
    if let Some(since) = watch.lost_at {
        return (PushState::Failing, Some(format!("no push since {since}, although new mail was found")));
    }
    match watch.expires_at {
        Some(_) if is_alive => (PushState::On, None),
        Some(_) => (PushState::Failing, Some("the watch has expired and was not renewed".to_owned())),
        None if watch.renewed_at.is_some() => {
            let setting = provider.capabilities().push_setting;
            (PushState::Off, setting.map(|setting| format!("push is not configured; set {setting}")))
        }
        None => (PushState::Off, Some(NOT_REQUESTED.to_owned())),
    }
}
