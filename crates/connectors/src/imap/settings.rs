//! How to reach an account, as it is kept with its mailbox.

use domain::connector::Account;
use domain::{ConnectorError, Secret};
use serde::{Deserialize, Serialize};

use super::client::{Credentials, Security, Settings};

/// Written by whoever connects a mailbox; the password is kept elsewhere.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Connection {
    pub host: String,
    pub port: u16,
    pub tls: Tls,
    pub user: String,
    #[serde(default)]
    pub auth: Auth,
    /// Certificates, as PEM, of authorities that are trusted beside those of the system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authority: Option<String>,
    /// Whether to ask for compression; by default not on this machine.
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

/// What the secret is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Auth {
    #[default]
    Password,
    /// An access token of OAuth 2.0.
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
    pub(super) fn of(account: &Account) -> Result<Self, ConnectorError> {
        serde_json::from_str(&account.settings)
            .map_err(|_| ConnectorError::Protocol("the settings of the mailbox cannot be read".to_owned()))
    }

    pub(super) fn settings(&self) -> Settings {
        let security = match self.tls {
            Tls::Implicit => Security::Implicit,
            Tls::StartTls => Security::StartTls,
            Tls::None => Security::None,
        };
        Settings {
            own_authority: self.authority.clone(),
            compress: self.compress.unwrap_or_else(|| !is_this_machine(&self.host)),
            ..Settings::new(&*self.host, self.port, security)
        }
    }

    pub(super) fn credentials(&self, secret: Option<&Secret<String>>) -> Result<Credentials, ConnectorError> {
        let secret = secret.cloned().ok_or_else(|| ConnectorError::Unauthorized("there is no password".to_owned()))?;
        let user = self.user.clone();
        Ok(match self.auth {
            Auth::Password => Credentials::Password { user, password: secret },
            Auth::Token => Credentials::Token { user, token: secret },
        })
    }
}

/// A name or an address that never leaves this machine.
pub fn is_this_machine(host: &str) -> bool {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host.eq_ignore_ascii_case("localhost")
        || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}
