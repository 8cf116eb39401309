//! The JMAP connector (RFC 8620 and RFC 8621). `session` finds out where a server has what, `api` makes calls; `changes` and
//! `list` are the listings, `folders` and `message` turn theirs into ours, `fetch` gets the bytes, and `event_source` hears of
//! changes. docs/providers/jmap.md has the facts that it relies on.

mod api;
mod app;
mod changes;
mod connection_fields;
mod declaration;
mod error_mapping;
mod event_source;
mod fetch;
mod folders;
mod list;
mod message;
mod session;
mod settings;
mod url_template;

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use domain::connector::{ConnectorAccount, ConnectorFuture, Cursors, FetchRequest, ListingPage, MessageSink};
use domain::{Connector, MailboxId, Provider};
use jiff::Timestamp;

use crate::http::{HttpClient, HttpClientError};
use api::JmapClient;
pub use app::FOLDER;
pub use declaration::DECLARATION;
use event_source::{HeardStates, LISTENER_TIMEOUTS};
use list::ListingPurpose;
use session::SessionCache;
pub use settings::{JmapAuth, JmapConnection};

#[derive(Debug)]
pub struct Jmap {
    http: HttpClient,
    /// For responses that do not end.
    listeners: HttpClient,
    sessions: SessionCache,
    heard: HeardStates,
    /// Mailboxes whose servers have no event source.
    without_events: Mutex<HashSet<MailboxId>>,
}

impl Jmap {
    pub fn new(http: HttpClient) -> Result<Self, HttpClientError> {
        Ok(Self {
            http,
            listeners: HttpClient::new(LISTENER_TIMEOUTS)?,
            sessions: SessionCache::default(),
            heard: HeardStates::default(),
            without_events: Mutex::default(),
        })
    }

    /// Polls the mailbox from now on.
    fn forget_listening(&self, mailbox: MailboxId) {
        self.without_events().insert(mailbox);
    }

    fn without_events(&self) -> MutexGuard<'_, HashSet<MailboxId>> {
        self.without_events.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Connector for Jmap {
    fn provider(&self) -> Provider {
        Provider::Jmap
    }

    fn changes<'a>(&'a self, account: &'a ConnectorAccount, cursors: &'a Cursors) -> ConnectorFuture<'a, ListingPage> {
        Box::pin(async move {
            let client = JmapClient::open(self, account).await?;
            match cursors.get(changes::SCOPE) {
                Some(cursor) => changes::page(&client, cursor).await,
                None => changes::start(&client).await,
            }
        })
    }

    fn history<'a>(
        &'a self,
        account: &'a ConnectorAccount,
        cursors: &'a Cursors,
        changes_cursors: &'a Cursors,
        since: Option<Timestamp>,
    ) -> ConnectorFuture<'a, ListingPage> {
        Box::pin(async move {
            let client = JmapClient::open(self, account).await?;
            list::page(&client, (cursors, Some(changes_cursors)), since, ListingPurpose::History).await
        })
    }

    fn list<'a>(
        &'a self,
        account: &'a ConnectorAccount,
        cursors: &'a Cursors,
        changes_cursors: Option<&'a Cursors>,
        since: Option<Timestamp>,
    ) -> ConnectorFuture<'a, ListingPage> {
        Box::pin(async move {
            let client = JmapClient::open(self, account).await?;
            list::page(&client, (cursors, changes_cursors), since, ListingPurpose::Comparison).await
        })
    }

    fn fetch<'a>(
        &'a self,
        account: &'a ConnectorAccount,
        wanted: &'a [FetchRequest],
        sink: &'a mut dyn MessageSink,
    ) -> ConnectorFuture<'a, ()> {
        Box::pin(async move { fetch::fetch_messages(&JmapClient::open(self, account).await?, wanted, sink).await })
    }

    fn check<'a>(&'a self, account: &'a ConnectorAccount) -> ConnectorFuture<'a, ()> {
        Box::pin(async move {
            // A session that is kept says nothing about the credentials of today.
            self.sessions.forget(account.mailbox);
            JmapClient::open(self, account).await.map(drop)
        })
    }

    fn listen<'a>(&'a self, account: &'a ConnectorAccount, at_most: Duration) -> Option<ConnectorFuture<'a, bool>> {
        if self.without_events().contains(&account.mailbox) {
            return None;
        }
        Some(Box::pin(async move { event_source::listen(JmapClient::open(self, account).await?, at_most).await }))
    }
}
