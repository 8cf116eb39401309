//! What a mailbox is and which lives it can lead.

use serde::{Deserialize, Serialize};

use crate::SecretKind;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Provider {
    /// Mail files that someone imports. Any mailbox takes imports; this one takes nothing else.
    Files,
    /// A mailbox that follows a script, at [`sim`](../../../sim): for trials and tests, spoken to over HTTP.
    Scripted,
    /// Any server that speaks IMAP.
    Imap,
    /// Google's mail, by its own API.
    Gmail,
    /// Microsoft's mail, by its Graph.
    Outlook,
}

impl Provider {
    /// As what the secret that opens a mailbox there is stored.
    pub fn secret_kind(self) -> SecretKind {
        match self {
            Self::Gmail | Self::Outlook => SecretKind::RefreshToken,
            Self::Files | Self::Scripted | Self::Imap => SecretKind::Password,
        }
    }

    pub const ALL: [Self; 5] = [Self::Files, Self::Scripted, Self::Imap, Self::Gmail, Self::Outlook];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Files => "files",
            Self::Scripted => "scripted",
            Self::Imap => "imap",
            Self::Gmail => "gmail",
            Self::Outlook => "outlook",
        }
    }

    /// Whether its ids leave open if two messages are one, so that the same bytes decide.
    pub fn binds_by_content(self) -> bool {
        match self {
            Self::Files | Self::Imap => true,
            Self::Scripted | Self::Gmail | Self::Outlook => false,
        }
    }

    /// Whether its connector has to be told which folders we know; see [`crate::connector::Account::folders`].
    pub fn compares_folders(self) -> bool {
        matches!(self, Self::Imap | Self::Gmail | Self::Outlook)
    }

    /// Whether to look costs a call and nothing that only one at a time may have, such as a connection.
    pub fn looks_by_a_call(self) -> bool {
        matches!(self, Self::Scripted | Self::Gmail | Self::Outlook)
    }

    /// Whether it can be asked to call us when something happens; see [`crate::Connector::watch`].
    pub fn pushes(self) -> bool {
        matches!(self, Self::Gmail | Self::Outlook)
    }

    /// Whether what it is asked for is one thing of the account with a name, which may not be asked for twice.
    pub fn subscribes(self) -> bool {
        self == Self::Outlook
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|provider| provider.as_str() == text)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MailboxState {
    Connecting,
    Active,
    Paused,
    NeedsReauth,
    Error,
    Disconnected,
}

impl MailboxState {
    /// Whether its provider is called by ourselves.
    pub fn is_synced(self) -> bool {
        matches!(self, Self::Connecting | Self::Active | Self::Error)
    }

    pub const ALL: [Self; 6] =
        [Self::Connecting, Self::Active, Self::Paused, Self::NeedsReauth, Self::Error, Self::Disconnected];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Connecting => "connecting",
            Self::Active => "active",
            Self::Paused => "paused",
            Self::NeedsReauth => "needs_reauth",
            Self::Error => "error",
            Self::Disconnected => "disconnected",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == text)
    }
}
