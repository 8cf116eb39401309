//! Gmail's, which come through Google Cloud Pub/Sub, one by one, with a token that says whose they are.

mod message;
mod token;

use std::sync::Arc;

use domain::Provider;
use store::{Store, StoreError};

use super::record::{About, Told, record};
use super::{Outcome, Seldom, count};
use crate::oidc::{Algorithm, Documents, Issuer, KeysAt};
use crate::together::Together;
use message::Push;

pub use token::Refused;

const PROVIDER: Provider = Provider::Gmail;

/// Whose pushes are believed.
#[derive(Debug, Clone)]
pub struct PushSettings {
    pub jwks_url: String,
    pub audience: String,
    pub service_account: String,
}

/// Takes pushes. Cheap to clone.
#[derive(Debug, Clone)]
pub struct GmailPushes {
    store: Store,
    settings: Arc<PushSettings>,
    issuer: Issuer,
    recording: Together<Told, Outcome>,
    told: Arc<Seldom>,
}

impl GmailPushes {
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
            count(PROVIDER, refused.as_str());
            if let Some(since) = self.told.may_tell(refused.reason()) {
                tracing::warn!(provider = PROVIDER.as_str(), since, "a push was refused: {}", refused.reason());
            }
        })
    }

    /// Records what is in it; everything that follows is durable when this returns.
    pub async fn take(&self, body: &[u8]) -> Result<Outcome, StoreError> {
        let outcome = match message::read(body) {
            Ok(Push { message, address }) => {
                let told = Told { message: Some(message), address, about: About::News, names: None };
                self.recording.ask(told, |told| record(self.store.clone(), PROVIDER, told)).await?
            }
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
        count(PROVIDER, outcome.as_str());
        Ok(outcome)
    }
}
