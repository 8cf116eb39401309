//! Whoever signs tokens, and the public halves of its keys: asked for when they are needed, and kept.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use super::jwt::{Algorithm, Keys, Refusal, Token};
use super::{Documents, is_safe_url};

/// After this the keys of the issuer are asked for again, beside what goes on: one that was withdrawn is to be forgotten.
pub(super) const OLD: Duration = Duration::from_secs(600);

/// An issuer is asked at most this often, however many tokens come with keys that nobody knows.
pub(super) const PAUSE: Duration = Duration::from_secs(10);

/// Where an issuer tells its keys.
#[derive(Debug)]
pub(crate) enum KeysAt {
    /// Where the document says that every issuer of OpenID Connect has.
    Issuer(String),
    /// There.
    Url(String),
}

/// What a token comes to.
#[derive(Debug)]
pub(crate) enum Checked {
    /// The issuer has signed it; what it says is to be looked at.
    Claims(Value),
    Refused(Refusal),
    /// The issuer does not tell its keys now, so nobody knows.
    NoKeys,
}

/// Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Issuer(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// The setting that names it.
    setting: &'static str,
    at: KeysAt,
    algorithm: Algorithm,
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
    /// When it was asked last, it did not answer.
    is_silent: bool,
}

impl Issuer {
    pub fn new(setting: &'static str, at: KeysAt, algorithm: Algorithm, documents: Box<dyn Documents>) -> Self {
        let (known, asking) = (Mutex::default(), tokio::sync::Mutex::default());
        Self(Arc::new(Inner { setting, at, algorithm, documents, known, asking }))
    }

    /// Whether a token is signed as it must be.
    pub async fn check(&self, token: &str) -> Checked {
        let token = match Token::parse(token, self.0.algorithm) {
            Ok(token) => token,
            Err(refusal) => return Checked::Refused(refusal),
        };
        let keys = self.keys_for(token.head.kid.as_deref()).await;
        if keys.is_empty() {
            return Checked::NoKeys;
        }
        match token.verify(self.0.algorithm, &keys) {
            Ok(claims) => Checked::Claims(claims),
            // It may be a new one, of which we cannot hear.
            Err(Refusal::UnknownKey) if self.known().is_silent => Checked::NoKeys,
            Err(refusal) => Checked::Refused(refusal),
        }
    }

    /// Those that are known; asked for anew when this one is not among them.
    pub(super) async fn keys_for(&self, id: Option<&str>) -> Arc<Keys> {
        let (keys, since) = self.known_keys();
        if keys.has(id) {
            if since.is_some_and(|since| since.elapsed() > OLD) && self.may_ask() {
                let issuer = self.clone();
                tokio::spawn(async move { issuer.ask().await });
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
        let fetched = self.fetch().await;
        let mut known = self.known();
        known.is_silent = fetched.is_err();
        match fetched {
            Ok(keys) => {
                known.keys = Arc::new(keys);
                known.since = Some(Instant::now());
            }
            Err(e) => tracing::warn!("the keys of who signs tokens ({}) cannot be had: {e:#}", self.0.setting),
        }
    }

    async fn fetch(&self) -> anyhow::Result<Keys> {
        let Inner { at, algorithm, documents, .. } = &*self.0;
        let set = match at {
            KeysAt::Url(url) => documents.get(url).await?,
            KeysAt::Issuer(issuer) => {
                let url = format!("{}/.well-known/openid-configuration", issuer.trim_end_matches('/'));
                let about = documents.get(&url).await?;
                anyhow::ensure!(about["issuer"] == issuer.as_str(), "it calls itself {}", about["issuer"]);
                let jwks = about["jwks_uri"].as_str().filter(|url| is_safe_url(url));
                let jwks = jwks.ok_or_else(|| anyhow::anyhow!("it does not say where its keys are, over https"))?;
                documents.get(jwks).await?
            }
        };
        let keys = Keys::read(&set, *algorithm);
        anyhow::ensure!(!keys.is_empty(), "it has no key for the algorithm that is agreed");
        Ok(keys)
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
