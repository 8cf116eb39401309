//! The `/metrics` endpoint for Prometheus. Counters and histograms are updated where the work happens; gauges over the
//! database are queried at each scrape.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;

use axum::extract::{ConnectInfo, State};
use axum::http::{HeaderName, StatusCode, header};
use domain::metrics::{self as catalogue, CATALOGUE, Metric, MetricKind};
use domain::{MailboxState, Provider};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};

use crate::App;

/// Handle to the metrics of this process.
#[derive(Clone)]
pub struct MetricsRecorder(PrometheusHandle);

impl std::fmt::Debug for MetricsRecorder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Recorder")
    }
}

/// Histogram buckets of all durations: from a millisecond to ten minutes.
const DURATION_BUCKETS_SECONDS: [f64; 14] =
    [0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 600.0];

const DATABASE_TIMEOUT: Duration = Duration::from_secs(5);

impl MetricsRecorder {
    /// Installs the global metrics recorder. Fails if called twice in a process.
    pub fn install() -> Result<Self, String> {
        let builder = PrometheusBuilder::new();
        let builder = builder.set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), &DURATION_BUCKETS_SECONDS);
        let recorder = builder.and_then(PrometheusBuilder::install_recorder).map(Self).map_err(|e| e.to_string())?;
        describe_all();
        Ok(recorder)
    }
}

/// Gives every metric its help.
fn describe_all() {
    for metric in CATALOGUE {
        match metric.kind {
            MetricKind::Counter => metrics::describe_counter!(metric.name, metric.help),
            MetricKind::Gauge => metrics::describe_gauge!(metric.name, metric.help),
            MetricKind::Histogram => metrics::describe_histogram!(metric.name, metric.help),
        }
    }
}

type MetricsResponse = (StatusCode, [(HeaderName, &'static str); 1], String);

pub(crate) async fn serve_to_loopback(ConnectInfo(peer): ConnectInfo<SocketAddr>, app: State<App>) -> MetricsResponse {
    if !peer.ip().to_canonical().is_loopback() {
        let text = "metrics are served to this machine only; set server.metrics_listen to open them\n";
        return (StatusCode::FORBIDDEN, [(header::CONTENT_TYPE, "text/plain")], text.to_owned());
    }
    serve_to_all(app).await
}

pub(crate) async fn serve_to_all(State(app): State<App>) -> MetricsResponse {
    match tokio::time::timeout(DATABASE_TIMEOUT, update_database_gauges(&app)).await {
        Ok(Ok(())) => metrics::gauge!(catalogue::DATABASE_UP).set(1.0),
        // The metrics of the process itself are still served.
        Ok(Err(_)) | Err(_) => metrics::gauge!(catalogue::DATABASE_UP).set(0.0),
    }
    app.recorder.0.run_upkeep();
    let mut text = app.recorder.0.render();
    add_unset_metrics(&mut text);
    (StatusCode::OK, [(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text)
}

/// Adds help and type of metrics that have no sample yet, so that every name can be found before it has a value.
fn add_unset_metrics(text: &mut String) {
    for Metric { name, kind, help, .. } in CATALOGUE {
        let line = format!("# TYPE {name} {}\n", kind.as_str());
        if !text.contains(&line) {
            *text += &format!("# HELP {name} {help}\n{line}");
        }
    }
}

async fn update_database_gauges(app: &App) -> Result<(), store::StoreError> {
    let system = app.engine.store.system();
    for depth in system.lane_depths().await? {
        let lane = depth.lane.as_str();
        metrics::gauge!(catalogue::JOBS_READY, "lane" => lane).set(depth.waiting as f64);
        metrics::gauge!(catalogue::JOBS_OLDEST_AGE_SECONDS, "lane" => lane).set(depth.oldest_micros as f64 / 1e6);
    }
    metrics::gauge!(catalogue::DEAD_LETTERS).set(system.count_dead_letters().await? as f64);
    metrics::gauge!(catalogue::JOBS_STRAYS).set(system.count_strays().await?.total() as f64);
    let lags: HashMap<String, f64> = system.list_sync_lags(app.max_poll_interval).await?.into_iter().collect();
    let mailboxes = system.count_mailboxes().await?;
    for provider in Provider::ALL.map(Provider::as_str) {
        // Also what there is none of any more.
        metrics::gauge!(catalogue::SYNC_LAG_SECONDS, "provider" => provider)
            .set(lags.get(provider).copied().unwrap_or_default());
        for state in MailboxState::ALL.map(MailboxState::as_str) {
            let count = mailboxes.iter().find(|row| (&*row.0, &*row.1) == (provider, state)).map_or(0, |row| row.2);
            metrics::gauge!(catalogue::MAILBOXES, "provider" => provider, "state" => state).set(count as f64);
        }
    }
    let unknown = system.list_kinds_without_worker().await?;
    let waiting: u64 = unknown.iter().map(|(_, waiting)| waiting).sum();
    metrics::gauge!(catalogue::JOBS_WITHOUT_WORKER).set(waiting as f64);
    Ok(())
}
