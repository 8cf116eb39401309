//! What Mailroom answers over HTTP: the API, whether it lives, whether it can work, and how it does.

mod api;
mod docs;
mod edge;
mod health;
mod hooks;
mod hub;
mod metrics;

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use axum::extract::DefaultBodyLimit;
use axum::routing::get;
use axum::{Router, middleware};
use domain::{Consent, Provider};
use engine::Engine;
use engine::calls::CallSettings;
use engine::oidc::Oidc;
use engine::push::{GmailPushes, GraphPushes};
use engine::webhooks::Policy;
use jiff::SignedDuration;
use tokio::net::TcpListener;
use tokio::sync::watch;

pub use api::{Site, UnderWay};
pub use edge::{ClientAddress, Edge, EdgeSettings, Network, Patience, Rate, RequestId};
pub use hub::Hub;
pub use metrics::Recorder;

/// Everything that an answer is made of.
#[derive(Debug, Clone)]
pub struct App {
    pub engine: Engine,
    pub recorder: Recorder,
    pub hub: Arc<Hub>,
    pub edge: Arc<Edge>,
    /// Idempotency keys of requests that are being answered.
    pub under_way: UnderWay,
    /// How much may be asked of providers, to tell what is left of it.
    pub budgets: Arc<CallSettings>,
    /// Where webhooks may go.
    pub webhook_policy: Policy,
    /// How long after it was deleted a tenant is erased.
    pub erase_after: SignedDuration,
    /// Whose tokens are as good as keys.
    pub issuer: Option<Oidc>,
    /// Who lets people say yes to us: where we are somebody.
    pub consents: HashMap<Provider, Arc<dyn Consent>>,
    /// Takes what Gmail pushes, if it is set up.
    pub gmail_pushes: Option<GmailPushes>,
    /// Takes what Microsoft Graph pushes, if it was told to call us.
    pub graph_pushes: Option<GraphPushes>,
    /// Turns `false` when the process is about to end, so that nobody sends it more.
    pub is_open: watch::Receiver<bool>,
}

/// Until `closed` holds; requests under way are answered first.
pub async fn serve(listener: TcpListener, app: App, closed: watch::Receiver<bool>) -> io::Result<()> {
    let (hub, edge, store) = (app.hub.clone(), app.edge.clone(), app.engine.store.clone());
    // Whether it lives and how it does is told also when there is no room for anything else.
    let routes = Router::new()
        .merge(api::router(&app))
        .layer(DefaultBodyLimit::max(edge.settings.max_body))
        .layer(middleware::from_fn_with_state(app.clone(), edge::bound))
        .route("/healthz", get(health::healthz))
        .route("/readyz", get(health::readyz))
        .route("/metrics", get(metrics::for_loopback))
        .merge(docs::router())
        .layer(edge::compression());
    let routes = match edge::cors(&edge.settings.cors_origins) {
        Some(cors) => routes.layer(cors),
        None => routes,
    };
    let routes = routes
        .layer(middleware::from_fn(edge::options))
        .layer(middleware::from_fn_with_state(app.clone(), edge::receive))
        .with_state(app);
    tokio::select! {
        served = edge::serve(listener, routes, &edge.settings, closed) => served,
        // These never end.
        () = hub.run() => Ok(()),
        () = edge.uses.run(&store) => Ok(()),
    }
}

/// Only the metrics, for whoever reaches this address: it was opened for them.
pub async fn serve_metrics(listener: TcpListener, app: App, mut closed: watch::Receiver<bool>) -> io::Result<()> {
    let routes = Router::new().route("/metrics", get(metrics::for_all)).with_state(app);
    axum::serve(listener, routes)
        .with_graceful_shutdown(async move {
            let _ = closed.wait_for(|closed| *closed).await;
        })
        .await
}
