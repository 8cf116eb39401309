//! Leases that serialise the granting and revoking of an account's consent.
//!
//! A provider may know only one consent of an account to our app, and revoking any of it ends all. So a consent is not
//! revoked while it is granted anew, and the other way round.

use std::time::Duration;

use domain::{Provider, Sha256, redact_for_log};
use tokio::time::{Instant, sleep, timeout};

use crate::Engine;

/// Longer than a call to a provider can take, so that no call runs under an expired lease.
pub const GRANT_LEASE_TTL: Duration = Duration::from_secs(130);

/// How often a waiting caller tries again.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// The prefix of the names of its leases.
pub(crate) const LEASE_PREFIX: &str = "grant:";

const HOLDER: &str = "consent";

/// A lease that is held until it is released. If the process dies, others wait until it expires.
#[derive(Debug)]
pub struct GrantLease {
    engine: Engine,
    name: String,
    token: u64,
}

impl Engine {
    /// Takes the lease of an account. Returns `None` if another holder has it.
    pub async fn acquire_grant_lease(&self, provider: Provider, address: &str) -> anyhow::Result<Option<GrantLease>> {
        // An address must not be in the name of a lease.
        let name = format!("{LEASE_PREFIX}{}:{}", provider.as_str(), &Sha256::of(address.as_bytes()).hex()[..32]);
        let token = self.store.system().acquire_lease(&name, HOLDER, GRANT_LEASE_TTL).await?;
        Ok(token.map(|token| GrantLease { engine: self.clone(), name, token }))
    }

    /// Waits for the lease of an account, for at most `max_wait`.
    pub async fn wait_for_grant_lease(
        &self,
        provider: Provider,
        address: &str,
        max_wait: Duration,
    ) -> anyhow::Result<Option<GrantLease>> {
        let give_up_at = Instant::now() + max_wait;
        loop {
            let lease = self.acquire_grant_lease(provider, address).await?;
            if lease.is_some() || Instant::now() >= give_up_at {
                return Ok(lease);
            }
            sleep(POLL_INTERVAL).await;
        }
    }
}

impl GrantLease {
    /// Runs `work` while the lease is held. Returns `None` if it took too long, and its outcome is not known.
    pub(crate) async fn run_while_held<T>(self, work: impl Future<Output = T>) -> Option<T> {
        let outcome = timeout(GRANT_LEASE_TTL * 2 / 3, work).await.ok();
        self.release().await;
        outcome
    }

    pub async fn release(self) {
        if let Err(e) = self.engine.store.system().release_lease(&self.name, HOLDER, self.token).await {
            tracing::debug!(
                lease = self.name,
                error = redact_for_log(&e),
                "grant lease not released; it expires by itself"
            );
        }
    }
}
