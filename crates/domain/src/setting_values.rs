//! The values of settings that mailboxes and tenants share: their limits, and how they are read and written.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// A month.
pub const MAX_INTERVAL_SECONDS: u64 = 30 * 86_400;
/// Larger than any mailbox; catches typing errors.
pub const MAX_BYTES_PER_DAY: u64 = 1 << 40;
/// More folders than a person names one by one.
pub const MAX_FOLDERS: usize = 1000;
/// Longer than the folder names of any provider.
pub const MAX_FOLDER_NAME_BYTES: usize = 1000;

/// A setting whose value is out of its limits.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field} must be {expected}")]
pub struct InvalidSetting {
    pub field: &'static str,
    pub expected: String,
}

/// Checks a list of folder names, if there is one.
pub(crate) fn check_folders(field: &'static str, folders: Option<&Vec<String>>) -> Result<(), InvalidSetting> {
    let is_valid =
        folders.is_none_or(|names| names.len() <= MAX_FOLDERS && names.iter().all(|name| is_folder_name(name)));
    if is_valid {
        return Ok(());
    }
    let expected =
        format!("at most {MAX_FOLDERS} folder names, each of 1 to {MAX_FOLDER_NAME_BYTES} bytes on one line");
    Err(InvalidSetting { field, expected })
}

fn is_folder_name(text: &str) -> bool {
    !text.is_empty() && text.len() <= MAX_FOLDER_NAME_BYTES && !text.chars().any(char::is_control)
}

/// Checks the time between two syncs, if there is one.
pub(crate) fn check_interval(seconds: Option<u64>) -> Result<(), InvalidSetting> {
    if seconds.is_none_or(is_interval) {
        return Ok(());
    }
    Err(InvalidSetting { field: "interval_seconds", expected: format!("from 1 to {MAX_INTERVAL_SECONDS} seconds") })
}

/// Returns whether syncs can be so many seconds apart.
pub(crate) fn is_interval(seconds: u64) -> bool {
    (1..=MAX_INTERVAL_SECONDS).contains(&seconds)
}

/// Checks a daily byte quota, if there is one.
pub(crate) fn check_bytes_per_day(bytes: Option<u64>) -> Result<(), InvalidSetting> {
    if bytes.is_none_or(|bytes| bytes <= MAX_BYTES_PER_DAY) {
        return Ok(());
    }
    Err(InvalidSetting { field: "bytes_per_day", expected: format!("at most {MAX_BYTES_PER_DAY} bytes") })
}

/// Takes a field out of stored settings. One whose value cannot be read stays there, so that it is written back as it was.
pub(crate) fn take<T: DeserializeOwned>(stored: &mut Map<String, Value>, field: &str) -> Option<T> {
    let value = T::deserialize(stored.get(field)?).ok()?;
    stored.remove(field);
    Some(value)
}

/// Puts a field into the settings to be stored, if it has a value.
pub(crate) fn put<T: Serialize>(stored: &mut Map<String, Value>, field: &str, value: Option<T>) {
    if let Some(value) = value.and_then(|value| serde_json::to_value(value).ok()) {
        stored.insert(field.to_owned(), value);
    }
}

/// Lists the fields that are stored with a value that could not be read.
pub(crate) fn unreadable(
    fields: &'static [&'static str],
    stored: &Map<String, Value>,
) -> impl Iterator<Item = &'static str> {
    fields.iter().copied().filter(|field| stored.get(*field).is_some_and(|value| !value.is_null()))
}
