//! Signs deliveries as Standard Webhooks specifies, so that receivers can use any of its libraries.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use domain::Secret;
use hmac::{Hmac, KeyInit, Mac};

/// The prefix of every secret, so that scanners for leaked secrets find it.
const SECRET_PREFIX: &str = "whsec_";

/// The limits of the standard.
const MIN_SECRET_BYTES: usize = 24;
const MAX_SECRET_BYTES: usize = 64;

/// As long as the output of HMAC-SHA-256.
const GENERATED_SECRET_BYTES: usize = 32;

/// The bytes of a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SigningKey(Secret<Vec<u8>>);

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be whsec_ followed by {MIN_SECRET_BYTES} to {MAX_SECRET_BYTES} bytes in Base64")]
pub struct InvalidSecret;

/// Generates a secret, in the form that its owner sees.
pub fn new_secret() -> anyhow::Result<Secret<String>> {
    let mut bytes = vec![0; GENERATED_SECRET_BYTES];
    getrandom::fill(&mut bytes).map_err(|e| anyhow::anyhow!("the system has no randomness: {e}"))?;
    let bytes = Secret::new(bytes);
    Ok(Secret::new(format!("{SECRET_PREFIX}{}", STANDARD.encode(bytes.expose()))))
}

impl SigningKey {
    pub fn parse(secret: &str) -> Result<Self, InvalidSecret> {
        let encoded = secret.strip_prefix(SECRET_PREFIX).ok_or(InvalidSecret)?;
        let bytes = Secret::new(STANDARD.decode(encoded).map_err(|_| InvalidSecret)?);
        match bytes.expose().len() {
            MIN_SECRET_BYTES..=MAX_SECRET_BYTES => Ok(Self(bytes)),
            _ => Err(InvalidSecret),
        }
    }

    fn sign(&self, id: &str, timestamp: i64, body: &[u8]) -> String {
        let mut mac = Hmac::<sha2::Sha256>::new_from_slice(self.0.expose()).expect("HMAC takes a key of any length");
        mac.update(format!("{id}.{timestamp}.").as_bytes());
        mac.update(body);
        format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
    }
}

/// Returns the header `webhook-signature`: a signature by each key, so that a receiver needs to know only one of them.
pub fn signature(keys: &[SigningKey], id: &str, timestamp: i64, body: &[u8]) -> String {
    keys.iter().map(|key| key.sign(id, timestamp, body)).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From the test of the standard's own libraries.
    #[test]
    fn signature_is_that_of_the_standard() {
        let key = SigningKey::parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let body = br#"{"test": 2432232314}"#;
        let signed = signature(&[key], "msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, body);
        assert_eq!(signed, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn each_secret_adds_a_signature() {
        let keys = [new_secret().unwrap(), new_secret().unwrap()].map(|it| SigningKey::parse(it.expose()).unwrap());
        assert_ne!(keys[0], keys[1]);
        let both = signature(&keys, "a", 1, b"x");
        let each: Vec<String> = keys.iter().map(|key| signature(std::slice::from_ref(key), "a", 1, b"x")).collect();
        assert_eq!(both, each.join(" "));
    }

    fn secret_of(bytes: usize) -> String {
        format!("{SECRET_PREFIX}{}", STANDARD.encode(vec![7; bytes]))
    }

    #[test]
    fn secret_needs_its_prefix_and_length() {
        assert!(
            SigningKey::parse(&secret_of(MIN_SECRET_BYTES)).is_ok()
                && SigningKey::parse(&secret_of(MAX_SECRET_BYTES)).is_ok()
        );
        for bad in [
            secret_of(MIN_SECRET_BYTES - 1),
            secret_of(MAX_SECRET_BYTES + 1),
            secret_of(32).replace("whsec_", ""),
            "whsec_%%%".into(),
            String::new(),
        ] {
            assert_eq!(SigningKey::parse(&bad), Err(InvalidSecret), "{bad}");
        }
        assert_eq!(format!("{:?}", SigningKey::parse(&secret_of(32)).unwrap()), "SigningKey(***)");
    }
}
