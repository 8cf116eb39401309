//! The interface to a mail provider. A connector translates between the provider's API and our types and nothing more:
//! its caller decides when to call, how often, and what to store.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use crate::{DirectoryPeoplePage, Flags, GroupMembersPage, MailboxId, Provider, Secret, TenantId};

/// The result of a call to a provider, once it has been awaited.
pub type ConnectorFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, ConnectorError>> + Send + 'a>>;

/// The result of [`Connector::explain_check`], once it has been awaited.
pub type CheckExplanation<'a> = Pin<Box<dyn Future<Output = Result<(), String>> + Send + 'a>>;

/// One account, as its connector needs to know it.
#[derive(Debug, Clone)]
pub struct ConnectorAccount {
    pub tenant: TenantId,
    pub mailbox: MailboxId,
    pub address: String,
    /// Where and how to connect: JSON that only the provider's own connector reads.
    pub settings: String,
    pub secret: Option<Secret<String>>,
    /// The folders recorded so far, for providers whose folders have to be compared with them; see
    /// [`crate::Capabilities::needs_known_folders`].
    pub folders: Vec<KnownFolder>,
    /// Set when messages may have been removed since this time in a way that only a sweep over every folder shows.
    pub sweep_since: Option<Timestamp>,
    pub access: Arc<dyn ApiAccess>,
}

impl ConnectorAccount {
    /// Returns whether a known folder is missing, so that the folders must be listed again, even if nothing has changed.
    pub fn has_missing_folders(&self) -> bool {
        self.folders.iter().any(|folder| folder.missing_since.is_some())
    }
}

/// Quota and tokens for the API calls that one connector call makes.
pub trait ApiAccess: Send + Sync + fmt::Debug {
    /// Waits until `units` of the provider's quota may be used. Fails if that would take too long.
    fn acquire_quota(&self, _units: u32) -> ConnectorFuture<'_, ()> {
        Box::pin(async { Ok(()) })
    }

    /// Returns a token that has not expired yet; see [`Connector::obtain_token`]. `refused` is the one that the provider has
    /// rejected in this call, which asks for another one once: a second rejection is final.
    fn token<'a>(&'a self, refused: Option<&'a Secret<String>>) -> ConnectorFuture<'a, Secret<String>>;
}

/// Unlimited quota and no token: for providers that have neither, and for checking a mailbox that is not connected yet.
#[derive(Debug, Clone, Default)]
pub struct NoApiAccess;

impl ApiAccess for NoApiAccess {
    fn token<'a>(&'a self, _refused: Option<&'a Secret<String>>) -> ConnectorFuture<'a, Secret<String>> {
        Box::pin(async { Err(ConnectorError::Unauthorized("there is no token".to_owned())) })
    }
}

/// An access token and its lifetime.
#[derive(Debug, Clone)]
pub struct TokenGrant {
    pub token: Secret<String>,
    pub expires_in: Duration,
    /// Replaces the account's stored secret, if the provider rotated it.
    pub secret: Option<Secret<String>>,
}

/// A request for push notifications about a mailbox.
#[derive(Debug)]
pub struct WatchRequest {
    /// The provider's id of the subscription to renew; `None` begins a new one.
    pub subscription_id: Option<String>,
    /// The secret that the provider repeats in every notification, where it can (Graph's `clientState`).
    pub client_state: Secret<String>,
}

impl WatchRequest {
    /// Returns a request for a provider that signs its notifications and for which renewing is the same as beginning.
    pub fn without_client_state() -> Self {
        Self { subscription_id: None, client_state: Secret::new(String::new()) }
    }
}

/// An accepted request for push notifications, and when it ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Watch {
    pub expires_at: Timestamp,
    /// The provider's id of it, where it has one.
    pub subscription_id: Option<String>,
}

/// A folder as it was recorded from the last page that listed it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownFolder {
    pub id: String,
    pub name: String,
    pub role: Option<FolderRole>,
    pub delimiter: Option<String>,
    pub uid_validity: Option<u64>,
    /// Whether its mail is synced.
    pub is_in_scope: bool,
    /// Since when listings lack it; it is not removed yet. Once it is listed again, a page has it in
    /// [`ListingPage::folders`].
    pub missing_since: Option<Timestamp>,
}

