//! Watches that are one thing of an account with a name, whoever of the tenants has it: a subscription. One of all asks for
//! it at a time, and the others find that it goes on.
//!
//! Whoever calls us for it says a password that only the provider was told. Its hash is committed before the provider hears
//! of it: so what comes for a subscription whose name we never got to record is believed all the same, until there is
//! another in its place.

use std::time::Duration;

use domain::connector::{Watch, WatchWish};
use domain::{ConnectorError, Provider, Secret, Sha256};
use jiff::Timestamp;
use store::StoreError;
use store::sql::subscriptions::{CLAIMED_BY_ANOTHER, Claim, ClaimedSubscription, Subscription};
use store::sql::watches::WatchState;
use tokio::time::timeout;

use super::passwords::Passwords;
use super::record::Meaning;
use super::watching::{DAILY, HOURLY};
use crate::consent::random_text;
use crate::sync::{Opened, Syncer};

/// Who asks has the subscription alone for so long, and gives up well before.
const HOLD: Duration = Duration::from_secs(90);

/// When somebody else asks for it just now.
const SOON: Duration = Duration::from_secs(5);

/// Of what is chosen at random for it.
const CLAIM_BYTES: usize = 16;

/// What the provider says, with whether it began something.
type Asked = Result<(Watch, bool), ConnectorError>;

impl Syncer {
    /// Asks for it, unless somebody has done that a while ago.
    pub(super) async fn subscribe(
        &self,
        opened: &Opened,
        watch: &WatchState,
    ) -> anyhow::Result<Result<Watch, ConnectorError>> {
        let system = self.engine.store.system();
        let (provider, address) = (opened.mailbox.provider, opened.mailbox.account());
        let now = system.now().await?;
        if let Some(known) = system.find_subscription(provider, address).await?
            && let Some(agreed) = still_good(&known, watch, now).filter(|_| !is_anothers(&known, opened))
        {
            return Ok(Ok(agreed));
        }
        let word = random_text(CLAIM_BYTES)?;
        let claim = Claim { provider, address, word: &word };
        let Some(claimed) = system.claim_subscription(claim, HOLD).await? else { return Ok(Err(put_off())) };
        // Somebody may have been faster between our look and our turn.
        let agreed = still_good(&claimed.subscription, watch, claimed.claimed_at);
        if let Some(agreed) = agreed.filter(|_| !is_anothers(&claimed.subscription, opened)) {
            system.release_subscription(claim).await?;
            return Ok(Ok(agreed));
        }
        match self.ask_for_subscription(opened, watch, claim, &claimed).await {
            Ok(Ok((agreed, is_new))) => match self.record_agreed(opened, claim, &claimed, &agreed, is_new).await {
                // Whoever was faster knows what there is now.
                Err(StoreError::Precondition(CLAIMED_BY_ANOTHER)) => Ok(Err(put_off())),
                recorded => Ok(recorded.map(|()| Ok(agreed))?),
            },
            Ok(Err(e)) => {
                system.release_subscription(claim).await?;
                Ok(Err(e))
            }
            Err(e) => match e.downcast_ref() {
                Some(StoreError::Precondition(CLAIMED_BY_ANOTHER)) => Ok(Err(put_off())),
                _ => Err(e),
            },
        }
    }

    async fn ask_for_subscription(
        &self,
        opened: &Opened,
        watch: &WatchState,
        claim: Claim<'_>,
        claimed: &ClaimedSubscription,
    ) -> anyhow::Result<Asked> {
        let asking = async {
            let is_of_no_use =
                is_dead(&claimed.subscription, watch, claimed.claimed_at) || is_anothers(&claimed.subscription, opened);
            if let Some(name) = claimed.subscription.name.clone().filter(|_| !is_of_no_use) {
                let wish = WatchWish { known: Some(name), password: Secret::new(String::new()) };
                match self.wish(opened, &wish).await {
                    Err(ConnectorError::Gone) => {}
                    answer => return Ok(answer.map(|agreed| (agreed, false))),
                }
            }
            let password = Passwords::new(self.engine.vault.clone()).make().await?;
            let hash = Sha256::of(password.expose().as_bytes());
            self.engine.store.system().begin_subscription(claim, hash, owner(opened)).await?;
            let wish = WatchWish { known: None, password };
            Ok(self.wish(opened, &wish).await.map(|agreed| (agreed, true)))
        };
        let slow = || ConnectorError::Unavailable("it takes too long to ask for a subscription".to_owned());
        timeout(HOLD * 2 / 3, asking).await.unwrap_or_else(|_| Ok(Err(slow())))
    }

    async fn wish(&self, opened: &Opened, wish: &WatchWish) -> Result<Watch, ConnectorError> {
        match opened.connector.watch(&opened.account, wish) {
            Some(call) => self.calls.make(&opened.mailbox, call).await,
            None => Err(ConnectorError::Protocol("it cannot be asked any more".to_owned())),
        }
    }

    /// What happened before it began nobody has told: every mailbox of the account is looked at.
    async fn record_agreed(
        &self,
        opened: &Opened,
        claim: Claim<'_>,
        claimed: &ClaimedSubscription,
        agreed: &Watch,
        is_new: bool,
    ) -> Result<(), StoreError> {
        let (store, system) = (&self.engine.store, self.engine.store.system());
        // Of one whose name was told by a push nobody has recorded yet that it began.
        let is_new = is_new || claimed.subscription.expires_at.is_none();
        let mut looks = Vec::new();
        if is_new {
            let meaning = Meaning { looks: true, sweeps: true, ..Meaning::default() };
            for pushed in system.list_pushed(claim.provider, vec![claim.address.to_owned()]).await? {
                looks.push(meaning.look(store, pushed)?);
            }
        }
        let agreed = Subscription {
            name: agreed.name.clone(),
            expires_at: Some(agreed.expires_at),
            renewed_at: Some(claimed.claimed_at),
            owner: owner(opened).map(str::to_owned),
        };
        system.record_subscription(claim, agreed, looks).await?;
        if is_new && let Err(e) = store.tell_of_jobs().await {
            tracing::debug!("workers are not told of new jobs: {e}");
        }
        Ok(())
    }

