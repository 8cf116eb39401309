//! Mailboxes that change under load, at a provider that fails as it is told to, without a network between.

mod letters;
mod mailbox;
mod pages;
mod random;
mod random_changes;
mod truth;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use domain::connector::{
    ConnectorAccount, ConnectorFuture, Cursors, FetchRequest, ListingPage, MessageMetadata, MessageSink, Placement,
    message_ids,
};
use domain::{Clock, Connector, ConnectorError, Provider, SystemClock};
use jiff::Timestamp;

pub use letters::LetterStock;
pub use mailbox::{WorldFolderId, WorldMailbox, WorldMessageId, WorldRefusal, WorldUid};
pub use pages::{CursorRefusal, PageRequest, SCOPE};
pub use random::SeededRandom;
pub use truth::{FolderTruth, MailboxTruth, PlacementTruth};

use crate::scripted::ConnectorMethod;

/// Different letters that the mail is made of.
const LETTERS: usize = 20;

const PAGE_SIZE: usize = 50;

/// Changes that a repeated page lists once more.
const OVERLAP: usize = 7;

/// What goes wrong.
#[derive(Debug, Clone, PartialEq)]
pub enum WorldFaultKind {
    Throttled {
        retry_after: Option<Duration>,
    },
    Unavailable,
    Unauthorized,
    /// Nothing for so long, then `Unavailable`.
    Hang(Duration),
    InvalidResponse,
    /// A page lists again what the page before listed.
    RepeatedPage,
    /// A fetch ends in the middle of a message.
    CutFetch,
    /// A message fails after half of its bytes; the next ones follow.
    ShortMessage,
    /// A message that is there is said to be gone.
    Gone,
    /// This message always fails, and no other.
    FailingMessage(String),
}

impl WorldFaultKind {
    fn concerns(&self, method: ConnectorMethod) -> bool {
        match self {
            Self::RepeatedPage => method != ConnectorMethod::Fetch && method != ConnectorMethod::Check,
            Self::CutFetch | Self::ShortMessage | Self::Gone | Self::FailingMessage(_) => {
                method == ConnectorMethod::Fetch
            }
            _ => true,
        }
    }
}

/// A fault, and for which calls it comes.
#[derive(Debug, Clone)]
pub struct WorldFault {
    pub kind: WorldFaultKind,
    /// Between 0 and 1.
    pub probability: f64,
    /// Nothing: all accounts.
    pub address: Option<String>,
    pub fired: u64,
}

impl WorldFault {
    pub fn sometimes(kind: WorldFaultKind, probability: f64) -> Self {
        Self { kind, probability, address: None, fired: 0 }
    }

    pub fn always(kind: WorldFaultKind) -> Self {
        Self::sometimes(kind, 1.0)
    }

    /// The same at this account only.
    pub fn at(self, address: &str) -> Self {
        Self { address: Some(address.to_owned()), ..self }
    }
}

/// A connector to a world of mailboxes in this process.
pub struct WorldConnector {
    provider: Provider,
    seed: u64,
    letters: LetterStock,
    /// By address.
    mailboxes: Mutex<BTreeMap<String, WorldMailbox>>,
    faults: Mutex<Vec<WorldFault>>,
    random: Mutex<SeededRandom>,
}

impl fmt::Debug for WorldConnector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorldConnector").field("provider", &self.provider).finish_non_exhaustive()
    }
}

impl WorldConnector {
    pub fn new(provider: Provider, seed: u64) -> Arc<Self> {
        Arc::new(Self {
            provider,
            seed,
            letters: LetterStock::new(seed, LETTERS),
            mailboxes: Mutex::default(),
            faults: Mutex::default(),
            random: Mutex::new(SeededRandom::new(seed.wrapping_add(1))),
        })
    }

    /// Creates an account with so many messages.
    pub fn create(&self, address: &str, messages: usize) {
        let mut mailboxes = self.mailboxes.lock().unwrap();
        let mut mailbox = WorldMailbox::new(self.seed.wrapping_mul(1_000_003).wrapping_add(mailboxes.len() as u64));
        mailbox.fill(messages, &self.letters, SystemClock.now());
        let before = mailboxes.insert(address.to_owned(), mailbox);
        assert!(before.is_none(), "there is an account {address} already");
    }