impl KnownFolder {
    /// Converts it to the form in which a page lists it.
    pub fn to_listed(&self) -> ListedFolder {
        let Self { id, name, role, delimiter, uid_validity, .. } = self.clone();
        ListedFolder { id, name, role, delimiter, uid_validity }
    }
}

/// Positions in a listing by scope: a scope is the whole mailbox or a folder, depending on the provider. The content of a
/// cursor is known only to its connector.
pub type Cursors = BTreeMap<String, String>;

/// A mail provider. Methods that return `None` are not supported by the provider.
pub trait Connector: Send + Sync + fmt::Debug {
    fn provider(&self) -> Provider;

    /// Lists what has changed since the cursors, one page per call. Without cursors it lists the folders and returns the
    /// cursors from which changes are reported, but no existing message: those are listed by `history`.
    fn changes<'a>(&'a self, account: &'a ConnectorAccount, cursors: &'a Cursors) -> ConnectorFuture<'a, ListingPage>;

    /// Lists messages that existed before the first call of `changes`, newest first where the provider can, and none that
    /// arrived before `since`. It has cursors of its own, which each page moves. `changes_cursors` are those of `changes`:
    /// messages that `changes` has not reported yet are left to it, so that it also reports their removal.
    fn history<'a>(
        &'a self,
        account: &'a ConnectorAccount,
        cursors: &'a Cursors,
        changes_cursors: &'a Cursors,
        since: Option<Timestamp>,
    ) -> ConnectorFuture<'a, ListingPage>;

    /// Lists everything that is in the mailbox now, for a comparison with what is stored. `changes_cursors` are as in
    /// `history`, and `None` when messages are only counted. Messages that arrived before `since` and were never synced
    /// may be listed in [`ListingPage::flags_only`].
    fn list<'a>(
        &'a self,
        account: &'a ConnectorAccount,
        cursors: &'a Cursors,
        changes_cursors: Option<&'a Cursors>,
        since: Option<Timestamp>,
    ) -> ConnectorFuture<'a, ListingPage>;

    /// Fetches the bytes of messages, in any order, and reports the result of each to the sink. If the call fails as a
    /// whole, what was reported before is valid, and nothing is known about the other messages.
    fn fetch<'a>(
        &'a self,
        account: &'a ConnectorAccount,
        requests: &'a [FetchRequest],
        sink: &'a mut dyn MessageSink,
    ) -> ConnectorFuture<'a, ()>;

    /// Fails unless the account can be used. Makes as few calls as possible.
    fn check<'a>(&'a self, account: &'a ConnectorAccount) -> ConnectorFuture<'a, ()>;

    /// Checks the account like [`Connector::check`], for the person who connects the mailbox: the sentence may have what the
    /// server said, which no [`ConnectorError`] has.
    fn explain_check<'a>(&'a self, account: &'a ConnectorAccount) -> CheckExplanation<'a> {
        Box::pin(async move { self.check(account).await.map_err(|e| e.to_string()) })
    }

    /// Waits until something changes in the mailbox (`true`) or the timeout has passed (`false`). The next call of `changes`
    /// lists what it was. `None`: the provider has no such call.
    fn listen<'a>(&'a self, _account: &'a ConnectorAccount, _timeout: Duration) -> Option<ConnectorFuture<'a, bool>> {
        None
    }

    /// Obtains an access token with the account's secret, or with our app's own credentials where they suffice. `None`: the
    /// provider has no tokens, and the secret itself opens the account.
    fn obtain_token<'a>(&'a self, _account: &'a ConnectorAccount) -> Option<ConnectorFuture<'a, TokenGrant>> {
        None
    }

    /// Revokes the account's secret at the provider. `None`: the provider cannot revoke it.
    fn revoke<'a>(&'a self, _account: &'a ConnectorAccount) -> Option<ConnectorFuture<'a, ()>> {
        None
    }

    /// Requests push notifications for the mailbox, or renews them. `None`: the provider has no push, or no address for it is
    /// configured. Fails with [`ConnectorError::Gone`] if the subscription to renew has ended; no new one is begun then.
    fn watch<'a>(
        &'a self,
        _account: &'a ConnectorAccount,
        _request: &'a WatchRequest,
    ) -> Option<ConnectorFuture<'a, Watch>> {
        None
    }

    /// Ends push notifications, by their id if they have one that is known.
    fn unwatch<'a>(
        &'a self,
        _account: &'a ConnectorAccount,
        _subscription_id: Option<&'a str>,
    ) -> Option<ConnectorFuture<'a, ()>> {
        None
    }

    /// Lists the people in the account's directory, one page per call. Without cursors it lists everybody; with the cursors
    /// of a last page, the people who were added, changed or removed since. `None`: the provider has no directory. Fails
    /// with [`ConnectorError::CursorExpired`] if everybody has to be listed anew.
    fn list_users<'a>(
        &'a self,
        _account: &'a ConnectorAccount,
        _cursors: &'a Cursors,
    ) -> Option<ConnectorFuture<'a, DirectoryPeoplePage>> {
        None
    }

    /// Lists the members of a group of the directory, nested groups included. `group` is its address or id. Fails with
    /// [`ConnectorError::Gone`] if there is no such group.
    fn list_members<'a>(
        &'a self,
        _account: &'a ConnectorAccount,
        _group: &'a str,
        _cursors: &'a Cursors,
    ) -> Option<ConnectorFuture<'a, GroupMembersPage>> {
        None
    }

    /// Obtains a token for the two directory calls, as [`Connector::obtain_token`] does for mail.
    fn obtain_directory_token<'a>(&'a self, _account: &'a ConnectorAccount) -> Option<ConnectorFuture<'a, TokenGrant>> {
        None
    }
}

