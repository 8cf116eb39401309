//! Authenticates API callers by tokens of the operator's OpenID Connect issuer, in place of API keys. A claim names the
//! tenant.

use std::sync::Arc;

use domain::{Actor, TenantId};
use jwt::{Algorithm, Documents, ExpectedClaims, Issuer, KeySetSource, TokenRefusal};
use serde_json::Value;
use store::{Store, StoreError};

use crate::credentials::api_keys::{Principal, SCOPES};

#[derive(Debug, Clone)]
pub struct OidcSettings {
    /// The issuer as it is spelled in the tokens.
    pub issuer: String,
    pub audience: String,
    pub algorithm: Algorithm,
    pub tenant_claim: String,
    pub scope_claim: String,
}

/// The principal of a token, or why it is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TokenLookup {
    Holder(Principal),
    /// What is wrong with the token, for the client.
    Refused(&'static str),
    /// The token is valid but names no tenant of ours.
    NoTenant,
    /// The keys of the issuer cannot be fetched.
    NoKeys,
}

/// Authenticates tokens of the operator's issuer. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Oidc(Arc<OidcInner>);

#[derive(Debug)]
struct OidcInner {
    settings: OidcSettings,
    issuer: Issuer,
}

impl Oidc {
    pub fn new(settings: OidcSettings, documents: Box<dyn Documents>) -> Self {
        let at = KeySetSource::Issuer(settings.issuer.clone());
        let issuer = Issuer::new("auth.oidc.issuer", at, settings.algorithm, documents);
        Self(Arc::new(OidcInner { settings, issuer }))
    }

    pub async fn find_principal(&self, store: &Store, token: &str) -> Result<TokenLookup, StoreError> {
        let settings = &self.0.settings;
        let expected = ExpectedClaims { issuers: &[&*settings.issuer], audience: &settings.audience };
        let claims = match self.0.issuer.check(token, expected, store.clock()).await {
            Ok(claims) => claims,
            Err(TokenRefusal::NoKeys) => return Ok(TokenLookup::NoKeys),
            Err(refusal) => return Ok(TokenLookup::Refused(refusal.reason())),
        };
        let Some(subject) = claims["sub"].as_str().filter(|subject| is_valid_subject(subject)) else {
            return Ok(TokenLookup::Refused("its subject is missing or not valid (sub)"));
        };
        let tenant = match claims[&settings.tenant_claim].as_str() {
            Some(tenant) => store.system().find_tenant(tenant).await?,
            None => None,
        };
        // The system tenant has no callers.
        let Some(tenant) = tenant.filter(|tenant| tenant.id != TenantId::SYSTEM) else {
            return Ok(TokenLookup::NoTenant);
        };
        Ok(TokenLookup::Holder(Principal {
            actor: Actor::Person { issuer: settings.issuer.clone(), subject: subject.to_owned() },
            tenant: tenant.id,
            is_tenant_active: tenant.is_active,
            plan: tenant.plan_tier,
            scopes: parse_scopes(&claims[&settings.scope_claim]),
        }))
    }
}

/// Returns whether a subject may be recorded in the audit as it is.
fn is_valid_subject(subject: &str) -> bool {
    (1..=255).contains(&subject.len()) && !subject.chars().any(char::is_control)
}

/// Returns our scopes among those of a claim, which is a text or a list.
fn parse_scopes(claim: &Value) -> Vec<String> {
    let named: Vec<&str> = match claim {
        Value::String(text) => text.split_whitespace().collect(),
        Value::Array(all) => all.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    SCOPES.iter().filter(|scope| named.contains(scope)).map(|scope| (*scope).to_owned()).collect()
}

#[cfg(test)]
mod tests;
