//! Somebody who signs pushes as Google does, and tells the public halves of the keys to whoever asks.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use domain::{Clock, Secret};
use engine::Vault;
use engine::credentials::secrets::KeySource;
use engine::sync::push::PushReceiver;
use futures_util::future::BoxFuture;
use jwt::Documents;
use providers::gmail::{GmailPushReader, GmailPushSettings};
use ring::rand::SystemRandom;
use ring::rsa::{KeyPair, PublicKeyComponents};
use serde_json::{Value, json};
use store::Store;

const KEYS: [&[u8]; 2] =
    [include_bytes!("../../../../sim/src/keys/issuer-1.der"), include_bytes!("../../../../sim/src/keys/issuer-2.der")];

pub const AUDIENCE: &str = "https://mail.example/v1/hooks/gmail";
pub const ACCOUNT: &str = "push@project.iam.gserviceaccount.com";

#[derive(Debug, Clone, Default)]
pub struct Google(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// Those that it tells, by what they are called.
    told: Mutex<Vec<(String, usize)>>,
    asked: AtomicUsize,
    is_away: AtomicBool,
}

impl Documents for Google {
    fn get<'a>(&'a self, _url: &'a str) -> BoxFuture<'a, anyhow::Result<Value>> {
        Box::pin(async move {
            anyhow::ensure!(!self.0.is_away.load(Ordering::SeqCst), "away");
            self.0.asked.fetch_add(1, Ordering::SeqCst);
            let told = self.0.told.lock().unwrap();
            Ok(json!({"keys": told.iter().map(|(id, key)| jwk(id, *key)).collect::<Vec<_>>()}))
        })
    }
}

fn key(number: usize) -> KeyPair {
    KeyPair::from_pkcs8(KEYS[number]).unwrap()
}

pub fn jwk(id: &str, number: usize) -> Value {
    let public = PublicKeyComponents::<Vec<u8>>::from(key(number).public());
    let (n, e) = (URL_SAFE_NO_PAD.encode(public.n), URL_SAFE_NO_PAD.encode(public.e));
    json!({"kty": "RSA", "alg": "RS256", "use": "sig", "kid": id, "n": n, "e": e})
}

impl Google {
    pub fn with_key(id: &str) -> Self {
        let google = Self::default();
        google.add_key(id, 0);
        google
    }

    pub fn add_key(&self, id: &str, number: usize) {
        self.0.told.lock().unwrap().push((id.to_owned(), number));
    }

    pub fn asked(&self) -> usize {
        self.0.asked.load(Ordering::SeqCst)
    }

    pub fn set_away(&self, is_away: bool) {
        self.0.is_away.store(is_away, Ordering::SeqCst);
    }

    pub fn pushes(&self, store: &Store) -> PushReceiver {
        let settings = GmailPushSettings {
            jwks_url: "https://keys.example/certs".to_owned(),
            audience: AUDIENCE.to_owned(),
            service_account: ACCOUNT.to_owned(),
        };
        let vault = Vault::new(store.clone(), KeySource::Given(Secret::new("7b".repeat(32))));
        let reader = GmailPushReader::new(settings, Box::new(self.clone()));
        PushReceiver::new(store.clone(), vault, Arc::new(reader))
    }
}

pub fn claims() -> Value {
    let now = domain::SystemClock.now().as_second();
    json!({"iss": "https://accounts.google.com", "aud": AUDIENCE, "email": ACCOUNT, "email_verified": true,
        "iat": now - 5, "exp": now + 3600, "sub": "1", "azp": "1"})
}

pub fn changed(claim: &str, value: Value) -> Value {
    let mut claims = claims();
    claims[claim] = value;
    claims
}

pub fn sign(head: &Value, number: usize, claims: &Value) -> String {
    let signed = [head, claims].map(|value| URL_SAFE_NO_PAD.encode(value.to_string())).join(".");
    let key = key(number);
    let mut signature = vec![0; key.public().modulus_len()];
    key.sign(&ring::signature::RSA_PKCS1_SHA256, &SystemRandom::new(), signed.as_bytes(), &mut signature).unwrap();
    format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
}

pub fn token(id: &str, number: usize, claims: &Value) -> String {
    sign(&json!({"alg": "RS256", "kid": id, "typ": "JWT"}), number, claims)
}

/// A delivery of Pub/Sub.
pub fn push(message: &str, address: &str, history: u64) -> Vec<u8> {
    let data = STANDARD.encode(json!({"emailAddress": address, "historyId": history}).to_string());
    let message =
        json!({"messageId": message, "message_id": message, "data": data, "publishTime": "2026-11-15T10:00:00Z"});
    json!({"message": message, "subscription": "projects/p/subscriptions/s"}).to_string().into_bytes()
}
