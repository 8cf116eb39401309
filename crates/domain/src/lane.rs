//! Priority lanes of jobs.

use serde::{Deserialize, Serialize};

/// A job's priority. Critical jobs go first; the other lanes share the rest, so that low is slow and never starved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Lane {
    Critical,
    High,
    #[default]
    Normal,
    Low,
}

impl Lane {
    pub const ALL: [Self; 4] = [Self::Critical, Self::High, Self::Normal, Self::Low];

    /// Returns the number stored in the database: smaller is more urgent.
    pub fn number(self) -> i64 {
        self as i64
    }

    pub fn from_number(number: i64) -> Option<Self> {
        Self::ALL.into_iter().find(|lane| lane.number() == number)
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Critical => "critical",
            Self::High => "high",
            Self::Normal => "normal",
            Self::Low => "low",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|lane| lane.as_str() == text)
    }
}
