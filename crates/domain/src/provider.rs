//! The providers that mail comes from.

use serde::{Deserialize, Serialize};

use crate::Capabilities;

/// Where a mailbox's mail comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Provider {
    /// Imported mail files. Any mailbox accepts imports; this one has no other source.
    Files,
    /// Any server that speaks IMAP.
    Imap,
    /// Google's mail, by its own API.
    Gmail,
    /// Microsoft's mail, by its Graph.
    Outlook,
    /// Any server that speaks JMAP.
    Jmap,
}

impl Provider {
    pub const ALL: [Self; 5] = [Self::Files, Self::Imap, Self::Gmail, Self::Outlook, Self::Jmap];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Files => "files",
            Self::Imap => "imap",
            Self::Gmail => "gmail",
            Self::Outlook => "outlook",
            Self::Jmap => "jmap",
        }
    }

    /// Returns how it differs from other providers.
    pub fn capabilities(self) -> &'static Capabilities {
        match self {
            Self::Files => &Capabilities::FILES,
            Self::Imap => &Capabilities::IMAP,
            Self::Gmail => &Capabilities::GMAIL,
            Self::Outlook => &Capabilities::OUTLOOK,
            Self::Jmap => &Capabilities::JMAP,
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|provider| provider.as_str() == text)
    }
}
