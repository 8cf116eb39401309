//! Every simulated provider on one listener, but for what mail programs speak with.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::TcpListener;

use crate::http::Listening;
use crate::{google, imap, microsoft, scripted};

/// Serves until it is dropped.
#[derive(Debug)]
pub struct Server {
    listening: Listening,
    imap: SocketAddr,
}

impl Server {
    pub fn start(
        listener: TcpListener,
        scripted: Arc<scripted::World>,
        google: &Arc<google::World>,
        microsoft: &Arc<microsoft::World>,
        (imap_listener, imap): (TcpListener, &Arc<imap::World>),
    ) -> io::Result<Self> {
        let imap_address = imap_listener.local_addr()?;
        let routes = scripted::routes(&scripted)
            .merge(google::routes(google))
            .merge(microsoft::routes(microsoft))
            .merge(imap::routes(imap));
        let listening = google::start_tasks(Listening::start(listener, routes)?, google);
        let listening = microsoft::start_tasks(listening, microsoft).with_task(scripted::change(scripted));
        Ok(Self { listening: imap::start_tasks(listening, imap_listener, imap), imap: imap_address })
    }

    /// Where mail programs find the IMAP server.
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
