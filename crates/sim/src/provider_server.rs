//! The HTTP server of one simulated provider.

use std::io;
use std::marker::PhantomData;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use tokio::net::TcpListener;

use crate::http::{HttpListener, apply_change_rate};
use crate::world::{Provider, ProviderWorld};

/// A provider that is served over HTTP and pushes to webhooks.
pub trait HttpProvider: Provider {
    /// Returns the routes of the provider's API and of its control API.
    fn routes() -> Router<Arc<ProviderWorld<Self>>>;

    /// Delivers queued pushes until the task is dropped.
    fn deliver_pushes(world: Arc<ProviderWorld<Self>>) -> impl Future<Output = ()> + Send;
}

/// Serves until it is dropped.
#[derive(Debug)]
pub struct ProviderServer<P>(HttpListener, PhantomData<P>);

impl<P: HttpProvider> ProviderServer<P> {
    pub fn start(listener: TcpListener, world: Arc<ProviderWorld<P>>) -> io::Result<Self> {
        let listening = HttpListener::start(listener, routes(&world))?;
        Ok(Self(start_tasks(listening, &world), PhantomData))
    }

    /// Starts the server on a free loopback port.
    pub async fn start_here(world: Arc<ProviderWorld<P>>) -> io::Result<Self> {
        Self::start(TcpListener::bind("127.0.0.1:0").await?, world)
    }

    pub fn address(&self) -> SocketAddr {
        self.0.address()
    }

    pub fn url(&self) -> String {
        self.0.url()
    }
}

pub(crate) fn routes<P: HttpProvider>(world: &Arc<ProviderWorld<P>>) -> Router {
    P::routes().with_state(Arc::clone(world))
}

/// Starts the background tasks.
pub(crate) fn start_tasks<P: HttpProvider>(listening: HttpListener, world: &Arc<ProviderWorld<P>>) -> HttpListener {
    world.set_url(listening.url());
    listening.with_task(change_task(world)).with_task(P::deliver_pushes(Arc::clone(world)))
}

/// Applies random changes at the world's change rate.
pub(crate) fn change_task<P: Provider>(world: &Arc<ProviderWorld<P>>) -> impl Future<Output = ()> + Send + use<P> {
    let world = Arc::clone(world);
    async move { apply_change_rate(|| world.rate(), |count| world.step_any(count)).await }
}
