//! Changes to the settings of a tenant, given over HTTP.

use domain::{Backfill, InvalidSetting, TenantSettings};
use serde::Deserialize;
use utoipa::ToSchema;

use super::body::nullable;
use super::problem::Problem;

/// Changes to the defaults for the mailboxes of a tenant. Absent fields stay as they are; null removes a field, so that the
/// server's configuration applies.
#[derive(Debug, Clone, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TenantSettingsChange {
    /// How much existing mail to fetch of new mailboxes: `all`, `none`, or a number of days, such as `30d`.
    #[serde(default, deserialize_with = "nullable")]
    #[schema(value_type = Option<String>, example = "30d")]
    backfill: Option<Option<Backfill>>,
    /// Names of the folders to sync. Empty: all except drafts, spam and trash.
    #[serde(default, deserialize_with = "nullable")]
    #[schema(value_type = Option<Vec<String>>, max_items = 1000)]
    folders: Option<Option<Vec<String>>>,
    /// Names of folders not to sync.
    #[serde(default, deserialize_with = "nullable")]
    #[schema(value_type = Option<Vec<String>>, max_items = 1000)]
    exclude: Option<Option<Vec<String>>>,
    /// Seconds between syncs.
    #[serde(default, deserialize_with = "nullable")]
    #[schema(value_type = Option<u64>, minimum = 1, maximum = 2_592_000)]
    interval_seconds: Option<Option<u64>>,
    /// Maximum number of bytes to fetch per day of each mailbox, at most 1 TiB; 0 is no limit.
    #[serde(default, deserialize_with = "nullable")]
    #[schema(value_type = Option<u64>)]
    bytes_per_day: Option<Option<u64>>,
}

impl TenantSettingsChange {
    /// Applies the change to the settings of a tenant, and checks the outcome.
    pub fn over(&self, mut settings: TenantSettings) -> Result<TenantSettings, Problem> {
        let Self { backfill, folders, exclude, interval_seconds, bytes_per_day } = self.clone();
        for (field, is_given) in [
            ("backfill", backfill.is_some()),
            ("folders", folders.is_some()),
            ("exclude", exclude.is_some()),
            ("interval_seconds", interval_seconds.is_some()),
            ("bytes_per_day", bytes_per_day.is_some()),
        ] {
            if is_given {
                settings.unset(field);
            }
        }
        settings.backfill = backfill.unwrap_or(settings.backfill);
        settings.folders = folders.unwrap_or(settings.folders);
        settings.exclude = exclude.unwrap_or(settings.exclude);
        settings.interval_seconds = interval_seconds.unwrap_or(settings.interval_seconds);
        settings.bytes_per_day = bytes_per_day.unwrap_or(settings.bytes_per_day);
        settings.check().map_err(|InvalidSetting { field, expected }| {
            Problem::invalid(&format!("settings.{field}"), format!("must be {expected}"))
        })?;
        Ok(settings)
    }
}
