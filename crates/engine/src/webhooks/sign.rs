//! Signatures as Standard Webhooks has them, so that receivers can use any of its libraries.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use domain::Secret;
use hmac::{Hmac, KeyInit, Mac};

/// Begins every secret, so that tools which look for leaked ones find it.
const PREFIX: &str = "whsec_";

/// What the standard asks of a secret, in bytes.
const SHORTEST: usize = 24;
const LONGEST: usize = 64;

/// As long as what HMAC-SHA-256 makes of it.
const MADE: usize = 32;

/// The bytes of a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SigningKey(Secret<Vec<u8>>);

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a secret is whsec_ and {SHORTEST} to {LONGEST} bytes in Base64")]
pub struct NoSecret;

/// A new secret as its owner sees it.
pub fn new_secret() -> anyhow::Result<Secret<String>> {
    let mut bytes = vec![0; MADE];
    getrandom::fill(&mut bytes).map_err(|e| anyhow::anyhow!("the system has no randomness: {e}"))?;
    let bytes = Secret::new(bytes);
    Ok(Secret::new(format!("{PREFIX}{}", STANDARD.encode(bytes.expose()))))
}

impl SigningKey {
    pub fn parse(secret: &str) -> Result<Self, NoSecret> {
        let encoded = secret.strip_prefix(PREFIX).ok_or(NoSecret)?;
        let bytes = Secret::new(STANDARD.decode(encoded).map_err(|_| NoSecret)?);
        match bytes.expose().len() {
            SHORTEST..=LONGEST => Ok(Self(bytes)),
            _ => Err(NoSecret),
        }
    }

    fn sign(&self, id: &str, timestamp: i64, body: &[u8]) -> String {
        let mut mac = Hmac::<sha2::Sha256>::new_from_slice(self.0.expose()).expect("HMAC takes a key of any length");
        mac.update(format!("{id}.{timestamp}.").as_bytes());
        mac.update(body);
        format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
    }
}

/// The header `webhook-signature`: one by each key, so that a receiver that knows any of them is content.
pub fn signature(keys: &[SigningKey], id: &str, timestamp: i64, body: &[u8]) -> String {
    keys.iter().map(|key| key.sign(id, timestamp, body)).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From the test of the standard's own libraries.
    #[test]
    fn it_signs_as_the_standard_does() {
        let key = SigningKey::parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let body = br#"{"test": 2432232314}"#;
        let signed = signature(&[key], "msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, body);
        assert_eq!(signed, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn each_secret_signs() {
        let keys = [new_secret().unwrap(), new_secret().unwrap()].map(|it| SigningKey::parse(it.expose()).unwrap());
        assert_ne!(keys[0], keys[1]);
        let both = signature(&keys, "a", 1, b"x");
        let each: Vec<String> = keys.iter().map(|key| signature(std::slice::from_ref(key), "a", 1, b"x")).collect();
        assert_eq!(both, each.join(" "));
    }

    #[test]
    fn a_secret_has_the_right_beginning_and_length() {
        let of = |bytes: usize| format!("{PREFIX}{}", STANDARD.encode(vec![7; bytes]));
        assert!(SigningKey::parse(&of(SHORTEST)).is_ok() && SigningKey::parse(&of(LONGEST)).is_ok());
        for bad in [of(SHORTEST - 1), of(LONGEST + 1), of(32).replace("whsec_", ""), "whsec_%%%".into(), String::new()]
        {
            assert_eq!(SigningKey::parse(&bad), Err(NoSecret), "{bad}");
        }
        assert_eq!(format!("{:?}", SigningKey::parse(&of(32)).unwrap()), "SigningKey(***)");
    }
}
