//! Names that somebody else's server made up.

use domain::ConnectorError;

use crate::http::protocol;

const LONGEST: usize = 1_000;

/// Short and without control characters, of which NUL is one that PostgreSQL does not take.
pub fn name(text: String) -> Result<String, ConnectorError> {
    if text.is_empty() || text.len() > LONGEST || text.contains(char::is_control) {
        return Err(protocol("a name that cannot be one"));
    }
    Ok(text)
}

/// For people, who name folders as they like; only what no database takes is left out.
pub fn shown(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(LONGEST).collect()
}
