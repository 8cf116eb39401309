//! Posting to whoever wants to be told, and what goes wrong on the way.

use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::http::header::{CONTENT_TYPE, HOST};
use axum::http::{HeaderName, Request, Uri};
use bytes::Bytes;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use crate::mail::rng::Rng;

/// Posts under way at the same time.
pub const AT_ONCE: usize = 64;

/// Whoever does not answer in so long is asked again.
pub const PATIENCE: Duration = Duration::from_secs(10);

const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// Then a post is given up, so that a test without an endpoint ends.
pub const ATTEMPTS: u32 = 30;

/// In chaos: how long a post waits at most, so that others overtake it.
const CHAOS_DELAY_MS: usize = 400;

/// Answers are short; more is not read.
const MOST_BYTES: usize = 64 << 10;

/// What was answered.
#[derive(Debug)]
pub struct Posted {
    pub status: u16,
    pub content_type: String,
    pub body: Bytes,
}

pub async fn post(
    url: &str,
    fields: &[(HeaderName, &str)],
    body: impl Into<Bytes>,
) -> Result<Posted, Box<dyn std::error::Error + Send + Sync>> {
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
        let body = to_bytes(Body::new(response.into_body()), MOST_BYTES).await?;
        Ok(Posted { status, content_type, body })
    };
    let mut answered = std::pin::pin!(answered);
    tokio::select! {
        answered = &mut answered => answered,
        // Whoever answers and closes at once ends the connection first; the answer is there all the same.
        _ = connection => answered.await,
    }
}

/// How long to wait before this attempt: nothing before the first, then longer each time.
pub fn wait_before(attempt: u32, retry_ms: u64) -> Duration {
    match attempt.checked_sub(1) {
        None => Duration::ZERO,
        Some(before) => Duration::from_millis(retry_ms.saturating_mul(1 << before.min(20))).min(LONGEST_WAIT),
    }
}

/// When each copy is sent: up to five, in any order, and one of five never.
pub fn chaos(rng: &mut Rng) -> Vec<u64> {
    if rng.percent(20) {
        return Vec::new();
    }
    (0..rng.between(1, 5)).map(|_| rng.below(CHAOS_DELAY_MS) as u64).collect()
}
