//! The types of events: everything that Mailroom records in a tenant's log or delivers to its webhooks. Code that emits an
//! event names its type from here, and `docs/events.md` is generated from it (`make docs`).

use crate::suggestion::nearest;

/// So much of an unknown name is compared and repeated; every type is shorter.
const MAX_NAME_CHARS: usize = 64;

/// The error of naming a type that does not exist.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{name:?} is no event type; did you mean {nearest}?")]
pub struct UnknownEventType {
    /// The name, cut to a length that fits into a message.
    pub name: String,
    pub nearest: EventType,
}

macro_rules! event_types {
    ($($variant:ident = $name:literal $description:literal $example:literal)*) => {
        /// What an event is about: `<thing>.<past participle>`.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum EventType { $(#[doc = $description] $variant),* }

        impl EventType {
            /// Every type, in the order of this file.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// Returns the name that is stored and sent.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $name),* }
            }

            /// Returns when such an event happens, as a sentence.
            pub fn description(self) -> &'static str {
                match self { $(Self::$variant => $description),* }
            }

            /// Returns the `data` of such an event, as JSON.
            pub fn example(self) -> &'static str {
                match self { $(Self::$variant => $example),* }
            }
        }
    };
}

// `data` has ids, and old and new values; never content of mail.
event_types! {
    EmailReceived = "email.received"
        "An email was stored."
        r#"{}"#
    EmailUpdated = "email.updated"
        "The bytes of an email were replaced, as those of a draft are."
        r#"{}"#
    EmailMoved = "email.moved"
        "An email is in other folders. `data` has the ids of its folders before and after."
        r#"{"from": ["0197a3c4-5d10-7c3e-9a41-6f2b8e0d1c01"], "to": ["0197a3c4-5d10-7c3e-9a41-6f2b8e0d1c02"]}"#
    EmailFlagsChanged = "email.flags_changed"
        "An email has other flags. `data` has its flags before and after."
        r#"{"from": [], "to": ["seen"]}"#
    EmailDeleted = "email.deleted"
        "An email was deleted at its provider. One that was deleted through the API has the `data` `{\"by\": \"api\"}` instead."
        r#"{"from": ["0197a3c4-5d10-7c3e-9a41-6f2b8e0d1c01"], "to": []}"#
    EmailRestored = "email.restored"
        "An email that was deleted is back at its provider. One that was restored through the API or by a command has the `data` `{\"by\": \"api\"}` instead."
        r#"{"from": [], "to": ["0197a3c4-5d10-7c3e-9a41-6f2b8e0d1c01"]}"#

    SyncCompleted = "sync.completed"
        "A sync of the mailbox that found something has listed all changes. New messages may still be on their way: each has an `email.received` of its own."
        r#"{}"#

    MailboxStateChanged = "mailbox.state_changed"
        "The mailbox has another state. `reason` is null if there is nothing to explain."
        r#"{"state": "needs_reauth", "reason": "the provider refused the credentials"}"#
    MailboxGapHealed = "mailbox.gap_healed"
        "Our cursor at the provider had expired, so the whole mailbox was compared with the provider. `data` counts the messages that were missing here (`found`) and those that were deleted meanwhile (`gone`)."
        r#"{"found": 3, "gone": 1}"#
    MailboxPushLost = "mailbox.push_lost"
        "Mail came that the provider had not pushed."
        r#"{}"#
    MailboxPushRestored = "mailbox.push_restored"
        "The provider pushes again."
        r#"{}"#
    MailboxActivated = "mailbox.activated"
        "Discovery found that the owner of the mailbox has come or come back."
        r#"{"reason": null}"#
    MailboxDeactivated = "mailbox.deactivated"
        "Discovery found that the owner of the mailbox has left or is excluded."
        r#"{"reason": "suspended"}"#
    MailboxRenamed = "mailbox.renamed"
        "Discovery found that the owner of the mailbox has another address."
        r#"{"address": "ann@acme.example"}"#

    DirectoryDiscovered = "directory.discovered"
        "A discovery was applied. `data` counts the users that were listed, those in the directory (`people`), the mailboxes that changed, and by reason the users without an active one (`left_out`)."
        r#"{"provider": "gmail", "listed": 120, "is_whole": true, "people": 120, "added": 4, "adopted": 0, "returned": 1, "left": 2, "renamed": 0, "left_out": {"suspended": 2}}"#
    DirectoryHeld = "directory.held"
        "A discovery was held back, because too many mailboxes would go."
        r#"{"provider": "gmail", "listed": 20, "is_whole": true, "people": 20, "added": 0, "adopted": 0, "returned": 0, "left": 100, "renamed": 0, "left_out": {"gone": 100}, "reason": "100 of 120 users would lose their mailbox; run the discovery with force to apply this"}"#
    DirectoryFailed = "directory.failed"
        "A discovery failed; `reason` says why."
        r#"{"provider": "gmail", "listed": 0, "is_whole": false, "people": 0, "added": 0, "adopted": 0, "returned": 0, "left": 0, "renamed": 0, "left_out": {}, "reason": "the provider refused the credentials"}"#

    InstallationRestored = "installation.restored"
        "The installation was brought back to an earlier moment, from a backup. What happened after the event with the number `after` is forgotten and may happen again, and the numbers from there to that of this event are void: a client that knows one of them reads anew what it needs. Webhooks get it whatever types they ask for."
        r#"{"after": 4711}"#

    WebhookDisabled = "webhook.disabled"
        "A webhook was disabled: it asked for that, or nothing was delivered for days."
        r#"{"webhook_id": "0197a3c4-5d10-7c3e-9a41-6f2b8e0d1c03", "reason": "all deliveries have failed for 5 days: status 500"}"#
    WebhookPing = "webhook.ping"
        "A test of a webhook, sent to it on request. It is delivered, but not recorded in the log."
        r#"{"webhook_id": "0197a3c4-5d10-7c3e-9a41-6f2b8e0d1c03"}"#
}

