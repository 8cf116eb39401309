//! The settings of mailboxes and tenants in SQL: how their columns are read, and the one expression for each field that a
//! query needs.

use domain::setting_values::MAX_INTERVAL_SECONDS;
use domain::{MailboxId, MailboxSettings, TenantId, TenantSettings};

use crate::{Dialect, Row, StoreError};

/// The account's name at the provider, of a mailbox `m`. There is an index for this very text.
pub(crate) const ACCOUNT: &str = "coalesce(m.settings -> 'connection' ->> 'account', m.address)";

/// The user whose mailbox our app opens, of `mailboxes`.
pub(crate) const CONNECTION_USER: &str = "settings -> 'connection' ->> 'user'";

/// Returns the seconds between syncs of a mailbox `m` of a tenant `t`, or null if neither sets them. Agrees with
/// [`domain::SettingsInForce`]: an invalid value counts as none.
pub(crate) fn interval_seconds(dialect: Dialect) -> String {
    format!("coalesce({}, {})", own_interval(dialect, "m.settings"), own_interval(dialect, "t.settings"))
}

fn own_interval(dialect: Dialect, settings: &str) -> String {
    match dialect {
        // A cast that fails would fail the whole query, so the digits are looked at first. A text has quotes here.
        Dialect::Postgres => {
            let text = format!("cast({settings} -> 'interval_seconds' as text)");
            format!(
                "case when {text} ~ '^[1-9][0-9]{{0,8}}$'
                      then case when cast({text} as bigint) <= {MAX_INTERVAL_SECONDS} then cast({text} as bigint) end end"
            )
        }
        Dialect::Sqlite => {
            let value = format!("{settings} ->> 'interval_seconds'");
            format!(
                "case when json_type({settings}, '$.interval_seconds') = 'integer'
                       and {value} between 1 and {MAX_INTERVAL_SECONDS} then {value} end"
            )
        }
    }
}

/// Reads the settings of a mailbox. What cannot be read is ignored, so that one row does not fail a listing; it is
/// logged for those who look for it, since every read of the row meets it.
pub(crate) fn mailbox_settings(row: &Row, column: usize, mailbox: MailboxId) -> Result<MailboxSettings, StoreError> {
    let Ok(stored) = serde_json::from_str::<serde_json::Value>(&row.get::<String>(column)?) else {
        tracing::debug!(mailbox.id = %mailbox, "the settings of the mailbox are not JSON and were ignored");
        return Ok(MailboxSettings::default());
    };
    let settings = MailboxSettings::from(stored);
    for field in settings.unreadable_fields() {
        tracing::debug!(mailbox.id = %mailbox, field, "a setting of the mailbox cannot be read and was ignored");
    }
    Ok(settings)
}

/// Reads the settings of a tenant, like [`mailbox_settings`].
pub(crate) fn tenant_settings(row: &Row, column: usize, tenant: TenantId) -> Result<TenantSettings, StoreError> {
    let Ok(stored) = serde_json::from_str::<serde_json::Value>(&row.get::<String>(column)?) else {
        tracing::debug!(tenant.id = %tenant, "the settings of the tenant are not JSON and were ignored");
        return Ok(TenantSettings::default());
    };
    let settings = TenantSettings::from(stored);
    for field in settings.unreadable_fields() {
        tracing::debug!(tenant.id = %tenant, field, "a setting of the tenant cannot be read and was ignored");
    }
    Ok(settings)
}
