//! Serves IMAP on one port and the control API over HTTP on another.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::control;
use super::session::Session;
use super::world::ImapWorld;
use crate::http::HttpListener;
use crate::provider_server::change_task;

/// The pause after a failed accept, most likely for lack of file descriptors.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(20);

/// Serves until it is dropped.
#[derive(Debug)]
pub struct ImapServer {
    listening: HttpListener,
    imap: SocketAddr,
}

impl ImapServer {
    /// Starts the server: IMAP on `imap`, the control API on `control`.
    pub fn start(imap: TcpListener, control: TcpListener, world: &Arc<ImapWorld>) -> io::Result<Self> {
        let address = imap.local_addr()?;
        let listening = start_tasks(HttpListener::start(control, routes(world))?, imap, world);
        Ok(Self { listening, imap: address })
    }

    /// Starts the server on free loopback ports.
    pub async fn start_here(world: &Arc<ImapWorld>) -> io::Result<Self> {
        Self::start(TcpListener::bind("127.0.0.1:0").await?, TcpListener::bind("127.0.0.1:0").await?, world)
    }

    /// Returns the address of the IMAP port, without TLS.
    pub fn imap(&self) -> SocketAddr {
        self.imap
    }

    /// Returns the address of the control API.
    pub fn control(&self) -> SocketAddr {
        self.listening.address()
    }
}

pub(crate) fn routes(world: &Arc<ImapWorld>) -> Router {
    control::routes().with_state(Arc::clone(world))
}

/// Starts the background tasks.
pub(crate) fn start_tasks(listening: HttpListener, imap: TcpListener, world: &Arc<ImapWorld>) -> HttpListener {
    listening.with_task(change_task(world)).with_task(accept(imap, Arc::clone(world)))
}

async fn accept(listener: TcpListener, world: Arc<ImapWorld>) {
    // Dropped with this task, which ends the connections.
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => drop(connections.spawn(Session::run(stream, Arc::clone(&world)))),
                Err(_) => tokio::time::sleep(ACCEPT_RETRY_DELAY).await,
            },
            Some(_) = connections.join_next() => {}
        }
    }
}
