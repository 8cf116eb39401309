//! The scripted mailboxes over HTTP: the provider's own API, and one to steer it.

mod body;
mod control;
mod provider;
mod world;

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::response::Response;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

pub use world::{NewAccount, Now, World};

/// How often what is owed to the rate of changes is paid.
const BEAT: Duration = Duration::from_millis(20);

/// Serves until it is dropped.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    tasks: [JoinHandle<()>; 2],
}

/// In an answer's extensions: there is no answer, the connection ends.
#[derive(Debug, Clone)]
struct Cut;

impl std::fmt::Display for Cut {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("cut on purpose")
    }
}

impl std::error::Error for Cut {}

impl Server {
    pub fn start(listener: TcpListener, world: Arc<World>) -> io::Result<Self> {
        let address = listener.local_addr()?;
        let routes = provider::routes().merge(control::routes()).with_state(Arc::clone(&world));
        Ok(Self { address, tasks: [tokio::spawn(accept(listener, routes)), tokio::spawn(keep_changing(world))] })
    }

    /// On a free port of this machine.
    pub async fn start_here(world: Arc<World>) -> io::Result<Self> {
        Self::start(TcpListener::bind("127.0.0.1:0").await?, world)
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

async fn accept(listener: TcpListener, routes: Router) {
    // Connections end with this task.
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => drop(connections.spawn(talk(stream, routes.clone()))),
                // Out of descriptors, most likely; others end before long.
                Err(_) => tokio::time::sleep(BEAT).await,
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn talk(stream: TcpStream, routes: Router) {
    let _ = stream.set_nodelay(true);
    let routes = TowerToHyperService::new(routes);
    let service = service_fn(|request| answer(routes.call(request)));
    // The outcome is nobody's business: clients go away, and we cut them off on purpose.
    let _ = http1::Builder::new().header_read_timeout(None).serve_connection(TokioIo::new(stream), service).await;
}

/// An error here makes hyper end the connection without a word, for which axum has no way.
async fn answer(response: impl Future<Output = Result<Response, Infallible>>) -> Result<Response, Cut> {
    let response = response.await.unwrap_or_else(|never| match never {});
    if response.extensions().get::<Cut>().is_some() { Err(Cut) } else { Ok(response) }
}

/// Makes as many changes a second as the world is told to.
async fn keep_changing(world: Arc<World>) {
    let mut beat = tokio::time::interval(BEAT);
    beat.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut owed = 0.0;
    loop {
        beat.tick().await;
        owed = (owed + world.rate() * BEAT.as_secs_f64()).min(10_000.0);
        world.step_any(owed as usize);
        owed = owed.fract();
    }
}
