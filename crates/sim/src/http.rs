//! The server below every simulated provider, with a way to end a connection without an answer.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use axum::response::Response;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

use crate::socket::Socket;

/// How often what is owed to a rate of changes is paid.
const BEAT: Duration = Duration::from_millis(20);

/// Serves until it is dropped.
#[derive(Debug)]
pub struct Listening {
    address: SocketAddr,
    tasks: Vec<JoinHandle<()>>,
}

/// In an answer's extensions: there is no answer, the connection ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    Closed,
    /// With a reset, as from a machine that knows nothing of the connection any more.
    Reset,
}

impl std::fmt::Display for Cut {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("cut on purpose")
    }
}

impl std::error::Error for Cut {}

impl Listening {
    pub fn start(listener: TcpListener, routes: Router) -> io::Result<Self> {
        let address = listener.local_addr()?;
        Ok(Self { address, tasks: vec![tokio::spawn(accept(listener, routes))] })
    }

    /// Runs until the server is dropped.
    pub fn with_task(mut self, task: impl Future<Output = ()> + Send + 'static) -> Self {
        self.tasks.push(tokio::spawn(task));
        self
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// Makes as many changes a second as `rate` says at the time.
pub async fn keep_changing(rate: impl Fn() -> f64, step: impl Fn(usize)) {
    let mut beat = tokio::time::interval(BEAT);
    beat.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut owed = 0.0;
    loop {
        beat.tick().await;
        owed = (owed + rate() * BEAT.as_secs_f64()).min(10_000.0);
        step(owed as usize);
        owed = owed.fract();
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
    let is_reset = Arc::new(AtomicBool::new(false));
    let service = service_fn(|request| {
        let (response, is_reset) = (routes.call(request), Arc::clone(&is_reset));
        async move {
            let answered = answer(response).await;
            is_reset.store(matches!(answered, Err(Cut::Reset)), Ordering::Relaxed);
            answered
        }
    });
    let io = TokioIo::new(Socket::new(stream, Arc::clone(&is_reset)));
    // The outcome is nobody's business: clients go away, and we cut them off on purpose.
    let _ = http1::Builder::new().header_read_timeout(None).serve_connection(io, service).await;
}

/// An error here makes hyper end the connection without a word, for which axum has no way.
async fn answer(response: impl Future<Output = Result<Response, Infallible>>) -> Result<Response, Cut> {
    let response = response.await.unwrap_or_else(|never| match never {});
    match response.extensions().get::<Cut>() {
        Some(cut) => Err(*cut),
        None => Ok(response),
    }
}
