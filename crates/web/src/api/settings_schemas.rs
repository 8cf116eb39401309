//! How `/openapi.json` describes the settings of mailboxes and tenants. The types themselves are in `domain`, which knows
//! nothing of HTTP.

use utoipa::ToSchema;

/// Settings of a mailbox. An absent field is inherited: from the tenant's settings, else from the server's configuration.
/// Fields of newer versions may be present.
#[derive(ToSchema)]
#[schema(as = MailboxSettings)]
#[expect(dead_code, reason = "for the OpenAPI description only")]
pub struct MailboxSettingsSchema {
    /// How the provider is reached; its fields depend on the provider. Absent for imported files.
    #[schema(value_type = Option<Object>, nullable = false)]
    connection: Option<()>,
    /// Names of the folders to sync. Empty: all except drafts, spam and trash.
    #[schema(nullable = false, max_items = 1000, example = json!(["INBOX"]))]
    folders: Option<Vec<String>>,
    /// Names of folders not to sync.
    #[schema(nullable = false, max_items = 1000)]
    exclude: Option<Vec<String>>,
    /// Seconds between syncs.
    #[schema(nullable = false, minimum = 1, maximum = 2_592_000, example = 300)]
    interval_seconds: Option<u64>,
    /// Maximum number of bytes to fetch per day, at most 1 TiB; 0 is no limit.
    #[schema(nullable = false)]
    bytes_per_day: Option<u64>,
}

/// Defaults for the mailboxes of a tenant. An absent field is as the server's configuration says. Fields of newer versions may
/// be present.
#[derive(ToSchema)]
#[schema(as = TenantSettings)]
#[expect(dead_code, reason = "for the OpenAPI description only")]
pub struct TenantSettingsSchema {
    /// How much existing mail to fetch of new mailboxes: `all`, `none`, or a number of days, such as `30d`.
    #[schema(nullable = false, example = "30d")]
    backfill: Option<String>,
    /// Names of the folders to sync. Empty: all except drafts, spam and trash.
    #[schema(nullable = false, max_items = 1000, example = json!(["INBOX"]))]
    folders: Option<Vec<String>>,
    /// Names of folders not to sync.
    #[schema(nullable = false, max_items = 1000)]
    exclude: Option<Vec<String>>,
    /// Seconds between syncs.
    #[schema(nullable = false, minimum = 1, maximum = 2_592_000, example = 300)]
    interval_seconds: Option<u64>,
    /// Maximum number of bytes to fetch per day of each mailbox, at most 1 TiB; 0 is no limit.
    #[schema(nullable = false)]
    bytes_per_day: Option<u64>,
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use domain::{MailboxSettings, TenantSettings};
    use serde_json::Value;

    use super::*;

    fn properties<T: ToSchema>() -> BTreeSet<String> {
        let schema = serde_json::to_value(T::schema()).unwrap();
        let Value::Object(properties) = &schema["properties"] else { panic!("{schema} has no properties") };
        properties.keys().cloned().collect()
    }

    fn names(fields: &[&str]) -> BTreeSet<String> {
        fields.iter().map(|field| (*field).to_owned()).collect()
    }

    #[test]
    fn schemas_list_every_field_of_the_settings() {
        assert_eq!(properties::<MailboxSettingsSchema>(), names(MailboxSettings::FIELDS));
        assert_eq!(properties::<TenantSettingsSchema>(), names(TenantSettings::FIELDS));
    }
}
