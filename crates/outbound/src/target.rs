//! Targets: where a call goes and for whom. Everything that limits calls is keyed by parts of it.

use std::fmt;
use std::sync::Arc;

use domain::{MailboxId, Provider, SecretId, Sha256, TenantId};

/// Where a call goes and for whom.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Target {
    pub service: Service,
    /// The server, for services that are at many servers.
    pub endpoint: Option<Endpoint>,
    pub tenant: TenantId,
    /// Whose account is called; `None`: nobody's, as at a webhook.
    pub account: Option<TargetAccount>,
}

/// What is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Service {
    Provider(Provider),
    /// Servers of tenants, which receive events.
    Webhooks,
}

/// An account at a provider.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TargetAccount {
    pub mailbox: MailboxId,
    /// The credential of the mailbox; `None`: that of our app for all mailboxes of the tenant's organisation.
    pub credential: Option<SecretId>,
    /// The hash of the account's name, which mailboxes of several tenants may share.
    pub name: Sha256,
    /// The daily byte quota of the mailbox; 0: unlimited, `None`: that of its provider.
    pub bytes_per_day: Option<u64>,
}

impl Target {
    /// Returns the target of requests to a webhook of a tenant.
    pub fn webhook(tenant: TenantId, endpoint: Endpoint) -> Self {
        Self { service: Service::Webhooks, endpoint: Some(endpoint), tenant, account: None }
    }

    pub(crate) fn mailbox(&self) -> Option<MailboxId> {
        self.account.as_ref().map(|account| account.mailbox)
    }
}

impl Service {
    /// Returns the name of the service, for metrics and people.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Provider(provider) => provider.as_str(),
            Self::Webhooks => "webhooks",
        }
    }
}

/// A server, by host and port. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Endpoint {
    host: Arc<str>,
    port: u16,
}

impl Endpoint {
    /// Creates an endpoint. Hosts that differ in case or in a final dot are one.
    pub fn new(host: &str, port: u16) -> Self {
        Self { host: host.trim_end_matches('.').to_ascii_lowercase().into(), port }
    }

    pub fn host(&self) -> &str {
        &self.host
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_of_a_host_are_one_endpoint() {
        assert_eq!(Endpoint::new("IMAP.Acme.test.", 993), Endpoint::new("imap.acme.test", 993));
        assert_ne!(Endpoint::new("imap.acme.test", 993), Endpoint::new("imap.acme.test", 143));
        assert_eq!(Endpoint::new("imap.acme.test", 993).to_string(), "imap.acme.test:993");
    }
}
