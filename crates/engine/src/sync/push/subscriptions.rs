//! Subscriptions: watches that belong to an account and have an id, whichever tenants have the account. One process at a
//! time requests it under a claim, and the others use the result.
//!
//! Each call for a subscription carries its clientState. The hash of it is committed before the provider is called: so
//! notifications of a subscription whose id was never recorded are accepted all the same, until it is replaced.

use std::time::Duration;

use domain::connector::{Watch, WatchRequest};
use domain::{ConnectorError, Provider, Secret, Sha256, redact_for_log};
use jiff::Timestamp;
use store::sql::subscriptions::{ClaimedSubscription, Subscription, SubscriptionClaim};
use store::sql::watches::WatchState;
use store::{Precondition, StoreError};
use tokio::time::timeout;

use super::client_state::ClientStates;
use super::record::PushEffects;
use super::watches::{RENEW_INTERVAL, SILENT_RENEW_INTERVAL};
use crate::credentials::consent::random_text;
use crate::sync::{MailboxSession, Syncer};

/// How long a claim on a subscription lasts; its holder gives up well before.
const CLAIM_LEASE: Duration = Duration::from_secs(90);

/// When a watch is tried again whose subscription is claimed elsewhere.
const CLAIM_RETRY_DELAY: Duration = Duration::from_secs(5);

/// The random bytes that identify a claim.
const CLAIM_BYTES: usize = 16;

/// The provider's answer, with whether the subscription is new.
type SubscriptionAnswer = Result<(Watch, bool), ConnectorError>;

impl Syncer {
    /// Requests or renews the subscription of an account, unless that was done recently.
    pub(super) async fn subscribe(
        &self,
        session: &MailboxSession,
        watch: &WatchState,
    ) -> anyhow::Result<Result<Watch, ConnectorError>> {
        let system = self.engine.store.system();
        let (provider, address) = (session.mailbox.provider, session.mailbox.account());
        let now = system.now().await?;
        if let Some(known) = system.find_subscription(provider, address).await?
            && let Some(granted) = find_current(&known, watch, now).filter(|_| !belongs_to_other_user(&known, session))
        {
            return Ok(Ok(granted));
        }
        let word = random_text(CLAIM_BYTES)?;
        let claim = SubscriptionClaim { provider, address, nonce: &word };
        let Some(claimed) = system.claim_subscription(claim, CLAIM_LEASE).await? else {
            return Ok(Err(claimed_elsewhere()));
        };
        // Another process may have been faster between our read and our claim.
        let granted = find_current(&claimed.subscription, watch, claimed.claimed_at);
        if let Some(granted) = granted.filter(|_| !belongs_to_other_user(&claimed.subscription, session)) {
            system.release_subscription(claim).await?;
            return Ok(Ok(granted));
        }
        match self.request_subscription(session, watch, claim, &claimed).await {
            Ok(Ok((granted, is_new))) => match self.record_granted(session, claim, &claimed, &granted, is_new).await {
                // The process that took over the claim has the current state.
                Err(StoreError::Precondition(Precondition::SubscriptionClaimed)) => Ok(Err(claimed_elsewhere())),
                recorded => Ok(recorded.map(|()| Ok(granted))?),
            },
            Ok(Err(e)) => {
                system.release_subscription(claim).await?;
                Ok(Err(e))
            }
            Err(e) => match e.downcast_ref() {
                Some(StoreError::Precondition(Precondition::SubscriptionClaimed)) => Ok(Err(claimed_elsewhere())),
                _ => Err(e),
            },
        }
    }

    async fn request_subscription(
        &self,
        session: &MailboxSession,
        watch: &WatchState,
        claim: SubscriptionClaim<'_>,
        claimed: &ClaimedSubscription,
    ) -> anyhow::Result<SubscriptionAnswer> {
        let requesting = async {
            let is_stale = is_silent_watch(&claimed.subscription, watch, claimed.claimed_at)
                || belongs_to_other_user(&claimed.subscription, session);
            if let Some(name) = claimed.subscription.name.clone().filter(|_| !is_stale) {
                let request = WatchRequest { subscription_id: Some(name), client_state: Secret::new(String::new()) };
                match self.call_watch(session, &request).await {
                    Err(ConnectorError::Gone) => {}
                    answer => return Ok(answer.map(|granted| (granted, false))),
                }
            }
            let client_state = ClientStates::new(self.engine.vault.clone()).create().await?;
            let hash = Sha256::of(client_state.expose().as_bytes());
            self.engine.store.system().begin_subscription(claim, hash, owner(session)).await?;
            let request = WatchRequest { subscription_id: None, client_state };
            Ok(self.call_watch(session, &request).await.map(|granted| (granted, true)))
        };
        timeout(CLAIM_LEASE * 2 / 3, requesting)
            .await
            .unwrap_or_else(|_| Ok(Err(ConnectorError::Unavailable("the subscription request timed out".to_owned()))))
    }

