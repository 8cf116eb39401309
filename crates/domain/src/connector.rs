//! What Mailroom asks of somebody else's mail server. A connector translates and nothing more: when to call, how often,
//! and what to store is decided by who calls it.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use crate::{Flags, MailboxId, MembersPage, PeoplePage, Provider, Secret, TenantId};

/// What a call to a provider comes to.
pub type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, ConnectorError>> + Send + 'a>>;

/// One account, as its connector needs to know it.
#[derive(Debug, Clone)]
pub struct Account {
    pub tenant: TenantId,
    pub mailbox: MailboxId,
    pub address: String,
    /// Where and how to connect: JSON that only the provider's own connector reads.
    pub settings: String,
    pub secret: Option<Secret<String>>,
    /// What was recorded of its folders so far, for providers that have to be compared with it.
    pub folders: Vec<KnownFolder>,
    /// Since a moment ago something may be gone that only a look at every folder shows.
    pub sweep_since: Option<Timestamp>,
    pub access: Arc<dyn Access>,
}

/// What a connector asks for while it makes the calls that one of ours takes.
pub trait Access: Send + Sync + fmt::Debug {
    /// Waits until so many units of the provider's quota may be used. An error: that would take too long.
    fn spend(&self, units: u32) -> Answer<'_, ()>;

    /// A token that should be good; see [`Connector::grant`].
    fn token(&self) -> Answer<'_, Secret<String>>;

    /// Another one, because the provider has refused this one. It is asked for once, and what is refused then is refused.
    fn renew<'a>(&'a self, refused: &'a Secret<String>) -> Answer<'a, Secret<String>>;
}

/// For providers without tokens and quotas, and for a look at a mailbox that is not connected yet.
#[derive(Debug, Clone, Default)]
pub struct NoAccess;

impl Access for NoAccess {
    fn spend(&self, _units: u32) -> Answer<'_, ()> {
        Box::pin(async { Ok(()) })
    }

    fn token(&self) -> Answer<'_, Secret<String>> {
        Box::pin(async { Err(ConnectorError::Unauthorized("there is no token".to_owned())) })
    }

    fn renew<'a>(&'a self, _refused: &'a Secret<String>) -> Answer<'a, Secret<String>> {
        self.token()
    }
}

/// A token for calls, and for how long it is good.
#[derive(Debug, Clone)]
pub struct Grant {
    pub token: Secret<String>,
    pub expires_in: Duration,
    /// What is to be kept from now on in place of the account's secret.
    pub secret: Option<Secret<String>>,
}

/// What a provider is asked for that is to call us.
#[derive(Debug)]
pub struct WatchWish {
    /// What it called that when it agreed to it: it is to go on. Nothing: it begins.
    pub known: Option<String>,
    /// What it is to say with each call from the beginning, where it says something that we have chosen.
    pub password: Secret<String>,
}

impl WatchWish {
    /// For a provider that proves by itself who calls, and to whom asking again is the same as asking.
    pub fn plain() -> Self {
        Self { known: None, password: Secret::new(String::new()) }
    }
}

/// Until when a provider tells us of what happens in a mailbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Watch {
    pub expires_at: Timestamp,
    /// What the provider calls it, where it has a name.
    pub name: Option<String>,
}

/// A folder as a page told of it last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownFolder {
    pub id: String,
    pub name: String,
    pub role: Option<FolderRole>,
    pub delimiter: Option<String>,
    pub uid_validity: Option<u64>,
    /// Mail is taken in from it.
    pub is_in_scope: bool,
}

impl KnownFolder {
    /// As a page would tell of it.
    pub fn seen(&self) -> SeenFolder {
        let Self { id, name, role, delimiter, uid_validity, .. } = self.clone();
        SeenFolder { id, name, role, delimiter, uid_validity }
    }
}

/// Where a listing stands, by scope: a scope is the whole mailbox or a folder, as the provider has it. What is in a
/// cursor only its connector knows.
pub type Cursors = BTreeMap<String, String>;

pub trait Connector: Send + Sync + fmt::Debug {
    fn provider(&self) -> Provider;

