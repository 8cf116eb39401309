//! Counts the calls and bytes of each tenant at each provider, until they are written.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use domain::{Provider, TenantId};

/// The calls that were made and the bytes that they brought.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CallCount {
    pub calls: u64,
    pub bytes: u64,
}

#[derive(Debug, Default)]
pub struct UsageMeter(Mutex<HashMap<(TenantId, Provider), CallCount>>);

impl UsageMeter {
    pub fn count(&self, owner: (TenantId, Provider), CallCount { calls, bytes }: CallCount) {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(owner).or_default();
        count.calls += calls;
        count.bytes += bytes;
    }

    /// Takes the counts since the last time.
    pub fn take(&self) -> HashMap<(TenantId, Provider), CallCount> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
