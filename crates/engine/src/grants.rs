//! An owner's consent comes and goes one after the other.
//!
//! A provider may know only one consent of an account to our app, and whoever takes any of it back ends all. So nobody
//! takes it back while somebody gives it anew, and the other way round.

use std::time::Duration;

use domain::{Provider, Sha256};
use tokio::time::{Instant, sleep, timeout};

use crate::Engine;

/// Longer than a call to a provider can take, so that nobody acts in the name of one that has run out.
pub const HELD_FOR: Duration = Duration::from_secs(130);

/// Whoever waits for it looks so often.
const LOOK: Duration = Duration::from_millis(250);

/// How the names of its leases begin.
pub(crate) const LEASE: &str = "grant:";

const HOLDER: &str = "consent";

/// Until it is released. Who dies with it keeps others waiting until it runs out.
#[derive(Debug)]
pub struct HeldGrant {
    engine: Engine,
    name: String,
    token: u64,
}

impl Engine {
    /// `None`: somebody else has it just now.
    pub async fn hold_grant(&self, provider: Provider, address: &str) -> anyhow::Result<Option<HeldGrant>> {
        // The name of a lease is no place for an address.
        let name = format!("{LEASE}{}:{}", provider.as_str(), &Sha256::of(address.as_bytes()).hex()[..32]);
        let token = self.store.system().acquire_lease(&name, HOLDER, HELD_FOR).await?;
        Ok(token.map(|token| HeldGrant { engine: self.clone(), name, token }))
    }

    /// The same for whoever has the time to wait until others are through.
    pub async fn wait_for_grant(
        &self,
        provider: Provider,
        address: &str,
        patience: Duration,
    ) -> anyhow::Result<Option<HeldGrant>> {
        let give_up_at = Instant::now() + patience;
        loop {
            let held = self.hold_grant(provider, address).await?;
            if held.is_some() || Instant::now() >= give_up_at {
                return Ok(held);
            }
            sleep(LOOK).await;
        }
    }
}

impl HeldGrant {
    /// While it is held, and no longer. `None`: it took too long, and nobody knows what came of it.
    pub(crate) async fn during<T>(self, acting: impl Future<Output = T>) -> Option<T> {
        let outcome = timeout(HELD_FOR * 2 / 3, acting).await.ok();
        self.release().await;
        outcome
    }

    pub async fn release(self) {
        if let Err(e) = self.engine.store.system().release_lease(&self.name, HOLDER, self.token).await {
            tracing::debug!("the hold on a consent runs out by itself: {e}");
        }
    }
}
