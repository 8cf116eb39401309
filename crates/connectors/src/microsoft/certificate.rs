//! A certificate in the place of a secret, and the assertions that its key signs: what was sent is of no use to whoever
//! reads it later, and the key never leaves us.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use domain::{Secret, Sha256};
use jiff::Timestamp;
use ring::rsa::KeyPair;
use ring::signature::RSA_PSS_SHA256;
use serde_json::json;

use crate::oauth::signing::{BACKDATED_SECONDS, GOOD_FOR_SECONDS, inside, read_key, sign, unique};

/// What is wrong with a file; it completes the sentence "it …".
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NotACertificate(pub &'static str);

#[derive(Debug)]
pub struct Certificate {
    /// The SHA-256 of the certificate, by which Microsoft finds it among those of the app.
    thumbprint: String,
    key: KeyPair,
}

impl Certificate {
    pub fn parse(text: &Secret<String>) -> Result<Self, NotACertificate> {
        let (wrong, pem) = (NotACertificate, text.expose());
        if pem.contains("-----BEGIN ENCRYPTED PRIVATE KEY-----") || pem.contains("Proc-Type: 4,ENCRYPTED") {
            return Err(wrong("has a private key with a password; store it without one"));
        }
        if pem.contains("-----BEGIN EC PRIVATE KEY-----") {
            return Err(wrong("has a private key that is not an RSA key"));
        }
        let certificate = inside(pem, "CERTIFICATE").ok_or(wrong("has no certificate in PEM"))?;
        if !pem.contains("PRIVATE KEY-----") {
            return Err(wrong("has no private key in PEM beside its certificate"));
        }
        let key = read_key(pem).ok_or(wrong("has a private key that is not an RSA key of 2048 bits or more"))?;
        // The certificate names its public key exactly as the key does.
        let public = key.public().as_ref();
        if !certificate.expose().windows(public.len()).any(|piece| piece == public) {
            return Err(wrong("has a private key that is not the certificate's"));
        }
        Ok(Self { thumbprint: URL_SAFE_NO_PAD.encode(Sha256::of(certificate.expose()).0), key })
    }

    /// That we are this client, to whoever is at this address. `None`: the system gives no random bytes.
    pub fn assertion(&self, client_id: &str, audience: &str, now: Timestamp) -> Option<Secret<String>> {
        let begin = now.as_second() - BACKDATED_SECONDS;
        let head = json!({"alg": "PS256", "typ": "JWT", "x5t#S256": self.thumbprint});
        let claims = json!({
            "iss": client_id, "sub": client_id, "aud": audience, "jti": unique()?,
            "nbf": begin, "iat": begin, "exp": begin + GOOD_FOR_SECONDS,
        });
        sign(&self.key, &RSA_PSS_SHA256, &head, &claims)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_a_certificate_with_its_key_says_what_it_is_or_lacks() {
        let refusal = |text: &str| Certificate::parse(&Secret::new(text.to_owned())).unwrap_err().0;
        let armour = |name: &str, text: &str| format!("-----BEGIN {name}-----\n{text}\n-----END {name}-----\n");
        let certificate = armour("CERTIFICATE", "AAAA");
        assert_eq!(refusal("hello"), "has no certificate in PEM");
        assert_eq!(refusal(&armour("PRIVATE KEY", "AAAA")), "has no certificate in PEM");
        assert_eq!(refusal(&certificate), "has no private key in PEM beside its certificate");
        let with = |name: &str| refusal(&format!("{certificate}{}", armour(name, "AAAA")));
        assert!(with("PRIVATE KEY").starts_with("has a private key that is not an RSA key of 2048"));
        assert!(with("RSA PRIVATE KEY").starts_with("has a private key that is not an RSA key of 2048"));
        assert!(with("EC PRIVATE KEY").ends_with("is not an RSA key"));
        assert!(with("ENCRYPTED PRIVATE KEY").contains("password"));
    }
}
