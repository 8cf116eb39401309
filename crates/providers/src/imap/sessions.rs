//! A pool of connections, with limits per mailbox and per server.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use domain::connector::ConnectorAccount;
use domain::{ConnectorError, FolderRole, MailboxId};
use outbound::Endpoint;
use outbound::limits::{Limit, MAX_IMAP_CONNECTIONS_PER_MAILBOX, MAX_IMAP_CONNECTIONS_PER_SERVER};
use outbound::permits::{Permit, PermitTable};
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
#[derive(Debug, Default)]
pub struct SessionPool {
    /// `None`: whoever takes a session has its permits already.
    permits: Option<SessionPermits>,
    idle: Arc<Mutex<IdleSessions>>,
}

/// The permits of the sessions in use, by mailbox, and of open connections, by server.
#[derive(Debug)]
pub struct SessionPermits {
    mailboxes: PermitTable<MailboxId>,
    servers: PermitTable<Endpoint>,
}

#[derive(Debug, Default)]
struct IdleSessions {
    by_mailbox: HashMap<MailboxId, Vec<IdleSession>>,
    count: usize,
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
    _server_permit: Option<Permit<Endpoint>>,
}

/// The connection of one call. Dropping it returns it to the pool.
#[derive(Debug)]
pub struct Session {
    inner: Option<OpenConnection>,
    idle: Arc<Mutex<IdleSessions>>,
    mailbox: MailboxId,
    connection: Connection,
    secret: Option<u64>,
    _mailbox_permit: Option<Permit<MailboxId>>,
}

impl Default for SessionPermits {
    fn default() -> Self {
        let (mailboxes, servers) = (PermitTable::new(Limit::MailboxRequests), PermitTable::new(Limit::Connections));
        Self { mailboxes, servers }
    }
}

impl SessionPool {
    pub fn with_permits(permits: SessionPermits) -> Self {
        Self { permits: Some(permits), idle: Arc::default() }
    }

    /// Returns an idle session or a new one. Fails with `RateLimited` if no permit is free in time.
    pub async fn take(&self, account: &ConnectorAccount) -> Result<Session, ConnectorError> {
        let connection = Connection::of(account)?;
        let secret = account.secret.as_ref().map(|secret| fingerprint(secret.expose()));
        // If other calls of this mailbox hold all its permits, this one is retried later, so that other mailboxes can go on.
        let permit = match &self.permits {
            Some(permits) => {
                Some(wait_for(&permits.mailboxes, (account.mailbox, MAX_IMAP_CONNECTIONS_PER_MAILBOX)).await?)
            }
            None => None,
        };
        let inner = match self.reuse(account.mailbox, &connection, secret).await {
            Some(idle) => idle,
            None => self.connect(account, &connection).await?,
        };
        let (idle, mailbox) = (self.idle.clone(), account.mailbox);
        Ok(Session { inner: Some(inner), idle, mailbox, connection, secret, _mailbox_permit: permit })
    }

    async fn connect(
        &self,
        account: &ConnectorAccount,
        connection: &Connection,
    ) -> Result<OpenConnection, ConnectorError> {
        let credentials = connection.credentials(account.secret.as_ref())?;
        let permit = match &self.permits {
            Some(permits) => {
                let server = (Endpoint::new(&connection.host, connection.port), MAX_IMAP_CONNECTIONS_PER_SERVER);
                if !permits.servers.has_free(std::slice::from_ref(&server), 1) {
                    // Closing an idle connection frees a permit.
                    lock(&self.idle).drop_oldest_at(connection);
                }
                Some(wait_for(&permits.servers, server).await?)
            }
            None => None,
        };
        let client = Client::connect(connection.settings(), &credentials).await?;
        Ok(OpenConnection { client, open: None, _server_permit: permit })
    }

