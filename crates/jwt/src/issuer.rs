//! An issuer of signed tokens, with a cache of its public keys, which are fetched when they are needed.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use domain::{Clock, redact_for_log};
use futures_util::future::BoxFuture;
use serde_json::Value;
use tokio::time::Instant;

use crate::claims::ExpectedClaims;
use crate::safe_url::is_safe_url;
use crate::signed_token::{Algorithm, PublicKeys, SignedToken, TokenRefusal};

/// The age at which the keys are fetched again in the background, so that a withdrawn key is dropped.
const KEYS_REFRESH_AFTER: Duration = Duration::from_secs(600);

/// The keys are fetched at most this often, however many tokens come with unknown keys.
const MIN_FETCH_INTERVAL: Duration = Duration::from_secs(10);

/// Fetches JSON documents of an issuer, within a short timeout.
pub trait Documents: fmt::Debug + Send + Sync {
    fn get<'a>(&'a self, url: &'a str) -> BoxFuture<'a, anyhow::Result<Value>>;
}

/// Where the keys of an issuer are published.
#[derive(Debug)]
pub enum KeySetSource {
    /// Named by the discovery document of this OpenID Connect issuer.
    Issuer(String),
    /// At this URL.
    Url(String),
}

/// An issuer. Cheap to clone; clones share the cache.
#[derive(Debug, Clone)]
pub struct Issuer(Arc<IssuerInner>);

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

    /// Checks a token: its signature, then what its claims say. Returns the claims.
    pub async fn check(
        &self,
        token: &str,
        expected: ExpectedClaims<'_>,
        clock: &dyn Clock,
    ) -> Result<Value, TokenRefusal> {
        let token = SignedToken::parse(token, self.0.algorithm)?;
        let keys = self.keys_for(token.head.kid.as_deref()).await;
        if keys.is_empty() {
            return Err(TokenRefusal::NoKeys);
        }
        let claims = token.verify(self.0.algorithm, &keys).map_err(|refusal| match refusal {
            // It may be signed with a new key that we cannot fetch.
            TokenRefusal::UnknownKey if self.cache().is_unavailable => TokenRefusal::NoKeys,
            refusal => refusal,
        })?;
        expected.check(&claims, clock)?;
        Ok(claims)
    }

    /// Returns the keys, fetched again if this one is not among them.
    async fn keys_for(&self, id: Option<&str>) -> Arc<PublicKeys> {
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    use ring::rand::SystemRandom;
    use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
    use serde_json::json;

    use super::*;

    const ISSUER: &str = "https://login.example";

    /// Counts how often its keys are fetched.
    #[derive(Debug, Default)]
    struct KeyServer {
        keys: Mutex<Vec<Value>>,
        asked: AtomicUsize,
        is_away: AtomicBool,
    }

    #[derive(Debug, Clone, Default)]
    struct KeyDocuments(Arc<KeyServer>);

    impl Documents for KeyDocuments {
        fn get<'a>(&'a self, url: &'a str) -> BoxFuture<'a, anyhow::Result<Value>> {
            Box::pin(async move {
                anyhow::ensure!(!self.0.is_away.load(Ordering::SeqCst), "it is away");
                if url.ends_with("/.well-known/openid-configuration") {
                    self.0.asked.fetch_add(1, Ordering::SeqCst);
                    return Ok(json!({"issuer": ISSUER, "jwks_uri": "https://login.example/keys"}));
                }
                Ok(json!({"keys": *self.0.keys.lock().unwrap()}))
            })
        }
    }

    impl KeyDocuments {
        fn issuer(&self) -> Issuer {
            let source = KeySetSource::Issuer(ISSUER.to_owned());
            Issuer::new("auth.oidc.issuer", source, Algorithm::Es256, Box::new(self.clone()))
        }

        fn add_key(&self, id: &str) {
            let random = SystemRandom::new();
            let made = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).unwrap();
            let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, made.as_ref(), &random).unwrap();
            let [x, y] = [1..33, 33..65].map(|range| URL_SAFE_NO_PAD.encode(&key.public_key().as_ref()[range]));
            let jwk = json!({"kty": "EC", "crv": "P-256", "use": "sig", "kid": id, "x": x, "y": y});
            self.0.keys.lock().unwrap().push(jwk);
        }

        fn set_away(&self, is_away: bool) {
            self.0.is_away.store(is_away, Ordering::SeqCst);
        }

        fn asked(&self) -> usize {
            self.0.asked.load(Ordering::SeqCst)
        }
    }

    #[tokio::test(start_paused = true)]
    async fn unknown_keys_are_fetched_at_most_once_per_interval() {
        let server = KeyDocuments::default();
        let issuer = server.issuer();
        server.set_away(true);
        assert!(issuer.keys_for(Some("one")).await.is_empty());
        server.set_away(false);
        server.add_key("one");
        tokio::time::advance(MIN_FETCH_INTERVAL).await;
        assert!(issuer.keys_for(Some("one")).await.has(Some("one")));
        assert_eq!(server.asked(), 1);

        server.add_key("two");
        let storm = (0..100).map(|number| {
            let issuer = issuer.clone();
            async move { issuer.keys_for(Some(&format!("nobody's {number}"))).await }
        });
        futures_util::future::join_all(storm).await;
        assert_eq!(server.asked(), 1, "it was asked a moment ago");
        tokio::time::advance(MIN_FETCH_INTERVAL).await;
        assert!(issuer.keys_for(Some("two")).await.has(Some("one")), "one key follows the other");
        assert_eq!(server.asked(), 2);

        server.set_away(true);
        tokio::time::advance(KEYS_REFRESH_AFTER * 9).await;
        assert!(issuer.keys_for(Some("two")).await.has(Some("two")), "it is old, and all there is");
        server.set_away(false);
        server.0.keys.lock().unwrap().remove(0);
        tokio::time::advance(MIN_FETCH_INTERVAL).await;
        while issuer.keys_for(Some("two")).await.has(Some("one")) {
            tokio::task::yield_now().await; // the one that was withdrawn is forgotten beside what goes on
        }
        assert_eq!(server.asked(), 3);
    }
}
