//! The HTTP server: the API, health and readiness probes, and metrics.

mod api;
mod docs;
mod edge;
mod event_hub;
mod health;
mod hooks;
mod metrics;
mod parameters;
mod problem;

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::DefaultBodyLimit;
use axum::routing::get;
use axum::{Router, middleware};
use domain::{Backfill, ConsentFlow, Provider, ProviderDeclarations};
use engine::Engine;
use engine::credentials::oidc::Oidc;
use engine::sync::push::PushReceiver;
use jiff::SignedDuration;
use outbound::CallSettings;
use outbound::http::AddressPolicy;
use tokio::net::TcpListener;
use tokio::sync::watch;

pub use api::InFlightKeys;
pub use edge::{ClientAddress, Edge, EdgeSettings, RequestId, Timeouts, TrustedNetwork};
pub use event_hub::EventHub;
pub use metrics::MetricsRecorder;

/// Shared state of all request handlers.
#[derive(Debug, Clone)]
pub struct App {
    pub engine: Engine,
    pub recorder: MetricsRecorder,
    pub event_hub: Arc<EventHub>,
    pub edge: Arc<Edge>,
    /// Idempotency keys of requests in flight.
    pub in_flight_keys: InFlightKeys,
    /// Call and byte budgets per provider, to report what is left of them.
    pub budgets: Arc<CallSettings>,
    /// How much existing mail is fetched unless a request or the tenant's settings say otherwise.
    pub backfill: Backfill,
    /// The longest interval of polls, beyond which the sync of a mailbox lags.
    pub max_poll_interval: Duration,
    /// Addresses that webhooks may be sent to.
    pub webhook_policy: AddressPolicy,
    /// Delay between the deletion of a tenant and its erasure.
    pub erase_after: SignedDuration,
    /// OpenID Connect issuer whose tokens are accepted in place of API keys.
    pub issuer: Option<Oidc>,
    /// What the providers declare.
    pub providers: ProviderDeclarations,
    /// OAuth consent flow of each provider for which a client is configured.
    pub consents: HashMap<Provider, Arc<dyn ConsentFlow>>,
    /// Receiver of the pushes of each provider for which they are configured.
    pub pushes: HashMap<Provider, PushReceiver>,
    /// Turns `false` when the process is about to stop, so that load balancers drain it.
    pub is_open: watch::Receiver<bool>,
}

/// Builds the router with every route and layer. It expects the client's address as a request extension, which
/// [`serve`] adds.
pub fn router(app: App) -> Router {
    let edge = app.edge.clone();
    // Probes and metrics are outside of `limit_request`: they answer under full load too.
    let routes = Router::new()
        .merge(api::router(&app))
        .layer(DefaultBodyLimit::max(edge.settings.max_body))
        .layer(middleware::from_fn_with_state(app.clone(), edge::limit_request))
        .route("/healthz", get(health::healthz))
        .route("/readyz", get(health::readyz))
        .route("/metrics", get(metrics::serve_to_loopback))
        .merge(docs::router())
        .layer(edge::compression());
    let routes = match edge::cors(&edge.settings.cors_origins) {
        Some(cors) => routes.layer(cors),
        None => routes,
    };
    routes
        .layer(middleware::from_fn(edge::answer_options))
        .layer(middleware::from_fn_with_state(app.clone(), edge::observe_request))
        .with_state(app)
}

/// Serves the API until `closed` turns true; requests in flight are answered first.
pub async fn serve(listener: TcpListener, app: App, closed: watch::Receiver<bool>) -> io::Result<()> {
    let edge = app.edge.clone();
    tokio::select! {
        served = edge::serve(listener, router(app.clone()), &edge.settings, closed) => served,
        () = run_background_tasks(app) => Ok(()),
    }
}

/// Feeds the event streams and records when keys were used. Never ends; [`serve`] runs it beside the router.
pub async fn run_background_tasks(app: App) {
    tokio::join!(app.event_hub.run(), app.edge.key_usage.run(&app.engine.store));
}

/// Serves `/metrics` alone, to everybody who reaches this address: it is configured for that purpose.
pub async fn serve_metrics(listener: TcpListener, app: App, mut closed: watch::Receiver<bool>) -> io::Result<()> {
    let routes = Router::new().route("/metrics", get(metrics::serve_to_all)).with_state(app);
    axum::serve(listener, routes)
        .with_graceful_shutdown(async move {
            let _ = closed.wait_for(|closed| *closed).await;
        })
        .await
}
