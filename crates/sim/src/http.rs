//! The HTTP server of all simulated providers, which can also drop a connection without a response.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use axum::http::{HeaderMap, HeaderName};
use axum::response::Response;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

use crate::socket::Socket;

/// The interval at which the change rate is applied.
const CHANGE_TICK: Duration = Duration::from_millis(20);

/// Serves until it is dropped.
#[derive(Debug)]
pub struct HttpListener {
    address: SocketAddr,
    tasks: Vec<JoinHandle<()>>,
}

/// A response extension: the connection is closed instead of answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectionCut {
    Closed,
    /// With a TCP reset.
    Reset,
}

impl std::fmt::Display for ConnectionCut {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("cut on purpose")
    }
}

impl std::error::Error for ConnectionCut {}

impl HttpListener {
    pub fn start(listener: TcpListener, routes: Router) -> io::Result<Self> {
        let address = listener.local_addr()?;
        Ok(Self { address, tasks: vec![tokio::spawn(accept(listener, routes))] })
    }

    /// Adds a background task that runs until the server is dropped.
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

impl Drop for HttpListener {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// Calls `step` so that it makes `rate` changes a second.
pub async fn apply_change_rate(rate: impl Fn() -> f64, step: impl Fn(usize)) {
    let mut beat = tokio::time::interval(CHANGE_TICK);
    beat.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut owed = 0.0;
    loop {
        beat.tick().await;
        owed = (owed + rate() * CHANGE_TICK.as_secs_f64()).min(10_000.0);
        step(owed as usize);
        owed = owed.fract();
    }
}

/// Returns a header field as text.
pub fn header_text(head: &HeaderMap, name: HeaderName) -> Option<&str> {
    head.get(name).and_then(|value| value.to_str().ok())
}

async fn accept(listener: TcpListener, routes: Router) {
    // Dropped with this task, which ends the connections.
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => drop(connections.spawn(serve_connection(stream, routes.clone()))),
                // Most likely out of file descriptors; other connections will end.
                Err(_) => tokio::time::sleep(CHANGE_TICK).await,
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn serve_connection(stream: TcpStream, routes: Router) {
    let _ = stream.set_nodelay(true);
    let routes = TowerToHyperService::new(routes);
    let is_reset = Arc::new(AtomicBool::new(false));
    let service = service_fn(|request| {
        let (response, is_reset) = (routes.call(request), Arc::clone(&is_reset));
        async move {
            let response = answer(response).await;
            is_reset.store(matches!(response, Err(ConnectionCut::Reset)), Ordering::Relaxed);
            response
        }
    });
    let io = TokioIo::new(Socket::new(stream, Arc::clone(&is_reset)));
    // Errors are expected: clients disconnect, and connections are cut on purpose.
    let _ = http1::Builder::new().header_read_timeout(None).serve_connection(io, service).await;
}

/// Turns a cut into an error, which makes hyper close the connection without a response; axum cannot.
async fn answer(response: impl Future<Output = Result<Response, Infallible>>) -> Result<Response, ConnectionCut> {
    let response = response.await.unwrap_or_else(|never| match never {});
    match response.extensions().get::<ConnectionCut>() {
        Some(cut) => Err(*cut),
        None => Ok(response),
    }
}
