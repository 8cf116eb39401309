//! Targets: where a call goes and for whom. Everything that limits calls is keyed by parts of it.

use std::fmt;
use std::sync::Arc;

use domain::{MailboxId, Provider, SecretId, Sha256, TenantId};

/// Where a call goes and for whom.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Target {
    pub provider: Provider,
    /// The server, for providers whose mailboxes are at many servers.
    pub endpoint: Option<Endpoint>,
    pub tenant: TenantId,
    pub mailbox: MailboxId,
    /// The credential of the mailbox; `None`: that of our app for all mailboxes of the tenant's organisation.
    pub credential: Option<SecretId>,
    /// The hash of the account at the provider, which several tenants may have.
    pub account: Sha256,
    /// The daily byte quota of the mailbox; 0: unlimited, `None`: that of its provider.
    pub bytes_per_day: Option<u64>,
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
