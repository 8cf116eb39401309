//! How much existing mail of a mailbox is synced: one type, one text, one parser for configuration, HTTP, commands and
//! stored settings.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::units::parse_duration;

/// How much existing mail is synced. As text: `all`, `none`, or a duration such as `30d`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "StoredBackfill", into = "String")]
pub enum Backfill {
    All,
    None,
    Last(Duration),
}

/// A text that is neither `all` nor `none` nor a duration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be {BACKFILL_FORMAT}")]
pub struct InvalidBackfill;

/// The accepted texts, for people.
pub const BACKFILL_FORMAT: &str = "all, none, or a number of days such as 30d";

/// Units of the text form, in milliseconds, the largest first.
const UNITS: [(u128, &str); 5] = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1000, "s"), (1, "ms")];

impl Backfill {
    /// Returns the time before which mail is left out.
    pub fn since(self, now: Timestamp) -> Option<Timestamp> {
        match self {
            Self::All => None,
            Self::None => Some(now),
            // Further back than time is represented: all of it.
            Self::Last(duration) => now.checked_sub(duration).ok(),
        }
    }

    /// Reads the form in which directories store it: seconds, and nothing for all mail.
    pub fn from_seconds(seconds: Option<u64>) -> Self {
        match seconds {
            None => Self::All,
            Some(0) => Self::None,
            Some(seconds) => Self::Last(Duration::from_secs(seconds)),
        }
    }

    /// Returns the form in which directories store it; see [`Backfill::from_seconds`].
    pub fn seconds(self) -> Option<u64> {
        match self {
            Self::All => None,
            Self::None => Some(0),
            Self::Last(duration) => Some(duration.as_secs()),
        }
    }
}

impl FromStr for Backfill {
    type Err = InvalidBackfill;

    fn from_str(text: &str) -> Result<Self, InvalidBackfill> {
        match text.trim() {
            "all" => Ok(Self::All),
            "none" => Ok(Self::None),
            text => match parse_duration(text) {
                Ok(Duration::ZERO) => Ok(Self::None),
                Ok(duration) => Ok(Self::Last(duration)),
                Err(_) => Err(InvalidBackfill),
            },
        }
    }
}

impl fmt::Display for Backfill {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = match self {
            Self::All => return f.write_str("all"),
            Self::None => return f.write_str("none"),
            Self::Last(duration) => duration.as_millis(),
        };
        // Every number is a multiple of one millisecond, the last unit.
        let unit = UNITS.iter().find(|(size, _)| millis.is_multiple_of(*size));
        let (size, name) = unit.unwrap_or(&UNITS[UNITS.len() - 1]);
        write!(f, "{}{name}", millis / size)
    }
}

/// The forms that were ever written. A consent that began under an earlier version is completed under this one.
#[derive(Deserialize)]
#[serde(untagged)]
enum StoredBackfill {
    Text(String),
    Earlier {
        #[serde(rename = "Last")]
        last: Duration,
    },
}

impl TryFrom<StoredBackfill> for Backfill {
    type Error = InvalidBackfill;

    fn try_from(stored: StoredBackfill) -> Result<Self, InvalidBackfill> {
        match stored {
            StoredBackfill::Earlier { last } => Ok(Self::Last(last)),
            StoredBackfill::Text(text) if text == "All" => Ok(Self::All),
            StoredBackfill::Text(text) if text == "None" => Ok(Self::None),
            StoredBackfill::Text(text) => text.parse(),
        }
    }
}

impl From<Backfill> for String {
    fn from(backfill: Backfill) -> Self {
        backfill.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn form_of_an_earlier_version_is_read() {
        for (stored, expected) in [
            (r#""All""#, Backfill::All),
            (r#""None""#, Backfill::None),
            (r#"{"Last":{"secs":86400,"nanos":0}}"#, Backfill::Last(Duration::from_secs(86_400))),
            (r#""30d""#, Backfill::Last(Duration::from_secs(30 * 86_400))),
        ] {
            assert_eq!(serde_json::from_str::<Backfill>(stored).unwrap(), expected, "{stored}");
        }
    }

    #[test]
    fn backfill_text_is_read_back_as_written() {
        for text in ["all", "none", "30d", "36h", "90m", "61s", "1500ms"] {
            assert_eq!(text.parse::<Backfill>().unwrap().to_string(), text);
        }
        assert_eq!("24h".parse(), Ok(Backfill::Last(Duration::from_secs(86_400))));
        assert_eq!("24h".parse::<Backfill>().unwrap().to_string(), "1d");
        assert_eq!("0d".parse(), Ok(Backfill::None));
    }

    #[test]
    fn other_texts_are_no_backfill() {
        for text in ["", "some", "30", "-1d", "30 days", "99999999999999999999d"] {
            assert_eq!(text.parse::<Backfill>(), Err(InvalidBackfill), "{text}");
        }
    }

    #[test]
    fn directories_store_backfills_in_seconds() {
        for (backfill, seconds) in [
            (Backfill::All, None),
            (Backfill::None, Some(0)),
            (Backfill::Last(Duration::from_secs(86_400)), Some(86_400)),
        ] {
            assert_eq!((backfill.seconds(), Backfill::from_seconds(seconds)), (seconds, backfill));
        }
    }
}
