//! The providers that mail comes from, and how they differ.

use serde::{Deserialize, Serialize};

use crate::SecretKind;

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
}

impl Provider {
    /// Returns the kind under which a mailbox's secret is stored.
    pub fn secret_kind(self) -> SecretKind {
        match self {
            Self::Gmail | Self::Outlook => SecretKind::RefreshToken,
            Self::Files | Self::Imap => SecretKind::Password,
        }
    }

    /// Returns whether other credentials may be those of another account, so that the account is checked before anything
    /// is stored: a refresh token says whose it is, a password belongs to the address.
    pub fn checks_account(self) -> bool {
        self.secret_kind() == SecretKind::RefreshToken
    }

    pub const ALL: [Self; 4] = [Self::Files, Self::Imap, Self::Gmail, Self::Outlook];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Files => "files",
            Self::Imap => "imap",
            Self::Gmail => "gmail",
            Self::Outlook => "outlook",
        }
    }

    /// Returns whether its mail comes from a server, which may be slow.
    pub fn is_remote(self) -> bool {
        self != Self::Files
    }

    /// Returns whether messages are deduplicated by their bytes, because the provider's ids do not identify them.
    pub fn identifies_messages_by_content(self) -> bool {
        match self {
            Self::Files | Self::Imap => true,
            Self::Gmail | Self::Outlook => false,
        }
    }

    /// Returns whether its connector needs the recorded folders; see [`crate::connector::ConnectorAccount::folders`].
    pub fn needs_known_folders(self) -> bool {
        matches!(self, Self::Imap | Self::Gmail | Self::Outlook)
    }

    /// Returns whether a poll is a single API call, which needs no exclusive connection.
    pub fn polls_without_connection(self) -> bool {
        matches!(self, Self::Gmail | Self::Outlook)
    }

    /// Returns whether it can send push notifications; see [`crate::Connector::watch`].
    pub fn supports_push(self) -> bool {
        matches!(self, Self::Gmail | Self::Outlook)
    }

    /// Returns whether its push notifications are a subscription with an id, which must not be requested twice.
    pub fn has_named_subscription(self) -> bool {
        self == Self::Outlook
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|provider| provider.as_str() == text)
    }
}