    /// Ends that of an account, by what its provider calls it.
    pub(super) async fn unsubscribe(
        &self,
        provider: Provider,
        address: &str,
        end: impl AsyncFnOnce(Option<&str>) -> Result<(), ConnectorError>,
    ) -> anyhow::Result<Result<(), ConnectorError>> {
        let system = self.engine.store.system();
        let word = random_text(CLAIM_BYTES)?;
        let claim = Claim { provider, address, word: &word };
        let Some(claimed) = system.claim_subscription(claim, HOLD).await? else { return Ok(Err(put_off())) };
        let slow = || ConnectorError::Unavailable("it takes too long to end a subscription".to_owned());
        let ending = end(claimed.subscription.name.as_deref());
        let ended = match timeout(HOLD * 2 / 3, ending).await.unwrap_or_else(|_| Err(slow())) {
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

fn put_off() -> ConnectorError {
    ConnectorError::Throttled { retry_after: Some(SOON) }
}

/// Whose mailbox it is, as their directory calls them. Nothing: somebody has connected it by its address.
fn owner(opened: &Opened) -> Option<&str> {
    opened.mailbox.settings["connection"]["user"].as_str()
}

/// The address was somebody else's when it was asked for: it tells of their mail.
fn is_anothers(known: &Subscription, opened: &Opened) -> bool {
    matches!((known.owner.as_deref(), owner(opened)), (Some(known), Some(own)) if known != own)
}

/// What was agreed to, if that was not long ago, and nobody has wanted it anew since or thinks it dead.
fn still_good(known: &Subscription, watch: &WatchState, now: Timestamp) -> Option<Watch> {
    let (Some(_), Some(renewed_at), Some(expires_at)) = (&known.name, known.renewed_at, known.expires_at) else {
        return None;
    };
    if watch.wanted_at > Some(renewed_at) || is_dead(known, watch, now) {
        return None;
    }
    let lasts = Duration::try_from(expires_at.duration_since(renewed_at)).unwrap_or_default();
    let past = Duration::try_from(now.duration_since(renewed_at)).unwrap_or_default();
    // Whoever renews it does so after a day or half of its time, so this is somebody else who comes between.
    (past < (DAILY / 2).min(lasts / 4)).then(|| Watch { expires_at, name: known.name.clone() })
}

/// One that goes on and does not tell us anything is of no use. The one in its place has an hour to show that it does, and
/// as long as nothing happens.
fn is_dead(known: &Subscription, watch: &WatchState, now: Timestamp) -> bool {
    let Some(renewed_at) = known.renewed_at else { return watch.lost_at.is_some() };
    let is_silent = watch.news_at > Some(renewed_at) && watch.last_push_at < Some(renewed_at);
    let past = Duration::try_from(now.duration_since(renewed_at)).unwrap_or_default();
    watch.lost_at.is_some_and(|lost_at| lost_at > renewed_at || (is_silent && past > HOURLY))
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
            wanted_at: wanted.map(at),
        }
    }

    #[test]
    fn what_was_agreed_to_a_while_ago_is_not_asked_for_again() {
        let known = |lasts: i64| Subscription {
            name: Some("s".into()),
            expires_at: Some(at(lasts)),
            renewed_at: Some(at(0)),
            owner: None,
        };
        let (week, hour) = (7 * 86_400, 3600);
        let calm = watch(Some(-5), None);
        assert!(still_good(&known(week), &calm, at(11 * hour)).is_some());
        assert!(still_good(&known(week), &calm, at(13 * hour)).is_none());
        assert!(still_good(&known(hour), &calm, at(800)).is_some());
        assert!(still_good(&known(hour), &calm, at(1000)).is_none(), "a short one is renewed sooner");
        assert!(still_good(&known(week), &watch(None, None), at(1)).is_some());
        assert!(still_good(&known(week), &watch(Some(1), None), at(2)).is_none(), "somebody wants it");
        assert!(still_good(&known(week), &watch(Some(-5), Some(1)), at(2)).is_none(), "it tells us nothing");
        assert!(still_good(&Subscription { name: None, ..known(week) }, &calm, at(1)).is_none());
    }

    #[test]
    fn one_that_tells_nothing_is_dead_each_time_that_an_hour_has_shown_it() {
        let known = Subscription {
            name: Some("s".into()),
            expires_at: Some(at(600_000)),
            renewed_at: Some(at(0)),
            owner: None,
        };
        let watch = |lost, news: i64, pushed: i64| WatchState {
            news_at: Some(at(news)),
            last_push_at: Some(at(pushed)),
            ..watch(None, lost)
        };
        assert!(is_dead(&known, &watch(Some(1), -9, -9), at(2)), "it was lost since it was agreed to");
        assert!(is_dead(&known, &watch(Some(-5), 10, -9), at(3601)), "and so is what took its place");
        assert!(!is_dead(&known, &watch(Some(-5), 10, -9), at(3599)), "it may still come");
        assert!(!is_dead(&known, &watch(Some(-5), -9, -9), at(3601)), "there was nothing to tell");
        assert!(!is_dead(&known, &watch(Some(-5), 10, 11), at(3601)), "it has told");
        assert!(!is_dead(&known, &watch(None, 10, -9), at(3601)), "one that is missed once is no sign");
    }
}
