//! Pushes of Gmail, which come through Google Cloud Pub/Sub, one by one. A token authenticates each: Google must have
//! signed it, for us, in the name of the service account of our subscription.

use std::sync::Arc;

use domain::push::PushVerification;
use domain::{Clock, Provider, PushBatch, PushEndpoint, PushReader, PushRefusal};
use jwt::{Algorithm, Documents, Issuer, KeySetSource, TokenCheck, find_time_error, is_for, is_in_future};
use serde_json::Value;

use super::push_message;

/// The two spellings of Google's issuer.
const ISSUERS: [&str; 2] = ["https://accounts.google.com", "accounts.google.com"];

const ENDPOINT: PushEndpoint = PushEndpoint {
    // Push messages have some hundred bytes.
    max_body_bytes: 64 << 10,
    deadline: None,
    recorded_status: 204,
    // Pub/Sub sends whatever is not acknowledged again, for days.
    accepts_malformed: true,
    validation_parameter: None,
};

/// The audience and service account that pushes are accepted for, and where Google's keys are.
#[derive(Debug, Clone)]
pub struct GmailPushSettings {
    pub jwks_url: String,
    pub audience: String,
    pub service_account: String,
}

/// Verifies and parses pushes of Gmail. Cheap to clone.
#[derive(Debug, Clone)]
pub struct GmailPushReader {
    settings: Arc<GmailPushSettings>,
    issuer: Issuer,
}

impl GmailPushReader {
    pub fn new(settings: GmailPushSettings, documents: Box<dyn Documents>) -> Self {
        let at = KeySetSource::Url(settings.jwks_url.clone());
        let issuer = Issuer::new("providers.google.jwks_url", at, Algorithm::Rs256, documents);
        Self { settings: Arc::new(settings), issuer }
    }

    async fn verify_token(&self, token: Option<&str>, clock: &dyn Clock) -> Result<(), PushRefusal> {
        let token = token.ok_or(PushRefusal::Unauthorized("the token is missing"))?;
        match self.issuer.check(token).await {
            TokenCheck::Claims(claims) => check_claims(&claims, &self.settings, clock),
            TokenCheck::Refused(refusal) => Err(PushRefusal::Unauthorized(refusal.reason())),
            TokenCheck::NoKeys => Err(PushRefusal::NoKeys("Google's signing keys cannot be fetched")),
        }
    }
}

impl PushReader for GmailPushReader {
    fn provider(&self) -> Provider {
        Provider::Gmail
    }

    fn endpoint(&self) -> &'static PushEndpoint {
        &ENDPOINT
    }

    fn verify<'a>(&'a self, token: Option<&'a str>, clock: &'a dyn Clock) -> PushVerification<'a> {
        Box::pin(self.verify_token(token, clock))
    }

    fn read(&self, body: &[u8]) -> Result<PushBatch, &'static str> {
        Ok(vec![Ok(push_message::read(body)?)])
    }
}

fn check_claims(claims: &Value, settings: &GmailPushSettings, clock: &dyn Clock) -> Result<(), PushRefusal> {
    if !ISSUERS.iter().any(|issuer| claims["iss"] == *issuer) {
        return Err(PushRefusal::Unauthorized("the token was issued by another issuer (iss)"));
    }
    if let Some(wrong) = find_time_error(claims, clock) {
        return Err(PushRefusal::Unauthorized(wrong));
    }
    if is_in_future(claims, "iat", clock) {
        return Err(PushRefusal::Unauthorized("the token was issued in the future (iat)"));
    }
    if !is_for(claims, &settings.audience) {
        return Err(PushRefusal::Forbidden(
            "the token is meant for another audience (aud); the audience of the subscription must be providers.google.push_audience",
        ));
    }
    let is_whom_it_must = claims["email"].as_str().is_some_and(|email| email == settings.service_account);
    if !is_whom_it_must || claims["email_verified"] != true {
        return Err(PushRefusal::Forbidden(
            "the token is of another service account than the subscription's (providers.google.push_service_account)",
        ));
    }
    Ok(())
}
