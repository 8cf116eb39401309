//! A service account's key and the JWT assertions that it signs (RFC 7523), with which a mailbox of a domain can be opened
//! without its owner.

use domain::Secret;
use jiff::Timestamp;
use ring::rsa::KeyPair;
use ring::signature::RSA_PKCS1_SHA256;
use serde::Deserialize;
use serde_json::json;

use crate::oauth::signing::{ASSERTION_BACKDATE_SECONDS, ASSERTION_LIFETIME_SECONDS, read_key, sign};

/// What is wrong with a key file, as the end of the sentence "the file …".
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidServiceAccount(pub &'static str);

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
    /// Present in the file of an OAuth client, which is easily mistaken for this one.
    web: Option<serde::de::IgnoredAny>,
    installed: Option<serde::de::IgnoredAny>,
}

impl ServiceAccount {
    pub fn parse(text: &Secret<String>) -> Result<Self, InvalidServiceAccount> {
        let file: KeyFile =
            serde_json::from_str(text.expose()).map_err(|_| InvalidServiceAccount("is not JSON of a key file"))?;
        if file.web.is_some() || file.installed.is_some() {
            return Err(InvalidServiceAccount(
                "is the file of an OAuth client; its values belong in client_id and client_secret",
            ));
        }
        if file.kind.as_deref() != Some("service_account") {
            return Err(InvalidServiceAccount("is not of the type \"service_account\""));
        }
        let email = file
            .client_email
            .filter(|email| email.contains('@'))
            .ok_or(InvalidServiceAccount("has no client_email"))?;
        let key_id = file.private_key_id.ok_or(InvalidServiceAccount("has no private_key_id"))?;
        let pem = Secret::new(file.private_key.ok_or(InvalidServiceAccount("has no private_key"))?);
        let key = read_key(pem.expose()).ok_or(InvalidServiceAccount("has a private_key that is not an RSA key"))?;
        Ok(Self { email, key_id, key })
    }

    /// Signs an assertion to act for `subject`. Returns `None` if the system has no random bytes.
    pub fn assertion(&self, subject: &str, scope: &str, audience: &str, now: Timestamp) -> Option<Secret<String>> {
        let now = now.as_second();
        let head = json!({"alg": "RS256", "typ": "JWT", "kid": self.key_id});
        let claims = json!({
            "iss": self.email, "sub": subject, "scope": scope, "aud": audience,
            "iat": now - ASSERTION_BACKDATE_SECONDS, "exp": now + ASSERTION_LIFETIME_SECONDS,
        });
        sign(&self.key, &RSA_PKCS1_SHA256, &head, &claims)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_error(text: &str) -> &'static str {
        ServiceAccount::parse(&Secret::new(text.to_owned())).unwrap_err().0
    }

    #[test]
    fn invalid_key_file_is_explained() {
        assert_eq!(parse_error("hello"), "is not JSON of a key file");
        assert_eq!(parse_error(r#"{"type": "authorized_user"}"#), "is not of the type \"service_account\"");
        assert!(parse_error(r#"{"web": {"client_id": "x"}}"#).starts_with("is the file of an OAuth client"));

        assert_eq!(parse_error(r#"{"type": "service_account"}"#), "has no client_email");
        assert_eq!(parse_error(&key_file("")), "has no private_key_id");
        assert_eq!(parse_error(&key_file(r#", "private_key_id": "1""#)), "has no private_key");
        let key = r#", "private_key_id": "1", "private_key": "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n""#;
        assert!(parse_error(&key_file(key)).starts_with("has a private_key that is not"));
    }

    fn key_file(rest: &str) -> String {
        format!(r#"{{"type": "service_account", "client_email": "a@b"{rest}}}"#)
    }
}
