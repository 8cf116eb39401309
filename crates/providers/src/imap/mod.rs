//! The IMAP connector.
//!
//! [`client`] speaks the protocol. `changes` finds changes, `listing` lists messages, `fetch` gets their bytes; `folders`
//! matches listed folders with known ones, `cursor` has the cursors, `sessions` pools connections.

mod app;
mod changes;
pub mod client;
mod connection_check;
mod connection_fields;
mod cursor;
mod declaration;
mod fetch;
mod folders;
mod listing;
mod sessions;
mod settings;
mod translate;

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use domain::connector::{
    CheckExplanation, ConnectorAccount, ConnectorFuture, Cursors, FetchRequest, ListingPage, MessageSink, message_ids,
};
use domain::{Connector, ConnectorError, MailboxId, Provider};
use jiff::Timestamp;

pub use app::{FOLDER, ImapLimits};
pub use connection_check::check_connection;
pub use declaration::DECLARATION;
pub use settings::{Auth, Connection, Tls};

use client::WireName;
use sessions::{SessionPermits, SessionPool};

#[derive(Debug)]
pub struct Imap {
    sessions: SessionPool,
    /// Connections in IDLE, separate from those for calls. The gateway has admitted each of them.
    listeners: SessionPool,
    /// Mailboxes whose servers do not offer IDLE.
    without_idle: Mutex<HashSet<MailboxId>>,
}

impl Default for Imap {
    fn default() -> Self {
        Self {
            sessions: SessionPool::with_permits(SessionPermits::default()),
            listeners: SessionPool::default(),
            without_idle: Mutex::default(),
        }
    }
}

impl Connector for Imap {
    fn provider(&self) -> Provider {
        Provider::Imap
    }

    fn changes<'a>(&'a self, account: &'a ConnectorAccount, cursors: &'a Cursors) -> ConnectorFuture<'a, ListingPage> {
        Box::pin(async move { changes::changes(&mut self.sessions.take(account).await?, account, cursors).await })
    }

    fn history<'a>(
        &'a self,
        account: &'a ConnectorAccount,
        cursors: &'a Cursors,
        changes_cursors: &'a Cursors,
        since: Option<Timestamp>,
    ) -> ConnectorFuture<'a, ListingPage> {
        Box::pin(async move {
            listing::list_history(&mut self.sessions.take(account).await?, account, (cursors, changes_cursors), since)
                .await
        })
    }

    fn list<'a>(
        &'a self,
        account: &'a ConnectorAccount,
        cursors: &'a Cursors,
        changes_cursors: Option<&'a Cursors>,
        _since: Option<Timestamp>,
    ) -> ConnectorFuture<'a, ListingPage> {
        Box::pin(async move {
            listing::list_all(&mut self.sessions.take(account).await?, account, (cursors, changes_cursors)).await
        })
    }

    fn fetch<'a>(
        &'a self,
        account: &'a ConnectorAccount,
        wanted: &'a [FetchRequest],
        sink: &'a mut dyn MessageSink,
    ) -> ConnectorFuture<'a, ()> {
        Box::pin(async move {
            sink.reserve(&message_ids(wanted)).await?;
            fetch::fetch(&mut self.sessions.take(account).await?, account, wanted, sink).await
        })
    }

    fn explain_check<'a>(&'a self, account: &'a ConnectorAccount) -> CheckExplanation<'a> {
        Box::pin(check_connection(account))
    }

    fn check<'a>(&'a self, account: &'a ConnectorAccount) -> ConnectorFuture<'a, ()> {
        Box::pin(async move {
            self.sessions.take(account).await?.examine(&inbox()).await?;
            Ok(())
        })
    }

    fn listen<'a>(&'a self, account: &'a ConnectorAccount, at_most: Duration) -> Option<ConnectorFuture<'a, bool>> {
        if self.without_idle().contains(&account.mailbox) {
            return None;
        }
        Some(Box::pin(async move {
            let mut session = self.listeners.take(account).await?;
            if !session.client().capabilities().has("IDLE") {
                self.without_idle().insert(account.mailbox);
                return Err(ConnectorError::Protocol("the server does not offer IDLE".to_owned()));
            }
            session.open_if_needed(&inbox()).await?;
            Ok(!session.client().idle(at_most).await?.is_empty())
        }))
    }
}

impl Imap {
    fn without_idle(&self) -> MutexGuard<'_, HashSet<MailboxId>> {
        self.without_idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn inbox() -> WireName {
    WireName::new(b"INBOX")
}
