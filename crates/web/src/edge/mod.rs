//! What every request passes on its way in, and every answer on its way out.

mod address;
mod answers;
mod body;
mod connection;
mod flight;
mod guesses;
mod passage;
mod rates;
mod request_id;
mod server;
mod settings;
mod uses;

pub use address::ClientAddress;
pub(crate) use answers::{compression, cors, options};
pub(crate) use body::TooSlow;
pub(crate) use guesses::{Guesses, Known};
pub(crate) use passage::Passage;
pub use request_id::RequestId;
pub(crate) use server::serve;
pub use settings::{EdgeSettings, Network, Patience, Rate};

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use engine::gate::Redis;
use futures_util::FutureExt;
use tokio::time::{Instant, timeout};
use tracing::Instrument;

use crate::App;
use crate::api::Problem;
use flight::Flights;
use rates::Rates;
use uses::Uses;

/// Of requests under way a tenant may have a quarter, of what goes on for long a half.
const PARTS: (usize, usize) = (4, 2);

/// Larger answers are downloads, which last as long as somebody reads them.
const SHORT: u64 = 1 << 20;

/// Bytes are proven before they are sent, and a large attachment comes from far away.
const DOWNLOAD_PATIENCE: Duration = Duration::from_secs(900);

/// Who is told to come later and asks again at once is told so no faster than this. It costs us a timer, and them the
/// cores on which the others are answered.
const REFUSED_AFTER: Duration = Duration::from_millis(100);

/// What is counted and remembered at the door.
#[derive(Debug)]
pub struct Edge {
    pub(crate) settings: EdgeSettings,
    requests: Arc<Flights>,
    streams: Arc<Flights>,
    pub(crate) rates: Rates,
    pub(crate) guesses: Guesses,
    pub(crate) uses: Uses,
    refused: AtomicU32,
}

impl Edge {
    /// With a Redis, what a tenant may send is shared by all processes.
    pub fn new(settings: EdgeSettings, redis: Option<Redis>) -> Self {
        Self {
            requests: Flights::new(settings.max_in_flight, PARTS.0),
            streams: Flights::new(settings.max_streams, PARTS.1),
            rates: Rates::new(settings.requests_per_second, redis),
            guesses: Guesses::new(settings.failed_logins),
            uses: Uses::default(),
            refused: AtomicU32::new(0),
            settings,
        }
    }
}

/// The outermost: who sent it and what it is called, which is in all log lines and answers; and it is counted.
pub(crate) async fn receive(State(app): State<App>, mut request: Request, next: Next) -> Response {
    let started = Instant::now();
    let ClientAddress(address) = address::of(&request, &app.edge.settings.trusted_proxies);
    let id = RequestId::of(request.headers(), app.engine.store.clock());
    let route = request.extensions().get::<MatchedPath>().cloned();
    let route = route.as_ref().map_or("none", MatchedPath::as_str).to_owned();
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    request.extensions_mut().insert(ClientAddress(address));
    request.extensions_mut().insert(id.clone());
    let span = tracing::info_span!("request", request.id = %id, client.address = %address);
    let answered = AssertUnwindSafe(next.run(request)).catch_unwind().instrument(span.clone()).await;
    let _entered = span.enter();
    let mut response = answered.unwrap_or_else(|_| {
        tracing::error!("a request to {route} panicked");
        Problem::internal().into_response()
    });
    if let Some(problem) = response.extensions_mut().remove::<Problem>() {
        let (mut head, _) = response.into_parts();
        let json = problem.at(path).json();
        head.headers.insert(header::CONTENT_LENGTH, HeaderValue::from(json.len()));
        response = Response::from_parts(head, if method == Method::HEAD { Body::empty() } else { Body::from(json) });
    }
    id.put(response.headers_mut());
    let status = response.status().as_u16();
    metrics::counter!("mailroom_http_requests_total", "route" => route.clone(), "status" => status.to_string())
        .increment(1);
    let duration_ms = started.elapsed().as_millis() as u64;
    tracing::info!(http.method = %method, http.route = route, http.status = status, duration_ms, "answered {method} {route}: {status}");
    response
}

/// Before anybody is asked anything: is there room, is it small enough, and does it end.
pub(crate) async fn bound(State(app): State<App>, request: Request, next: Next) -> Response {
    let (edge, settings) = (&app.edge, &app.edge.settings);
    let Some(seat) = edge.requests.enter() else {
        return Problem::overloaded("this server has too many requests under way").into_response();
    };
    let length = request.headers().get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    if length.is_some_and(|length: u64| length > settings.max_body as u64) {
        return Problem::too_large().into_response();
    }
    let is_download = request.extensions().get::<MatchedPath>().is_some_and(|path| is_download(path.as_str()));
    let patience = if is_download { DOWNLOAD_PATIENCE } else { settings.patience.answer };
    let passage = Passage::new(seat);
    let mut request = request.map(|body| body::timed(body, settings.patience.body));
    request.extensions_mut().insert(passage.clone());
    let mut response = match timeout(patience, next.run(request)).await {
        Ok(response) => response,
        Err(_) => Problem::overloaded("the answer took too long").into_response(),
    };
    let tenant = passage.leave(response.headers_mut());
    if response.status() == StatusCode::TOO_MANY_REQUESTS {
        // Without a seat. Those who were refused together do not come again together.
        let turn = edge.refused.fetch_add(1, Ordering::Relaxed) % 16;
        tokio::time::sleep(REFUSED_AFTER + REFUSED_AFTER * turn / 16).await;
    }
    if response.body().size_hint().exact().is_some_and(|size| size <= SHORT) {
        return response;
    }
    let stream = edge.streams.enter();
    let stream = stream.and_then(|mut stream| tenant.is_none_or(|tenant| stream.belongs_to(tenant)).then_some(stream));
    match stream {
        Some(stream) => response.map(|body| body::holding(body, stream)),
        None => Problem::overloaded("too many downloads and followers at once").into_response(),
    }
}

fn is_download(route: &str) -> bool {
    route.ends_with("/raw") || route.ends_with("/content")
}

/// Whether a body broke off because its sender was too slow.
pub(crate) fn was_too_slow(e: &(dyn std::error::Error + 'static)) -> bool {
    std::iter::successors(Some(e), |e| e.source()).any(<dyn std::error::Error>::is::<TooSlow>)
}
