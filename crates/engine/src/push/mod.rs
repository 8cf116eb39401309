//! Providers that call us when something happens in a mailbox. A push says "look", never "what": it asks for the same job
//! as the clock does, and losing all of them costs one interval.
//!
//! What comes in is checked ([`token`]), read ([`message`]) and recorded with the looks that follow ([`Pushes`]). What a
//! provider is asked for, so that it calls, is in [`watching`].

mod message;
mod seldom;
mod standing;
mod token;
mod watching;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use domain::{Lane, Provider};
use jobs::new_job;
use store::sql::jobs::NewJob;
use store::sql::pushes::{PUSHED_BEFORE, Pushed};
use store::{Store, StoreError};

use crate::oidc::{Algorithm, Documents, Issuer, KeysAt};
use crate::sync::{SyncMailbox, only_one};
use crate::together::Together;

pub use message::Push;
use seldom::Seldom;
pub use standing::{PushState, Standing, find_standing};
pub use token::Refused;
pub(crate) use watching::{Unstopped, watch_soon};

/// Only Gmail's are pushed to us so far.
const PROVIDER: Provider = Provider::Gmail;

/// Another process may record the same messages at the same moment, but hardly again and again.
const TRIES: usize = 5;

/// Whose pushes are believed.
#[derive(Debug, Clone)]
pub struct PushSettings {
    pub jwks_url: String,
    pub audience: String,
    pub service_account: String,
}

/// What became of a push.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Mailboxes are looked at.
    Accepted,
    /// It has come before.
    Repeated,
    /// No mailbox that is at work is that account.
    Unknown,
    /// It makes no sense, and would make none if it came again.
    Malformed,
}

impl Outcome {
    fn as_str(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Repeated => "repeated",
            Self::Unknown => "unknown",
            Self::Malformed => "malformed",
        }
    }
}

/// Takes pushes. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Pushes {
    store: Store,
    settings: Arc<PushSettings>,
    issuer: Issuer,
    recording: Together<Push, Outcome>,
    told: Arc<Seldom>,
}

impl Pushes {
    pub fn new(store: Store, settings: PushSettings, documents: Box<dyn Documents>) -> Self {
        let at = KeysAt::Url(settings.jwks_url.clone());
        let issuer = Issuer::new("providers.google.jwks_url", at, Algorithm::Rs256, documents);
        let (recording, told) = (Together::default(), Arc::default());
        Self { store, settings: Arc::new(settings), issuer, recording, told }
    }

    /// Whether a call comes from whom it must. Nothing else of it is looked at before.
    pub async fn verify(&self, token: Option<&str>) -> Result<(), Refused> {
        let verified = match token {
            Some(token) => token::verify(&self.issuer, &self.settings, self.store.clock(), token).await,
            None => Err(Refused::Unauthorized("there is no token")),
        };
        verified.inspect_err(|refused| {
            count(refused.as_str());
            if let Some(since) = self.told.may_tell(refused.reason()) {
                tracing::warn!(provider = PROVIDER.as_str(), since, "a push was refused: {}", refused.reason());
            }
        })
    }

    /// Records what is in it; everything that follows is durable when this returns.
    pub async fn take(&self, body: &[u8]) -> Result<Outcome, StoreError> {
        let outcome = match message::read(body) {
            Ok(push) => self.recording.ask(push, |pushes| record(self.store.clone(), pushes)).await?,
            Err(why) => {
                if let Some(since) = self.told.may_tell(why) {
                    tracing::warn!(provider = PROVIDER.as_str(), since, "a push makes no sense and is let go: {why}");
                }
                Outcome::Malformed
            }
        };
        if outcome == Outcome::Unknown {
            tracing::debug!(provider = PROVIDER.as_str(), "a push is of an account that no mailbox at work is");
        }
        count(outcome.as_str());
        Ok(outcome)
    }
}

fn count(outcome: &'static str) {
    metrics::counter!("mailroom_pushes_total", "provider" => PROVIDER.as_str(), "outcome" => outcome).increment(1);
}

/// What came at the same time, in one commit.
async fn record(store: Store, pushes: Vec<Push>) -> Result<Vec<Outcome>, StoreError> {
    for _ in 0..TRIES {
        match try_record(&store, &pushes).await {
            Err(StoreError::Precondition(PUSHED_BEFORE)) => {}
            recorded => {
                if recorded.as_ref().is_ok_and(|outcomes| outcomes.contains(&Outcome::Accepted))
                    && let Err(e) = store.tell_of_jobs().await
                {
                    tracing::debug!("workers are not told of new jobs: {e}");
                }
                return recorded;
            }
        }
    }
    Err(StoreError::Unavailable(PUSHED_BEFORE.into()))
}

async fn try_record(store: &Store, pushes: &[Push]) -> Result<Vec<Outcome>, StoreError> {
    let system = store.system();
    let messages = pushes.iter().map(|push| push.message.clone()).collect();
    let mut known = system.list_known_pushes(PROVIDER, messages).await?;
    let mut fresh: Vec<&Push> = Vec::with_capacity(pushes.len());
    let mut outcomes = Vec::with_capacity(pushes.len());
    for push in pushes {
        let is_fresh = known.insert(push.message.clone());
        outcomes.push(if is_fresh { Outcome::Unknown } else { Outcome::Repeated });
        fresh.extend(is_fresh.then_some(push));
    }
    let addresses: HashSet<&str> = fresh.iter().map(|push| &*push.address).collect();
    if addresses.is_empty() {
        return Ok(outcomes);
    }
    let mut found: HashMap<String, Vec<Pushed>> = HashMap::new();
    for pushed in system.list_pushed(PROVIDER, addresses.into_iter().map(str::to_owned).collect()).await? {
        found.entry(pushed.address.clone()).or_default().push(pushed);
    }
    // Of an account that nobody has there is nothing to remember.
    fresh.retain(|push| found.contains_key(&push.address));
    for (push, outcome) in pushes.iter().zip(&mut outcomes) {
        if *outcome == Outcome::Unknown && found.contains_key(&push.address) {
            *outcome = Outcome::Accepted;
        }
    }
    if fresh.is_empty() {
        return Ok(outcomes);
    }
    let mut looks = Vec::new();
    for pushed in found.into_values().flatten() {
        let job = new_job(&SyncMailbox { mailbox: pushed.mailbox }, store.clock(), None);
        let job = job.map_err(|e| StoreError::Other(e.to_string().into()))?;
        let job = only_one(NewJob { lane: Lane::High, ..job }, pushed.mailbox);
        looks.push((pushed, job));
    }
    let messages: Vec<String> = fresh.iter().map(|push| push.message.clone()).collect();
    system.record_pushes(PROVIDER, &messages, looks).await?;
    Ok(outcomes)
}