    /// Applies random changes to the account.
    pub fn step(&self, address: &str, changes: usize) {
        self.change(address, |mailbox| {
            for _ in 0..changes {
                mailbox.step(&self.letters, SystemClock.now());
            }
        });
    }

    pub fn truth(&self, address: &str) -> MailboxTruth {
        self.change(address, |mailbox| mailbox.truth())
    }

    pub fn expire_cursors(&self, address: &str, with_listings: bool) {
        self.change(address, |mailbox| mailbox.expire_cursors(with_listings));
    }

    /// Removes a message from a folder.
    pub fn delete(&self, address: &str, placement: &Placement) {
        let folder = WorldFolderId::parse(&placement.folder).unwrap();
        let uid = WorldUid::parse(&placement.uid).unwrap();
        self.change(address, |mailbox| mailbox.delete(folder, uid)).unwrap();
    }

    fn change<T>(&self, address: &str, change: impl FnOnce(&mut WorldMailbox) -> T) -> T {
        let mut mailboxes = self.mailboxes.lock().unwrap();
        change(mailboxes.get_mut(address).unwrap_or_else(|| panic!("there is no account {address}")))
    }

    pub fn add_fault(&self, fault: WorldFault) {
        self.faults.lock().unwrap().push(fault);
    }

    pub fn clear_faults(&self) -> Vec<WorldFault> {
        std::mem::take(&mut self.faults.lock().unwrap())
    }

    /// Faults that come with this call.
    fn draw(&self, account: &ConnectorAccount, method: ConnectorMethod) -> Vec<WorldFaultKind> {
        let mut drawn = Vec::new();
        for fault in self.faults.lock().unwrap().iter_mut() {
            let is_there = fault.address.as_ref().is_none_or(|address| *address == account.address);
            if is_there && fault.kind.concerns(method) && self.random.lock().unwrap().chance(fault.probability) {
                fault.fired += 1;
                drawn.push(fault.kind.clone());
            }
        }
        drawn
    }

    /// Answers with the first fault that comes in place of an answer.
    async fn fail(faults: &[WorldFaultKind]) -> Result<(), ConnectorError> {
        for fault in faults {
            match fault {
                WorldFaultKind::Throttled { retry_after } => {
                    return Err(ConnectorError::Throttled { retry_after: *retry_after });
                }
                WorldFaultKind::Unavailable => return Err(ConnectorError::Unavailable("a fault".to_owned())),
                WorldFaultKind::Unauthorized => return Err(ConnectorError::Unauthorized("a fault".to_owned())),
                WorldFaultKind::Hang(duration) => {
                    tokio::time::sleep(*duration).await;
                    return Err(ConnectorError::Unavailable("a hang".to_owned()));
                }
                WorldFaultKind::InvalidResponse => return Err(ConnectorError::Protocol("a fault".to_owned())),
                _ => {}
            }
        }
        Ok(())
    }

    async fn page(
        &self,
        account: &ConnectorAccount,
        cursors: &Cursors,
        method: ConnectorMethod,
        since: Option<Timestamp>,
    ) -> Result<ListingPage, ConnectorError> {
        let faults = self.draw(account, method);
        Self::fail(&faults).await?;
        let overlap = if faults.contains(&WorldFaultKind::RepeatedPage) { OVERLAP } else { 0 };
        let cursor = cursors.get(SCOPE).map(String::as_str);
        let request = PageRequest { cursor, limit: PAGE_SIZE, overlap };
        self.with(account, |mailbox| {
            let page = match method {
                ConnectorMethod::Changes => mailbox.changes(request).map(|mut page| {
                    mailbox.compare_folders(&account.folders, &mut page);
                    page
                }),
                ConnectorMethod::History => mailbox.history(request, since),
                _ => mailbox.list(request),
            };
            page.map_err(|CursorRefusal| ConnectorError::CursorExpired)
        })?
    }

