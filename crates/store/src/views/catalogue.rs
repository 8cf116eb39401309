//! The views, each with its columns and what they mean. A column stays once it is released; new ones come last.

use super::ViewColumnKind::{Day, Hash, Id, Json, Month, Number, Text, Time, Truth};
use super::{SqlView, ViewColumn, ViewColumnKind};

const TENANT: ViewColumn = column("tenant_id", Id, "The tenant.");
const MAILBOX: ViewColumn = column("mailbox_id", Id, "The mailbox.");

/// A column that is called as in the table.
const fn column(name: &'static str, kind: ViewColumnKind, meaning: &'static str) -> ViewColumn {
    ViewColumn { name, source: name, kind, meaning }
}

/// A column that is made from another, or that the table calls otherwise.
const fn column_from(
    source: &'static str,
    name: &'static str,
    kind: ViewColumnKind,
    meaning: &'static str,
) -> ViewColumn {
    ViewColumn { name, source, kind, meaning }
}

pub const VIEWS: &[SqlView] = &[
    SqlView {
        name: "mailroom_emails",
        table: "emails",
        meaning: "Every stored email, once per mailbox. A soft-deleted one has deleted_at.",
        columns: &[
            column_from("id", "email_id", Id, "The id of the email. Ids sort by the time of receipt."),
            TENANT,
            MAILBOX,
            column("provider", Text, "The provider that it came from; files for what was imported."),
            column("provider_message_id", Text, "What the provider calls it; sha256:… for imported files."),
            column("internet_message_id", Text, "Its Message-ID. May be missing, repeated or forged."),
            column("thread_id", Text, "The thread, where the provider has threads."),
            column("conversation_id", Text, "The conversation, where the provider has conversations."),
            column("subject", Text, "The subject."),
            column("from_name", Text, "The name of the sender."),
            column("from_address", Text, "The address of the sender, as it was written."),
            column("sent_at", Time, "The time that its Date header gives."),
            column("received_at", Time, "The time of receipt."),
            column_from("received_at", "received_day", Day, "The day of receipt in UTC, such as 2024-01-31."),
            column_from("received_at", "received_month", Month, "The month of receipt in UTC, such as 2024-01."),
            column("size_bytes", Number, "The size of the original."),
            column("has_attachments", Truth, "Whether it has attachments."),
            column("body_text", Text, "Its text; of mail that has only HTML, the text made from it."),
            column("body_html", Text, "Its HTML."),
            column("headers", Json, "All headers in their order: a list of pairs of name and value."),
            column("defects", Json, "What was wrong with the message: a list of names."),
            column("processing_status", Text, "processed, or failed if parts of it could not be stored yet."),
            column("raw_sha256", Hash, "The SHA-256 of the original."),
            column("deleted_at", Time, "Since when it is soft-deleted."),
            column("created_at", Time, "When it was stored."),
        ],
    },
    SqlView {
        name: "mailroom_recipients",
        table: "email_recipients",
        meaning: "The recipients of emails.",
        columns: &[
            column("email_id", Id, "The email."),
            TENANT,
            column("position", Number, "The place among the recipients of the email, from 0."),
            column("kind", Text, "to, cc, bcc or reply_to."),
            column("address", Text, "The address, in lower case."),
            column("name", Text, "The name."),
        ],
    },
    SqlView {
        name: "mailroom_attachments",
        table: "attachments",
        meaning: "The attachments of emails. Their bytes are in blob storage.",
        columns: &[
            column_from("id", "attachment_id", Id, "The id of the attachment."),
            TENANT,
            column("email_id", Id, "The email."),
            column("position", Number, "The place among the attachments of the email, from 0."),
            column("filename", Text, "The name of the file."),
            column("content_type", Text, "The type that the message gives."),
            column("sniffed_type", Text, "The type that the bytes look like."),
            column("size_bytes", Number, "The size, decoded."),
            column("sha256", Hash, "The SHA-256 of the bytes."),
            column("md5", Text, "The MD5 of the bytes, for comparing with other systems."),
            column("is_inline", Truth, "Whether the message shows it within its text."),
            column("content_id", Text, "What the HTML calls it."),
            column("status", Text, "stored, pending, failed or skipped."),
            column("created_at", Time, "When it was recorded."),
        ],
    },
    SqlView {
        name: "mailroom_placements",
        table: "placements",
        meaning: "Which message is in which folder, now (is_live) or earlier.",
        columns: &[
            TENANT,
            MAILBOX,
            column("folder_id", Id, "The folder."),
            column("email_id", Id, "The email; empty until it is stored."),
            column("provider_message_id", Text, "What the provider calls the message."),
            column("flags", Json, "Flags there, such as seen: a list of names."),
            column("is_live", Truth, "Whether it is there now."),
            column("created_at", Time, "When it was first seen there."),
            column("updated_at", Time, "When this last changed."),
        ],
    },
    SqlView {
        name: "mailroom_folders",
        table: "folders",
        meaning: "The folders of mailboxes; labels at Gmail.",
        columns: &[
            column_from("id", "folder_id", Id, "The id of the folder."),
            TENANT,
            MAILBOX,
            column("name", Text, "The whole path."),
            column("role", Text, "inbox, sent, trash, …, if it has one."),
            column("is_in_scope", Truth, "Whether its mail is stored."),
            column("gone_at", Time, "Since when the provider does not have it any more."),
            column("created_at", Time, "When it was first seen."),
        ],
    },
    SqlView {
        name: "mailroom_mailboxes",
        table: "mailboxes",
        meaning: "The mailboxes.",
        columns: &[
            column_from("id", "mailbox_id", Id, "The id of the mailbox."),
            TENANT,
            column("provider", Text, "The provider; files for one that only takes imports."),
            column("address", Text, "Its address."),
            column("state", Text, "connecting, active, paused, needs_reauth, error or disconnected."),
            column("state_reason", Text, "Why it is in this state."),
            column("state_since", Time, "Since when."),
            column("is_active", Truth, "Whether it is in use."),
            column("created_at", Time, "When it was made."),
            column("updated_at", Time, "When it last changed."),
        ],
    },
    SqlView {
        name: "mailroom_sync_states",
        table: "sync_states",
        meaning: "How far the sync of each mailbox is. Mailboxes that only take imports have none.",
        columns: &[
            MAILBOX,
            TENANT,
            column("status", Text, "syncing, idle or error."),
            column("last_sync_at", Time, "When it was last synced."),
            column("next_sync_at", Time, "When it is due."),
            column_from("news_at", "last_change_at", Time, "When a sync last found something new."),
            column_from("is_history_done", "is_backfill_done", Truth, "Whether all older mail is listed."),
            column("error_count", Number, "How often it has failed since it last succeeded."),
            column("last_error", Text, "Why it failed last."),
            column("paused_until", Time, "Until when the provider is left alone."),
            column("paused_reason", Text, "Why it is."),
            column("updated_at", Time, "When this last changed."),
        ],
    },
    SqlView {
        name: "mailroom_ledger",
        table: "ledger",
        meaning: "Every message that a provider has shown us, and what became of it.",
        columns: &[
            TENANT,
            MAILBOX,
            column("provider_message_id", Text, "What the provider calls the message."),
            column("state", Text, "queued, processing, processed, failed, skipped or gone."),
            column("reason", Text, "Why it was skipped or has failed."),
            column("email_id", Id, "The email, once it is stored."),
            column("size_bytes", Number, "Its size, as far as it is known."),
            column("received_at", Time, "The time of receipt that the provider gives."),
            column("is_backfill", Truth, "Whether it was there before the mailbox was connected."),
            column("attempts", Number, "How often it was fetched."),
            column("first_seen_at", Time, "When the provider first showed it."),
            column_from("processing_completed_at", "completed_at", Time, "When it was done."),
        ],
    },
    SqlView {
        name: "mailroom_events",
        table: "events",
        meaning: "What happened to a tenant's mail, in the order of commits. Old events are removed.",
        columns: &[
            TENANT,
            column("seq", Number, "The number of the event, counted per tenant without gaps."),
            column("at", Time, "When it happened."),
            column("type", Text, "What happened, such as email.received."),
            column("mailbox_id", Id, "The mailbox, if it is about one."),
            column("email_id", Id, "The email, if it is about one."),
            column("is_backfill", Truth, "Whether the mail was there before its mailbox was connected."),
            column("data", Json, "What else there is to know."),
        ],
    },
    SqlView {
        name: "mailroom_tenants",
        table: "tenants",
        meaning: "The tenants; for the reader of one tenant, that one.",
        columns: &[
            column_from("id", "tenant_id", Id, "The id of the tenant."),
            column("name", Text, "Its name."),
            column("plan_tier", Text, "standard or vip."),
            column("is_active", Truth, "Whether it is in use."),
            column("created_at", Time, "When it was made."),
            column("updated_at", Time, "When it last changed."),
        ],
    },
];
