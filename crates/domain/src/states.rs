//! The states of stored things. The database repeats each list as a CHECK.

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
    /// How far a message listed by a provider has been processed.
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
        /// The rows are stored, some bytes are not yet.
        Failed = "failed",
    }
    AttachmentStatus {
        Stored = "stored",
        Pending = "pending",
        Failed = "failed",
        /// Left out for a limit; the bytes are in the raw message only.
        Skipped = "skipped",
    }
    /// The state of a job. The last three are final.
    JobState {
        /// Not due yet.
        Scheduled = "scheduled",
        /// Behind a parent, or behind the head of its ordering key.
        Blocked = "blocked",
        /// About to be cancelled, because a parent failed or on request.
        Doomed = "doomed",
        Ready = "ready",
        Running = "running",
        /// Failed, and retried when due.
        Retry = "retry",
        Done = "done",
        /// Failed for the last time: a dead letter.
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
    /// A webhook is paused by its owner and disabled by Mailroom when deliveries keep failing; a removed one stays until
    /// its deliveries are pruned.
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
