//! The lives of stored things. The database repeats each list as a CHECK.

use serde::{Deserialize, Serialize};

macro_rules! states {
    ($($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $text:literal),* $(,)? })*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum $name { $($(#[$vdoc])* $variant),* }

        impl $name {
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text),* }
            }

            pub fn parse(text: &str) -> Option<Self> {
                match text { $($text => Some(Self::$variant),)* _ => None }
            }
        }
    )*};
}

states! {
    /// How far a message that a provider showed us has come.
    LedgerState {
        Queued = "queued",
        Processing = "processing",
        Processed = "processed",
        Failed = "failed",
        Skipped = "skipped",
        Gone = "gone",
    }
    /// Whether everything of an email is stored.
    ProcessingStatus {
        Processed = "processed",
        /// Rows are there, some bytes are not yet.
        Failed = "failed",
    }
    AttachmentStatus {
        Stored = "stored",
        Pending = "pending",
        Failed = "failed",
        /// Left out for a limit; the bytes are in the raw message only.
        Skipped = "skipped",
    }
    /// A life of a piece of work. The last three are over.
    JobState {
        /// Not due yet.
        Scheduled = "scheduled",
        /// Behind a parent, or behind the head of its ordering key.
        Blocked = "blocked",
        /// About to be cancelled: a parent failed, or somebody wanted that.
        Doomed = "doomed",
        Ready = "ready",
        Running = "running",
        /// Went wrong, and is tried again when it is due.
        Retry = "retry",
        Done = "done",
        /// Went wrong too often.
        Dead = "dead",
        Cancelled = "cancelled",
    }
    /// A pack is `writing` before its object exists, `live` from the commit that names its members, `dead` when it is
    /// about to be deleted.
    PackState {
        Writing = "writing",
        Live = "live",
        Dead = "dead",
    }
    /// A webhook is paused by its owner and disabled by us, when nothing comes through; a removed one is there until its
    /// deliveries are forgotten.
    WebhookState {
        Active = "active",
        Paused = "paused",
        Disabled = "disabled",
        Removed = "removed",
    }
    DeliveryState {
        Waiting = "waiting",
        Delivered = "delivered",
        Failed = "failed",
    }
}