    /// Returns an idle connection that still works.
    async fn reuse(&self, mailbox: MailboxId, connection: &Connection, secret: Option<u64>) -> Option<OpenConnection> {
        loop {
            let mut idle = lock(&self.idle).take(mailbox)?;
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

impl IdleSessions {
    fn take(&mut self, mailbox: MailboxId) -> Option<IdleSession> {
        let idle = self.by_mailbox.get_mut(&mailbox)?;
        let last = idle.pop();
        if idle.is_empty() {
            self.by_mailbox.remove(&mailbox);
        }
        self.count -= usize::from(last.is_some());
        last
    }

    fn drop_oldest_at(&mut self, connection: &Connection) {
        let oldest = self.by_mailbox.iter().filter_map(|(mailbox, idle)| {
            let oldest = idle
                .iter()
                .find(|idle| (&idle.connection.host, idle.connection.port) == (&connection.host, connection.port));
            Some((oldest?.since, *mailbox))
        });
        let Some((_, mailbox)) = oldest.min_by_key(|(since, _)| *since) else { return };
        if let Some(idle) = self.by_mailbox.get_mut(&mailbox) {
            idle.remove(0);
            self.count -= 1;
        }
        self.by_mailbox.retain(|_, idle| !idle.is_empty());
    }

    fn put_back(&mut self, mailbox: MailboxId, idle: IdleSession) {
        if self.count >= MAX_IDLE_SESSIONS {
            self.drop_older_than(MAX_IDLE_TIME / 4);
        } else if self.pruned_at.is_none_or(|pruned_at| pruned_at.elapsed() > CHECK_IDLE_AFTER) {
            self.drop_older_than(MAX_IDLE_TIME);
        }
        if self.count < MAX_IDLE_SESSIONS {
            self.count += 1;
            self.by_mailbox.entry(mailbox).or_default().push(idle);
        }
    }

    fn drop_older_than(&mut self, age: Duration) {
        self.pruned_at = Some(Instant::now());
        for idle in self.by_mailbox.values_mut() {
            idle.retain(|idle| idle.since.elapsed() < age);
        }
        self.by_mailbox.retain(|_, idle| !idle.is_empty());
        self.count = self.by_mailbox.values().map(Vec::len).sum();
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
    pub async fn folders(&mut self, account: &ConnectorAccount) -> Result<FolderMatches, ConnectorError> {
        if self.inner.as_ref().is_some_and(|inner| inner.open.is_some()) {
            // The status of the open folder would be that of the last update which the server sent.
            self.clear_open_folder();
            self.client().close().await?;
        }
        let listed = self.client().list_with_status().await?;
        if !listed.iter().any(|folder| folder.role() == Some(FolderRole::Inbox)) {
            // Every account has one (RFC 9051, section 5.1), so this is not the whole list.
            return Err(ConnectorError::Unavailable("the list of folders has no INBOX".to_owned()));
        }
        let matches = match_folders(listed, &account.folders);
        let names = matches.folders.iter().map(|folder| (folder.id.clone(), folder.wire.clone())).collect();
        let mut state = lock(&self.idle);
        if state.names.len() > 2 * MAX_IDLE_SESSIONS {
            state.names.clear(); // they are listed again when needed
        }
        state.names.insert(self.mailbox, names);
        Ok(matches)
    }

    /// Returns the name of a folder as it was listed last.
    pub fn name_of(&self, folder: &str) -> Option<WireName> {
        lock(&self.idle).names.get(&self.mailbox)?.get(folder).cloned()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Some(session) = self.inner.take()
            && session.client.is_usable()
        {
            let (connection, secret) = (self.connection.clone(), self.secret);
            let idle = IdleSession { session, connection, secret, since: Instant::now() };
            lock(&self.idle).put_back(self.mailbox, idle);
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

fn lock(idle: &Mutex<IdleSessions>) -> MutexGuard<'_, IdleSessions> {
    idle.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn wait_for<S: Clone + Eq + Hash>(
    permits: &PermitTable<S>,
    scope: (S, usize),
) -> Result<Permit<S>, ConnectorError> {
    let permit = permits.wait_at_most(PERMIT_TIMEOUT, &[scope]).await;
    permit.ok_or(ConnectorError::RateLimited(PERMIT_TIMEOUT))
}
