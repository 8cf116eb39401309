//! Connections, kept for the next call and never more than a server likes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use domain::connector::Account;
use domain::{ConnectorError, MailboxId};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::client::{Client, Examined, ImapError, WireName};
use super::folders::{Matched, matched};
use super::settings::Connection;

/// Servers count connections of one user; many allow ten, some fewer.
const PER_MAILBOX: usize = 4;

/// How long a call waits for a connection that others use.
const PATIENCE: Duration = Duration::from_secs(5);

/// A connection that nobody needs is closed after this long: well before servers do it.
const KEPT: Duration = Duration::from_secs(240);

/// One that has lain for longer may be dead without our knowing.
const FRESH: Duration = Duration::from_secs(20);

/// Connections that wait for the next call, over all mailboxes.
const MOST_KEPT: usize = 1000;

#[derive(Debug)]
pub struct Sessions {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// Connections to one server, over all mailboxes.
    per_host: usize,
}

#[derive(Debug, Default)]
struct State {
    kept: HashMap<MailboxId, Vec<Kept>>,
    count: usize,
    mailboxes: HashMap<MailboxId, Arc<Semaphore>>,
    hosts: HashMap<String, Arc<Semaphore>>,
    /// What folders were called when they were listed last.
    names: HashMap<MailboxId, HashMap<String, WireName>>,
    tidied: Option<Instant>,
}

#[derive(Debug)]
struct Kept {
    session: Inner,
    connection: Connection,
    secret: Option<u64>,
    since: Instant,
}

/// A connection with its folder open.
#[derive(Debug)]
struct Inner {
    client: Client,
    open: Option<(WireName, Examined)>,
    _host: OwnedSemaphorePermit,
}

/// One call's connection. Given back, it is kept for the next one.
#[derive(Debug)]
pub struct Session {
    inner: Option<Inner>,
    shared: Arc<Shared>,
    mailbox: MailboxId,
    connection: Connection,
    secret: Option<u64>,
    _turn: OwnedSemaphorePermit,
}

impl Sessions {
    pub fn new(per_host: usize) -> Self {
        Self { shared: Arc::new(Shared { state: Mutex::default(), per_host }) }
    }

    pub async fn take(&self, account: &Account) -> Result<Session, ConnectorError> {
        let connection = Connection::of(account)?;
        let secret = account.secret.as_ref().map(|secret| fingerprint(secret.expose()));
        // Others of this mailbox use all that it may have: whoever waits goes back, so that other mailboxes get on.
        let turn = tokio::time::timeout(PATIENCE, self.shared.turn_of(account.mailbox).acquire_owned()).await;
        let turn = turn.map_err(|_| ConnectorError::NotYet(PATIENCE))?;
        let turn = turn.map_err(|_| ConnectorError::Unavailable("the program ends".to_owned()))?;
        let inner = match self.kept(account.mailbox, &connection, secret).await {
            Some(kept) => kept,
            None => self.connect(account, &connection).await?,
        };
        let (shared, mailbox) = (self.shared.clone(), account.mailbox);
        Ok(Session { inner: Some(inner), shared, mailbox, connection, secret, _turn: turn })
    }

    async fn connect(&self, account: &Account, connection: &Connection) -> Result<Inner, ConnectorError> {
        let credentials = connection.credentials(account.secret.as_ref())?;
        let turns = self.shared.host(connection);
        if turns.available_permits() == 0 {
            // One that nobody uses makes room.
            self.shared.drop_oldest_at(connection);
        }
        let host = tokio::time::timeout(PATIENCE, turns.acquire_owned()).await;
        let host = host.map_err(|_| ConnectorError::NotYet(PATIENCE))?;
        let host = host.map_err(|_| ConnectorError::Unavailable("the program ends".to_owned()))?;
        let client = Client::connect(connection.settings(), &credentials).await?;
        Ok(Inner { client, open: None, _host: host })
    }

    /// One that is there and works.
    async fn kept(&self, mailbox: MailboxId, connection: &Connection, secret: Option<u64>) -> Option<Inner> {
        loop {
            let mut kept = self.shared.pop(mailbox)?;
            // With another password or another server it is somebody else's.
            if kept.connection != *connection || kept.secret != secret || kept.since.elapsed() > KEPT {
                continue;
            }
            if kept.since.elapsed() < FRESH || kept.session.client.noop().await.is_ok() {
                return Some(kept.session);
            }
        }
    }
}

impl Shared {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn turn_of(&self, mailbox: MailboxId) -> Arc<Semaphore> {
        let mut state = self.state();
        // Those that nobody holds are forgotten, so that the list does not grow for ever.
        if state.mailboxes.len() > 2 * MOST_KEPT {
            state.mailboxes.retain(|_, turns| Arc::strong_count(turns) > 1);
        }
        state.mailboxes.entry(mailbox).or_insert_with(|| Arc::new(Semaphore::new(PER_MAILBOX))).clone()
    }

