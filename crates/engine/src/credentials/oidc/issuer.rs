//! An issuer of signed tokens, with a cache of its public keys, which are fetched when they are needed.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use domain::redact_for_log;
use serde_json::Value;
use tokio::time::Instant;

use super::jwt::{Algorithm, PublicKeys, SignedToken, TokenRefusal};
use super::{Documents, is_safe_url};

/// The age at which the keys are fetched again in the background, so that a withdrawn key is dropped.
pub(super) const KEYS_REFRESH_AFTER: Duration = Duration::from_secs(600);

/// The keys are fetched at most this often, however many tokens come with unknown keys.
pub(super) const MIN_FETCH_INTERVAL: Duration = Duration::from_secs(10);

/// Where the keys of an issuer are published.
#[derive(Debug)]
pub(crate) enum KeySetSource {
    /// Named by the discovery document of this OpenID Connect issuer.
    Issuer(String),
    /// At this URL.
    Url(String),
}

/// The outcome of checking a token.
#[derive(Debug)]
pub(crate) enum TokenCheck {
    /// The issuer has signed it; the claims are not checked yet.
    Claims(Value),
    Refused(TokenRefusal),
    /// The keys cannot be fetched now, so the token cannot be checked.
    NoKeys,
}

/// An issuer. Cheap to clone; clones share the cache.
#[derive(Debug, Clone)]
pub(crate) struct Issuer(Arc<IssuerInner>);

#[derive(Debug)]
struct IssuerInner {
    /// The name of the setting that configures it.
    setting: &'static str,
    source: KeySetSource,
    algorithm: Algorithm,
    documents: Box<dyn Documents>,
    cache: Mutex<IssuerKeys>,
    /// Held by the task that fetches the keys for all callers.
    refresh_lock: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct IssuerKeys {
    keys: Arc<PublicKeys>,
    since: Option<Instant>,
    fetched_at: Option<Instant>,
    /// The last fetch failed.
    is_unavailable: bool,
}

impl Issuer {
    pub fn new(
        setting: &'static str,
        source: KeySetSource,
        algorithm: Algorithm,
        documents: Box<dyn Documents>,
    ) -> Self {
        let (cache, refresh_lock) = (Mutex::default(), tokio::sync::Mutex::default());
        Self(Arc::new(IssuerInner { setting, source, algorithm, documents, cache, refresh_lock }))
    }

    /// Checks the signature of a token.
    pub async fn check(&self, token: &str) -> TokenCheck {
        let token = match SignedToken::parse(token, self.0.algorithm) {
            Ok(token) => token,
            Err(refusal) => return TokenCheck::Refused(refusal),
        };
        let keys = self.keys_for(token.head.kid.as_deref()).await;
        if keys.is_empty() {
            return TokenCheck::NoKeys;
        }
        match token.verify(self.0.algorithm, &keys) {
            Ok(claims) => TokenCheck::Claims(claims),
            // It may be signed with a new key that we cannot fetch.
            Err(TokenRefusal::UnknownKey) if self.cache().is_unavailable => TokenCheck::NoKeys,
            Err(refusal) => TokenCheck::Refused(refusal),
        }
    }

    /// Returns the keys, fetched again if this one is not among them.
    pub(super) async fn keys_for(&self, id: Option<&str>) -> Arc<PublicKeys> {
        let (keys, since) = self.cached_keys();
        if keys.has(id) {
            if since.is_some_and(|since| since.elapsed() > KEYS_REFRESH_AFTER) && self.may_fetch() {
                let issuer = self.clone();
                tokio::spawn(async move { issuer.refresh().await });
            }
            return keys;
        }
        let _turn = self.0.refresh_lock.lock().await;
        // The task before us may have fetched it.
        let (keys, _) = self.cached_keys();
        if keys.has(id) || !self.may_fetch() {
            return keys;
        }
        self.refresh().await;
        self.cached_keys().0
    }

    fn cached_keys(&self) -> (Arc<PublicKeys>, Option<Instant>) {
        let cache = self.cache();
        (cache.keys.clone(), cache.since)
    }

    /// Returns whether a fetch is due, and counts it.
    fn may_fetch(&self) -> bool {
        let mut cache = self.cache();
        let is_time = cache.fetched_at.is_none_or(|at| at.elapsed() >= MIN_FETCH_INTERVAL);
        if is_time {
            cache.fetched_at = Some(Instant::now());
        }
        is_time
    }

    /// Fetches the keys. The cached ones stay if the issuer does not answer.
    async fn refresh(&self) {
        let fetched = self.fetch().await;
        let mut cache = self.cache();
        cache.is_unavailable = fetched.is_err();
        match fetched {
            Ok(keys) => {
                cache.keys = Arc::new(keys);
                cache.since = Some(Instant::now());
            }
            Err(e) => tracing::warn!(
                setting = self.0.setting,
                error = redact_for_log(&format_args!("{e:#}")),
                "issuer keys not fetched"
            ),
        }
    }

    async fn fetch(&self) -> anyhow::Result<PublicKeys> {
        let IssuerInner { source, algorithm, documents, .. } = &*self.0;
        let set = match source {
            KeySetSource::Url(url) => documents.get(url).await?,
            KeySetSource::Issuer(issuer) => {
                let url = format!("{}/.well-known/openid-configuration", issuer.trim_end_matches('/'));
                let about = documents.get(&url).await?;
                anyhow::ensure!(
                    about["issuer"] == issuer.as_str(),
                    "the document names another issuer: {}",
                    about["issuer"]
                );
                let jwks = about["jwks_uri"].as_str().filter(|url| is_safe_url(url));
                let jwks = jwks.ok_or_else(|| anyhow::anyhow!("jwks_uri is missing or not https"))?;
                documents.get(jwks).await?
            }
        };
        let keys = PublicKeys::read(&set, *algorithm);
        anyhow::ensure!(!keys.is_empty(), "the key set has no key for the configured algorithm");
        Ok(keys)
    }

    fn cache(&self) -> MutexGuard<'_, IssuerKeys> {
        self.0.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
