//! How much may be asked of a provider.

use engine::calls::Pace;
use engine::calls::budget::Budget;

use super::ConfigError;
use super::read::Reader;

/// Of all tenants together, and of each; 0: as much as one likes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rates {
    pub calls_per_second: usize,
    pub tenant_calls_per_second: usize,
    pub tenant_bytes_per_day: u64,
}

impl Rates {
    pub fn pace(self) -> Pace {
        let calls = Some(self.tenant_calls_per_second as f64).filter(|calls| *calls > 0.0);
        let bytes = Some(self.tenant_bytes_per_day as f64).filter(|bytes| *bytes > 0.0);
        Pace::calls_per_second(self.calls_per_second as f64)
            .with_tenant(calls.map(Budget::per_second), bytes.map(Budget::per_day))
    }
}

const MOST_CALLS: usize = 1_000_000;

/// The keys are those of one section.
pub(super) fn rates(
    read: &mut Reader,
    [calls, tenant_calls, tenant_bytes]: [&'static str; 3],
) -> Result<Rates, ConfigError> {
    Ok(Rates {
        calls_per_second: read.count(calls, 1..=MOST_CALLS)?,
        tenant_calls_per_second: read.count(tenant_calls, 0..=MOST_CALLS)?,
        tenant_bytes_per_day: read.size(tenant_bytes, 0..=super::MOST_BYTES_PER_DAY)?,
    })
}
