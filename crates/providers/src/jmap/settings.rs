//! Connection settings of an account, as they are stored with its mailbox.

use domain::connector::ConnectorAccount;
use domain::{ConnectorError, Secret};
use outbound::http::{RequestBuilder, Url};
use serde::{Deserialize, Serialize};

use crate::http::protocol;

/// Where every server has its session or a redirect to it (RFC 8620, section 2.2).
const WELL_KNOWN_PATH: &str = "/.well-known/jmap";

/// Server and login of a mailbox; the secret is stored separately.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JmapConnection {
    /// The session, or a server without a path.
    pub url: String,
    /// Host and port of the URL, by which calls are limited.
    pub host: String,
    pub port: u16,
    pub user: String,
    #[serde(default)]
    pub auth: JmapAuth,
    /// Id or name of the account, where the login opens several. `None`: its primary account for mail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account_name: Option<String>,
    /// Whether the session may be at another host than the URL.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub follows_redirects: bool,
}

/// How the secret is sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum JmapAuth {
    /// User and password, as HTTP's Basic.
    #[default]
    Password,
    /// An API token, as HTTP's Bearer.
    Token,
}

impl JmapConnection {
    /// Makes a connection to a URL; returns what is wrong with it otherwise.
    pub fn new(url: &str, user: &str) -> Result<Self, &'static str> {
        let parsed = parse_url(url)?;
        Ok(Self {
            url: url.to_owned(),
            host: parsed.host_str().unwrap_or_default().to_owned(),
            port: parsed.port_or_known_default().unwrap_or_default(),
            user: user.to_owned(),
            auth: JmapAuth::default(),
            account_name: None,
            follows_redirects: false,
        })
    }

    pub(super) fn of(account: &ConnectorAccount) -> Result<Self, ConnectorError> {
        serde_json::from_str(&account.settings).map_err(|_| protocol("the mailbox's settings are not valid"))
    }

    /// Returns where the session is looked up.
    pub(super) fn session_url(&self) -> Result<Url, ConnectorError> {
        let mut url = parse_url(&self.url).map_err(|_| protocol("the mailbox's URL is not valid"))?;
        if url.path() == "/" {
            url.set_path(WELL_KNOWN_PATH);
        }
        Ok(url)
    }

    /// Adds the credentials to a request.
    pub(super) fn authorize(&self, request: RequestBuilder, secret: &Secret<String>) -> RequestBuilder {
        match self.auth {
            JmapAuth::Password => request.basic_auth(&self.user, Some(secret.expose())),
            JmapAuth::Token => request.bearer_auth(secret.expose()),
        }
    }
}

/// Parses the URL of a server. It must be encrypted unless it is on this machine, because secrets are sent there.
fn parse_url(text: &str) -> Result<Url, &'static str> {
    const EXPECTED: &str = "must be a URL that begins with https://, such as https://jmap.acme.test";
    let url = Url::parse(text).map_err(|_| EXPECTED)?;
    let is_plain = url.username().is_empty() && url.password().is_none() && url.fragment().is_none();
    (jwt::is_safe_url(text) && is_plain && url.host_str().is_some()).then_some(url).ok_or(EXPECTED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_without_a_path_has_its_session_at_the_known_place() {
        let session = |url: &str| JmapConnection::new(url, "me").unwrap().session_url().unwrap().to_string();

        assert_eq!(session("https://jmap.acme.test"), "https://jmap.acme.test/.well-known/jmap");
        assert_eq!(session("https://acme.test:8443/jmap/session"), "https://acme.test:8443/jmap/session");
    }

    #[test]
    fn password_is_not_sent_in_the_clear() {
        for url in ["http://jmap.acme.test", "ftp://acme.test", "acme.test", "https://me:secret@acme.test", ""] {
            assert!(JmapConnection::new(url, "me").is_err(), "{url}");
        }
        let local = JmapConnection::new("http://127.0.0.1:8080", "me").unwrap();
        assert_eq!((local.host.as_str(), local.port), ("127.0.0.1", 8080));
    }
}
