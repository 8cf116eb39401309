//! Tokens as an OpenID Connect issuer signs them in place of API keys, and pushes of Gmail as Google signs them.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use domain::{Clock, SystemClock};
use ring::rand::SystemRandom;
use ring::rsa::{self, PublicKeyComponents};
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _, RSA_PKCS1_SHA256};
use serde_json::{Value, json};

/// A key that protects nothing.
const GOOGLE_KEY: &[u8] = include_bytes!("../../sim/src/keys/issuer-1.der");

/// An issuer that signs with an ES256 key of its own.
#[derive(Debug)]
pub struct TokenIssuer {
    pub url: String,
    key: EcdsaKeyPair,
}

impl TokenIssuer {
    pub fn new(url: impl Into<String>) -> Self {
        let random = SystemRandom::new();
        let generated = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).unwrap();
        let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, generated.as_ref(), &random).unwrap();
        Self { url: url.into(), key }
    }

    /// The document that it publishes under this URL or path: its public keys, or where they are.
    pub fn document(&self, url: &str) -> Value {
        if !url.ends_with("/keys") {
            return json!({"issuer": self.url, "jwks_uri": format!("{}/keys", self.url)});
        }
        let point = self.key.public_key().as_ref();
        let (x, y) = (URL_SAFE_NO_PAD.encode(&point[1..33]), URL_SAFE_NO_PAD.encode(&point[33..65]));
        json!({"keys": [{"kty": "EC", "crv": "P-256", "kid": "one", "use": "sig", "x": x, "y": y}]})
    }

    /// What a good token claims: to read what is of the tenant `acme`, for ten minutes.
    pub fn claims(&self) -> Value {
        let now = SystemClock.now().as_second();
        json!({"iss": self.url, "aud": "mailroom", "sub": "ann", "exp": now + 600, "tenant_id": "acme", "scope": "read"})
    }

    pub fn sign(&self, head: &Value, claims: &Value) -> String {
        sign(head, claims, |signed| self.key.sign(&SystemRandom::new(), signed).unwrap().as_ref().to_vec())
    }

    pub fn good_token(&self) -> String {
        self.token_with("sub", json!("ann"))
    }

    /// A good token, but for this claim.
    pub fn token_with(&self, claim: &str, value: Value) -> String {
        let mut claims = self.claims();
        claims[claim] = value;
        self.sign(&json!({"alg": "ES256", "kid": "one", "typ": "at+jwt"}), &claims)
    }
}

fn sign(head: &Value, claims: &Value, signature: impl FnOnce(&[u8]) -> Vec<u8>) -> String {
    let signed = [head, claims].map(|part| URL_SAFE_NO_PAD.encode(part.to_string())).join(".");
    let signature = signature(signed.as_bytes());
    format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
}

/// Google, which signs the pushes of one subscription with RS256.
#[derive(Debug)]
pub struct GmailPusher(rsa::KeyPair);

impl Default for GmailPusher {
    fn default() -> Self {
        Self(rsa::KeyPair::from_pkcs8(GOOGLE_KEY).unwrap())
    }
}

impl GmailPusher {
    pub const AUDIENCE: &str = "https://mail.example/v1/hooks/gmail";
    pub const ACCOUNT: &str = "push@project.iam.gserviceaccount.com";

    pub fn public_keys(&self) -> Value {
        let public = PublicKeyComponents::<Vec<u8>>::from(self.0.public());
        let (n, e) = (URL_SAFE_NO_PAD.encode(public.n), URL_SAFE_NO_PAD.encode(public.e));
        json!({"keys": [{"kty": "RSA", "alg": "RS256", "use": "sig", "kid": "one", "n": n, "e": e}]})
    }

    pub fn good_token(&self) -> String {
        self.token_with("sub", json!("1"))
    }

    /// A good token, but for this claim.
    pub fn token_with(&self, claim: &str, value: Value) -> String {
        let now = SystemClock.now().as_second();
        let mut claims = json!({"iss": "https://accounts.google.com", "aud": Self::AUDIENCE, "email": Self::ACCOUNT,
            "email_verified": true, "iat": now, "exp": now + 3600, "sub": "1"});
        claims[claim] = value;
        sign(&json!({"alg": "RS256", "kid": "one"}), &claims, |signed| {
            let mut signature = vec![0; self.0.public().modulus_len()];
            self.0.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), signed, &mut signature).unwrap();
            signature
        })
    }

    /// The body of a push: something has happened in the mailbox of this address.
    pub fn push(message: &str, address: &str) -> Vec<u8> {
        let data = STANDARD.encode(json!({"emailAddress": address, "historyId": "987"}).to_string());
        json!({"message": {"messageId": message, "data": data}, "subscription": "s"}).to_string().into_bytes()
    }
}
