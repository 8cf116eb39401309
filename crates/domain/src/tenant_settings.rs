//! The settings of a tenant: defaults for its mailboxes.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::Backfill;
use crate::setting_values::{self as values, InvalidSetting};

/// The defaults of a tenant's mailboxes. A field that is absent is as configured; see [`crate::SettingsInForce`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Value", into = "Value")]
pub struct TenantSettings {
    /// For mailboxes that are connected from now on.
    pub backfill: Option<Backfill>,
    /// Only these folders, by name. Empty: all but the excluded ones.
    pub folders: Option<Vec<String>>,
    pub exclude: Option<Vec<String>>,
    pub interval_seconds: Option<u64>,
    /// Of each mailbox; 0: unlimited.
    pub bytes_per_day: Option<u64>,
    /// Fields of a newer program, and values that cannot be read. They are written back as they were.
    pub other: Map<String, Value>,
}

/// The bytes of all folder names. Every mailbox that is read brings them along.
const MAX_FOLDER_BYTES: usize = 16 << 10;

impl TenantSettings {
    /// The names of the fields, as they are stored.
    pub const FIELDS: &'static [&'static str] =
        &["backfill", "folders", "exclude", "interval_seconds", "bytes_per_day"];

    /// Checks that the values are within their limits.
    pub fn check(&self) -> Result<(), InvalidSetting> {
        values::check_folders("folders", self.folders.as_ref())?;
        values::check_folders("exclude", self.exclude.as_ref())?;
        values::check_interval(self.interval_seconds)?;
        values::check_bytes_per_day(self.bytes_per_day)?;
        let names = self.folders.iter().chain(&self.exclude).flatten();
        if names.map(String::len).sum::<usize>() > MAX_FOLDER_BYTES {
            let expected = format!("names of at most {MAX_FOLDER_BYTES} bytes in all, with those of exclude");
            return Err(InvalidSetting { field: "folders", expected });
        }
        Ok(())
    }

    /// Removes the value of a field, also one that cannot be read. Returns `false` if there is no field of that name.
    pub fn unset(&mut self, field: &str) -> bool {
        if !Self::FIELDS.contains(&field) {
            return false;
        }
        let Value::Object(mut stored) = Value::from(std::mem::take(self)) else { return false };
        stored.remove(field);
        *self = Value::Object(stored).into();
        true
    }

    /// Lists the fields whose stored value cannot be read, and is ignored.
    pub fn unreadable_fields(&self) -> impl Iterator<Item = &'static str> {
        values::unreadable(Self::FIELDS, &self.other)
    }
}

/// Reads stored settings. What is no object has no fields.
impl From<Value> for TenantSettings {
    fn from(stored: Value) -> Self {
        let Value::Object(mut other) = stored else { return Self::default() };
        Self {
            backfill: values::take(&mut other, "backfill"),
            folders: values::take(&mut other, "folders"),
            exclude: values::take(&mut other, "exclude"),
            interval_seconds: values::take(&mut other, "interval_seconds"),
            bytes_per_day: values::take(&mut other, "bytes_per_day"),
            other,
        }
    }
}

impl From<TenantSettings> for Value {
    fn from(settings: TenantSettings) -> Self {
        let TenantSettings { backfill, folders, exclude, interval_seconds, bytes_per_day, other: mut stored } =
            settings;
        values::put(&mut stored, "backfill", backfill);
        values::put(&mut stored, "folders", folders);
        values::put(&mut stored, "exclude", exclude);
        values::put(&mut stored, "interval_seconds", interval_seconds);
        values::put(&mut stored, "bytes_per_day", bytes_per_day);
        Self::Object(stored)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn tenant_settings_are_written_as_they_were_read() {
        for stored in [
            json!({}),
            json!({"backfill": "30d", "folders": ["INBOX"], "exclude": [], "interval_seconds": 60, "bytes_per_day": 0}),
            json!({"backfill": "some", "colour": {"of": "tomorrow"}}),
        ] {
            assert_eq!(Value::from(TenantSettings::from(stored.clone())), stored);
        }
    }

    #[test]
    fn unset_removes_unreadable_values_as_well() {
        let mut settings = TenantSettings::from(json!({"backfill": "some", "interval_seconds": 60, "colour": 7}));

        assert!(settings.unset("backfill") && settings.unset("interval_seconds") && settings.unset("folders"));
        assert!(!settings.unset("colour"), "a field of another program is not ours to remove");

        assert_eq!(Value::from(settings), json!({"colour": 7}));
    }

    #[test]
    fn names_of_fields_are_those_that_are_written() {
        let full = TenantSettings {
            backfill: Some(Backfill::All),
            folders: Some(vec![]),
            exclude: Some(vec![]),
            interval_seconds: Some(1),
            bytes_per_day: Some(1),
            other: Map::new(),
        };

        let Value::Object(stored) = Value::from(full) else { panic!("settings are an object") };

        assert!(TenantSettings::FIELDS.iter().all(|field| stored.contains_key(*field)));
        assert_eq!(stored.len(), TenantSettings::FIELDS.len());
    }
}