    /// What has changed since the cursors, a page at a time. Without cursors: the folders as they are and the place from
    /// which on changes are told, but no message that is there already; those come by `history`.
    fn changes<'a>(&'a self, account: &'a Account, cursors: &'a Cursors) -> Answer<'a, Page>;

    /// Messages that were there before the first call of `changes`, newest first as far as the provider can, none that
    /// arrived before `since`. The same cursors all the time, which a page moves. `told` is where `changes` stands: what it
    /// has not told of yet is left to it, so that it is also the one to tell when that goes.
    fn history<'a>(
        &'a self,
        account: &'a Account,
        cursors: &'a Cursors,
        told: &'a Cursors,
        since: Option<Timestamp>,
    ) -> Answer<'a, Page>;

    /// Everything that is in the mailbox now, for a comparison with what we have; with `told` as in `history`, and nothing
    /// when it is only to be counted. What arrived before `since` and was never wanted may be told among `marked`.
    fn list<'a>(
        &'a self,
        account: &'a Account,
        cursors: &'a Cursors,
        told: Option<&'a Cursors>,
        since: Option<Timestamp>,
    ) -> Answer<'a, Page>;

    /// The bytes of messages, in any order. What happens to each is told to the sink. When the call fails as a whole,
    /// what the sink was told before still holds, and of the others nothing is known.
    fn fetch<'a>(&'a self, account: &'a Account, wanted: &'a [Wanted], sink: &'a mut dyn Sink) -> Answer<'a, ()>;

    /// Whether the account can be used, with as little traffic as can be.
    fn check<'a>(&'a self, account: &'a Account) -> Answer<'a, ()>;

    /// Waits until something happens in the mailbox, or until the time has passed; whether something happened. What it
    /// was, the next call of `changes` tells. `None`: the provider does not say anything by itself.
    fn listen<'a>(&'a self, _account: &'a Account, _at_most: Duration) -> Option<Answer<'a, bool>> {
        None
    }

    /// A token for calls, by the account's secret, or without one where our app may open it. `None`: the provider has no
    /// tokens, and the secret itself opens the account.
    fn grant<'a>(&'a self, _account: &'a Account) -> Option<Answer<'a, Grant>> {
        None
    }

    /// The provider forgets the account's secret, so that nobody can use it any more. `None`: it has no way to.
    fn revoke<'a>(&'a self, _account: &'a Account) -> Option<Answer<'a, ()>> {
        None
    }

    /// Asks the provider to call us when something happens in the mailbox; asked again, it goes on for longer. `None`: it
    /// does not call, or nobody has said where. [`ConnectorError::Gone`]: what is known has ended, and nothing was begun in
    /// its place.
    fn watch<'a>(&'a self, _account: &'a Account, _wish: &'a WatchWish) -> Option<Answer<'a, Watch>> {
        None
    }

    /// Ends that, by its name if it has one that is known.
    fn unwatch<'a>(&'a self, _account: &'a Account, _name: Option<&'a str>) -> Option<Answer<'a, ()>> {
        None
    }

    /// Who there is in the directory that this account looks at, a page at a time. Without cursors: everybody. With those
    /// after a last page: who came, changed and went since. `None`: the provider has no directory.
    /// [`ConnectorError::CursorExpired`]: everybody has to be listed anew.
    fn users<'a>(&'a self, _account: &'a Account, _cursors: &'a Cursors) -> Option<Answer<'a, PeoplePage>> {
        None
    }

    /// Who is in a group of that directory, however deep, named by its address or id. [`ConnectorError::Gone`]: there is no
    /// such group.
    fn members<'a>(
        &'a self,
        _account: &'a Account,
        _group: &'a str,
        _cursors: &'a Cursors,
    ) -> Option<Answer<'a, MembersPage>> {
        None
    }

    /// A token for these two, as [`Connector::grant`] gives one for mail.
    fn directory_grant<'a>(&'a self, _account: &'a Account) -> Option<Answer<'a, Grant>> {
        None
    }
}

/// One page of a listing. It is recorded with the cursors, in one commit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Page {
    /// New or changed ones.
    pub folders: Vec<SeenFolder>,
    /// These are no more, with everything that was in them.
    pub gone_folders: Vec<String>,
    /// Messages that came, moved here, or have other flags or another text now.
    pub messages: Vec<Seen>,
    /// Messages of a folder of which everything is told once more: some may have been there for long, under other names.
    pub again: Vec<Seen>,
    /// Messages that were there before and may have other flags now. Of one that we do not have this says nothing.
    pub marked: Vec<Seen>,
    /// Messages that are there; where exactly, and how they are marked, shows with their bytes. Of one that we have this
    /// says nothing.
    pub named: Vec<Seen>,
    /// Messages of which this page tells every place: elsewhere they are no more, and one without a place is gone.
    pub whole: Vec<String>,
    /// Messages that are still where and as they were, in a listing of everything.
    pub there: Vec<String>,
    /// Places in which a message is no more.
    pub vanished: Vec<Place>,
    /// Folders of which this page says everything that is in them: what else we have there is no more.
    pub present: Vec<Present>,
    /// Replaces what was known of these scopes; an empty one forgets its scope.
    pub cursors: Cursors,
    /// Nothing follows for now.
    pub is_last: bool,
}

