//! Receives the pushes of Gmail, which come through Google Cloud Pub/Sub, one by one, with a token that authenticates
//! them.

mod message;
mod token;

use std::sync::Arc;

use domain::Provider;
use store::{Store, StoreError};

use super::record::{PushKind, PushMessage, record};
use super::{LogThrottle, PushOutcome, count};
use crate::batcher::Batcher;
use crate::credentials::oidc::{Algorithm, Documents, Issuer, KeySetSource};
use message::GmailPush;

pub use token::PushRefusal;

const PROVIDER: Provider = Provider::Gmail;

/// The issuer, audience and service account that pushes are accepted from.
#[derive(Debug, Clone)]
pub struct GmailPushSettings {
    pub jwks_url: String,
    pub audience: String,
    pub service_account: String,
}

/// Verifies and records pushes of Gmail. Cheap to clone.
#[derive(Debug, Clone)]
pub struct GmailPushes {
    store: Store,
    settings: Arc<GmailPushSettings>,
    issuer: Issuer,
    record_batcher: Batcher<PushMessage, PushOutcome>,
    log_throttle: Arc<LogThrottle>,
}

impl GmailPushes {
    pub fn new(store: Store, settings: GmailPushSettings, documents: Box<dyn Documents>) -> Self {
        let at = KeySetSource::Url(settings.jwks_url.clone());
        let issuer = Issuer::new("providers.google.jwks_url", at, Algorithm::Rs256, documents);
        let (record_batcher, log_throttle) = (Batcher::default(), Arc::default());
        Self { store, settings: Arc::new(settings), issuer, record_batcher, log_throttle }
    }

    /// Verifies that a call comes from our subscription. Nothing else of it is read before.
    pub async fn verify(&self, token: Option<&str>) -> Result<(), PushRefusal> {
        let verified = match token {
            Some(token) => token::verify(&self.issuer, &self.settings, self.store.clock(), token).await,
            None => Err(PushRefusal::Unauthorized("the token is missing")),
        };
        verified.inspect_err(|refused| {
            count(PROVIDER, refused.as_str());
            if let Some(suppressed) = self.log_throttle.allow(refused.reason()) {
                tracing::warn!(provider = PROVIDER.as_str(), suppressed, error = refused.reason(), "refused push");
            }
        })
    }

    /// Records a push; everything that follows from it is durable when this returns.
    pub async fn receive(&self, body: &[u8]) -> Result<PushOutcome, StoreError> {
        let outcome = match message::read(body) {
            Ok(GmailPush { message, address }) => {
                let message =
                    PushMessage { id: Some(message), address, kind: PushKind::Changed, subscription_name: None };
                self.record_batcher.get(message, |messages| record(self.store.clone(), PROVIDER, messages)).await?
            }
            Err(why) => {
                if let Some(suppressed) = self.log_throttle.allow(why) {
                    tracing::warn!(provider = PROVIDER.as_str(), suppressed, error = why, "dropped malformed push");
                }
                PushOutcome::Malformed
            }
        };
        if outcome == PushOutcome::Unknown {
            tracing::debug!(provider = PROVIDER.as_str(), "dropped push of an unknown account");
        }
        count(PROVIDER, outcome.as_str());
        Ok(outcome)
    }
}
