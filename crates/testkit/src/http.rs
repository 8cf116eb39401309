//! Requests to the application's own router, and their replies.

use std::fmt::{self, Debug};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, OnceLock};

use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::ConnectInfo;
use axum::http::{HeaderMap, Request, Response, StatusCode, header};
use outbound::limits::{PlanRates, RequestLimits};
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tower_service::Service;

/// The address that requests come from.
const CLIENT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 40_000);

/// Requests per second and wrong keys per minute, which no test reaches by chance.
const GENEROUS_LIMIT: usize = 1_000_000;

/// A whole answer.
#[derive(Debug, Clone)]
pub struct HttpReply {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl HttpReply {
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e}: {}", self.text()))
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The value of a header; panics if there is none.
    pub fn header(&self, name: &str) -> &str {
        self.find_header(name).unwrap_or_else(|| panic!("no {name} in {:?}", self.headers))
    }

    pub fn find_header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    /// Fails the test with the body unless this is the status.
    #[track_caller]
    pub fn expect(&self, status: u16) -> &Self {
        assert_eq!(self.status.as_u16(), status, "{}", self.text());
        self
    }

    /// Fails the test unless this is a problem (RFC 9457) with this status and text.
    #[track_caller]
    pub fn assert_problem(&self, status: u16, says: &str) {
        let problem = self.expect(status).json();
        assert_eq!(problem["status"], status, "{problem}");
        assert_eq!(self.header("content-type"), "application/problem+json");
        assert!(problem["detail"].as_str().unwrap().contains(says), "{says:?} is not in {problem}");
        for field in ["title", "type", "instance"] {
            assert!(problem[field].is_string(), "{problem}");
        }
    }
}

/// The router of this process with the state that `mailroom serve` gives it, called without a connection.
#[derive(Debug)]
pub struct InProcessServer {
    router: Router,
    background: JoinHandle<()>,
    /// The process is open as long as this is kept.
    _is_open: watch::Sender<bool>,
}

impl Drop for InProcessServer {
    fn drop(&mut self) {
        self.background.abort();
    }
}

/// The metrics of this process; they can be installed once.
fn recorder() -> web::MetricsRecorder {
    static RECORDER: OnceLock<web::MetricsRecorder> = OnceLock::new();
    RECORDER.get_or_init(|| web::MetricsRecorder::install().unwrap()).clone()
}

/// What of the web server a test may choose. No limits are met by chance.
#[derive(Debug, Clone)]
pub struct HttpOptions {
    pub edge: web::EdgeSettings,
    /// Networks of this machine that webhooks may call; usually none are.
    pub webhook_policy: Option<outbound::http::AddressPolicy>,
    /// Changes the server's state before its first request; see [`HttpOptions::setup`].
    pub setup: Option<AppSetup>,
}

impl Default for HttpOptions {
    fn default() -> Self {
        let per_second = PlanRates { standard: GENEROUS_LIMIT, vip: GENEROUS_LIMIT };
        let limits = RequestLimits { per_second, wrong_keys: GENEROUS_LIMIT, ..RequestLimits::default() };
        let edge = web::EdgeSettings { limits, ..Default::default() };
        Self { edge, webhook_policy: None, setup: None }
    }
}

impl HttpOptions {
    /// Changes the server's state before its first request: an issuer of tokens, consent flows, receivers of pushes.
    pub fn setup(mut self, setup: impl Fn(&mut web::App) + Send + Sync + 'static) -> Self {
        self.setup = Some(AppSetup(Arc::new(setup)));
        self
    }
}

#[derive(Clone)]
pub struct AppSetup(Arc<dyn Fn(&mut web::App) + Send + Sync>);

impl Debug for AppSetup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AppSetup")
    }
}

impl InProcessServer {
    pub fn start(engine: &engine::Engine, options: &HttpOptions) -> Self {
        let (is_open, open) = watch::channel(true);
        let mut app = web::App {
            engine: engine.clone(),
            recorder: recorder(),
            event_hub: Arc::new(web::EventHub::new(engine.store.clone())),
            edge: Arc::new(web::Edge::new(options.edge.clone(), None)),
            issuer: None,
            providers: providers::registry::DECLARATIONS,
            pushes: std::collections::HashMap::new(),
            consents: std::collections::HashMap::new(),
            in_flight_keys: web::InFlightKeys::default(),
            budgets: Arc::new(outbound::CallSettings::default()),
            backfill: domain::Backfill::Last(std::time::Duration::from_secs(30 * 86_400)),
            max_poll_interval: std::time::Duration::from_secs(60),
            webhook_policy: options.webhook_policy.clone().unwrap_or_else(|| outbound::http::AddressPolicy::new([])),
            erase_after: jiff::SignedDuration::from_hours(30 * 24),
            is_open: open,
        };
        if let Some(AppSetup(setup)) = &options.setup {
            setup(&mut app);
        }
        let background = tokio::spawn(web::run_background_tasks(app.clone()));
        Self { router: web::router(app), background, _is_open: is_open }
    }

    /// The head of the answer, and a body that can be read as it comes.
    pub async fn open(&self, mut request: Request<Body>) -> Response<Body> {
        request.extensions_mut().get_or_insert(ConnectInfo(CLIENT));
        self.router.clone().call(request).await.unwrap_or_else(|never| match never {})
    }

    pub async fn send(&self, request: Request<Body>) -> HttpReply {
        let (head, body) = self.open(request).await.into_parts();
        HttpReply { status: head.status, headers: head.headers, body: to_bytes(body, usize::MAX).await.unwrap() }
    }
}

/// A request with a key and a body of JSON, where there are any.
pub fn request(method: &str, path: &str, key: Option<&str>, body: Option<&Value>) -> Request<Body> {
    let mut request = Request::builder().method(method).uri(path);
    if let Some(key) = key {
        request = request.header(header::AUTHORIZATION, format!("Bearer {key}"));
    }
    let body = match body {
        Some(body) => {
            request = request.header(header::CONTENT_TYPE, "application/json");
            Body::from(body.to_string())
        }
        None => Body::empty(),
    };
    request.body(body).unwrap()
}
