//! Connections, from the first byte to the last. In the place of `axum::serve`, which waits for everybody for ever.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::http::{Request, Version};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
use tower_service::Service;

use super::body::holding;
use super::connection::{Activity, Socket, Verdict};
use super::settings::{EdgeSettings, Patience};

/// All lines of a head together, the longest URLs of searches included.
const HEAD_BYTES: usize = 64 << 10;

/// Browsers behind proxies send some thirty.
const HEADERS: usize = 100;

/// At the same time on one connection of HTTP/2.
const STREAMS: u32 = 100;

/// Streams that a client opened and took back before we looked: CVE-2023-44487 is many of them.
const RESETS: usize = 20;

/// What is sent ahead on one stream of HTTP/2, whether its reader is slow or not.
const SENT_AHEAD: usize = 256 << 10;

/// When the system has no more sockets, it has some again when others are closed.
const BREATH: Duration = Duration::from_millis(100);

/// Until `closed` holds; requests under way are answered first.
pub(crate) async fn serve(
    listener: TcpListener,
    routes: Router,
    settings: &EdgeSettings,
    mut closed: watch::Receiver<bool>,
) -> io::Result<()> {
    let (protocol, patience) = (protocol(settings), settings.patience);
    // Idle ones may be there besides those that are answered.
    let most = settings.max_streams + 4 * settings.max_in_flight;
    let mut connections = JoinSet::new();
    let is_closed = closed.clone();
    let mut closing = pin!(is_true(&mut closed));
    loop {
        tokio::select! {
            // When there are too many, the next ones wait outside.
            accepted = listener.accept(), if connections.len() < most => match accepted {
                Ok((stream, peer)) => {
                    let connection = answer(stream, peer, routes.clone(), protocol.clone(), patience, is_closed.clone());
                    connections.spawn(connection);
                }
                Err(e) => {
                    tracing::debug!("a connection could not be accepted: {e}");
                    tokio::time::sleep(BREATH).await;
                }
            },
            Some(_) = connections.join_next() => {}
            () = &mut closing => break,
        }
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
    Ok(())
}

fn protocol(settings: &EdgeSettings) -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    // We have our own clock for heads, which does not count the pause before them.
    builder.http1().timer(TokioTimer::new()).header_read_timeout(None).max_buf_size(HEAD_BYTES).max_headers(HEADERS);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS)
        .max_pending_accept_reset_streams(RESETS)
        .max_local_error_reset_streams(RESETS)
        .max_header_list_size(HEAD_BYTES as u32)
        .max_send_buf_size(SENT_AHEAD)
        // One that is gone without a word is noticed.
        .keep_alive_interval(settings.patience.idle / 2)
        .keep_alive_timeout(settings.patience.head);
    builder
}

async fn is_true(told: &mut watch::Receiver<bool>) {
    drop(told.wait_for(|told| *told).await);
}

async fn answer(
    stream: TcpStream,
    peer: SocketAddr,
    routes: Router,
    protocol: Builder<TokioExecutor>,
    patience: Patience,
    mut closed: watch::Receiver<bool>,
) {
    // Answers are written whole; waiting for more to send with them only delays them.
    let _ = stream.set_nodelay(true);
    let activity = Activity::begin(patience);
    let socket = TokioIo::new(Socket::new(stream, activity.clone()));
    let service = service_fn(|request: Request<Incoming>| {
        let open = activity.request(request.version() == Version::HTTP_2);
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(ConnectInfo(peer));
        let answer = routes.clone().call(request);
        async move { Ok::<_, Infallible>(answer.await?.map(|body| holding(body, open))) }
    });
    let mut connection = pin!(protocol.serve_connection(socket, service));
    let mut is_closing = false;
    let mut look_at = Instant::now() + patience.head;
    loop {
        tokio::select! {
            ended = connection.as_mut() => {
                if let Err(e) = ended {
                    tracing::debug!("a connection ended: {e}");
                }
                return;
            }
            () = is_true(&mut closed), if !is_closing => {
                is_closing = true;
                connection.as_mut().graceful_shutdown();
            }
            () = activity.sooner() => look_at = Instant::now(),
            () = sleep_until(look_at) => match activity.verdict(Instant::now()) {
                Verdict::Wait(until) => look_at = until,
                Verdict::TooSlow => return,
                Verdict::Idle if is_closing => return,
                Verdict::Idle => {
                    is_closing = true;
                    connection.as_mut().graceful_shutdown();
                    look_at = Instant::now() + patience.head;
                }
            },
        }
    }
}
