//! Signing keys and JWTs. The keys protect nothing: they are in the repository.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ring::rand::SystemRandom;
use ring::rsa::{KeyPair, PublicKeyComponents};
use ring::signature::{RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_SHA256};
use serde_json::{Value, json};

const ISSUERS: [&[u8]; 2] = [include_bytes!("keys/issuer-1.der"), include_bytes!("keys/issuer-2.der")];

/// The keys that sign id tokens and pushes. Each rotation switches between two keys under a new id.
#[derive(Debug)]
pub struct SigningKeys {
    pairs: [KeyPair; 2],
    generation: usize,
    /// Whether the previous key is still published.
    is_old_published: bool,
}

impl Default for SigningKeys {
    fn default() -> Self {
        Self { pairs: ISSUERS.map(read), generation: 1, is_old_published: false }
    }
}

/// Reads a key that is part of the program.
pub fn read(pkcs8: &[u8]) -> KeyPair {
    KeyPair::from_pkcs8(pkcs8).expect("the keys are part of the program, and a test signs with them")
}

impl SigningKeys {
    /// Switches to the other key. The old one stays published unless `is_old_forgotten`.
    pub fn rotate(&mut self, is_old_forgotten: bool) {
        self.generation += 1;
        self.is_old_published = !is_old_forgotten;
    }

    pub fn key_id(&self) -> String {
        name(self.generation)
    }

    pub fn sign(&self, claims: &Value) -> String {
        sign(&self.pairs[self.generation % 2], &self.key_id(), claims)
    }

    pub fn published(&self) -> Value {
        let mut keys = vec![jwk(&self.pairs[self.generation % 2], &self.key_id())];
        if self.is_old_published {
            keys.push(jwk(&self.pairs[(self.generation - 1) % 2], &name(self.generation - 1)));
        }
        json!({"keys": keys})
    }
}

fn name(generation: usize) -> String {
    format!("sim-key-{generation}")
}

pub fn components(pair: &KeyPair) -> PublicKeyComponents<Vec<u8>> {
    PublicKeyComponents::from(pair.public())
}

fn jwk(pair: &KeyPair, key_id: &str) -> Value {
    let public = components(pair);
    let [n, e] = [public.n, public.e].map(|number| URL_SAFE_NO_PAD.encode(number));
    json!({"kty": "RSA", "alg": "RS256", "use": "sig", "kid": key_id, "n": n, "e": e})
}

/// Signs claims with RS256.
pub fn sign(pair: &KeyPair, key_id: &str, claims: &Value) -> String {
    let header = json!({"alg": "RS256", "kid": key_id, "typ": "JWT"});
    let [header, claims] = [&header, claims].map(|part| URL_SAFE_NO_PAD.encode(part.to_string()));
    let signed = format!("{header}.{claims}");
    let mut signature = vec![0; pair.public().modulus_len()];
    pair.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), signed.as_bytes(), &mut signature)
        .expect("the signature has the length of the key");
    format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
}

/// Returns the claims of a token that this key signed with RS256.
pub fn open(token: &str, key_id: &str, public: &PublicKeyComponents<Vec<u8>>) -> Option<Value> {
    let (signed, signature) = token.rsplit_once('.')?;
    let (header, claims) = signed.split_once('.')?;
    let [header, claims, signature] = [header, claims, signature].map(|part| URL_SAFE_NO_PAD.decode(part).ok());
    let header: Value = serde_json::from_slice(&header?).ok()?;
    if header["alg"] != "RS256" || (!header["kid"].is_null() && header["kid"] != key_id) {
        return None;
    }
    public.verify(&RSA_PKCS1_2048_8192_SHA256, signed.as_bytes(), &signature?).ok()?;
    serde_json::from_slice(&claims?).ok()
}

/// Encodes DER as PEM.
pub fn pem(label: &str, der: &[u8]) -> String {
    let base64 = STANDARD.encode(der);
    let lines: Vec<&str> = base64.as_bytes().chunks(64).filter_map(|line| std::str::from_utf8(line).ok()).collect();
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rotation_publishes_a_new_key_id() {
        let mut keys = SigningKeys::default();
        let first = keys.published()["keys"][0].clone();

        keys.rotate(false);

        let published = keys.published();
        assert_eq!(published["keys"][1], first);
        assert_ne!(published["keys"][0]["n"], first["n"]);
        keys.rotate(true);
        assert_eq!(keys.published()["keys"].as_array().unwrap().len(), 1);
        assert_ne!(keys.published()["keys"][0]["kid"], first["kid"]);
    }
}
