//! Connection settings of an account, as they are stored with its mailbox.

use domain::connector::ConnectorAccount;
use domain::{ConnectorError, Secret};
use serde::{Deserialize, Serialize};

use super::client::{ClientSettings, Credentials, Security};

/// Server and user of a mailbox; the password is stored separately.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Connection {
    pub host: String,
    pub port: u16,
    pub tls: Tls,
    pub user: String,
    #[serde(default)]
    pub auth: Auth,
    /// Certificates (PEM) of authorities that are trusted in addition to the system's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authority: Option<String>,
    /// Whether to use compression; by default it is used unless the server is on this machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compress: Option<bool>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Tls {
    Implicit,
    StartTls,
    None,
}

/// The kind of secret.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Auth {
    #[default]
    Password,
    /// An OAuth 2.0 access token.
    Token,
}

impl Tls {
    pub fn usual_port(self) -> u16 {
        match self {
            Self::Implicit => 993,
            Self::StartTls | Self::None => 143,
        }
    }
}

impl Connection {
    pub(super) fn of(account: &ConnectorAccount) -> Result<Self, ConnectorError> {
        serde_json::from_str(&account.settings)
            .map_err(|_| ConnectorError::Protocol("the mailbox's settings are not valid".to_owned()))
    }

    pub(super) fn settings(&self) -> ClientSettings {
        let security = match self.tls {
            Tls::Implicit => Security::Implicit,
            Tls::StartTls => Security::StartTls,
            Tls::None => Security::None,
        };
        ClientSettings {
            custom_ca: self.authority.clone(),
            compress: self.compress.unwrap_or_else(|| !is_this_machine(&self.host)),
            ..ClientSettings::new(&*self.host, self.port, security)
        }
    }

    pub(super) fn credentials(&self, secret: Option<&Secret<String>>) -> Result<Credentials, ConnectorError> {
        let secret =
            secret.cloned().ok_or_else(|| ConnectorError::Unauthorized("the mailbox has no password".to_owned()))?;
        let user = self.user.clone();
        Ok(match self.auth {
            Auth::Password => Credentials::Password { user, password: secret },
            Auth::Token => Credentials::Token { user, token: secret },
        })
    }
}

/// Returns whether a host name or address is that of this machine.
pub fn is_this_machine(host: &str) -> bool {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host.eq_ignore_ascii_case("localhost")
        || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}
