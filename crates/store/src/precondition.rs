//! Preconditions of units: which expectation of a caller did not hold when its unit was to be committed.

/// The precondition that failed; its text is for people. Nothing of the unit was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Precondition {
    /// A name must not be that of another tenant.
    #[error("a tenant with this name already exists")]
    TenantNameTaken,
    /// A tenant must be as its caller has read it.
    #[error("the tenant was changed since it was read; read it again")]
    TenantChanged,
    /// A tenant whose mail is removed or hidden must not be on legal hold.
    #[error("this tenant is on legal hold; lift the hold first")]
    TenantHeld,
    /// An API key to revoke must exist and be valid.
    #[error("there is no such key that is valid")]
    NoSuchApiKey,
    /// A key that wraps others must be the current master key.
    #[error("the master key was changed meanwhile")]
    MasterKeyChanged,
    /// The keys of a tenant must be as their rotation has read them.
    #[error("a key of this tenant was changed meanwhile; run the command again")]
    TenantKeyChanged,
    /// A token must have been obtained with the present secret of its mailbox.
    #[error("the secret of the mailbox was changed meanwhile")]
    SecretChanged,

    /// A mailbox must be as its caller has read it.
    #[error("the mailbox was changed since it was read; read it again")]
    MailboxChanged,
    /// An address must not be that of another mailbox of the tenant.
    #[error("the tenant already has a mailbox with this address")]
    MailboxExists,
    /// A mailbox that was just added must still be there.
    #[error("the mailbox was removed meanwhile")]
    MailboxRemoved,
    /// A directory must be as its caller has read it.
    #[error("the directory was changed since it was read; read it again")]
    DirectoryChanged,
    /// A discovery must be the latest of its directory, which must exist and belong to an active tenant.
    #[error("another process has begun to discover this directory")]
    DiscoveryTakenOver,

    /// Mailboxes whose sync a scheduler requests must be due, which they are not after another scheduler's request.
    #[error("another scheduler has requested these syncs")]
    SyncsAlreadyRequested,
    /// A sync must be the latest of its mailbox.
    #[error("another process syncs this mailbox now")]
    SyncTakenOver,
    /// Messages to store must be listed and not stored yet.
    #[error("some of these messages were stored or went away meanwhile")]
    MessagesChanged,
    /// Placements must be those of the last listing.
    #[error("a listing has told of some of these messages meanwhile")]
    PlacementsChanged,
    /// Emails to complete must still be incomplete.
    #[error("some of these emails were completed or removed meanwhile")]
    FailedEmailsChanged,
    /// An email to delete must exist.
    #[error("there is no such email")]
    NoSuchEmail,
    /// A pack that becomes live must not have been collected since it was announced.
    #[error("the pack was collected before it was recorded")]
    PackCollected,

    /// A push must not have been recorded before.
    #[error("a push was recorded before")]
    PushAlreadyRecorded,
    /// A push subscription must be claimed by the process that changes it.
    #[error("another process has claimed this subscription")]
    SubscriptionClaimed,
    /// A tenant must have fewer than 100 webhooks to get another one.
    #[error("a tenant has at most 100 webhooks; remove one first")]
    TooManyWebhooks,
    /// A webhook must be as its caller has read it.
    #[error("the webhook was changed or removed since it was read; read it again")]
    WebhookChanged,
    /// A process that records deliveries must hold the lease of their webhook.
    #[error("another process delivers to this webhook now, or it was removed")]
    DeliveryTakenOver,
    /// An idempotency key must not be in use by another request, nor have been a moment ago.
    #[error("a request with this idempotency key is in progress")]
    IdempotencyKeyInUse,

    /// A worker must have renewed its lease in time; otherwise it counts as dead.
    #[error("this worker's lease has run out")]
    WorkerLeaseExpired,
    /// A job must be held by the worker that ends it.
    #[error("the job is no longer held by this worker")]
    JobNotHeld,
    /// A job that enqueues its continuation must not have been cancelled.
    #[error("the job was cancelled")]
    JobCancelled,
    /// A job to replay must be a dead letter, which it is not once it was replayed or discarded.
    #[error("the job is not dead any more")]
    JobNotDead,
    /// A tenant must be below its limit of waiting jobs to get more of them.
    #[error("this tenant has reached its limit of waiting jobs")]
    TooManyWaitingJobs,
    /// A time of a schedule must not have fired in another process, nor its schedule be paused.
    #[error("this time of the schedule is used already")]
    ScheduleAlreadyFired,
    /// A lease must be held by the process that relies on it.
    #[error("another process holds this lease now")]
    LeaseTakenOver,

    /// What a row references must exist: the database found that a foreign key does not hold.
    #[error("a resource that the request names no longer exists")]
    ReferentGone,
    /// A text must be storable: PostgreSQL stores no NUL.
    #[error("a text must not contain the NUL character")]
    UnstorableText,
}
