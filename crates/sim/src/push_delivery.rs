//! Posts pushes to webhooks: HTTP client, retry delays, chaos.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::http::header::{CONTENT_TYPE, HOST};
use axum::http::{HeaderName, Request, Uri};
use bytes::Bytes;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinSet;

use crate::faults::{FaultKind, PushFault};
use crate::mail::rng::Rng;

/// The maximum number of concurrent posts.
const MAX_CONCURRENT_POSTS: usize = 64;

/// The time after which a post is retried.
pub const POST_TIMEOUT: Duration = Duration::from_secs(10);

const MAX_RETRY_DELAY: Duration = Duration::from_secs(10);

/// The number of attempts before a post is given up, so that a test without an endpoint ends.
pub const MAX_POST_ATTEMPTS: u32 = 30;

/// The maximum delay in chaos mode, so that posts overtake each other.
const MAX_CHAOS_DELAY_MS: usize = 400;

/// The maximum size of a reply.
const MAX_REPLY_BYTES: usize = 64 << 10;

/// The reply to a post.
#[derive(Debug)]
pub struct PostReply {
    pub status: u16,
    pub content_type: String,
    pub body: Bytes,
}

pub async fn post(
    url: &str,
    fields: &[(HeaderName, &str)],
    body: impl Into<Bytes>,
) -> Result<PostReply, Box<dyn std::error::Error + Send + Sync>> {
    let uri: Uri = url.parse()?;
    if uri.scheme_str() != Some("http") {
        return Err("posts go to http:// only".into());
    }
    let authority = uri.authority().ok_or("no host")?;
    let stream =
        TcpStream::connect((authority.host().trim_matches(['[', ']']), authority.port_u16().unwrap_or(80))).await?;
    stream.set_nodelay(true)?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let mut request =
        Request::post(uri.path_and_query().map_or("/", |path| path.as_str())).header(HOST, authority.as_str());
    for (name, value) in fields {
        request = request.header(name, *value);
    }
    let answered = async move {
        let response = sender.send_request(request.body(Body::from(body.into()))?).await?;
        let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        let (status, content_type) = (response.status().as_u16(), kind.to_owned());
        let body = to_bytes(Body::new(response.into_body()), MAX_REPLY_BYTES).await?;
        Ok(PostReply { status, content_type, body })
    };
    let mut answered = std::pin::pin!(answered);
    tokio::select! {
        answered = &mut answered => answered,
        // A server that closes at once ends the connection first; its reply has arrived all the same.
        _ = connection => answered.await,
    }
}

/// Returns the delay before an attempt: none before the first, then exponential backoff.
pub fn retry_delay(attempt: u32, retry_ms: u64) -> Duration {
    match attempt.checked_sub(1) {
        None => Duration::ZERO,
        Some(before) => Duration::from_millis(retry_ms.saturating_mul(1 << before.min(20))).min(MAX_RETRY_DELAY),
    }
}

/// Draws the delays of up to five copies; one post of five gets none.
pub fn chaos_delays_ms(rng: &mut Rng) -> Vec<u64> {
    if rng.percent(20) {
        return Vec::new();
    }
    (0..rng.between(1, 5)).map(|_| rng.below(MAX_CHAOS_DELAY_MS) as u64).collect()
}

/// Returns one delay for each copy of a push to send.
pub fn delays_ms<K: FaultKind>(faults: &[K]) -> Vec<u64> {
    let (mut copies, mut delay_ms) = (1, 0);
    for fault in faults.iter().filter_map(FaultKind::push_fault) {
        match fault {
            PushFault::Lost => return Vec::new(),
            PushFault::Duplicated { times } => copies += times,
            PushFault::Delayed { ms } => delay_ms = ms,
        }
    }
    (0..copies).map(|_| delay_ms).collect()
}

/// Starts a delivery for everything that is queued, now and whenever `wake` is notified. A delivery takes a permit of
/// the semaphore for each post.
pub async fn run_deliveries<T, F>(
    wake: &Notify,
    take_queued: impl Fn() -> Vec<T>,
    deliver: impl Fn(T, Arc<Semaphore>) -> F,
) where
    F: Future<Output = ()> + Send + 'static,
{
    let permits = Arc::new(Semaphore::new(MAX_CONCURRENT_POSTS));
    let mut deliveries = JoinSet::new();
    loop {
        for queued in take_queued() {
            deliveries.spawn(deliver(queued, Arc::clone(&permits)));
        }
        tokio::select! {
            () = wake.notified() => {}
            Some(_) = deliveries.join_next() => {}
        }
    }
}
