//! Validates and cleans ids and names that a provider's server chose.

use domain::ConnectorError;

use crate::http::protocol;

const MAX_NAME_BYTES: usize = 1_000;

/// Returns the id if it is short and has no control characters; PostgreSQL for one does not store NUL.
pub fn valid_id(text: String) -> Result<String, ConnectorError> {
    if text.is_empty() || text.len() > MAX_NAME_BYTES || text.contains(char::is_control) {
        return Err(protocol("an id is empty, too long or has control characters"));
    }
    Ok(text)
}

/// Returns a name for people, without control characters, which databases do not store, and cut to a fixed length.
pub fn printable(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(MAX_NAME_BYTES).collect()
}
