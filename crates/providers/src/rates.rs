//! Rate limits of providers, as `[providers.<name>]` sets them.

use domain::setting_values::MAX_BYTES_PER_DAY;
use outbound::budget::Budget;
use outbound::{Allowance, CallBudgets};

use crate::settings_source::{AppSettingError, SettingsSource};

/// Limits of all tenants together, of each tenant, of each credential, and of each mailbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProviderRates {
    pub app: RateLimits,
    pub tenant: RateLimits,
    pub credential: RateLimits,
    pub mailbox: RateLimits,
}

/// Limits of calls and bytes; 0: no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RateLimits {
    pub calls_per_second: usize,
    pub bytes_per_day: u64,
}

impl ProviderRates {
    pub fn budgets(self) -> CallBudgets {
        CallBudgets {
            app: self.app.allowance(),
            tenant: self.tenant.allowance(),
            credential: self.credential.allowance(),
            mailbox: self.mailbox.allowance(),
        }
    }
}

impl RateLimits {
    fn allowance(self) -> Allowance {
        Allowance {
            calls: (self.calls_per_second > 0).then(|| Budget::per_second(self.calls_per_second as f64)),
            bytes: (self.bytes_per_day > 0).then(|| Budget::per_day(self.bytes_per_day as f64)),
            units: None,
        }
    }
}

/// Settings keys of one provider: calls, and bytes where there is such a setting, of all tenants, of each tenant, each
/// credential and each mailbox.
pub type RateKeys = [(&'static str, Option<&'static str>); 4];

/// Names the keys of a section.
macro_rules! rate_keys {
    ($provider:literal) => {
        [
            (
                concat!("providers.", $provider, ".calls_per_second"),
                Some(concat!("providers.", $provider, ".app_bytes_per_day")),
            ),
            (
                concat!("providers.", $provider, ".tenant_calls_per_second"),
                Some(concat!("providers.", $provider, ".tenant_bytes_per_day")),
            ),
            (
                concat!("providers.", $provider, ".credential_calls_per_second"),
                Some(concat!("providers.", $provider, ".credential_bytes_per_day")),
            ),
            (
                concat!("providers.", $provider, ".mailbox_calls_per_second"),
                Some(concat!("providers.", $provider, ".mailbox_bytes_per_day")),
            ),
        ]
    };
}

pub(crate) use rate_keys;

const MAX_CALLS_PER_SECOND: usize = 1_000_000;

pub fn rates(
    source: &mut dyn SettingsSource,
    [app, tenant, credential, mailbox]: RateKeys,
) -> Result<ProviderRates, AppSettingError> {
    Ok(ProviderRates {
        // Calls of the app must be limited: without that, nothing would be.
        app: rate_limits(source, app, 1)?,
        tenant: rate_limits(source, tenant, 0)?,
        credential: rate_limits(source, credential, 0)?,
        mailbox: rate_limits(source, mailbox, 0)?,
    })
}

fn rate_limits(
    source: &mut dyn SettingsSource,
    (calls, bytes): (&'static str, Option<&'static str>),
    min_calls: usize,
) -> Result<RateLimits, AppSettingError> {
    Ok(RateLimits {
        calls_per_second: source.count(calls, min_calls..=MAX_CALLS_PER_SECOND)?,
        bytes_per_day: bytes.map_or(Ok(0), |bytes| source.size(bytes, 0..=MAX_BYTES_PER_DAY))?,
    })
}
