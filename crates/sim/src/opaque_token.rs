//! Opaque tokens: JSON with a checksum, in base64url.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Serialize;
use serde::de::DeserializeOwned;

pub fn encode(seed: u64, what: &impl Serialize) -> String {
    let text = serde_json::to_string(what).unwrap_or_default();
    URL_SAFE_NO_PAD.encode(format!("{:016x}{text}", checksum(seed, &text)))
}

/// Decodes a token. Returns `None` if it was altered or written with another seed.
pub fn decode<T: DeserializeOwned>(seed: u64, word: &str) -> Option<T> {
    let text = String::from_utf8(URL_SAFE_NO_PAD.decode(word).ok()?).ok()?;
    let (given, text) = text.split_at_checked(16)?;
    if given != format!("{:016x}", checksum(seed, text)) {
        return None;
    }
    serde_json::from_str(text).ok()
}

pub fn checksum(seed: u64, text: &str) -> u64 {
    text.bytes()
        .fold(seed ^ 14_695_981_039_346_656_037, |sum, byte| (sum ^ u64::from(byte)).wrapping_mul(1_099_511_628_211))
}