/// One page of a listing. It is recorded in one commit together with its cursors.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListingPage {
    /// New or changed folders.
    pub folders: Vec<ListedFolder>,
    /// Ids of known folders that a listing of all folders lacks. Their cursors stay: they are removed once a later listing
    /// lacks them as well.
    pub missing_folders: Vec<String>,
    /// Messages that are new, were moved here, or whose flags or text changed.
    pub seen: Vec<SeenMessage>,
    /// Messages of a folder that is listed anew in full: some may be known already under other ids.
    pub relisted: Vec<SeenMessage>,
    /// Known messages whose flags may have changed. Entries for unknown messages are ignored.
    pub flags_only: Vec<SeenMessage>,
    /// Messages of which only the id is known; their placements and flags come with their bytes. Entries for known
    /// messages are ignored.
    pub id_only: Vec<SeenMessage>,
    /// Ids of messages whose every placement is on this page: other recorded placements are removed, and a message without
    /// any placement is gone.
    pub complete_placements: Vec<String>,
    /// Ids of messages whose placements and flags have not changed, in a listing of everything.
    pub unchanged: Vec<String>,
    /// Placements from which a message was removed.
    pub removed_placements: Vec<Placement>,
    /// Complete contents of folders: any other message recorded there is missing.
    pub folder_snapshots: Vec<FolderSnapshot>,
    /// The new cursors of these scopes; an empty one removes its scope.
    pub cursors: Cursors,
    /// No further page follows for now.
    pub is_last: bool,
}

impl ListingPage {
    /// Moves `cursors` to the position after this page.
    pub fn move_cursors(&self, cursors: &mut Cursors) {
        for (scope, cursor) in &self.cursors {
            if cursor.is_empty() {
                cursors.remove(scope);
            } else {
                cursors.insert(scope.clone(), cursor.clone());
            }
        }
    }

    /// Returns whether the page reports no change; its cursors are not considered.
    pub fn is_empty(&self) -> bool {
        self.folders.is_empty()
            && self.missing_folders.is_empty()
            && self.seen.is_empty()
            && self.relisted.is_empty()
            && self.flags_only.is_empty()
            && self.id_only.is_empty()
            && self.complete_placements.is_empty()
            && self.unchanged.is_empty()
            && self.removed_placements.is_empty()
            && self.folder_snapshots.is_empty()
    }
}

/// A folder as a page lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedFolder {
    /// The provider's id, which stays the same when the folder is renamed.
    pub id: String,
    pub name: String,
    pub role: Option<FolderRole>,
    pub delimiter: Option<String>,
    pub uid_validity: Option<u64>,
}

/// The purpose of a folder. By default mail is synced from all but the last four.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FolderRole {
    Inbox,
    Sent,
    Archive,
    /// All messages, whatever other folders they are in.
    All,
    Drafts,
    Spam,
    Trash,
    Chats,
}