    async fn call_watch(&self, session: &MailboxSession, request: &WatchRequest) -> Result<Watch, ConnectorError> {
        match session.connector.watch(&session.account, request) {
            Some(call) => self.gateway.make(&session.target, call).await,
            None => Err(ConnectorError::Protocol("the provider does not support watches for this account".to_owned())),
        }
    }

    /// Records the subscription. What happened before a new one began was not pushed, so every mailbox of the account
    /// is synced.
    async fn record_granted(
        &self,
        session: &MailboxSession,
        claim: SubscriptionClaim<'_>,
        claimed: &ClaimedSubscription,
        granted: &Watch,
        is_new: bool,
    ) -> Result<(), StoreError> {
        let (store, system) = (&self.engine.store, self.engine.store.system());
        // If its id came by a notification, its beginning is not recorded yet.
        let is_new = is_new || claimed.subscription.expires_at.is_none();
        let mut pushed_mailboxes = Vec::new();
        if is_new {
            let effects = PushEffects { sync: true, full_sweep: true, ..PushEffects::default() };
            for pushed in system.list_pushed_mailboxes(claim.provider, vec![claim.address.to_owned()]).await? {
                pushed_mailboxes.push(effects.for_mailbox(store, pushed)?);
            }
        }
        let granted = Subscription {
            name: granted.subscription_id.clone(),
            expires_at: Some(granted.expires_at),
            renewed_at: Some(claimed.claimed_at),
            owner: owner(session).map(str::to_owned),
        };
        system.record_subscription(claim, granted, pushed_mailboxes).await?;
        if is_new && let Err(e) = store.notify_other_processes().await {
            tracing::debug!(error = redact_for_log(&e), "workers not notified of new jobs; they poll");
        }
        Ok(())
    }

    /// Ends the subscription of an account, by its id at the provider.
    pub(super) async fn unsubscribe(
        &self,
        provider: Provider,
        address: &str,
        end: impl AsyncFnOnce(Option<&str>) -> Result<(), ConnectorError>,
    ) -> anyhow::Result<Result<(), ConnectorError>> {
        let system = self.engine.store.system();
        let word = random_text(CLAIM_BYTES)?;
        let claim = SubscriptionClaim { provider, address, nonce: &word };
        let Some(claimed) = system.claim_subscription(claim, CLAIM_LEASE).await? else {
            return Ok(Err(claimed_elsewhere()));
        };
        let ending = end(claimed.subscription.name.as_deref());
        let ended = timeout(CLAIM_LEASE * 2 / 3, ending)
            .await
            .unwrap_or_else(|_| Err(ConnectorError::Unavailable("ending the subscription timed out".to_owned())));
        let ended = match ended {
            // It has ended by itself.
            Err(ConnectorError::Gone) => Ok(()),
            ended => ended,
        };
        match &ended {
            Ok(()) => system.forget_subscription(claim).await?,
            Err(_) => system.release_subscription(claim).await?,
        }
        Ok(ended)
    }
}

fn claimed_elsewhere() -> ConnectorError {
    ConnectorError::Throttled { retry_after: Some(CLAIM_RETRY_DELAY) }
}

/// Returns the directory id of the mailbox's owner, or `None` if the mailbox was connected by its address.
fn owner(session: &MailboxSession) -> Option<&str> {
    session.mailbox.settings.connection["user"].as_str()
}

/// Returns whether the subscription was requested when the address belonged to another person: it reports their mail.
fn belongs_to_other_user(known: &Subscription, session: &MailboxSession) -> bool {
    matches!((known.owner.as_deref(), owner(session)), (Some(known), Some(own)) if known != own)
}

