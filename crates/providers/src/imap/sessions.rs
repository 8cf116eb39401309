//! A pool of connections, with limits per mailbox and per server.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use domain::connector::ConnectorAccount;
use domain::{ConnectorError, MailboxId};
use outbound::Endpoint;
use outbound::limits::{Limit, MAX_IMAP_CONNECTIONS_PER_MAILBOX, count_refusal};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::client::{Client, ExaminedFolder, ImapError, WireName};
use super::folders::{FolderMatches, match_folders};
use super::settings::Connection;

/// How long a call waits for a permit.
const PERMIT_TIMEOUT: Duration = Duration::from_secs(5);

/// How long an idle connection is kept: servers close it later.
const MAX_IDLE_TIME: Duration = Duration::from_secs(240);

/// A connection that was idle for longer may be dead, so a NOOP checks it.
const CHECK_IDLE_AFTER: Duration = Duration::from_secs(20);

/// Idle connections of all mailboxes.
const MAX_IDLE_SESSIONS: usize = 1000;

/// Lends sessions to calls and keeps idle ones for the next call.
#[derive(Debug)]
pub struct SessionPool {
    shared: Arc<PoolShared>,
}

#[derive(Debug)]
struct PoolShared {
    state: Mutex<PoolState>,
    /// Connections to one server, over all mailboxes.
    max_per_host: usize,
}

#[derive(Debug, Default)]
struct PoolState {
    idle: HashMap<MailboxId, Vec<IdleSession>>,
    idle_count: usize,
    mailboxes: HashMap<MailboxId, Arc<Semaphore>>,
    hosts: HashMap<Endpoint, Arc<Semaphore>>,
    /// Names of folders by id, as they were listed last.
    names: HashMap<MailboxId, HashMap<String, WireName>>,
    pruned_at: Option<Instant>,
}

#[derive(Debug)]
struct IdleSession {
    session: OpenConnection,
    connection: Connection,
    secret: Option<u64>,
    since: Instant,
}

/// A connection, and the folder that is open in it.
#[derive(Debug)]
struct OpenConnection {
    client: Client,
    open: Option<(WireName, ExaminedFolder)>,
    _host_permit: OwnedSemaphorePermit,
}

/// The connection of one call. Dropping it returns it to the pool.
#[derive(Debug)]
pub struct Session {
    inner: Option<OpenConnection>,
    shared: Arc<PoolShared>,
    mailbox: MailboxId,
    connection: Connection,
    secret: Option<u64>,
    _mailbox_permit: OwnedSemaphorePermit,
}

impl SessionPool {
    pub fn new(max_per_host: usize) -> Self {
        Self { shared: Arc::new(PoolShared { state: Mutex::default(), max_per_host }) }
    }

    /// Returns an idle session or a new one. Fails with `RateLimited` if no permit is free in time.
    pub async fn take(&self, account: &ConnectorAccount) -> Result<Session, ConnectorError> {
        let connection = Connection::of(account)?;
        let secret = account.secret.as_ref().map(|secret| fingerprint(secret.expose()));
        // If other calls of this mailbox hold all its permits, this one is retried later, so that other mailboxes can go on.
        let permit =
            tokio::time::timeout(PERMIT_TIMEOUT, self.shared.mailbox_permits(account.mailbox).acquire_owned()).await;
        let permit = permit.map_err(|_| no_permit())?;
        let permit = permit.map_err(|_| ConnectorError::Unavailable("the process is shutting down".to_owned()))?;
        let inner = match self.reuse(account.mailbox, &connection, secret).await {
            Some(idle) => idle,
            None => self.connect(account, &connection).await?,
        };
        let (shared, mailbox) = (self.shared.clone(), account.mailbox);
        Ok(Session { inner: Some(inner), shared, mailbox, connection, secret, _mailbox_permit: permit })
    }

    async fn connect(
        &self,
        account: &ConnectorAccount,
        connection: &Connection,
    ) -> Result<OpenConnection, ConnectorError> {
        let credentials = connection.credentials(account.secret.as_ref())?;
        let permits = self.shared.host_permits(connection);
        if permits.available_permits() == 0 {
            // Closing an idle connection frees a permit.
            self.shared.drop_oldest_at(connection);
        }
        let permit = tokio::time::timeout(PERMIT_TIMEOUT, permits.acquire_owned()).await;
        let permit = permit.map_err(|_| no_permit())?;
        let permit = permit.map_err(|_| ConnectorError::Unavailable("the process is shutting down".to_owned()))?;
        let client = Client::connect(connection.settings(), &credentials).await?;
        Ok(OpenConnection { client, open: None, _host_permit: permit })
    }

    /// Returns an idle connection that still works.
    async fn reuse(&self, mailbox: MailboxId, connection: &Connection, secret: Option<u64>) -> Option<OpenConnection> {
        loop {
            let mut idle = self.shared.take_idle(mailbox)?;
            // It is outdated if the password or the server has changed.
            if idle.connection != *connection || idle.secret != secret || idle.since.elapsed() > MAX_IDLE_TIME {
                continue;
            }
            if idle.since.elapsed() < CHECK_IDLE_AFTER || idle.session.client.noop().await.is_ok() {
                return Some(idle.session);
            }
        }
    }
}

