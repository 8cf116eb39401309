//! The scripted mailboxes over HTTP: the provider's own API, and one to steer it.

mod body;
mod control;
mod provider;
mod world;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use tokio::net::TcpListener;

use crate::http::{Listening, keep_changing};

pub use world::{NewAccount, Now, World};

/// Serves until it is dropped.
#[derive(Debug)]
pub struct Server(Listening);

impl Server {
    pub fn start(listener: TcpListener, world: Arc<World>) -> io::Result<Self> {
        let listening = Listening::start(listener, routes(&world))?;
        Ok(Self(listening.with_task(change(world))))
    }

    /// On a free port of this machine.
    pub async fn start_here(world: Arc<World>) -> io::Result<Self> {
        Self::start(TcpListener::bind("127.0.0.1:0").await?, world)
    }

    pub fn address(&self) -> SocketAddr {
        self.0.address()
    }

    pub fn url(&self) -> String {
        self.0.url()
    }
}

pub(crate) fn routes(world: &Arc<World>) -> Router {
    provider::routes().merge(control::routes()).with_state(Arc::clone(world))
}

/// What goes on by itself.
pub(crate) async fn change(world: Arc<World>) {
    keep_changing(|| world.rate(), |count| world.step_any(count)).await;
}
