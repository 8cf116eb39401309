//! The operations: one function for each thing that a person can do, in a folder for what it is done to.
//!
//! An operation takes its [`Invocation`], with the actor. It computes the next row once, and writes that very row, if the
//! present one is still as it was read, in one unit with the audit entry, the events and the reply that is kept under the
//! caller's idempotency key. API and commands read a form, call, and show the outcome; they change nothing by themselves.

pub mod api_keys;
pub mod dead_letters;
pub mod directories;
pub mod emails;
pub mod installation;
mod invocation;
pub mod jobs;
pub mod mailboxes;
pub mod queues;
pub mod recurring;
mod refusal;
pub mod sql_readers;
pub mod tenants;
pub mod webhooks;

pub use invocation::{IdempotencyKey, Invocation, KeptReply, Origin, database_now, find_reply};
pub use refusal::Refusal;

/// An entry of the table of operations.
#[derive(Debug, PartialEq, Eq)]
pub struct Operation {
    /// The action in audit entries.
    pub name: &'static str,
    pub on: Resource,
    pub tenant: TenantRequirement,
    pub repeat: RepeatPolicy,
}

/// The kind of thing that an operation is done to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resource {
    Installation,
    Tenant,
    ApiKey,
    Mailbox,
    Directory,
    Email,
    Webhook,
    Job,
    /// The jobs of a lane, a kind or a tenant.
    Queue,
    DeadLetters,
    Recurring,
    /// A login of PostgreSQL that reads with SQL.
    SqlReader,
}

/// What an operation requires of the tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TenantRequirement {
    None,
    /// It is active: otherwise the work that is asked for would not be done.
    Active,
    /// It is not on legal hold: the operation destroys or hides what the hold preserves.
    NotHeld,
}

/// The effect of the same request again, under its idempotency key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RepeatPolicy {
    /// None: the reply was kept in the commit of the change.
    Once,
    /// Many commits, after which the reply is kept: until then it goes on where it was interrupted, then none.
    Resumed,
    /// None once the reply is kept, after the commits of the change. Interrupted before that, it is done again, or refused
    /// because it is done.
    AtLeastOnce,
}

macro_rules! operations {
    ($($constant:ident: $name:literal on $resource:ident, $tenant:ident, $repeat:ident;)*) => {
        $(
            pub const $constant: Operation = Operation {
                name: $name,
                on: Resource::$resource,
                tenant: TenantRequirement::$tenant,
                repeat: RepeatPolicy::$repeat,
            };
        )*

        /// All operations.
        pub const ALL: &[&Operation] = &[$(&$constant),*];
    };
}

operations! {
    TENANT_CREATE: "tenant.create" on Tenant, None, Once;
    TENANT_CHANGE: "tenant.change" on Tenant, None, Once;
    TENANT_DELETE: "tenant.delete" on Tenant, NotHeld, Once;
    TENANT_UNDELETE: "tenant.undelete" on Tenant, None, Once;
    API_KEY_CREATE: "api_key.create" on ApiKey, None, Once;
    API_KEY_REVOKE: "api_key.revoke" on ApiKey, None, Once;
    MAILBOX_CREATE: "mailbox.create" on Mailbox, None, Once;
    MAILBOX_CONNECT: "mailbox.connect" on Mailbox, None, Once;
    MAILBOX_RECONNECT: "mailbox.reconnect" on Mailbox, None, Once;
    MAILBOX_CHANGE: "mailbox.change" on Mailbox, None, Once;
    MAILBOX_PAUSE: "mailbox.pause" on Mailbox, None, Once;
    MAILBOX_RESUME: "mailbox.resume" on Mailbox, None, Once;
    MAILBOX_SYNC: "mailbox.sync" on Mailbox, Active, Once;
    MAILBOX_APPLY_REMOVALS: "mailbox.apply_removals" on Mailbox, Active, Once;
    MAILBOX_DISCONNECT: "mailbox.disconnect" on Mailbox, None, Once;
    MAILBOX_ERASE: "mailbox.erase" on Mailbox, NotHeld, Once;
    DIRECTORY_PUT: "directory.put" on Directory, None, Once;
    DIRECTORY_DELETE: "directory.delete" on Directory, None, Once;
    DIRECTORY_DISCOVER: "directory.discover" on Directory, Active, Once;
    EMAIL_DELETE: "email.delete" on Email, NotHeld, Once;
    EMAIL_RESTORE: "email.restore" on Email, None, Once;
    EMAIL_PURGE: "email.purge" on Email, NotHeld, Resumed;
    EMAIL_IMPORT: "email.import" on Email, Active, Resumed;
    EMAIL_EXPORT: "email.export" on Email, None, Resumed;
    EMAIL_REINDEX: "email.reindex" on Email, Active, Once;
    WEBHOOK_CREATE: "webhook.create" on Webhook, None, Once;
    WEBHOOK_CHANGE: "webhook.change" on Webhook, None, Once;
    WEBHOOK_DELETE: "webhook.delete" on Webhook, None, Once;
    WEBHOOK_ROTATE: "webhook.rotate" on Webhook, None, Once;
    WEBHOOK_PING: "webhook.ping" on Webhook, None, Once;
    WEBHOOK_RESEND: "webhook.resend" on Webhook, None, Once;
    JOB_ENQUEUE: "job.enqueue" on Job, None, AtLeastOnce;
    JOB_RETRY: "job.retry" on Job, None, AtLeastOnce;
    JOB_CANCEL: "job.cancel" on Job, None, AtLeastOnce;
    JOB_MOVE: "job.move" on Job, None, Once;
    QUEUE_PAUSE: "queue.pause" on Queue, None, Once;
    QUEUE_RESUME: "queue.resume" on Queue, None, Once;
    QUEUE_LIMIT: "queue.limit" on Queue, None, Once;
    QUEUE_WEIGHT: "queue.weight" on Queue, None, Once;
    DEAD_LETTERS_REPLAY: "dead_letters.replay" on DeadLetters, None, Resumed;
    DEAD_LETTERS_DISCARD: "dead_letters.discard" on DeadLetters, None, Resumed;
    RECURRING_RUN: "recurring.run" on Recurring, None, Once;
    RECURRING_PAUSE: "recurring.pause" on Recurring, None, Once;
    RECURRING_RESUME: "recurring.resume" on Recurring, None, Once;
    SQL_READER_GRANT: "sql_reader.grant" on SqlReader, None, Once;
    SQL_READER_REVOKE: "sql_reader.revoke" on SqlReader, None, Once;
    SECRETS_ROTATE: "secrets.rotate" on Installation, None, Resumed;
    BACKUP: "backup" on Installation, None, Resumed;
}
