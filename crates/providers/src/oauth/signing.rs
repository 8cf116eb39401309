//! Signs assertions: JSON Web Tokens (RFC 7523) by an RSA key from a file.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use domain::Secret;
use ring::rand::{SecureRandom, SystemRandom};
use ring::rsa::KeyPair;
use ring::signature::RsaEncoding;
use serde_json::Value;

/// How long an assertion is valid: long enough for a slow line, and less than every provider's limit.
pub const ASSERTION_LIFETIME_SECONDS: i64 = 300;

/// How far assertions are backdated, so that one by a clock that is a little fast is valid at once.
pub const ASSERTION_BACKDATE_SECONDS: i64 = 30;

/// Signs a JWT. Returns `None` if the system has no random bytes.
pub fn sign(key: &KeyPair, encoding: &'static dyn RsaEncoding, head: &Value, claims: &Value) -> Option<Secret<String>> {
    let [head, claims] = [head, claims].map(|json| URL_SAFE_NO_PAD.encode(json.to_string()));
    let signed = format!("{head}.{claims}");
    let mut signature = vec![0; key.public().modulus_len()];
    key.sign(encoding, &SystemRandom::new(), signed.as_bytes(), &mut signature).ok()?;
    Some(Secret::new(format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))))
}

/// Returns a random `jti`, or `None` if the system has no random bytes.
pub fn random_id() -> Option<String> {
    let mut bytes = [0; 16];
    SystemRandom::new().fill(&mut bytes).ok()?;
    Some(URL_SAFE_NO_PAD.encode(bytes))
}

/// Reads an RSA key from PEM: PKCS #8, or the older PKCS #1.
pub fn read_key(pem: &str) -> Option<KeyPair> {
    if let Some(der) = pem_section(pem, "PRIVATE KEY") {
        return KeyPair::from_pkcs8(der.expose()).ok();
    }
    KeyPair::from_der(pem_section(pem, "RSA PRIVATE KEY")?.expose()).ok()
}

/// Returns the decoded content of the first PEM section of this name.
pub fn pem_section(pem: &str, name: &str) -> Option<Secret<Vec<u8>>> {
    let text = pem.split_once(&format!("-----BEGIN {name}-----"))?.1.split_once(&format!("-----END {name}-----"))?.0;
    let packed = Secret::new(text.split_ascii_whitespace().collect::<String>());
    STANDARD.decode(packed.expose()).ok().map(Secret::new)
}