impl Page {
    /// Where the listing stands after this page.
    pub fn move_cursors(&self, cursors: &mut Cursors) {
        for (scope, cursor) in &self.cursors {
            match cursor.is_empty() {
                true => drop(cursors.remove(scope)),
                false => drop(cursors.insert(scope.clone(), cursor.clone())),
            }
        }
    }

    /// Nothing has changed.
    pub fn is_empty(&self) -> bool {
        self.folders.is_empty()
            && self.gone_folders.is_empty()
            && self.messages.is_empty()
            && self.again.is_empty()
            && self.marked.is_empty()
            && self.named.is_empty()
            && self.whole.is_empty()
            && self.there.is_empty()
            && self.vanished.is_empty()
            && self.present.is_empty()
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeenFolder {
    /// Stays the same when the folder is renamed.
    pub id: String,
    pub name: String,
    pub role: Option<FolderRole>,
    pub delimiter: Option<String>,
    pub uid_validity: Option<u64>,
}

/// What a folder is for. By default mail is taken in from all but the last four.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FolderRole {
    Inbox,
    Sent,
    Archive,
    /// Everything there is, whatever folder it is in.
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

/// A message in a place: the same message in two folders is seen twice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// What the provider calls the message, in this account and for ever.
    pub message: String,
    pub place: Place,
    pub flags: Flags,
    pub size_bytes: Option<u64>,
    pub received_at: Option<Timestamp>,
    /// Changes when its text does: a draft.
    pub revision: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The folder's id at the provider.
    pub folder: String,
    /// What the message is called there.
    pub uid: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Present {
    pub folder: String,
    pub uids: Vec<String>,
}

/// A message to be fetched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    pub message: String,
    /// Where it was seen, for providers that fetch from a folder.
    pub places: Vec<Place>,
    pub size_bytes: Option<u64>,
}

/// What they are called.
pub fn names(wanted: &[Wanted]) -> Vec<&str> {
    wanted.iter().map(|wanted| wanted.message.as_str()).collect()
}

/// Takes messages as they come. A message begins, is written, and ends; or it fails, begun or not. It ends only when it
/// is known to be whole. An error of the sink itself fails the message and ends the call.
pub trait Sink: Send {
    /// Waits until there is room for these messages. Whoever asks for the bytes of messages asks for this before, of as
    /// many as will come at once. An error ends the call: what came so far has to make room first.
    fn room<'a>(&'a mut self, _messages: &'a [&'a str]) -> Answer<'a, ()> {
        Box::pin(async { Ok(()) })
    }

    fn begin(&mut self, message: &str);
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<()>;
    fn end(&mut self, facts: Facts) -> std::io::Result<()>;
    /// [`ConnectorError::Gone`], or what was wrong with this message alone.
    fn fail(&mut self, message: &str, error: ConnectorError);
}

/// What is known of a message only when it is fetched.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Facts {
    pub received_at: Option<Timestamp>,
    /// The revision of these very bytes.
    pub revision: Option<String>,
    pub thread: Option<String>,
    /// Every place that it was in when these bytes were read, for providers that say it only then.
    pub places: Option<Vec<(Place, Flags)>>,
}

/// Each is one behaviour.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConnectorError {
    /// Wait; no attempt is spent.
    #[error("the provider asks to wait")]
    Throttled { retry_after: Option<Duration> },
    /// Wait for a turn or a quota of our own; the provider has said nothing.
    #[error("it is not its turn yet")]
    NotYet(Duration),
    /// Try again; counts for the breaker.
    #[error("the provider cannot be reached or does not work: {0}")]
    Unavailable(String),
    /// The credentials are refused: no more calls until they are renewed.
    #[error("the provider refuses the credentials: {0}")]
    Unauthorized(String),
    /// Our app is refused, whatever the account: only an operator can mend that.
    #[error("the provider refuses this Mailroom itself: {0}")]
    Operator(String),
    /// What the cursors stand for is forgotten: everything is compared.
    #[error("the provider has forgotten where we were")]
    CursorExpired,
    /// There is no such message any more.
    #[error("it is not there any more")]
    Gone,
    /// Only folders are left that cannot be opened, perhaps for a while: whoever lists them waits, and nobody else.
    #[error("the folder {0} cannot be opened; the others are not concerned")]
    Shut(String),
    /// Not what the provider's rules promise; trying again is of little use.
    #[error("an answer that makes no sense: {0}")]
    Protocol(String),
}
