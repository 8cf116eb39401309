//! Ids are newtypes over time-ordered UUIDs: one string in a log, a URL and a row, and the type keeps a tenant's id
//! from being used as a mailbox's.

use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use sha2::Digest;
use uuid::Uuid;

use crate::Clock;

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub Uuid);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }

        impl FromStr for $name {
            type Err = uuid::Error;

            fn from_str(text: &str) -> Result<Self, uuid::Error> {
                Uuid::try_parse(text).map(Self)
            }
        }
    )*};
}

/// Ids that are generated, not derived: ordered by the time of creation.
macro_rules! generated {
    ($($name:ident),*) => {$(
        impl $name {
            pub fn new(clock: &dyn Clock) -> Self {
                Self(time_ordered(clock))
            }
        }
    )*};
}

ids! {
    /// A customer. Every other row belongs to exactly one.
    TenantId;
    /// One connected account at one provider, or a mailbox that only takes imports.
    MailboxId;
    /// A folder or label of a mailbox.
    FolderId;
    /// A stored message. Derived, so that recording it twice gives the same id.
    EmailId;
    /// A part of an email that a person would call an attachment.
    AttachmentId;
    /// One object in blob storage that holds many blobs.
    PackId;
    /// An API key; the secret half is not part of it.
    ApiKeyId;
    /// A durable job, which outlives the process that runs it.
    JobId;
    /// One run of a process that works on jobs.
    WorkerId;
    /// An encrypted credential: it opens a mailbox or signs webhooks.
    SecretId;
    /// One request over HTTP.
    RequestId;
    /// A tenant's endpoint for events.
    WebhookId;
    /// A person in a tenant's directory.
    UserId;
    /// One event for one webhook, however often it is attempted. Derived, so that repeating the work gives the same id.
    DeliveryId;
}

generated!(
    TenantId, MailboxId, FolderId, PackId, ApiKeyId, JobId, WorkerId, SecretId, RequestId, WebhookId, DeliveryId,
    UserId
);

impl TenantId {
    /// Owns the jobs that Mailroom runs for itself.
    pub const SYSTEM: Self = Self(Uuid::nil());
}

impl EmailId {
    /// Derives an id: the receive time, then a hash of the mailbox and the provider's message id. Time goes first so that
    /// ids sort by age and databases can partition tables by them.
    pub fn derive(received_at: Timestamp, mailbox: MailboxId, provider_message_id: &str) -> Self {
        let hash = sha2::Sha256::new()
            .chain_update(mailbox.0.as_bytes())
            .chain_update(provider_message_id.as_bytes())
            .finalize();
        Self(v8(millis(received_at), &hash))
    }

    /// Returns the lower bound of the ids of all emails received at this time or later.
    pub fn first_at(received_at: Timestamp) -> Self {
        Self(Uuid::from_u128(u128::from(millis(received_at)) << 80))
    }

    /// Returns the time that the id was derived from, to the millisecond.
    pub fn received_at(self) -> Timestamp {
        let ms = self.0.as_u128() >> 80;
        Timestamp::from_millisecond(ms as i64)
            .expect("48 bits of milliseconds end in the year 10889, within range: ids are derived from timestamps")
    }
}

impl MailboxId {
    /// Derives the id under which calls to a tenant's directory are counted; no mailbox has it.
    pub fn of_directory(tenant: TenantId, provider: &str) -> Self {
        let hash = sha2::Sha256::new().chain_update(b"directory ").chain_update(tenant.0.as_bytes());
        Self(v8((tenant.0.as_u128() >> 80) as u64, &hash.chain_update(provider.as_bytes()).finalize()))
    }
}

impl AttachmentId {
    /// Derives an id: the email's time bits, then a hash of the email and the part's path in it.
    pub fn derive(email: EmailId, part_path: &str) -> Self {
        let hash = sha2::Sha256::new().chain_update(email.0.as_bytes()).chain_update(part_path.as_bytes()).finalize();
        Self(v8((email.0.as_u128() >> 80) as u64, &hash))
    }
}

impl SecretId {
    /// Derives the id of a mailbox's access token, so that no row has to name it.
    pub fn of_access_token(mailbox: MailboxId) -> Self {
        let hash = sha2::Sha256::new().chain_update(b"access token ").chain_update(mailbox.0.as_bytes()).finalize();
        Self(v8((mailbox.0.as_u128() >> 80) as u64, &hash))
    }
}

impl DeliveryId {
    /// Derives an id: the time of the event, then a hash of the webhook and the event's number. A ping has no event, and a
    /// generated id.
    pub fn derive(at: Timestamp, webhook: WebhookId, event_seq: u64) -> Self {
        let hash =
            sha2::Sha256::new().chain_update(webhook.0.as_bytes()).chain_update(event_seq.to_be_bytes()).finalize();
        Self(v8(millis(at), &hash))
    }

    /// Returns the lower bound of all ids of this time or later.
    pub fn first_at(at: Timestamp) -> Self {
        Self(Uuid::from_u128(u128::from(millis(at)) << 80))
    }
}

fn millis(time: Timestamp) -> u64 {
    u64::try_from(time.as_millisecond()).unwrap_or(0)
}

/// Builds a UUIDv8 (RFC 9562 §5.8): 48 bits of time, version and variant, and 74 bits of hash.
fn v8(millis: u64, hash: &[u8]) -> Uuid {
    let mut bytes = [0; 16];
    bytes[..6].copy_from_slice(&millis.to_be_bytes()[2..]);
    bytes[6..].copy_from_slice(&hash[..10]);
    bytes[6] = 0x80 | bytes[6] & 0x0f;
    bytes[8] = 0x80 | bytes[8] & 0x3f;
    Uuid::from_bytes(bytes)
}

fn time_ordered(clock: &dyn Clock) -> Uuid {
    let now = clock.now();
    let seconds = u64::try_from(now.as_second()).unwrap_or(0);
    let nanos = u32::try_from(now.subsec_nanosecond()).unwrap_or(0);
    Uuid::new_v7(uuid::Timestamp::from_unix(uuid::NoContext, seconds, nanos))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TestClock;

    fn mailbox() -> MailboxId {
        MailboxId::new(&TestClock::at("2026-01-01T00:00:00Z".parse().unwrap()))
    }

    #[test]
    fn email_id_depends_on_mailbox_and_message() {
        let (mine, yours) = (mailbox(), mailbox());
        let time = "2026-02-03T04:05:06Z".parse().unwrap();

        assert_eq!(EmailId::derive(time, mine, "sha256:1"), EmailId::derive(time, mine, "sha256:1"));
        assert_ne!(EmailId::derive(time, mine, "sha256:1"), EmailId::derive(time, yours, "sha256:1"));
        assert_eq!(EmailId::derive(time, mine, "sha256:1").0.get_version_num(), 8);
    }

    #[test]
    fn email_and_attachment_ids_sort_by_receive_time() {
        let mailbox = mailbox();
        let early = EmailId::derive("1990-01-01T00:00:00Z".parse().unwrap(), mailbox, "z");
        let late = EmailId::derive("2026-02-03T04:05:06.007Z".parse().unwrap(), mailbox, "a");

        assert!(early < late);
        assert!(early < EmailId::first_at(late.received_at()) && EmailId::first_at(late.received_at()) < late);
        assert!(AttachmentId::derive(early, "1.9") < AttachmentId::derive(late, "1.1"));
        assert_eq!(late.received_at(), "2026-02-03T04:05:06.007Z".parse().unwrap());
    }
}