impl PoolShared {
    fn state(&self) -> std::sync::MutexGuard<'_, PoolState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn mailbox_permits(&self, mailbox: MailboxId) -> Arc<Semaphore> {
        let mut state = self.state();
        // Unused semaphores are removed, so that the map does not grow without limit.
        if state.mailboxes.len() > 2 * MAX_IDLE_SESSIONS {
            state.mailboxes.retain(|_, permits| Arc::strong_count(permits) > 1);
        }
        state
            .mailboxes
            .entry(mailbox)
            .or_insert_with(|| Arc::new(Semaphore::new(MAX_IMAP_CONNECTIONS_PER_MAILBOX)))
            .clone()
    }

    fn host_permits(&self, connection: &Connection) -> Arc<Semaphore> {
        let endpoint = Endpoint::new(&connection.host, connection.port);
        let mut state = self.state();
        if state.hosts.len() > 2 * MAX_IDLE_SESSIONS {
            state.hosts.retain(|_, permits| Arc::strong_count(permits) > 1);
        }
        state.hosts.entry(endpoint).or_insert_with(|| Arc::new(Semaphore::new(self.max_per_host))).clone()
    }

    fn take_idle(&self, mailbox: MailboxId) -> Option<IdleSession> {
        let mut state = self.state();
        let idle = state.idle.get_mut(&mailbox)?;
        let last = idle.pop();
        if idle.is_empty() {
            state.idle.remove(&mailbox);
        }
        state.idle_count -= usize::from(last.is_some());
        last
    }

    fn drop_oldest_at(&self, connection: &Connection) {
        let mut state = self.state();
        let oldest = state.idle.iter().filter_map(|(mailbox, idle)| {
            let oldest = idle
                .iter()
                .find(|idle| (&idle.connection.host, idle.connection.port) == (&connection.host, connection.port));
            Some((oldest?.since, *mailbox))
        });
        let Some((_, mailbox)) = oldest.min_by_key(|(since, _)| *since) else { return };
        if let Some(idle) = state.idle.get_mut(&mailbox) {
            idle.remove(0);
            state.idle_count -= 1;
        }
        state.idle.retain(|_, idle| !idle.is_empty());
    }

    fn put_back(&self, mailbox: MailboxId, idle: IdleSession) {
        let mut state = self.state();
        if state.idle_count >= MAX_IDLE_SESSIONS {
            state.drop_older_than(MAX_IDLE_TIME / 4);
        } else if state.pruned_at.is_none_or(|pruned_at| pruned_at.elapsed() > CHECK_IDLE_AFTER) {
            state.drop_older_than(MAX_IDLE_TIME);
        }
        if state.idle_count < MAX_IDLE_SESSIONS {
            state.idle_count += 1;
            state.idle.entry(mailbox).or_default().push(idle);
        }
    }
}

impl PoolState {
    fn drop_older_than(&mut self, age: Duration) {
        self.pruned_at = Some(Instant::now());
        for idle in self.idle.values_mut() {
            idle.retain(|idle| idle.since.elapsed() < age);
        }
        self.idle.retain(|_, idle| !idle.is_empty());
        self.idle_count = self.idle.values().map(Vec::len).sum();
    }
}

impl Session {
    pub fn client(&mut self) -> &mut Client {
        // Taken only when the session is dropped.
        &mut self.inner.as_mut().expect("a session has its connection").client
    }

    /// Opens a folder and returns its present state.
    pub async fn examine(&mut self, folder: &WireName) -> Result<ExaminedFolder, ImapError> {
        self.clear_open_folder();
        let examined = self.client().examine(folder).await?;
        self.set_open_folder(folder, &examined);
        Ok(examined)
    }

    /// Opens a folder unless it is open already. Returns its state when it was opened.
    pub async fn open_if_needed(&mut self, folder: &WireName) -> Result<ExaminedFolder, ImapError> {
        match self.inner.as_ref().and_then(|inner| inner.open.as_ref()) {
            Some((open, examined)) if open == folder => Ok(examined.clone()),
            _ => self.examine(folder).await,
        }
    }

    pub fn clear_open_folder(&mut self) {
        if let Some(inner) = &mut self.inner {
            inner.open = None;
        }
    }

    pub fn set_open_folder(&mut self, folder: &WireName, examined: &ExaminedFolder) {
        if let Some(inner) = &mut self.inner {
            inner.open = Some((folder.clone(), examined.clone()));
        }
    }

    /// Lists the folders and matches them with those that we know.
    pub async fn folders(&mut self, account: &ConnectorAccount) -> Result<FolderMatches, ImapError> {
        if self.inner.as_ref().is_some_and(|inner| inner.open.is_some()) {
            // The status of the open folder would be that of the last update which the server sent.
            self.clear_open_folder();
            self.client().close().await?;
        }
        let listed = self.client().list_with_status().await?;
        let matches = match_folders(listed, &account.folders);
        let names = matches.folders.iter().map(|folder| (folder.id.clone(), folder.wire.clone())).collect();
        let mut state = self.shared.state();
        if state.names.len() > 2 * MAX_IDLE_SESSIONS {
            state.names.clear(); // they are listed again when needed
        }
        state.names.insert(self.mailbox, names);
        Ok(matches)
    }

    /// Returns the name of a folder as it was listed last.
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
            self.shared.put_back(self.mailbox, IdleSession { session, connection, secret, since: Instant::now() });
        }
    }
}

/// Returns a keyed hash, to notice another password without storing it.
fn fingerprint(secret: &str) -> u64 {
    use std::hash::{BuildHasher, RandomState};
    use std::sync::OnceLock;
    static KEYS: OnceLock<RandomState> = OnceLock::new();
    KEYS.get_or_init(RandomState::new).hash_one(secret)
}

/// Counts a call that got no connection in time, and returns its error.
fn no_permit() -> ConnectorError {
    count_refusal(Limit::Connections);
    ConnectorError::RateLimited(PERMIT_TIMEOUT)
}
