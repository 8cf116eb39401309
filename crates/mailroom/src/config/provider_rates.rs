//! Rate limits of providers.

use domain::setting_values::MAX_BYTES_PER_DAY;
use outbound::budget::Budget;
use outbound::{Allowance, CallBudgets};

use super::ConfigError;
use super::reader::SettingsReader;

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
    pub fn pace(self) -> CallBudgets {
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

/// Settings keys of one provider: (calls, bytes) of all tenants, of each tenant, each credential and each mailbox.
pub(super) type RateKeys = [(&'static str, &'static str); 4];

macro_rules! keys {
    ($provider:literal) => {
        [
            (
                concat!("providers.", $provider, ".calls_per_second"),
                concat!("providers.", $provider, ".app_bytes_per_day"),
            ),
            (
                concat!("providers.", $provider, ".tenant_calls_per_second"),
                concat!("providers.", $provider, ".tenant_bytes_per_day"),
            ),
            (
                concat!("providers.", $provider, ".credential_calls_per_second"),
                concat!("providers.", $provider, ".credential_bytes_per_day"),
            ),
            (
                concat!("providers.", $provider, ".mailbox_calls_per_second"),
                concat!("providers.", $provider, ".mailbox_bytes_per_day"),
            ),
        ]
    };
}

pub(super) const GOOGLE: RateKeys = keys!("google");
pub(super) const MICROSOFT: RateKeys = keys!("microsoft");
pub(super) const IMAP: RateKeys = keys!("imap");

const MAX_CALLS_PER_SECOND: usize = 1_000_000;

pub(super) fn rates(
    read: &mut SettingsReader,
    [app, tenant, credential, mailbox]: RateKeys,
) -> Result<ProviderRates, ConfigError> {
    Ok(ProviderRates {
        // Calls of the app must be limited: without that, nothing would be.
        app: rate_limits(read, app, 1)?,
        tenant: rate_limits(read, tenant, 0)?,
        credential: rate_limits(read, credential, 0)?,
        mailbox: rate_limits(read, mailbox, 0)?,
    })
}

fn rate_limits(
    read: &mut SettingsReader,
    (calls, bytes): (&'static str, &'static str),
    min_calls: usize,
) -> Result<RateLimits, ConfigError> {
    Ok(RateLimits {
        calls_per_second: read.count(calls, min_calls..=MAX_CALLS_PER_SECOND)?,
        // The bytes of a mailbox at an IMAP server have an older key of their own.
        bytes_per_day: if bytes == IMAP[3].1 { 0 } else { read.size(bytes, 0..=MAX_BYTES_PER_DAY)? },
    })
}