    fn host(&self, connection: &Connection) -> Arc<Semaphore> {
        let name = format!("{}:{}", connection.host, connection.port);
        self.state().hosts.entry(name).or_insert_with(|| Arc::new(Semaphore::new(self.per_host))).clone()
    }

    fn pop(&self, mailbox: MailboxId) -> Option<Kept> {
        let mut state = self.state();
        let kept = state.kept.get_mut(&mailbox)?;
        let last = kept.pop();
        if kept.is_empty() {
            state.kept.remove(&mailbox);
        }
        state.count -= usize::from(last.is_some());
        last
    }

    fn drop_oldest_at(&self, connection: &Connection) {
        let mut state = self.state();
        let is_there =
            |kept: &&Kept| (&kept.connection.host, kept.connection.port) == (&connection.host, connection.port);
        let oldest =
            state.kept.iter().filter_map(|(mailbox, kept)| Some((kept.iter().find(is_there)?.since, *mailbox)));
        let Some((_, mailbox)) = oldest.min_by_key(|(since, _)| *since) else { return };
        if let Some(kept) = state.kept.get_mut(&mailbox) {
            kept.remove(0);
            state.count -= 1;
        }
        state.kept.retain(|_, kept| !kept.is_empty());
    }

    fn keep(&self, mailbox: MailboxId, kept: Kept) {
        let mut state = self.state();
        if state.count >= MOST_KEPT {
            state.drop_older_than(KEPT / 4);
        } else if state.tidied.is_none_or(|tidied| tidied.elapsed() > FRESH) {
            state.drop_older_than(KEPT);
        }
        if state.count < MOST_KEPT {
            state.count += 1;
            state.kept.entry(mailbox).or_default().push(kept);
        }
    }
}

impl State {
    fn drop_older_than(&mut self, age: Duration) {
        self.tidied = Some(Instant::now());
        for kept in self.kept.values_mut() {
            kept.retain(|kept| kept.since.elapsed() < age);
        }
        self.kept.retain(|_, kept| !kept.is_empty());
        self.count = self.kept.values().map(Vec::len).sum();
    }
}

impl Session {
    pub fn client(&mut self) -> &mut Client {
        // Taken only when the session is dropped.
        &mut self.inner.as_mut().expect("a session has its connection").client
    }

    /// Opens a folder anew, for what it is now.
    pub async fn examine(&mut self, folder: &WireName) -> Result<Examined, ImapError> {
        self.forget_open();
        let examined = self.client().examine(folder).await?;
        self.remember_open(folder, &examined);
        Ok(examined)
    }

    /// Opens a folder unless it is the one that is open; what was known when it was opened.
    pub async fn enter(&mut self, folder: &WireName) -> Result<Examined, ImapError> {
        match self.inner.as_ref().and_then(|inner| inner.open.as_ref()) {
            Some((open, examined)) if open == folder => Ok(examined.clone()),
            _ => self.examine(folder).await,
        }
    }

    pub fn forget_open(&mut self) {
        if let Some(inner) = &mut self.inner {
            inner.open = None;
        }
    }

    pub fn remember_open(&mut self, folder: &WireName, examined: &Examined) {
        if let Some(inner) = &mut self.inner {
            inner.open = Some((folder.clone(), examined.clone()));
        }
    }

    pub async fn folders(&mut self, account: &Account) -> Result<Matched, ImapError> {
        if self.inner.as_ref().is_some_and(|inner| inner.open.is_some()) {
            // Of the folder that is open a server tells how it was when it last spoke of it.
            self.forget_open();
            self.client().close().await?;
        }
        let listed = self.client().list_with_status().await?;
        let matched = matched(listed, &account.folders);
        let names = matched.folders.iter().map(|folder| (folder.id.clone(), folder.wire.clone())).collect();
        let mut state = self.shared.state();
        if state.names.len() > 2 * MOST_KEPT {
            state.names.clear(); // they are listed again when somebody needs them
        }
        state.names.insert(self.mailbox, names);
        Ok(matched)
    }

    /// As it was called when folders were listed last.
    pub fn name_of(&self, folder: &str) -> Option<WireName> {
        self.shared.state().names.get(&self.mailbox)?.get(folder).cloned()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Some(session) = self.inner.take()
            && session.client.is_usable()
        {
            let (connection, secret) = (self.connection.clone(), self.secret);
            self.shared.keep(self.mailbox, Kept { session, connection, secret, since: Instant::now() });
        }
    }
}

/// To tell one password from another without keeping it.
fn fingerprint(secret: &str) -> u64 {
    use std::hash::{BuildHasher, RandomState};
    use std::sync::OnceLock;
    static KEYS: OnceLock<RandomState> = OnceLock::new();
    KEYS.get_or_init(RandomState::new).hash_one(secret)
}
