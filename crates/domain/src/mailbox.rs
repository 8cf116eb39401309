//! The states of a mailbox, and the events that lead from one to the next.

use serde::{Deserialize, Serialize};

/// What can happen to a mailbox; [`MailboxState::after`] says which state follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MailboxEvent {
    /// A sync succeeded.
    Synced,
    /// Syncs failed several times in a row.
    FailedRepeatedly,
    /// The provider refused the credentials.
    CredentialsRefused,
    /// A person gave other credentials. `check_account`: see [`crate::Capabilities::checks_account`].
    CredentialsReplaced { check_account: bool },
    /// The directory that the mailbox belongs to has access again.
    AccessRestored,
    /// A person paused it.
    Paused,
    /// A person resumed it. `check_account`: see [`crate::Capabilities::checks_account`].
    Resumed { check_account: bool },
    /// A person disconnected it.
    Disconnected,
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
    /// Returns whether Mailroom calls the provider of a mailbox in this state.
    pub fn is_synced(self) -> bool {
        matches!(self, Self::Connecting | Self::Active | Self::Error)
    }

    /// Returns the state that follows; `None`: the event changes nothing. Everything that changes a state goes through
    /// here; the database checks that it is one of these states.
    pub fn after(self, event: MailboxEvent) -> Option<Self> {
        match (event, self) {
            // Only connecting it again brings it back.
            (_, Self::Disconnected) => None,
            (MailboxEvent::Synced, Self::Connecting | Self::Error) => Some(Self::Active),
            // One that is being connected stays so: its first successful sync checks whose it is and requests pushes.
            (MailboxEvent::FailedRepeatedly, Self::Active) => Some(Self::Error),
            (MailboxEvent::CredentialsRefused, Self::Connecting | Self::Active | Self::Error) => {
                Some(Self::NeedsReauth)
            }
            (MailboxEvent::CredentialsReplaced { check_account }, Self::NeedsReauth | Self::Error)
            | (MailboxEvent::Resumed { check_account }, Self::NeedsReauth | Self::Error | Self::Paused) => {
                Some(if check_account { Self::Connecting } else { Self::Active })
            }
            (MailboxEvent::CredentialsReplaced { check_account: true }, Self::Active) => Some(Self::Connecting),
            (MailboxEvent::AccessRestored, Self::NeedsReauth) => Some(Self::Connecting),
            (MailboxEvent::Paused, Self::Connecting | Self::Active | Self::Error | Self::NeedsReauth) => {
                Some(Self::Paused)
            }
            (MailboxEvent::Disconnected, _) => Some(Self::Disconnected),
            _ => None,
        }
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

impl MailboxEvent {
    /// Returns the states that this event changes, and the one state that it leads to.
    pub fn transition(self) -> (Vec<MailboxState>, MailboxState) {
        let changed = MailboxState::ALL.into_iter().filter_map(|from| Some((from, from.after(self)?)));
        let (from, to): (Vec<_>, Vec<_>) = changed.unzip();
        (from, to[0])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVENTS: [MailboxEvent; 10] = [
        MailboxEvent::Synced,
        MailboxEvent::FailedRepeatedly,
        MailboxEvent::CredentialsRefused,
        MailboxEvent::CredentialsReplaced { check_account: false },
        MailboxEvent::CredentialsReplaced { check_account: true },
        MailboxEvent::AccessRestored,
        MailboxEvent::Paused,
        MailboxEvent::Resumed { check_account: false },
        MailboxEvent::Resumed { check_account: true },
        MailboxEvent::Disconnected,
    ];

    #[test]
    fn each_event_leads_to_one_state() {
        for event in EVENTS {
            let (from, to) = event.transition();
            for state in MailboxState::ALL {
                let expected = from.contains(&state).then_some(to);
                assert_eq!(state.after(event), expected, "{state:?} after {event:?}");
                assert_ne!(state.after(event), Some(state), "an event that changes nothing is None: {event:?}");
            }
        }
    }

    #[test]
    fn only_people_end_a_pause() {
        let by_itself = [
            MailboxEvent::Synced,
            MailboxEvent::FailedRepeatedly,
            MailboxEvent::CredentialsRefused,
            MailboxEvent::AccessRestored,
        ];
        for event in by_itself {
            assert_eq!(MailboxState::Paused.after(event), None, "{event:?}");
        }
        assert_eq!(
            MailboxState::Paused.after(MailboxEvent::Resumed { check_account: false }),
            Some(MailboxState::Active)
        );
    }
}
