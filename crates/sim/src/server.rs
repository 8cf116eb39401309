//! All simulated providers on one HTTP listener, and IMAP on another.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::TcpListener;

use crate::http::HttpListener;
use crate::provider_core::Now;
use crate::{google, imap, jmap, microsoft, provider_server};

/// Serves until it is dropped.
#[derive(Debug)]
pub struct SimServer {
    listening: HttpListener,
    imap: SocketAddr,
}

/// The providers that are simulated together.
#[derive(Debug)]
pub struct SimWorlds {
    pub google: Arc<google::GoogleWorld>,
    pub microsoft: Arc<microsoft::MicrosoftWorld>,
    pub imap: Arc<imap::ImapWorld>,
    pub jmap: Arc<jmap::JmapWorld>,
}

impl SimWorlds {
    pub fn new(seed: u64, letters: usize, now: &Now) -> Self {
        Self {
            google: Arc::new(google::GoogleWorld::new(seed, letters, Arc::clone(now))),
            microsoft: Arc::new(microsoft::MicrosoftWorld::new(seed, letters, Arc::clone(now))),
            imap: Arc::new(imap::ImapWorld::new(seed, letters, Arc::clone(now))),
            jmap: Arc::new(jmap::JmapWorld::new(seed, letters, Arc::clone(now))),
        }
    }
}

impl SimServer {
    pub fn start(listener: TcpListener, imap_listener: TcpListener, worlds: &SimWorlds) -> io::Result<Self> {
        let SimWorlds { google, microsoft, imap, jmap } = worlds;
        let imap_address = imap_listener.local_addr()?;
        let routes = provider_server::routes(google)
            .merge(provider_server::routes(microsoft))
            .merge(provider_server::routes(jmap))
            .merge(imap::routes(imap));
        let listening = provider_server::start_tasks(HttpListener::start(listener, routes)?, google);
        let listening = provider_server::start_tasks(listening, microsoft);
        let listening = provider_server::start_tasks(listening, jmap);
        Ok(Self { listening: imap::start_tasks(listening, imap_listener, imap), imap: imap_address })
    }

    /// Returns the address of the IMAP server.
    pub fn imap(&self) -> SocketAddr {
        self.imap
    }

    pub fn address(&self) -> SocketAddr {
        self.listening.address()
    }

    pub fn url(&self) -> String {
        self.listening.url()
    }
}
