//! An owner's consent comes and goes one after the other.
//!
//! A provider may know only one consent of an account to our app, and whoever takes any of it back ends all. So nobody
//! takes it back while somebody gives it anew, and the other way round.

use std::time::Duration;

use domain::{Provider, Sha256};

use crate::Engine;

/// Longer than a call to a provider can take, so that nobody acts in the name of one that has run out.
const HELD_FOR: Duration = Duration::from_secs(130);

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
        let name = format!("grant:{}:{}", provider.as_str(), &Sha256::of(address.as_bytes()).hex()[..32]);
        let token = self.store.system().acquire_lease(&name, HOLDER, HELD_FOR).await?;
        Ok(token.map(|token| HeldGrant { engine: self.clone(), name, token }))
    }
}

impl HeldGrant {
    pub async fn release(self) {
        if let Err(e) = self.engine.store.system().release_lease(&self.name, HOLDER, self.token).await {
            tracing::debug!("the hold on a consent runs out by itself: {e}");
        }
    }
}