impl EventType {
    /// Returns the type of this name, or the error that names the nearest one.
    pub fn parse(name: &str) -> Result<Self, UnknownEventType> {
        Self::find(name).ok_or_else(|| {
            let name: String = name.chars().take(MAX_NAME_CHARS).collect();
            let nearest = nearest(&name, Self::ALL.iter().map(|known| known.as_str())).and_then(Self::find);
            UnknownEventType { nearest: nearest.unwrap_or(Self::EmailReceived), name }
        })
    }

    fn find(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|known| known.as_str() == name)
    }
}

impl std::fmt::Display for EventType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Returns the page `docs/events.md`.
pub fn page() -> String {
    let mut page = String::from(
        "# Events\n\n\
         ```\ncurl \"$api/events?after=0&types=email.received,email.deleted\"\n```\n\n\
         (`$api` and `curl` as in [five minutes over HTTP](../README.md#five-minutes-over-http).) The types of the events that \
         the [API](api.md#events) lists and streams, and that [webhooks](webhooks.md) deliver. `data` has ids, and old and new \
         values; never content of mail. A client ignores keys of `data` that it does not know.\n\n\
         ```json\n\
         {\"seq\": 42, \"type\": \"email.flags_changed\", \"mailbox_id\": \"…\", \"email_id\": \"…\", \"backfill\": false, \
         \"data\": {\"from\": [], \"to\": [\"seen\"]}, \"at\": \"2026-11-02T10:00:01.123Z\"}\n```\n\n\
         `mailbox_id` and `email_id` are null where an event is not about a mailbox or an email. `backfill` marks mail that was \
         there before its mailbox was connected. A name that is not in this table is refused, as a filter and for a webhook.\n\n\
         This page is generated from [the types](../crates/domain/src/event_type.rs) by `make docs`.\n\n\
         | type | when | example of `data` |\n|---|---|---|\n",
    );
    for known in EventType::ALL {
        page += &format!("| `{known}` | {} | `{}` |\n", known.description(), known.example());
    }
    page + "\n\
        More about [states of mailboxes](mailboxes.md#look-after-them), [discovery](providers/directories.md), [webhooks that \
        are disabled](webhooks.md#retries) and [restores](backup.md#events-after-a-restore).\n"
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;

    #[test]
    fn types_are_read_back_by_their_names() {
        let names: BTreeSet<&str> = EventType::ALL.iter().map(|known| known.as_str()).collect();

        assert_eq!(names.len(), EventType::ALL.len(), "a name is there twice");
        for known in EventType::ALL {
            assert_eq!(EventType::parse(known.as_str()), Ok(*known));
            assert!(known.as_str().len() <= MAX_NAME_CHARS, "{known}");
        }
    }

    #[test]
    fn names_and_descriptions_fit_into_a_table() {
        for known in EventType::ALL {
            let (thing, change) = known.as_str().split_once('.').unwrap();
            for part in [thing, change] {
                assert!(!part.is_empty() && part.chars().all(|c| c.is_ascii_lowercase() || c == '_'), "{known}");
            }
            assert!(known.description().ends_with('.') && !known.description().contains(['|', '\n']), "{known}");
            assert!(known.example().starts_with('{') && !known.example().contains(['|', '\n', '`']), "{known}");
        }
    }

    #[test]
    fn unknown_type_is_told_with_the_nearest_one() {
        let refused = EventType::parse("email.recieved").unwrap_err();

        assert_eq!(refused.nearest, EventType::EmailReceived);
        assert_eq!(refused.to_string(), r#""email.recieved" is no event type; did you mean email.received?"#);
        assert_eq!(EventType::parse("webhook.pings").unwrap_err().nearest, EventType::WebhookPing);
    }

    #[test]
    fn long_unknown_type_is_cut() {
        let refused = EventType::parse(&"ä".repeat(100_000)).unwrap_err();

        assert_eq!(refused.name.chars().count(), MAX_NAME_CHARS);
    }

    #[test]
    fn events_page_is_what_the_types_say() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/events.md");
        let stored = std::fs::read_to_string(path).unwrap_or_default();

        assert_eq!(stored, page(), "docs/events.md is old: run `make docs`");
    }
}
