//! Inheritance of settings: a mailbox's own value, else its tenant's, else the configured one.

use crate::setting_values::is_interval;
use crate::{Backfill, MailboxSettings, TenantSettings};

/// The settings that a mailbox is synced with, each inherited by itself. `None`: as configured for all tenants.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SettingsInForce {
    /// Only these folders, by name. Empty: all but the excluded ones.
    pub folders: Vec<String>,
    pub exclude: Vec<String>,
    /// Within its limits: the scheduler reads it by SQL, which ignores all else.
    pub interval_seconds: Option<u64>,
    /// 0: unlimited.
    pub bytes_per_day: Option<u64>,
}

impl SettingsInForce {
    /// Resolves the settings of a mailbox of this tenant.
    pub fn resolve(mailbox: &MailboxSettings, tenant: &TenantSettings) -> Self {
        Self {
            folders: mailbox.folders.as_ref().or(tenant.folders.as_ref()).cloned().unwrap_or_default(),
            exclude: mailbox.exclude.as_ref().or(tenant.exclude.as_ref()).cloned().unwrap_or_default(),
            interval_seconds: valid_interval(mailbox.interval_seconds).or(valid_interval(tenant.interval_seconds)),
            bytes_per_day: mailbox.bytes_per_day.or(tenant.bytes_per_day),
        }
    }
}

fn valid_interval(seconds: Option<u64>) -> Option<u64> {
    seconds.filter(|seconds| is_interval(*seconds))
}

impl TenantSettings {
    /// Resolves the backfill of a new mailbox: the requested one, else the tenant's, else the configured one.
    pub fn resolve_backfill(&self, requested: Option<Backfill>, configured: Backfill) -> Backfill {
        requested.or(self.backfill).unwrap_or(configured)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn own_setting_wins_over_the_tenants() {
        let tenant = json!({"folders": ["INBOX"], "exclude": ["Spam"], "interval_seconds": 60, "bytes_per_day": 7});
        let mailbox = json!({"folders": [], "interval_seconds": 5, "bytes_per_day": 0});

        let resolved = SettingsInForce::resolve(&mailbox.into(), &tenant.into());

        let expected = SettingsInForce {
            folders: vec![],
            exclude: vec!["Spam".to_owned()],
            interval_seconds: Some(5),
            bytes_per_day: Some(0),
        };
        assert_eq!(resolved, expected);
    }

    #[test]
    fn interval_out_of_its_limits_is_inherited() {
        let tenant = TenantSettings { interval_seconds: Some(60), ..TenantSettings::default() };
        for seconds in [0, u64::MAX] {
            let mailbox = MailboxSettings { interval_seconds: Some(seconds), ..MailboxSettings::default() };
            assert_eq!(SettingsInForce::resolve(&mailbox, &tenant).interval_seconds, Some(60));
        }
    }

    #[test]
    fn backfill_is_requested_inherited_or_configured() {
        let (none, tenant) = (TenantSettings::default(), TenantSettings::from(json!({"backfill": "none"})));

        assert_eq!(tenant.resolve_backfill(Some(Backfill::All), Backfill::All), Backfill::All);
        assert_eq!(tenant.resolve_backfill(None, Backfill::All), Backfill::None);
        assert_eq!(none.resolve_backfill(None, Backfill::All), Backfill::All);
    }
}
