//! Numbers for Prometheus. Counters and histograms are kept by whoever does the work; what the database knows is asked
//! when somebody looks.

use std::net::SocketAddr;
use std::time::Duration;

use axum::extract::{ConnectInfo, State};
use axum::http::{HeaderName, StatusCode, header};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};

use crate::App;

/// Where the numbers of this process are kept.
#[derive(Clone)]
pub struct Recorder(PrometheusHandle);

impl std::fmt::Debug for Recorder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Recorder")
    }
}

/// From a millisecond to ten minutes.
const SECONDS: [f64; 14] = [0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 600.0];

const PATIENCE: Duration = Duration::from_secs(5);

impl Recorder {
    /// Once per process; from then on its metrics are kept.
    pub fn install() -> Result<Self, String> {
        let builder = PrometheusBuilder::new();
        let builder = builder.set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), &SECONDS);
        builder.and_then(PrometheusBuilder::install_recorder).map(Self).map_err(|e| e.to_string())
    }
}

type Answer = (StatusCode, [(HeaderName, &'static str); 1], String);

pub(crate) async fn for_loopback(ConnectInfo(peer): ConnectInfo<SocketAddr>, app: State<App>) -> Answer {
    if !peer.ip().to_canonical().is_loopback() {
        let text = "metrics are for this machine only; set server.metrics_listen to open them\n";
        return (StatusCode::FORBIDDEN, [(header::CONTENT_TYPE, "text/plain")], text.to_owned());
    }
    for_all(app).await
}

pub(crate) async fn for_all(State(app): State<App>) -> Answer {
    match tokio::time::timeout(PATIENCE, ask_the_database(&app)).await {
        Ok(Ok(())) => metrics::gauge!("mailroom_database_up").set(1.0),
        // The rest is still worth telling.
        Ok(Err(_)) | Err(_) => metrics::gauge!("mailroom_database_up").set(0.0),
    }
    app.recorder.0.run_upkeep();
    (StatusCode::OK, [(header::CONTENT_TYPE, "text/plain; version=0.0.4")], app.recorder.0.render())
}

async fn ask_the_database(app: &App) -> Result<(), store::StoreError> {
    let system = app.engine.store.system();
    for depth in system.lane_depths().await? {
        let lane = depth.lane.as_str();
        metrics::gauge!("mailroom_jobs_ready", "lane" => lane).set(depth.waiting as f64);
        metrics::gauge!("mailroom_jobs_oldest_age_seconds", "lane" => lane).set(depth.oldest_micros as f64 / 1e6);
    }
    metrics::gauge!("mailroom_dead_letters").set(system.count_dead_letters().await? as f64);
    metrics::gauge!("mailroom_jobs_strays").set(system.count_strays().await?.total() as f64);
    for (provider, lag) in system.list_sync_lags().await? {
        metrics::gauge!("mailroom_sync_lag_seconds", "provider" => provider).set(lag);
    }
    let unknown = system.list_kinds_without_worker().await?;
    let waiting: u64 = unknown.iter().map(|(_, waiting)| waiting).sum();
    metrics::gauge!("mailroom_jobs_without_worker").set(waiting as f64);
    Ok(())
}
