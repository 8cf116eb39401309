//! Mailboxes at any server that speaks IMAP.
//!
//! [`client`] speaks the protocol; the rest says which words to use. `changes` is a look at what is new, `walk` lists what
//! was there before, `fetch` gets the bytes. `folders` knows which folder is which, `cursor` where a listing stands,
//! `sessions` keeps connections.

mod changes;
pub mod client;
mod cursor;
mod fetch;
mod folders;
mod sessions;
mod settings;
mod translate;
mod try_out;
mod walk;

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use domain::connector::{Account, Answer, Cursors, Page, Sink, Wanted, names};
use domain::{Connector, ConnectorError, MailboxId, Provider};
use jiff::Timestamp;

pub use settings::{Auth, Connection, Tls, is_this_machine};
pub use try_out::{has_authority, try_out};

use client::WireName;
use sessions::Sessions;

/// Connections that work, to one server.
const WORKERS: usize = 200;

/// Connections that listen, to one server: one for each mailbox, and they cost it little.
const LISTENERS: usize = 20_000;

#[derive(Debug)]
pub struct Imap {
    sessions: Sessions,
    /// Connections that wait for news, apart from those that work.
    listeners: Sessions,
    /// Mailboxes whose servers were found not to say anything by themselves.
    silent: Mutex<HashSet<MailboxId>>,
}

impl Default for Imap {
    fn default() -> Self {
        Self { sessions: Sessions::new(WORKERS), listeners: Sessions::new(LISTENERS), silent: Mutex::default() }
    }
}

impl Connector for Imap {
    fn provider(&self) -> Provider {
        Provider::Imap
    }

    fn changes<'a>(&'a self, account: &'a Account, cursors: &'a Cursors) -> Answer<'a, Page> {
        Box::pin(async move { changes::changes(&mut self.sessions.take(account).await?, account, cursors).await })
    }

    fn history<'a>(
        &'a self,
        account: &'a Account,
        cursors: &'a Cursors,
        told: &'a Cursors,
        since: Option<Timestamp>,
    ) -> Answer<'a, Page> {
        Box::pin(async move {
            walk::history(&mut self.sessions.take(account).await?, account, (cursors, told), since).await
        })
    }

    fn list<'a>(
        &'a self,
        account: &'a Account,
        cursors: &'a Cursors,
        told: Option<&'a Cursors>,
        _since: Option<Timestamp>,
    ) -> Answer<'a, Page> {
        Box::pin(async move { walk::list(&mut self.sessions.take(account).await?, account, (cursors, told)).await })
    }

    fn fetch<'a>(&'a self, account: &'a Account, wanted: &'a [Wanted], sink: &'a mut dyn Sink) -> Answer<'a, ()> {
        Box::pin(async move {
            sink.room(&names(wanted)).await?;
            fetch::fetch(&mut self.sessions.take(account).await?, account, wanted, sink).await
        })
    }

    fn check<'a>(&'a self, account: &'a Account) -> Answer<'a, ()> {
        Box::pin(async move {
            self.sessions.take(account).await?.examine(&inbox()).await?;
            Ok(())
        })
    }

    fn listen<'a>(&'a self, account: &'a Account, at_most: Duration) -> Option<Answer<'a, bool>> {
        let silent = || self.silent.lock().unwrap_or_else(PoisonError::into_inner);
        if silent().contains(&account.mailbox) {
            return None;
        }
        Some(Box::pin(async move {
            let mut session = self.listeners.take(account).await?;
            if !session.client().capabilities().has("IDLE") {
                silent().insert(account.mailbox);
                return Err(ConnectorError::Protocol("the server does not offer IDLE".to_owned()));
            }
            session.enter(&inbox()).await?;
            Ok(!session.client().idle(at_most).await?.is_nothing())
        }))
    }
}

fn inbox() -> WireName {
    WireName::new(b"INBOX")
}
