//! Who we are, said with a signature: assertions as JSON web tokens (RFC 7523), by an RSA key from a file.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use domain::Secret;
use ring::rand::{SecureRandom, SystemRandom};
use ring::rsa::KeyPair;
use ring::signature::RsaEncoding;
use serde_json::Value;

/// How long an assertion is good: long enough for a slow line, and no longer than anybody allows.
pub const GOOD_FOR_SECONDS: i64 = 300;

/// A clock that is a little ahead of theirs must not make an assertion of the future.
pub const BACKDATED_SECONDS: i64 = 30;

/// `None`: the system gives no random bytes.
pub fn sign(key: &KeyPair, way: &'static dyn RsaEncoding, head: &Value, claims: &Value) -> Option<Secret<String>> {
    let part = |json: &Value| URL_SAFE_NO_PAD.encode(json.to_string());
    let signed = format!("{}.{}", part(head), part(claims));
    let mut signature = vec![0; key.public().modulus_len()];
    key.sign(way, &SystemRandom::new(), signed.as_bytes(), &mut signature).ok()?;
    Some(Secret::new(format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))))
}

/// A name that no other assertion has.
pub fn unique() -> Option<String> {
    let mut bytes = [0; 16];
    SystemRandom::new().fill(&mut bytes).ok()?;
    Some(URL_SAFE_NO_PAD.encode(bytes))
}

/// An RSA key from the armour that files have it in: PKCS #8, or the older PKCS #1.
pub fn read_key(pem: &str) -> Option<KeyPair> {
    if let Some(der) = inside(pem, "PRIVATE KEY") {
        return KeyPair::from_pkcs8(der.expose()).ok();
    }
    KeyPair::from_der(inside(pem, "RSA PRIVATE KEY")?.expose()).ok()
}

/// What the first piece of armour of this name holds.
pub fn inside(pem: &str, name: &str) -> Option<Secret<Vec<u8>>> {
    let text = pem.split_once(&format!("-----BEGIN {name}-----"))?.1.split_once(&format!("-----END {name}-----"))?.0;
    let packed = Secret::new(text.split_ascii_whitespace().collect::<String>());
    STANDARD.decode(packed.expose()).ok().map(Secret::new)
}