impl FolderRole {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Inbox => "inbox",
            Self::Sent => "sent",
            Self::Archive => "archive",
            Self::All => "all",
            Self::Drafts => "drafts",
            Self::Spam => "spam",
            Self::Trash => "trash",
            Self::Chats => "chats",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        let all =
            [Self::Inbox, Self::Sent, Self::Archive, Self::All, Self::Drafts, Self::Spam, Self::Trash, Self::Chats];
        all.into_iter().find(|role| role.as_str() == text)
    }
}

/// A message in one placement: a message in two folders is listed twice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeenMessage {
    /// The provider's id of the message, which never changes within the account.
    pub message: String,
    pub placement: Placement,
    pub flags: Flags,
    pub size_bytes: Option<u64>,
    pub received_at: Option<Timestamp>,
    /// Changes when the text does, as that of a draft can.
    pub revision: Option<String>,
}

/// Where a message is: a folder, and the message's id in it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Placement {
    /// The folder's id at the provider.
    pub folder: String,
    /// The message's id within the folder.
    pub uid: String,
}

/// Everything that is in a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FolderSnapshot {
    pub folder: String,
    pub uids: Vec<String>,
}

/// A message to be fetched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchRequest {
    pub message: String,
    /// Its known placements, for providers that fetch from a folder.
    pub placements: Vec<Placement>,
    pub size_bytes: Option<u64>,
}

/// Returns the provider's ids of the requested messages.
pub fn message_ids(requests: &[FetchRequest]) -> Vec<&str> {
    requests.iter().map(|request| request.message.as_str()).collect()
}

/// Receives messages while they are fetched. A message begins, is written, and ends; or it fails, begun or not. It ends
/// only when it is known to be complete. An error of the sink itself fails the message and ends the call.
pub trait MessageSink: Send {
    /// Waits until there is memory for these messages. A connector calls it before it requests their bytes, with all that
    /// it requests at once. An error ends the call: the messages received so far have to be stored first.
    fn reserve<'a>(&'a mut self, _messages: &'a [&'a str]) -> ConnectorFuture<'a, ()> {
        Box::pin(async { Ok(()) })
    }

    fn begin(&mut self, message: &str);
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<()>;
    fn end(&mut self, facts: MessageMetadata) -> std::io::Result<()>;
    /// Reports [`ConnectorError::Gone`], or an error that concerns this message alone.
    fn fail(&mut self, message: &str, error: ConnectorError);
}

/// What a provider says about a message only when it is fetched.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MessageMetadata {
    pub received_at: Option<Timestamp>,
    /// The revision of these very bytes.
    pub revision: Option<String>,
    pub thread: Option<String>,
    /// All placements at the time when these bytes were read, for providers that list them only then.
    pub placements: Option<Vec<(Placement, Flags)>>,
}

/// Why a call failed; each variant is handled in its own way.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConnectorError {
    /// The provider asks to wait; retried without spending an attempt.
    #[error("the provider asks to wait")]
    Throttled { retry_after: Option<Duration> },
    /// A permit or quota of our own is not available before this delay; the provider was not called.
    #[error("the call is rate limited by Mailroom itself")]
    RateLimited(Duration),
    /// Retried; counts for the circuit breaker.
    #[error("the provider is unavailable: {0}")]
    Unavailable(String),
    /// The credentials are rejected: no more calls until they are renewed.
    #[error("the provider refuses the credentials: {0}")]
    Unauthorized(String),
    /// Our app is rejected, whatever the account: only an operator can fix that.
    #[error("the provider rejects this app: {0}")]
    AppRejected(String),
    /// The provider does not accept the cursors any more: everything is listed and compared.
    #[error("the cursor has expired at the provider")]
    CursorExpired,
    /// The message (or folder, group, subscription) does not exist any more.
    #[error("the resource no longer exists at the provider")]
    Gone,
    /// Only folders are left that cannot be opened, perhaps for a while: listing them is retried later, and the rest of the
    /// mailbox is not affected.
    #[error("the folder {0} cannot be opened; other folders are not affected")]
    FolderUnavailable(String),
    /// The response violates the provider's protocol; a retry is of little use.
    #[error("the provider's response is invalid: {0}")]
    Protocol(String),
}
