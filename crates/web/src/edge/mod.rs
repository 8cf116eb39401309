//! Middleware and connection handling in front of all handlers: limits, timeouts, request ids, request logs, CORS.

mod address;
mod auth_throttle;
mod body;
mod connection;
mod key_usage;
mod plan_quota;
mod request_context;
mod request_id;
mod response_layers;
mod server;
mod settings;

pub use address::ClientAddress;
pub(crate) use auth_throttle::{AuthThrottle, KeyHistory};
pub(crate) use body::BodyTimeout;
pub(crate) use request_context::RequestContext;
pub use request_id::RequestId;
pub(crate) use response_layers::{answer_options, compression, cors};
pub(crate) use server::serve;
pub use settings::{EdgeSettings, Timeouts, TrustedNetwork};

use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use domain::{TenantId, metrics as catalogue, redact_for_log};
use futures_util::FutureExt;
use jobs::panic_message;
use outbound::Redis;
use outbound::limits::Limit;
use outbound::permits::PermitTable;
use outbound::rate_limiter::RateLimiter;
use tokio::time::{Instant, timeout};
use tracing::Instrument;

use crate::App;
use crate::problem::Problem;
use key_usage::KeyUsage;
use request_context::{RequestPermit, RequestScope};

/// Responses above this size count as streams: they last as long as the client reads them.
const MAX_SHORT_RESPONSE_BYTES: u64 = 1 << 20;

/// Time until a download starts: its bytes are verified first, and a large attachment may come from a remote store.
const DOWNLOAD_TIMEOUT: Duration = Duration::from_secs(900);

/// Minimum duration of a 429 response. A client that retries at once is slowed down at the price of a timer, and leaves
/// the cores to other requests.
const MIN_REFUSAL_DELAY: Duration = Duration::from_millis(100);

/// Limiters and throttles shared by all requests of this process.
#[derive(Debug)]
pub struct Edge {
    pub(crate) settings: EdgeSettings,
    requests: PermitTable<RequestScope>,
    streams: PermitTable<RequestScope>,
    /// With a bucket for each tenant.
    request_rates: RateLimiter<TenantId>,
    pub(crate) auth_throttle: AuthThrottle,
    pub(crate) key_usage: KeyUsage,
    refusals: AtomicU32,
}

impl Edge {
    /// Creates the limiters. With a Redis, the rate limit of a tenant is shared by all processes.
    pub fn new(settings: EdgeSettings, redis: Option<Redis>) -> Self {
        Self {
            requests: PermitTable::new(Limit::RequestsInFlight),
            streams: PermitTable::new(Limit::Streams),
            request_rates: RateLimiter::new(Limit::Requests, redis),
            auth_throttle: AuthThrottle::new(settings.limits.wrong_keys),
            key_usage: KeyUsage::default(),
            refusals: AtomicU32::new(0),
            settings,
        }
    }
}

/// Assigns request id and client address, catches panics, counts and logs each request. It is the outermost middleware.
pub(crate) async fn observe_request(State(app): State<App>, mut request: Request, next: Next) -> Response {
    let started = Instant::now();
    let ClientAddress(address) = address::of(&request, &app.edge.settings.trusted_proxies);
    let id = RequestId::of(request.headers(), app.engine.store.clock());
    let route = request.extensions().get::<MatchedPath>().cloned();
    let route = route.as_ref().map_or("none", MatchedPath::as_str).to_owned();
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    request.extensions_mut().insert(ClientAddress(address));
    request.extensions_mut().insert(id.clone());
    let span = tracing::info_span!(
        "request",
        request.id = %id,
        client.address = %address,
        tenant.id = tracing::field::Empty
    );
    let answered = AssertUnwindSafe(next.run(request)).catch_unwind().instrument(span.clone()).await;
    let _guard = span.enter();
    let mut response = answered.unwrap_or_else(|panic| {
        tracing::error!(
            request.id = %id,
            http.method = %method,
            http.route = route,
            error = redact_for_log(&panic_message(&*panic)),
            "request handler panicked"
        );
        Problem::internal().into_response()
    });
    if let Some(problem) = response.extensions_mut().remove::<Problem>() {
        let (mut head, _) = response.into_parts();
        let json = problem.with_instance(path).json();
        head.headers.insert(header::CONTENT_LENGTH, HeaderValue::from(json.len()));
        response = Response::from_parts(head, if method == Method::HEAD { Body::empty() } else { Body::from(json) });
    }
    id.insert_into(response.headers_mut());
    let status = response.status().as_u16();
    metrics::counter!(catalogue::HTTP_REQUESTS, "route" => route.clone(), "status" => status.to_string()).increment(1);
    let duration_ms = started.elapsed().as_millis() as u64;
    tracing::info!(
        request.id = %id,
        tenant.id = response.extensions().get::<TenantId>().map(tracing::field::display),
        http.method = %method,
        http.route = route,
        http.status = status,
        duration_ms,
        "request answered"
    );
    response
}

