//! How much may be asked of a provider.

use engine::calls::budget::Budget;
use engine::calls::{Allowance, Pace};

use super::ConfigError;
use super::read::Reader;

/// Of all tenants together, of each tenant, of each credential, and of each mailbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rates {
    pub app: Rate,
    pub tenant: Rate,
    pub credential: Rate,
    pub mailbox: Rate,
}

/// 0: as much as one likes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Rate {
    pub calls_per_second: usize,
    pub bytes_per_day: u64,
}

impl Rates {
    pub fn pace(self) -> Pace {
        let allowance = |rate: Rate| Allowance {
            calls: (rate.calls_per_second > 0).then(|| Budget::per_second(rate.calls_per_second as f64)),
            bytes: (rate.bytes_per_day > 0).then(|| Budget::per_day(rate.bytes_per_day as f64)),
            units: None,
        };
        Pace {
            app: allowance(self.app),
            tenant: allowance(self.tenant),
            credential: allowance(self.credential),
            mailbox: allowance(self.mailbox),
        }
    }
}

/// The keys of one provider: of calls and bytes, of all tenants, of each, of each credential and of each mailbox.
pub(super) type Keys = [(&'static str, &'static str); 4];

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

pub(super) const GOOGLE: Keys = keys!("google");
pub(super) const MICROSOFT: Keys = keys!("microsoft");
pub(super) const IMAP: Keys = keys!("imap");

const MOST_CALLS: usize = 1_000_000;

pub(super) fn rates(read: &mut Reader, [app, tenant, credential, mailbox]: Keys) -> Result<Rates, ConfigError> {
    // Without a limit for all nobody would ever be held back.
    let mut rate = |(calls, bytes), least| -> Result<Rate, ConfigError> {
        Ok(Rate {
            calls_per_second: read.count(calls, least..=MOST_CALLS)?,
            // What mailboxes at IMAP servers may fetch has had its own key for longer.
            bytes_per_day: if bytes == IMAP[3].1 { 0 } else { read.size(bytes, 0..=super::MOST_BYTES_PER_DAY)? },
        })
    };
    Ok(Rates {
        app: rate(app, 1)?,
        tenant: rate(tenant, 0)?,
        credential: rate(credential, 0)?,
        mailbox: rate(mailbox, 0)?,
    })
}
