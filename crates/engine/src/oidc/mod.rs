//! Tokens of the operator's issuer (OpenID Connect) in the place of keys: who they are for is one of their claims.

mod issuer;
mod jwt;

pub use jwt::Algorithm;

use std::fmt;
use std::sync::Arc;

use domain::{Clock, TenantId};
use futures_util::future::BoxFuture;
use serde_json::Value;
use store::{Store, StoreError};

use crate::keys::{Holder, SCOPES, Who};
pub(crate) use issuer::{Checked, Issuer, KeysAt};
use jwt::Refusal;

/// How far two clocks may differ.
const LEEWAY: f64 = 30.0;

#[derive(Debug, Clone)]
pub struct OidcSettings {
    /// As it stands in the tokens.
    pub issuer: String,
    pub audience: String,
    pub algorithm: Algorithm,
    pub tenant_claim: String,
    pub scope_claim: String,
}

/// Reads documents of the issuer, in a time that one can wait.
pub trait Documents: fmt::Debug + Send + Sync {
    fn get<'a>(&'a self, url: &'a str) -> BoxFuture<'a, anyhow::Result<Value>>;
}

/// Whose token it is, or why it is nobody's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    Holder(Holder),
    /// For the client: what is wrong with it.
    Refused(&'static str),
    /// It is good, but nobody here is meant.
    NoTenant,
    /// The issuer has not told its keys yet.
    NoKeys,
}

/// The operator's issuer. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Oidc(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    settings: OidcSettings,
    issuer: Issuer,
}

impl Oidc {
    pub fn new(settings: OidcSettings, documents: Box<dyn Documents>) -> Self {
        let at = KeysAt::Issuer(settings.issuer.clone());
        let issuer = Issuer::new("auth.oidc.issuer", at, settings.algorithm, documents);
        Self(Arc::new(Inner { settings, issuer }))
    }

    pub async fn find_holder(&self, store: &Store, token: &str) -> Result<Found, StoreError> {
        let settings = &self.0.settings;
        let claims = match self.0.issuer.check(token).await {
            Checked::Claims(claims) => claims,
            Checked::NoKeys => return Ok(Found::NoKeys),
            Checked::Refused(refusal) => return Ok(Found::Refused(said(refusal))),
        };
        if let Some(wrong) = wrong_claim(&claims, settings, store.clock()) {
            return Ok(Found::Refused(wrong));
        }
        let Some(subject) = claims["sub"].as_str().filter(|subject| is_name(subject)) else {
            return Ok(Found::Refused("it does not say who it is for (sub)"));
        };
        let tenant = match claims[&settings.tenant_claim].as_str() {
            Some(tenant) => store.system().find_tenant(tenant).await?,
            None => None,
        };
        // The work that Mailroom does for itself is nobody's.
        let Some(tenant) = tenant.filter(|tenant| tenant.id != TenantId::SYSTEM) else { return Ok(Found::NoTenant) };
        Ok(Found::Holder(Holder {
            who: Who::Token { issuer: settings.issuer.clone(), subject: subject.to_owned() },
            tenant: tenant.id,
            is_tenant_active: tenant.is_active,
            plan: tenant.plan_tier,
            scopes: scopes(&claims[&settings.scope_claim]),
        }))
    }
}

/// Nobody between us and the issuer may put keys in: https, or this machine.
pub fn is_safe_url(url: &str) -> bool {
    if let Some(rest) = url.strip_prefix("https://") {
        return !rest.is_empty();
    }
    let Some(rest) = url.strip_prefix("http://") else { return false };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = match authority.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => authority.split(':').next().unwrap_or_default(),
    };
    host == "localhost" || host.parse().is_ok_and(|host: std::net::IpAddr| host.is_loopback())
}

pub(crate) fn said(refusal: Refusal) -> &'static str {
    match refusal {
        Refusal::Malformed => "it is neither a key nor a token",
        Refusal::WrongAlgorithm => "it is not signed in the way that is agreed",
        Refusal::UnknownKey => "it is signed with a key that its issuer does not have",
        Refusal::WrongSignature => "its signature is wrong",
    }
}

fn wrong_claim(claims: &Value, settings: &OidcSettings, clock: &dyn Clock) -> Option<&'static str> {
    if claims["iss"] != settings.issuer.as_str() {
        return Some("it is of another issuer");
    }
    if !is_for(claims, &settings.audience) {
        return Some("it is meant for somebody else (aud)");
    }
    wrong_time(claims, clock)
}

/// Whether it is meant for this audience, and perhaps for others.
pub(crate) fn is_for(claims: &Value, audience: &str) -> bool {
    match &claims["aud"] {
        Value::Array(all) => all.iter().any(|one| one == audience),
        one => one == audience,
    }
}

/// Whether it is not valid yet, or not any more.
pub(crate) fn wrong_time(claims: &Value, clock: &dyn Clock) -> Option<&'static str> {
    let now = clock.now().as_millisecond() as f64 / 1000.0;
    // What is there and no number is as bad as what is not there.
    match claims["exp"].as_f64() {
        None => return Some("it does not say until when it is valid (exp)"),
        Some(until) if now >= until + LEEWAY => return Some("it has expired"),
        Some(_) => {}
    }
    is_still_to_come(claims, "nbf", clock).then_some("it is not valid yet (nbf)")
}

/// A time that is there and no time is as bad as one that is far away.
pub(crate) fn is_still_to_come(claims: &Value, claim: &str, clock: &dyn Clock) -> bool {
    let now = clock.now().as_millisecond() as f64 / 1000.0;
    match &claims[claim] {
        Value::Null => false,
        from => from.as_f64().is_none_or(|from| now < from - LEEWAY),
    }
}

/// It goes into the audit as it is.
fn is_name(subject: &str) -> bool {
    (1..=255).contains(&subject.len()) && !subject.chars().any(char::is_control)
}

/// In one text, or in a list. What we do not know is for others.
fn scopes(claim: &Value) -> Vec<String> {
    let named: Vec<&str> = match claim {
        Value::String(text) => text.split_whitespace().collect(),
        Value::Array(all) => all.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    SCOPES.iter().filter(|scope| named.contains(scope)).map(|scope| (*scope).to_owned()).collect()
}

#[cfg(test)]
mod tests;
