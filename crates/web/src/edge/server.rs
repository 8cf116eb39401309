//! Accepts and serves connections with timeouts. Replaces `axum::serve`, which has none.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::http::{Request, Version};
use domain::redact_for_log;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
use tower_service::Service;

use super::body::with_guard;
use super::connection::{ConnectionActivity, IdleVerdict, StallGuard};
use super::settings::{EdgeSettings, Timeouts};

/// Size of a request head, with room for the longest search URLs.
const MAX_HEAD_BYTES: usize = 64 << 10;

/// Header lines per request; browsers behind proxies send about thirty.
const MAX_HEADERS: usize = 100;

/// Concurrent streams on one HTTP/2 connection.
const MAX_HTTP2_STREAMS: u32 = 100;

/// HTTP/2 streams that a client reset before they were handled; CVE-2023-44487 (rapid reset) sends many of them.
const MAX_HTTP2_RESETS: usize = 20;

/// Bytes buffered per HTTP/2 stream for a slow reader.
const HTTP2_SEND_BUFFER_BYTES: usize = 256 << 10;

/// Pause after a failed accept: out of file descriptors, the system has some again when other connections close.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

/// Serves connections until `closed` turns true; requests in flight are answered first.
pub(crate) async fn serve(
    listener: TcpListener,
    routes: Router,
    settings: &EdgeSettings,
    mut closed: watch::Receiver<bool>,
) -> io::Result<()> {
    let (protocol, timeouts) = (protocol(settings), settings.timeouts);
    let max_connections = settings.limits.connections();
    let mut connections = JoinSet::new();
    let is_closed = closed.clone();
    let mut closing = pin!(is_true(&mut closed));
    loop {
        tokio::select! {
            // Above the limit, further connections wait in the listen backlog.
            accepted = listener.accept(), if connections.len() < max_connections => match accepted {
                Ok((stream, peer)) => {
                    let connection = serve_connection(stream, peer, routes.clone(), protocol.clone(), timeouts, is_closed.clone());
                    connections.spawn(connection);
                }
                Err(e) => {
                    tracing::debug!(error = redact_for_log(&e), "accepting a connection failed");
                    tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
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
    // `ConnectionActivity` times heads itself, without the pause before them.
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(None)
        .max_buf_size(MAX_HEAD_BYTES)
        .max_headers(MAX_HEADERS);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(MAX_HTTP2_STREAMS)
        .max_pending_accept_reset_streams(MAX_HTTP2_RESETS)
        .max_local_error_reset_streams(MAX_HTTP2_RESETS)
        .max_header_list_size(MAX_HEAD_BYTES as u32)
        .max_send_buf_size(HTTP2_SEND_BUFFER_BYTES)
        // Detects clients that vanished without closing the connection.
        .keep_alive_interval(settings.timeouts.idle / 2)
        .keep_alive_timeout(settings.timeouts.head);
    builder
}

async fn is_true(flag: &mut watch::Receiver<bool>) {
    drop(flag.wait_for(|flag| *flag).await);
}

async fn serve_connection(
    stream: TcpStream,
    peer: SocketAddr,
    routes: Router,
    protocol: Builder<TokioExecutor>,
    timeouts: Timeouts,
    mut closed: watch::Receiver<bool>,
) {
    // Responses are written in one piece; Nagle's algorithm would only delay them.
    let _ = stream.set_nodelay(true);
    let activity = ConnectionActivity::begin(timeouts);
    let socket = TokioIo::new(StallGuard::new(stream, activity.clone()));
    let service = service_fn(|request: Request<Incoming>| {
        let open = activity.request(request.version() == Version::HTTP_2);
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(ConnectInfo(peer));
        let answer = routes.clone().call(request);
        async move { Ok::<_, Infallible>(answer.await?.map(|body| with_guard(body, open))) }
    });
    let mut connection = pin!(protocol.serve_connection(socket, service));
    let mut is_closing = false;
    let mut check_at = Instant::now() + timeouts.head;
    loop {
        tokio::select! {
            ended = connection.as_mut() => {
                if let Err(e) = ended {
                    tracing::debug!(error = redact_for_log(&e), "connection failed");
                }
                return;
            }
            () = is_true(&mut closed), if !is_closing => {
                is_closing = true;
                connection.as_mut().graceful_shutdown();
            }
            () = activity.deadline_moved() => check_at = Instant::now(),
            () = sleep_until(check_at) => match activity.verdict(Instant::now()) {
                IdleVerdict::Wait(until) => check_at = until,
                IdleVerdict::HeadTimeout => return,
                IdleVerdict::Idle if is_closing => return,
                IdleVerdict::Idle => {
                    is_closing = true;
                    connection.as_mut().graceful_shutdown();
                    check_at = Instant::now() + timeouts.head;
                }
            },
        }
    }
}
