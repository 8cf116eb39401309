//! The consent page of OAuth sign-in, and checks that both sign-in servers share.

pub mod page;

use serde::{Deserialize, Serialize};

/// The simulated person's behaviour on the consent page.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Consent {
    /// Whether the page is skipped and answered at once.
    pub auto: bool,
    /// The account that signs in. `None`: the one in the login hint, or else the first account.
    pub account: Option<String>,
    /// Scopes that the person unticks.
    pub unticked: Vec<String>,
    pub denied: bool,
}

/// The tokens that a grant issues.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IssuedTokens {
    pub access_token: String,
    pub refresh_token: Option<String>,
    pub expires_in: i64,
    pub scopes: Vec<String>,
}

/// Returns whether a redirect URI is on a loopback host, which needs no registration.
pub fn is_loopback(uri: &str) -> bool {
    let Some(rest) = uri.strip_prefix("http://").or_else(|| uri.strip_prefix("https://")) else { return false };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = authority.rsplit_once(':').map_or(authority, |(host, port)| match port.parse::<u16>() {
        Ok(_) => host,
        Err(_) => authority,
    });
    matches!(host, "localhost" | "127.0.0.1" | "[::1]")
}

/// Returns whether the text can be a PKCE challenge: SHA-256 in base64url has 43 letters.
pub fn is_challenge(text: &str) -> bool {
    text.len() == 43 && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
}

/// Returns whether the PKCE verifier matches the challenge (RFC 7636).
pub fn is_verified(verifier: &str, challenge: &str) -> bool {
    use base64::Engine;
    let digest = ring::digest::digest(&ring::digest::SHA256, verifier.as_bytes());
    (43..=128).contains(&verifier.len())
        && verifier.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte))
        && base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(digest) == challenge
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_local_hosts_are_loopback() {
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