/// Returns the current watch if it was granted recently, was not requested anew since and is not silent.
fn find_current(known: &Subscription, watch: &WatchState, now: Timestamp) -> Option<Watch> {
    let (Some(_), Some(renewed_at), Some(expires_at)) = (&known.name, known.renewed_at, known.expires_at) else {
        return None;
    };
    if watch.requested_at > Some(renewed_at) || is_silent_watch(known, watch, now) {
        return None;
    }
    let lasts = Duration::try_from(expires_at.duration_since(renewed_at)).unwrap_or_default();
    let past = Duration::try_from(now.duration_since(renewed_at)).unwrap_or_default();
    // Its renewal comes after a day or half of its time, so this is another mailbox in between.
    (past < (RENEW_INTERVAL / 2).min(lasts / 4)).then(|| Watch { expires_at, subscription_id: known.name.clone() })
}

/// Returns whether a subscription is live but silent although mail has come. Its replacement has an hour to prove
/// itself, and as long as nothing happens.
fn is_silent_watch(known: &Subscription, watch: &WatchState, now: Timestamp) -> bool {
    let Some(renewed_at) = known.renewed_at else { return watch.lost_at.is_some() };
    let is_silent = watch.news_at > Some(renewed_at) && watch.last_push_at < Some(renewed_at);
    let past = Duration::try_from(now.duration_since(renewed_at)).unwrap_or_default();
    watch.lost_at.is_some_and(|lost_at| lost_at > renewed_at || (is_silent && past > SILENT_RENEW_INTERVAL))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEGIN: i64 = 1_800_000_000;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(BEGIN + seconds).unwrap()
    }

    fn watch(wanted: Option<i64>, lost: Option<i64>) -> WatchState {
        WatchState {
            expires_at: None,
            renewed_at: None,
            next_at: at(0),
            version: 0,
            failures: 0,
            problem: None,
            last_push_at: None,
            news_at: None,
            lost_at: lost.map(at),
            requested_at: wanted.map(at),
        }
    }

    fn known(lasts: i64) -> Subscription {
        Subscription { name: Some("s".into()), expires_at: Some(at(lasts)), renewed_at: Some(at(0)), owner: None }
    }

    fn watch_with_news(lost: Option<i64>, news: i64, pushed: i64) -> WatchState {
        WatchState { news_at: Some(at(news)), last_push_at: Some(at(pushed)), ..watch(None, lost) }
    }

    #[test]
    fn recent_subscription_is_not_requested_again() {
        let (week, hour) = (7 * 86_400, 3600);
        let calm = watch(Some(-5), None);
        assert!(find_current(&known(week), &calm, at(11 * hour)).is_some());
        assert!(find_current(&known(week), &calm, at(13 * hour)).is_none());
        assert!(find_current(&known(hour), &calm, at(800)).is_some());
        assert!(find_current(&known(hour), &calm, at(1000)).is_none(), "a short one is renewed sooner");
        assert!(find_current(&known(week), &watch(None, None), at(1)).is_some());
        assert!(find_current(&known(week), &watch(Some(1), None), at(2)).is_none(), "somebody wants it");
        assert!(find_current(&known(week), &watch(Some(-5), Some(1)), at(2)).is_none(), "it tells us nothing");
        assert!(find_current(&Subscription { name: None, ..known(week) }, &calm, at(1)).is_none());
    }

    #[test]
    fn silent_subscription_is_replaced_after_an_hour() {
        let known = known(600_000);
        assert!(
            is_silent_watch(&known, &watch_with_news(Some(1), -9, -9), at(2)),
            "it was lost since it was agreed to"
        );
        assert!(is_silent_watch(&known, &watch_with_news(Some(-5), 10, -9), at(3601)), "and so is what took its place");
        assert!(!is_silent_watch(&known, &watch_with_news(Some(-5), 10, -9), at(3599)), "it may still come");
        assert!(!is_silent_watch(&known, &watch_with_news(Some(-5), -9, -9), at(3601)), "there was nothing to tell");
        assert!(!is_silent_watch(&known, &watch_with_news(Some(-5), 10, 11), at(3601)), "it has told");
        assert!(
            !is_silent_watch(&known, &watch_with_news(None, 10, -9), at(3601)),
            "one that is missed once is no sign"
        );
    }
}