    fn with<T>(&self, account: &ConnectorAccount, look: impl FnOnce(&WorldMailbox) -> T) -> Result<T, ConnectorError> {
        let mailboxes = self.mailboxes.lock().unwrap();
        let mailbox = mailboxes.get(&account.address);
        mailbox.map(look).ok_or_else(|| ConnectorError::Unauthorized("there is no such account".to_owned()))
    }

    fn deliver(
        &self,
        account: &ConnectorAccount,
        id: &str,
        faults: &[WorldFaultKind],
        sink: &mut dyn MessageSink,
    ) -> Result<(), ConnectorError> {
        if faults.contains(&WorldFaultKind::FailingMessage(id.to_owned())) {
            sink.fail(id, ConnectorError::Unavailable("a fault of this message".to_owned()));
            return Ok(());
        }
        let raw = self.with(account, |mailbox| WorldMessageId::parse(id).and_then(|id| mailbox.raw(id)))?;
        let (Some((raw, received_at, revision)), false) = (raw, faults.contains(&WorldFaultKind::Gone)) else {
            sink.fail(id, ConnectorError::Gone);
            return Ok(());
        };
        sink.begin(id);
        let (is_cut, is_short) =
            (faults.contains(&WorldFaultKind::CutFetch), faults.contains(&WorldFaultKind::ShortMessage));
        if is_cut || is_short {
            sink.write(&raw[..raw.len() / 2]).map_err(|e| ConnectorError::Protocol(e.to_string()))?;
            let error = ConnectorError::Unavailable("the message ends too early".to_owned());
            sink.fail(id, error.clone());
            return if is_cut { Err(error) } else { Ok(()) };
        }
        let metadata = MessageMetadata {
            received_at: Some(received_at),
            revision: revision.map(|revision| revision.to_string()),
            ..MessageMetadata::default()
        };
        let written = sink.write(&raw).and_then(|()| sink.end(metadata));
        written.map_err(|e| ConnectorError::Protocol(e.to_string()))
    }
}

impl Connector for WorldConnector {
    fn provider(&self) -> Provider {
        self.provider
    }

    fn changes<'a>(&'a self, account: &'a ConnectorAccount, cursors: &'a Cursors) -> ConnectorFuture<'a, ListingPage> {
        Box::pin(self.page(account, cursors, ConnectorMethod::Changes, None))
    }

    fn history<'a>(
        &'a self,
        account: &'a ConnectorAccount,
        cursors: &'a Cursors,
        _changes_cursors: &'a Cursors,
        since: Option<Timestamp>,
    ) -> ConnectorFuture<'a, ListingPage> {
        Box::pin(self.page(account, cursors, ConnectorMethod::History, since))
    }

    fn list<'a>(
        &'a self,
        account: &'a ConnectorAccount,
        cursors: &'a Cursors,
        _changes_cursors: Option<&'a Cursors>,
        _since: Option<Timestamp>,
    ) -> ConnectorFuture<'a, ListingPage> {
        Box::pin(self.page(account, cursors, ConnectorMethod::List, None))
    }

    fn fetch<'a>(
        &'a self,
        account: &'a ConnectorAccount,
        requests: &'a [FetchRequest],
        sink: &'a mut dyn MessageSink,
    ) -> ConnectorFuture<'a, ()> {
        Box::pin(async move {
            sink.reserve(&message_ids(requests)).await?;
            for request in requests {
                // Drawn for each message, so that one of them fails and not always the first.
                let faults = self.draw(account, ConnectorMethod::Fetch);
                Self::fail(&faults).await?;
                self.deliver(account, &request.message, &faults, sink)?;
            }
            Ok(())
        })
    }

    fn check<'a>(&'a self, account: &'a ConnectorAccount) -> ConnectorFuture<'a, ()> {
        Box::pin(async move {
            Self::fail(&self.draw(account, ConnectorMethod::Check)).await?;
            self.with(account, |_| ())
        })
    }
}
