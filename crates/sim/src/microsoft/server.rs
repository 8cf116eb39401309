//! The simulated Microsoft over HTTP.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use tokio::net::TcpListener;

use super::world::World;
use super::{api, control, subscriptions};
use crate::http::{Listening, keep_changing};

/// Serves until it is dropped.
#[derive(Debug)]
pub struct Server(Listening);

impl Server {
    pub fn start(listener: TcpListener, world: Arc<World>) -> io::Result<Self> {
        let listening = Listening::start(listener, routes(&world))?;
        Ok(Self(start_tasks(listening, &world)))
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
    api::routes().merge(control::routes()).with_state(Arc::clone(world))
}

/// What goes on by itself.
pub(crate) fn start_tasks(listening: Listening, world: &Arc<World>) -> Listening {
    world.set_url(listening.url());
    let changing = Arc::clone(world);
    let changes = async move { keep_changing(|| changing.rate(), |count| changing.step_any(count)).await };
    listening.with_task(changes).with_task(subscriptions::run(Arc::clone(world)))
}