/// Applies the concurrency limits, the body size limit and the timeouts, before authentication.
pub(crate) async fn limit_request(State(app): State<App>, request: Request, next: Next) -> Response {
    let (edge, settings) = (&app.edge, &app.edge.settings);
    // Without a free permit a request is refused at once, since queueing would only slow down all of them.
    let Some(permit) = edge.requests.acquire(&[(RequestScope::Process, settings.limits.in_flight)]) else {
        return Problem::overloaded("this server has too many requests in flight").into_response();
    };
    let length = request.headers().get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    if length.is_some_and(|length: u64| length > settings.max_body as u64) {
        return Problem::payload_too_large().into_response();
    }
    let is_download = request.extensions().get::<MatchedPath>().is_some_and(|path| is_download(path.as_str()));
    let timeouts = if is_download { DOWNLOAD_TIMEOUT } else { settings.timeouts.answer };
    let context = RequestContext::new(permit);
    let mut request = request.map(|body| body::with_timeout(body, settings.timeouts.body));
    request.extensions_mut().insert(context.clone());
    let mut response = match timeout(timeouts, next.run(request)).await {
        Ok(response) => response,
        Err(_) => Problem::overloaded("the response took too long to start").into_response(),
    };
    let tenant = context.finish(response.headers_mut());
    if response.status() == StatusCode::TOO_MANY_REQUESTS {
        // The permit is released by now. The jitter spreads out the retries of clients that were refused together.
        let slot = edge.refusals.fetch_add(1, Ordering::Relaxed) % 16;
        tokio::time::sleep(MIN_REFUSAL_DELAY + MIN_REFUSAL_DELAY * slot / 16).await;
    }
    let mut response = limit_stream(edge, tenant, response);
    // For the log of the outermost middleware.
    if let Some(tenant) = tenant {
        response.extensions_mut().insert(tenant);
    }
    response
}

/// Holds a stream permit for as long as a long response is read. Refuses the response if there is none left.
fn limit_stream(edge: &Edge, tenant: Option<TenantId>, response: Response) -> Response {
    if response.body().size_hint().exact().is_some_and(|size| size <= MAX_SHORT_RESPONSE_BYTES) {
        return response;
    }
    match stream_permit(edge, tenant) {
        Some(stream) => response.map(|body| body::with_guard(body, stream)),
        None => Problem::overloaded("there are too many downloads and event streams in progress").into_response(),
    }
}

fn stream_permit(edge: &Edge, tenant: Option<TenantId>) -> Option<RequestPermit> {
    let limits = &edge.settings.limits;
    let of_tenant = tenant.map(|tenant| (RequestScope::Tenant(tenant), limits.tenant_streams()));
    let scopes: Vec<_> = std::iter::once((RequestScope::Process, limits.streams)).chain(of_tenant).collect();
    edge.streams.acquire(&scopes)
}

fn is_download(route: &str) -> bool {
    route.ends_with("/raw") || route.ends_with("/content")
}

/// Returns whether reading a body failed because its sender was too slow.
pub(crate) fn is_body_timeout(e: &(dyn std::error::Error + 'static)) -> bool {
    std::iter::successors(Some(e), |e| e.source()).any(<dyn std::error::Error>::is::<BodyTimeout>)
}
