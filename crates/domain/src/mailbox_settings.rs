//! The settings of a mailbox.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::setting_values::{self as values, InvalidSetting};

/// The settings of a mailbox. A field that is absent is inherited; see [`crate::SettingsInForce`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Value", into = "Value")]
pub struct MailboxSettings {
    /// How its provider is reached, in the words of its connector. Null for imported files.
    pub connection: Value,
    /// Only these folders, by name. Empty: all but the excluded ones.
    pub folders: Option<Vec<String>>,
    pub exclude: Option<Vec<String>>,
    pub interval_seconds: Option<u64>,
    /// 0: unlimited.
    pub bytes_per_day: Option<u64>,
    /// Fields of a newer program, and values that cannot be read. They are written back as they were.
    pub other: Map<String, Value>,
}

impl MailboxSettings {
    /// The names of the fields, as they are stored.
    pub const FIELDS: &'static [&'static str] =
        &["connection", "folders", "exclude", "interval_seconds", "bytes_per_day"];

    /// Returns the settings of a mailbox that inherits everything but its connection.
    pub fn of_connection(connection: Value) -> Self {
        Self { connection, ..Self::default() }
    }

    /// Checks that the values are within their limits. The connection is checked by its connector.
    pub fn check(&self) -> Result<(), InvalidSetting> {
        values::check_folders("folders", self.folders.as_ref())?;
        values::check_folders("exclude", self.exclude.as_ref())?;
        values::check_interval(self.interval_seconds)?;
        values::check_bytes_per_day(self.bytes_per_day)
    }

    /// Returns these settings with the given ones in place of their own. What is not given stays.
    pub fn overridden_by(self, given: Self) -> Self {
        let mut other = self.other;
        other.extend(given.other);
        Self {
            connection: if given.connection.is_null() { self.connection } else { given.connection },
            folders: given.folders.or(self.folders),
            exclude: given.exclude.or(self.exclude),
            interval_seconds: given.interval_seconds.or(self.interval_seconds),
            bytes_per_day: given.bytes_per_day.or(self.bytes_per_day),
            other,
        }
    }

    /// Removes the value of a field, also one that cannot be read, so that it is inherited. Returns `false` if no field of that
    /// name is inherited.
    pub fn unset(&mut self, field: &str) -> bool {
        if field == "connection" || !Self::FIELDS.contains(&field) {
            return false;
        }
        let Value::Object(mut stored) = Value::from(std::mem::take(self)) else { return false };
        stored.remove(field);
        *self = Value::Object(stored).into();
        true
    }

    /// Returns the connection as the JSON that its connector reads.
    pub fn connection_json(&self) -> String {
        if self.connection.is_null() { "{}".to_owned() } else { self.connection.to_string() }
    }

    /// Lists the fields whose stored value cannot be read, and is ignored.
    pub fn unreadable_fields(&self) -> impl Iterator<Item = &'static str> {
        values::unreadable(Self::FIELDS, &self.other)
    }
}

/// Reads stored settings. What is no object has no fields.
impl From<Value> for MailboxSettings {
    fn from(stored: Value) -> Self {
        let Value::Object(mut other) = stored else { return Self::default() };
        Self {
            connection: other.remove("connection").unwrap_or_default(),
            folders: values::take(&mut other, "folders"),
            exclude: values::take(&mut other, "exclude"),
            interval_seconds: values::take(&mut other, "interval_seconds"),
            bytes_per_day: values::take(&mut other, "bytes_per_day"),
            other,
        }
    }
}

impl From<MailboxSettings> for Value {
    fn from(settings: MailboxSettings) -> Self {
        let MailboxSettings { connection, folders, exclude, interval_seconds, bytes_per_day, other: mut stored } =
            settings;
        values::put(&mut stored, "connection", Some(connection).filter(|connection| !connection.is_null()));
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
    fn mailbox_settings_are_written_as_they_were_read() {
        for stored in [
            json!({}),
            json!({"connection": {}}),
            json!({"connection": {"host": "imap.acme.test"}, "folders": ["INBOX"], "exclude": [], "bytes_per_day": 0,
                   "interval_seconds": 60}),
            json!({"folders": ["INBOX"], "colour": {"of": "tomorrow"}}),
            json!({"interval_seconds": "often", "folders": "INBOX"}),
        ] {
            assert_eq!(Value::from(MailboxSettings::from(stored.clone())), stored);
        }
    }

    #[test]
    fn unreadable_field_is_ignored_alone() {
        let read = MailboxSettings::from(json!({"interval_seconds": "often", "folders": ["INBOX"], "colour": 7}));

        assert_eq!((read.interval_seconds, &read.folders), (None, &Some(vec!["INBOX".to_owned()])));
        assert_eq!(read.unreadable_fields().collect::<Vec<_>>(), ["interval_seconds"]);
    }

    #[test]
    fn new_value_replaces_an_unreadable_one() {
        let read = MailboxSettings::from(json!({"interval_seconds": "often"}));

        let changed = MailboxSettings { interval_seconds: Some(60), ..read };

        assert_eq!(Value::from(changed), json!({"interval_seconds": 60}));
    }

    #[test]
    fn removed_setting_is_inherited() {
        let stored =
            json!({"connection": {"host": "h"}, "interval_seconds": "often", "exclude": ["Spam"], "colour": 7});
        let mut settings = MailboxSettings::from(stored);

        let removed = ["interval_seconds", "exclude", "connection", "colour"].map(|field| settings.unset(field));

        assert_eq!(removed, [true, true, false, false]);
        assert_eq!(Value::from(settings), json!({"connection": {"host": "h"}, "colour": 7}));
    }

    #[test]
    fn names_of_fields_are_those_that_are_written() {
        let full = MailboxSettings {
            connection: json!({}),
            folders: Some(vec![]),
            exclude: Some(vec![]),
            interval_seconds: Some(1),
            bytes_per_day: Some(1),
            other: Map::new(),
        };

        let Value::Object(stored) = Value::from(full) else { panic!("settings are an object") };

        assert!(MailboxSettings::FIELDS.iter().all(|field| stored.contains_key(*field)));
        assert_eq!(stored.len(), MailboxSettings::FIELDS.len());
    }

    #[test]
    fn values_out_of_their_limits_are_named() {
        for (settings, field, expected) in [
            (json!({"interval_seconds": 0}), "interval_seconds", "from 1 to 2592000 seconds"),
            (json!({"interval_seconds": 2_592_001}), "interval_seconds", "from 1 to 2592000 seconds"),
            (json!({"bytes_per_day": 1_u64 << 41}), "bytes_per_day", "at most 1099511627776 bytes"),
            (json!({"folders": [""]}), "folders", "at most 1000 folder names, each of 1 to 1000 bytes on one line"),
            (json!({"exclude": ["a\nb"]}), "exclude", "at most 1000 folder names, each of 1 to 1000 bytes on one line"),
        ] {
            let invalid = MailboxSettings::from(settings).check().unwrap_err();
            assert_eq!((invalid.field, &*invalid.expected), (field, expected));
        }
        assert_eq!(
            MailboxSettings::from(json!({"interval_seconds": 1, "bytes_per_day": 0, "folders": []})).check(),
            Ok(())
        );
    }
}
