//! All simulated providers on one HTTP listener, and IMAP on another.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::TcpListener;

use crate::http::HttpListener;
use crate::{google, imap, microsoft, provider_server};

/// Serves until it is dropped.
#[derive(Debug)]
pub struct SimServer {
    listening: HttpListener,
    imap: SocketAddr,
}

impl SimServer {
    pub fn start(
        listener: TcpListener,
        google: &Arc<google::GoogleWorld>,
        microsoft: &Arc<microsoft::MicrosoftWorld>,
        (imap_listener, imap): (TcpListener, &Arc<imap::ImapWorld>),
    ) -> io::Result<Self> {
        let imap_address = imap_listener.local_addr()?;
        let routes =
            provider_server::routes(google).merge(provider_server::routes(microsoft)).merge(imap::routes(imap));
        let listening = provider_server::start_tasks(HttpListener::start(listener, routes)?, google);
        let listening = provider_server::start_tasks(listening, microsoft);
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
