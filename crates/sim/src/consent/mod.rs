//! The page that asks people what they allow, and what they do with it.

pub mod page;

use serde::{Deserialize, Serialize};

/// What people do with the page that asks for their consent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Consent {
    /// The page is not shown: somebody has clicked already.
    pub auto: bool,
    /// Who they are; nothing: whom the login hint names, or the first account.
    pub account: Option<String>,
    /// Scopes that they untick.
    pub unticked: Vec<String>,
    pub denied: bool,
}

/// What somebody who may read a mailbox has in hand.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Granted {
    pub access_token: String,
    pub refresh_token: Option<String>,
    pub expires_in: i64,
    pub scopes: Vec<String>,
}

/// Whether a person is sent back to their own machine, which needs no registration.
pub fn is_loopback(uri: &str) -> bool {
    let Some(rest) = uri.strip_prefix("http://").or_else(|| uri.strip_prefix("https://")) else { return false };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = authority.rsplit_once(':').map_or(authority, |(host, port)| match port.parse::<u16>() {
        Ok(_) => host,
        Err(_) => authority,
    });
    matches!(host, "localhost" | "127.0.0.1" | "[::1]")
}

/// SHA-256 in base64url has 43 letters.
pub fn is_challenge(text: &str) -> bool {
    text.len() == 43 && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
}

/// Whether this is what a challenge was made of (RFC 7636).
pub fn is_verified(verifier: &str, challenge: &str) -> bool {
    use base64::Engine;
    let is_known = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let digest = ring::digest::digest(&ring::digest::SHA256, verifier.as_bytes());
    (43..=128).contains(&verifier.len())
        && verifier.bytes().all(is_known)
        && base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(digest) == challenge
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_machine_is_loopback() {
        for uri in ["http://127.0.0.1:8025/cb", "http://localhost/cb", "http://[::1]:1/", "https://localhost"] {
            assert!(is_loopback(uri), "{uri}");
        }
        for uri in
            ["http://127.0.0.1.evil.test/", "http://localhost@evil.test/", "ftp://localhost/", "", "http://x.test"]
        {
            assert!(!is_loopback(uri), "{uri}");
        }
    }
}
