//! How providers differ: one value per provider, with its answers to all questions.

use crate::SecretKind;

/// What a provider can do and needs. Read it by [`crate::Provider::capabilities`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Capabilities {
    /// The kind under which a mailbox's secret is stored.
    pub secret_kind: SecretKind,
    /// Whether its mail comes from a server, which may be slow.
    pub is_remote: bool,
    /// Whether messages are deduplicated by their bytes, because the provider's ids do not identify them.
    pub identifies_messages_by_content: bool,
    /// Whether its connector needs the recorded folders; see [`crate::connector::ConnectorAccount::folders`].
    pub needs_known_folders: bool,
    /// Whether a poll is a single API call, which needs no exclusive connection.
    pub polls_without_connection: bool,
    /// Whether it can send push notifications; see [`crate::Connector::watch`].
    pub supports_push: bool,
    /// The setting without which it sends none.
    pub push_setting: Option<&'static str>,
    /// Whether its push notifications are a subscription with an id, which must not be requested twice.
    pub has_named_subscription: bool,
    /// Whether an organisation's directory tells which mailboxes there are.
    pub has_directory: bool,
    /// Whether our app names a user by the address, which may be another person's tomorrow, and not by an id that never
    /// changes.
    pub identifies_users_by_address: bool,
    /// Whether app-only access is that of a service account, and not of the app that people consent to.
    pub has_service_account: bool,
    /// How many batches of one mailbox are fetched at once.
    pub concurrent_batches: usize,
    /// How many bytes per day some of its servers are known to allow per mailbox.
    pub bytes_per_day_of_hosts: &'static [(&'static str, u64)],
}

/// Batches at once: the connections of a mailbox but for one, which lists it meanwhile.
const CONCURRENT_BATCHES: usize = 3;

/// Google locks an account for a day that downloads more than 2,500 MB by IMAP. Other programs read the mailbox as well.
const GMAIL_BYTES_PER_DAY: u64 = 2_000_000_000;

impl Capabilities {
    pub(crate) const FILES: Self = Self {
        secret_kind: SecretKind::Password,
        is_remote: false,
        identifies_messages_by_content: true,
        needs_known_folders: false,
        polls_without_connection: false,
        supports_push: false,
        push_setting: None,
        has_named_subscription: false,
        has_directory: false,
        identifies_users_by_address: false,
        has_service_account: false,
        concurrent_batches: CONCURRENT_BATCHES,
        bytes_per_day_of_hosts: &[],
    };

    pub(crate) const IMAP: Self = Self {
        secret_kind: SecretKind::Password,
        is_remote: true,
        identifies_messages_by_content: true,
        needs_known_folders: true,
        polls_without_connection: false,
        supports_push: false,
        push_setting: None,
        has_named_subscription: false,
        has_directory: false,
        identifies_users_by_address: false,
        has_service_account: false,
        concurrent_batches: CONCURRENT_BATCHES,
        bytes_per_day_of_hosts: &[
            ("imap.gmail.com", GMAIL_BYTES_PER_DAY),
            ("imap.googlemail.com", GMAIL_BYTES_PER_DAY),
        ],
    };

    pub(crate) const GMAIL: Self = Self {
        secret_kind: SecretKind::RefreshToken,
        is_remote: true,
        identifies_messages_by_content: false,
        needs_known_folders: true,
        polls_without_connection: true,
        supports_push: true,
        push_setting: Some("providers.google.pubsub_topic"),
        has_named_subscription: false,
        has_directory: true,
        identifies_users_by_address: true,
        has_service_account: true,
        concurrent_batches: CONCURRENT_BATCHES,
        bytes_per_day_of_hosts: &[],
    };

    pub(crate) const OUTLOOK: Self = Self {
        secret_kind: SecretKind::RefreshToken,
        is_remote: true,
        identifies_messages_by_content: false,
        needs_known_folders: true,
        polls_without_connection: true,
        supports_push: true,
        push_setting: Some("server.public_url"),
        has_named_subscription: true,
        has_directory: true,
        identifies_users_by_address: false,
        has_service_account: false,
        // Graph returns twenty messages per call and takes four calls at once, and the next batch is to be requested
        // while one is parsed.
        concurrent_batches: 4,
        bytes_per_day_of_hosts: &[],
    };

    pub(crate) const JMAP: Self = Self {
        secret_kind: SecretKind::Password,
        is_remote: true,
        identifies_messages_by_content: false,
        needs_known_folders: true,
        polls_without_connection: true,
        supports_push: false,
        push_setting: None,
        has_named_subscription: false,
        has_directory: false,
        identifies_users_by_address: false,
        has_service_account: false,
        concurrent_batches: CONCURRENT_BATCHES,
        bytes_per_day_of_hosts: &[],
    };

    /// Returns whether other credentials may be those of another account, so that the account is checked before anything
    /// is stored: a refresh token says whose it is, a password belongs to the address.
    pub fn checks_account(&self) -> bool {
        self.secret_kind == SecretKind::RefreshToken
    }
}
