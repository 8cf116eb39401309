//! The key of a service account, and the assertions that it signs (RFC 7523): with one a domain's mailbox can be opened
//! without its owner.

use domain::Secret;
use jiff::Timestamp;
use ring::rsa::KeyPair;
use ring::signature::RSA_PKCS1_SHA256;
use serde::Deserialize;
use serde_json::json;

use crate::oauth::signing::{BACKDATED_SECONDS, GOOD_FOR_SECONDS, read_key, sign};

/// What is wrong with a key file; it completes the sentence "it …".
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NotAServiceAccount(pub &'static str);

#[derive(Debug)]
pub struct ServiceAccount {
    /// `…@….iam.gserviceaccount.com`
    pub email: String,
    key_id: String,
    key: KeyPair,
}

#[derive(Deserialize)]
struct KeyFile {
    #[serde(rename = "type")]
    kind: Option<String>,
    client_email: Option<String>,
    private_key: Option<String>,
    private_key_id: Option<String>,
    /// Of a file for an OAuth client, which is easily taken for this one.
    web: Option<serde::de::IgnoredAny>,
    installed: Option<serde::de::IgnoredAny>,
}

impl ServiceAccount {
    pub fn parse(text: &Secret<String>) -> Result<Self, NotAServiceAccount> {
        let wrong = NotAServiceAccount;
        let file: KeyFile = serde_json::from_str(text.expose()).map_err(|_| wrong("is not JSON of a key file"))?;
        if file.web.is_some() || file.installed.is_some() {
            return Err(wrong("is the file of an OAuth client; its values belong in client_id and client_secret"));
        }
        if file.kind.as_deref() != Some("service_account") {
            return Err(wrong("is not of the type \"service_account\""));
        }
        let email = file.client_email.filter(|email| email.contains('@')).ok_or(wrong("has no client_email"))?;
        let key_id = file.private_key_id.ok_or(wrong("has no private_key_id"))?;
        let pem = Secret::new(file.private_key.ok_or(wrong("has no private_key"))?);
        let key = read_key(pem.expose()).ok_or(wrong("has a private_key that is not an RSA key"))?;
        Ok(Self { email, key_id, key })
    }

    /// That we may act for this person. `None`: the system gives no random bytes.
    pub fn assertion(&self, subject: &str, scope: &str, audience: &str, now: Timestamp) -> Option<Secret<String>> {
        let now = now.as_second();
        let head = json!({"alg": "RS256", "typ": "JWT", "kid": self.key_id});
        let claims = json!({
            "iss": self.email, "sub": subject, "scope": scope, "aud": audience,
            "iat": now - BACKDATED_SECONDS, "exp": now + GOOD_FOR_SECONDS,
        });
        sign(&self.key, &RSA_PKCS1_SHA256, &head, &claims)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(text: &str) -> &'static str {
        ServiceAccount::parse(&Secret::new(text.to_owned())).unwrap_err().0
    }

    #[test]
    fn what_is_not_a_key_file_says_what_it_is_or_lacks() {
        assert_eq!(refusal("hello"), "is not JSON of a key file");
        assert_eq!(refusal(r#"{"type": "authorized_user"}"#), "is not of the type \"service_account\"");
        assert!(refusal(r#"{"web": {"client_id": "x"}}"#).starts_with("is the file of an OAuth client"));
        let base = |rest: &str| format!(r#"{{"type": "service_account", "client_email": "a@b"{rest}}}"#);
        assert_eq!(refusal(r#"{"type": "service_account"}"#), "has no client_email");
        assert_eq!(refusal(&base("")), "has no private_key_id");
        assert_eq!(refusal(&base(r#", "private_key_id": "1""#)), "has no private_key");
        let key = r#", "private_key_id": "1", "private_key": "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n""#;
        assert!(refusal(&base(key)).starts_with("has a private_key that is not"));
    }
}
