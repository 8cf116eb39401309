//! Tokens of the operator's issuer (OpenID Connect) in the place of keys: who they are for is one of their claims.

mod jwt;

pub use jwt::Algorithm;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use domain::{Clock, TenantId};
use futures_util::future::BoxFuture;
use serde_json::Value;
use store::{Store, StoreError};
use tokio::time::Instant;

use crate::keys::{Holder, SCOPES, Who};
use jwt::{Keys, Refusal, Token};

/// How far two clocks may differ.
const LEEWAY: f64 = 30.0;

/// After this the keys of the issuer are asked for again, beside what goes on: one that was withdrawn is to be forgotten.
const OLD: Duration = Duration::from_secs(600);

/// An issuer is asked at most this often, however many tokens come with keys that nobody knows.
const PAUSE: Duration = Duration::from_secs(10);

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
    documents: Box<dyn Documents>,
    known: Mutex<Known>,
    /// One asks for all.
    asking: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct Known {
    keys: Arc<Keys>,
    since: Option<Instant>,
    asked_at: Option<Instant>,
}

impl Oidc {
    pub fn new(settings: OidcSettings, documents: Box<dyn Documents>) -> Self {
        let (known, asking) = (Mutex::default(), tokio::sync::Mutex::default());
        Self(Arc::new(Inner { settings, documents, known, asking }))
    }

    pub async fn find_holder(&self, store: &Store, token: &str) -> Result<Found, StoreError> {
        let settings = &self.0.settings;
        let token = match Token::parse(token, settings.algorithm) {
            Ok(token) => token,
            Err(refusal) => return Ok(Found::Refused(said(refusal))),
        };
        let keys = self.keys_for(token.head.kid.as_deref()).await;
        if keys.is_empty() {
            return Ok(Found::NoKeys);
        }
        let claims = match token.verify(settings.algorithm, &keys) {
            Ok(claims) => claims,
            Err(refusal) => return Ok(Found::Refused(said(refusal))),
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

    /// Those that are known; asked for anew when this one is not among them.
    async fn keys_for(&self, id: Option<&str>) -> Arc<Keys> {
        let (keys, since) = self.known_keys();
        if keys.has(id) {
            if since.is_some_and(|since| since.elapsed() > OLD) && self.may_ask() {
                let oidc = self.clone();
                tokio::spawn(async move { oidc.ask().await });
            }
            return keys;
        }
        let _turn = self.0.asking.lock().await;
        // Whoever was before us may have brought it.
        let (keys, _) = self.known_keys();
        if keys.has(id) || !self.may_ask() {
            return keys;
        }
        self.ask().await;
        self.known_keys().0
    }

    fn known_keys(&self) -> (Arc<Keys>, Option<Instant>) {
        let known = self.known();
        (known.keys.clone(), known.since)
    }

    /// Once in a while.
    fn may_ask(&self) -> bool {
        let mut known = self.known();
        let is_time = known.asked_at.is_none_or(|at| at.elapsed() >= PAUSE);
        if is_time {
            known.asked_at = Some(Instant::now());
        }
        is_time
    }

    /// What is known stays when the issuer does not answer.
    async fn ask(&self) {
        match self.fetch().await {
            Ok(keys) => {
                let mut known = self.known();
                known.keys = Arc::new(keys);
                known.since = Some(Instant::now());
            }
            Err(e) => tracing::warn!("the keys of the issuer of tokens (auth.oidc.issuer) cannot be had: {e:#}"),
        }
    }

    async fn fetch(&self) -> anyhow::Result<Keys> {
        let Inner { settings, documents, .. } = &*self.0;
        let url = format!("{}/.well-known/openid-configuration", settings.issuer.trim_end_matches('/'));
        let about = documents.get(&url).await?;
        anyhow::ensure!(about["issuer"] == settings.issuer.as_str(), "it calls itself {}", about["issuer"]);
        let jwks = about["jwks_uri"].as_str().filter(|url| is_safe_url(url));
        let jwks = jwks.ok_or_else(|| anyhow::anyhow!("it does not say where its keys are, over https"))?;
        let keys = Keys::read(&documents.get(jwks).await?, settings.algorithm);
        anyhow::ensure!(!keys.is_empty(), "it has no key for the algorithm of auth.oidc.algorithm");
        Ok(keys)
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.known.lock().unwrap_or_else(PoisonError::into_inner)
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

fn said(refusal: Refusal) -> &'static str {
    match refusal {
        Refusal::Malformed => "it is neither a key nor a token",
        Refusal::WrongAlgorithm => "it is not signed in the way that is agreed",
        Refusal::UnknownKey => "it is signed with a key that its issuer does not have",
        Refusal::WrongSignature => "its signature is wrong",
    }
}

fn wrong_claim(claims: &Value, settings: &OidcSettings, clock: &dyn Clock) -> Option<&'static str> {
    let now = clock.now().as_millisecond() as f64 / 1000.0;
    if claims["iss"] != settings.issuer.as_str() {
        return Some("it is of another issuer");
    }
    let is_for_us = match &claims["aud"] {
        Value::Array(all) => all.iter().any(|one| one == settings.audience.as_str()),
        one => one == settings.audience.as_str(),
    };
    if !is_for_us {
        return Some("it is meant for somebody else (aud)");
    }
    // What is there and no number is as bad as what is not there.
    match claims["exp"].as_f64() {
        None => return Some("it does not say until when it is valid (exp)"),
        Some(until) if now >= until + LEEWAY => return Some("it has expired"),
        Some(_) => {}
    }
    match &claims["nbf"] {
        Value::Null => None,
        from => match from.as_f64() {
            Some(from) if now >= from - LEEWAY => None,
            _ => Some("it is not valid yet (nbf)"),
        },
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
