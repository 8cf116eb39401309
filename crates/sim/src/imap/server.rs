//! The simulated server: IMAP on one port, its control API over HTTP on another.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::control;
use super::session::Session;
use super::world::World;
use crate::http::{Listening, keep_changing};

/// Out of descriptors, most likely; others end before long.
const PAUSE: Duration = Duration::from_millis(20);

/// Serves until it is dropped.
#[derive(Debug)]
pub struct Server {
    listening: Listening,
    imap: SocketAddr,
}

impl Server {
    /// `imap`: for mail programs. `control`: for whoever steers it.
    pub fn start(imap: TcpListener, control: TcpListener, world: &Arc<World>) -> io::Result<Self> {
        let address = imap.local_addr()?;
        let listening = start_tasks(Listening::start(control, routes(world))?, imap, world);
        Ok(Self { listening, imap: address })
    }

    /// On free ports of this machine.
    pub async fn start_here(world: &Arc<World>) -> io::Result<Self> {
        Self::start(TcpListener::bind("127.0.0.1:0").await?, TcpListener::bind("127.0.0.1:0").await?, world)
    }

    /// Where it speaks IMAP, without TLS.
    pub fn imap(&self) -> SocketAddr {
        self.imap
    }

    /// Where it is steered.
    pub fn control(&self) -> SocketAddr {
        self.listening.address()
    }
}

pub(crate) fn routes(world: &Arc<World>) -> Router {
    control::routes().with_state(Arc::clone(world))
}

/// What goes on by itself.
pub(crate) fn start_tasks(listening: Listening, imap: TcpListener, world: &Arc<World>) -> Listening {
    let changing = Arc::clone(world);
    let changes = async move { keep_changing(|| changing.rate(), |count| changing.step_any(count)).await };
    listening.with_task(changes).with_task(accept(imap, Arc::clone(world)))
}

async fn accept(listener: TcpListener, world: Arc<World>) {
    // Connections end with this task.
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => drop(connections.spawn(Session::run(stream, Arc::clone(&world)))),
                Err(_) => tokio::time::sleep(PAUSE).await,
            },
            Some(_) = connections.join_next() => {}
        }
    }
}
