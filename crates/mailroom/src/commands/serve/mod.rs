//! `mailroom serve`: web server, worker and scheduler, until a signal stops them.

mod tasks;

use std::convert::Infallible;
use std::fs::File;
use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use domain::{SystemClock, WorkerId, redact_for_log};
use engine::Engine;
use engine::delivery::webhooks::{DispatchSettings, WebhookDeliverer};
use engine::sync::Syncer;
use engine::sync::mailbox_listeners::ListenSettings;
use engine::sync::schedule::{self, PollIntervals, TickOutcome};
use jobs::leader::{self, Election, Leadership};
use jobs::{LeaseGate, SystemRandom, Worker, recurring};
use providers::app::ProviderApp;
use store::Store;
use store::sql::jobs::TenantBacklog;
use terminal::{Failure, Output, note};
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

use crate::cli::{self, ServeRole};
use crate::config::{Config, DatabaseUrl, SyncConfig};
use tasks::ServiceTasks;

/// Time limit of a shutdown; supervisors kill processes that take longer.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(30);

/// Interval at which the number of workers is read, which share the budgets.
const INSTANCE_COUNT_INTERVAL: Duration = Duration::from_secs(15);

/// Interval at which the usage of providers is written.
const USAGE_WRITE_INTERVAL: Duration = Duration::from_secs(10);

/// Interval at which the leader checks for due schedules and mailboxes.
const SCHEDULER_TICK: Duration = Duration::from_secs(1);

pub async fn run(config: &Config, args: &cli::ServeArgs, out: Output) -> Result<ExitCode, Failure> {
    if args.end_with_parent {
        stop_with_parent()?;
    }
    crate::app::forbid_core_dumps()?;
    crate::app::raise_file_limit();
    let engine = crate::app::open(config).await?;
    // A wrong master key is reported now, not by the first mailbox.
    engine.vault.unlock().await?;
    engine::credentials::api_keys::ensure_operator_key(&engine.store, &config.auth.admin_key_file).await?;
    let _only_one = lock(config)?;
    let recorder = web::MetricsRecorder::install()
        .map_err(|e| Failure::problem(format!("cannot install the metrics recorder: {e}")))?;
    let mut signals = ServiceSignals::listen()?;
    let (stop, stopped) = watch::channel(false);
    let (close, closed) = watch::channel(false);
    let (open, is_open) = watch::channel(true);
    let app = web_app(config, &engine, recorder, is_open)?;
    let mut servers = ServiceTasks::default();
    let listener = bind(config.server.listen, "server.listen").await?;
    let has_operator_key =
        engine::credentials::api_keys::is_operator_key(&engine.store, &config.auth.admin_key_file).await?;
    log_start(config, args, listener.local_addr()?);
    announce(&listener, args, &config.auth.admin_key_file, has_operator_key, out)?;
    servers.add("web server", web::serve(listener, app.clone(), closed.clone()));
    if let Some(address) = config.server.metrics_listen {
        let listener = bind(address, "server.metrics_listen").await?;
        servers.add("metrics server", web::serve_metrics(listener, app, closed));
    }
    let name = config.instance.id.clone().unwrap_or_else(|| WorkerId::new(&SystemClock).to_string());
    let syncer = crate::app::syncer(config, &engine, &name)?;
    let mut workers = ServiceTasks::default();
    prepare_pushes(config, &engine).await?;
    if args.roles.contains(&ServeRole::Worker) {
        let worker = crate::app::start_worker(config, &syncer, &name);
        workers.add("worker", work(worker, stopped.clone()));
        workers.add("instance counter", count_instances(syncer.clone(), stopped.clone()));
        workers.add("usage writer", write_usage(syncer.clone(), stopped.clone()));
        let courier = crate::app::courier(config, &syncer)?;
        workers.add("webhook delivery", deliver_webhooks(courier, name.clone(), stopped.clone()));
        if config.sync.listen {
            workers.add("mailbox watcher", watch_mailboxes(syncer, name.clone(), stopped.clone()));
        }
    }
    if args.roles.contains(&ServeRole::Scheduler) {
        workers.add(
            "scheduler",
            run_scheduler(engine.store.clone(), name, config.sync.clone(), crate::app::gate(config)?, stopped),
        );
    }

    let failure = tokio::select! {
        () = signals.wait() => None,
        failure = workers.first_exit() => Some(failure),
        failure = servers.first_exit() => Some(failure),
    };
    open.send_replace(false);
    if let Some(failure) = &failure {
        tracing::error!(error = redact_for_log(failure), "stopping: a service task ended");
    }
    note("Stopping: running jobs are finished or returned to the queue. Send the signal again to stop at once.");
    stop.send_replace(true);
    let shutdown = async {
        workers.finish().await;
        close.send_replace(true);
        servers.finish().await;
    };
    tokio::select! {
        shut_down = tokio::time::timeout(SHUTDOWN_TIMEOUT, shutdown) => if shut_down.is_err() {
            note("Stopped before all jobs had ended; they start again when their leases expire.");
        },
        () = signals.wait() => note("Stopped at once; running jobs start again when their leases expire."),
    }
    tracing::info!("mailroom stopped");
    match failure {
        None => Ok(ExitCode::SUCCESS),
        Some(failure) => Err(Failure::problem(format!("{failure}; start `mailroom serve` again"))),
    }
}

async fn prepare_pushes(config: &Config, engine: &Engine) -> Result<(), Failure> {
    if config.providers.iter().any(ProviderApp::requests_pushes) {
        // Push may not have been configured before.
        engine.store.system().request_disabled_watches().await?;
    }
    for app in config.providers.iter() {
        if let Some(why) = app.missing_push_reason() {
            tracing::warn!(provider = app.declaration().provider.as_str(), reason = why, "push is not available");
        }
    }
    Ok(())
}

/// Asks the kernel for a SIGTERM when the parent process ends.
fn stop_with_parent() -> Result<(), Failure> {
    #[cfg(target_os = "linux")]
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::TERM))
        .map_err(|e| Failure::problem(format!("cannot follow the process that started this one: {e}")))?;
    Ok(())
}

/// Creates the state of the HTTP server.
fn web_app(
    config: &Config,
    engine: &Engine,
    recorder: web::MetricsRecorder,
    is_open: watch::Receiver<bool>,
) -> Result<web::App, Failure> {
    Ok(web::App {
        engine: engine.clone(),
        recorder,
        event_hub: Arc::new(web::EventHub::new(engine.store.clone())),
        edge: Arc::new(web::Edge::new(config.edge.clone(), crate::app::redis(config)?)),
        issuer: crate::app::issuer(config)?,
        providers: providers::registry::DECLARATIONS,
        pushes: crate::app::pushes(config, engine)?,
        consents: crate::app::consents(config)?,
        in_flight_keys: web::InFlightKeys::default(),
        budgets: Arc::new(crate::app::call_settings(config)),
        backfill: config.sync.backfill,
        max_poll_interval: config.sync.interval.max(config.sync.seldom_interval),
        webhook_policy: outbound::http::AddressPolicy::new(config.webhooks.allow_networks.iter().copied()),
        erase_after: crate::app::bounded(config.tenants.erase_after),
        is_open,
    })
}

/// Locks an SQLite database for this service; only one may run on it. Commands need no lock.
fn lock(config: &Config) -> Result<Option<File>, Failure> {
    let DatabaseUrl::Sqlite(path) = &config.database.url else { return Ok(None) };
    let path = path.with_extension("serve-lock");
    let file = File::create(&path)?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(std::fs::TryLockError::WouldBlock) => Err(Failure::problem(
            "another `mailroom serve` runs on this SQLite database; stop it first, or use PostgreSQL for several processes",
        )),
        Err(std::fs::TryLockError::Error(e)) => Err(Failure::problem(format!("cannot lock {}: {e}", path.display()))),
    }
}

async fn bind(address: SocketAddr, key: &str) -> Result<TcpListener, Failure> {
    TcpListener::bind(address).await.map_err(|e| {
        Failure::problem(format!(
            "cannot listen on {address} ({e}); stop the program that listens there, or set {key} to another address"
        ))
    })
}

/// Prints the address and how to create a tenant. `has_operator_key`: whether the file, if there is one, contains
/// the key of this database.
fn announce(
    listener: &TcpListener,
    args: &cli::ServeArgs,
    key_file: &Path,
    has_operator_key: Option<bool>,
    out: Output,
) -> Result<(), Failure> {
    let address = listener.local_addr()?;
    let roles: Vec<&str> = args.roles.iter().map(|role| role.as_str()).collect();
    if out.json {
        return out.object(&serde_json::json!({"listening": address.to_string(), "roles": roles}));
    }
    out.line(&format!("Mailroom listens on http://{address} ({}).", roles.join(", ")))?;
    let key_file = key_file.display();
    // Without the file, the operator keeps the key elsewhere.
    let Some(has_operator_key) = has_operator_key else { return Ok(()) };
    if !has_operator_key {
        note(&format!("The key in {key_file} is not the operator's key of this database; replace it."));
        return Ok(());
    }
    note(&format!(
        "The operator's key is in {key_file}; the API is documented at http://{address}/docs. To create a tenant:"
    ));
    note(&format!("  curl http://{address}/v1/tenants \\"));
    note(&format!("    -H \"Authorization: Bearer $(cat '{key_file}')\" \\"));
    note("    -H 'Content-Type: application/json' -d '{\"name\": \"acme\"}'");
    Ok(())
}

fn log_start(config: &Config, args: &cli::ServeArgs, address: SocketAddr) {
    let roles: Vec<&str> = args.roles.iter().map(|role| role.as_str()).collect();
    let database = match config.database.url {
        DatabaseUrl::Sqlite(_) => "sqlite",
        DatabaseUrl::Postgres(_) => "postgres",
    };
    let (roles, version) = (roles.join(","), env!("CARGO_PKG_VERSION"));
    tracing::info!(server.address = %address, roles, database, version, "mailroom started");
}

async fn work(worker: Worker, stopped: watch::Receiver<bool>) -> Result<(), Infallible> {
    worker.work_until(is_true(stopped)).await;
    Ok(())
}

/// Counts the workers, which share the budgets equally without Redis.
async fn count_instances(syncer: Syncer, stopped: watch::Receiver<bool>) -> Result<(), Infallible> {
    let count = async {
        loop {
            if let Ok(workers) = syncer.engine.store.system().list_workers().await {
                syncer.gateway.set_instances(workers.len().max(1));
            }
            tokio::time::sleep(INSTANCE_COUNT_INTERVAL).await;
        }
    };
    tokio::select! {
        () = count => {}
        () = is_true(stopped) => {}
    }
    Ok(())
}

/// Writes the usage of providers at intervals. Calls during the shutdown are not counted.
async fn write_usage(syncer: Syncer, mut stopped: watch::Receiver<bool>) -> Result<(), Infallible> {
    let mut is_over = false;
    while !is_over {
        is_over = tokio::time::timeout(USAGE_WRITE_INTERVAL, stopped.wait_for(|stopped| *stopped)).await.is_ok();
        if let Err(e) = engine::accounts::usage_writer::write_usage(&syncer.gateway, &syncer.engine.store).await {
            tracing::debug!(error = redact_for_log(&e), "writing provider usage failed");
        }
    }
    Ok(())
}

/// Watches mailboxes whose servers announce new mail (IMAP IDLE).
async fn watch_mailboxes(syncer: Syncer, name: String, stopped: watch::Receiver<bool>) -> Result<(), Infallible> {
    let settings = ListenSettings::new(&name, Arc::new(SystemRandom));
    engine::sync::mailbox_listeners::listen_to_mailboxes(&syncer, &settings, is_true(stopped)).await;
    Ok(())
}

/// Delivers events to webhooks.
async fn deliver_webhooks(
    courier: WebhookDeliverer,
    name: String,
    stopped: watch::Receiver<bool>,
) -> Result<(), Infallible> {
    engine::delivery::webhooks::dispatch(&courier, &DispatchSettings::new(&name), is_true(stopped)).await;
    Ok(())
}

async fn run_scheduler(
    store: Store,
    name: String,
    settings: SyncConfig,
    gate: Arc<dyn LeaseGate>,
    stopped: watch::Receiver<bool>,
) -> Result<(), Infallible> {
    if !settings.leader_election {
        // Each slot of a schedule and each mailbox is still claimed once, by the first process.
        tokio::select! {
            () = run_leader_tasks(&store, None, &settings) => {}
            () = is_true(stopped) => {}
        }
        return Ok(());
    }
    let election = Election { name: "scheduler".to_owned(), holder: name, lease: leader::LEADER_LEASE, gate };
    leader::lead(&store, &election, is_true(stopped), |leadership| {
        run_leader_tasks(&store, Some(leadership), &settings)
    })
    .await;
    Ok(())
}

async fn is_true(mut flag: watch::Receiver<bool>) {
    let _ = flag.wait_for(|flag| *flag).await;
}

/// Runs the schedules until the leadership ends.
async fn run_leader_tasks(store: &Store, leadership: Option<Leadership>, settings: &SyncConfig) {
    for schedule in engine::jobs::schedules() {
        if let Err(e) = recurring::define(store, &SystemClock, &schedule).await {
            tracing::error!(schedule = schedule.name, error = redact_for_log(&e), "defining a schedule failed");
        }
    }
    let rhythm = PollIntervals { usual: settings.interval, relaxed: settings.seldom_interval };
    tokio::join!(fire_schedules(store, leadership), schedule_syncs(store, &rhythm));
}

async fn fire_schedules(store: &Store, leadership: Option<Leadership>) {
    loop {
        match recurring::tick(store, &SystemClock, leadership.as_ref().map(Leadership::token)).await {
            Ok(ticked) if ticked.fired.is_empty() => {}
            Ok(_) => tell_workers(store).await,
            Err(e) => tracing::warn!(error = redact_for_log(&e), "firing schedules failed"),
        }
        tokio::time::sleep(SCHEDULER_TICK).await;
    }
}

async fn schedule_syncs(store: &Store, rhythm: &PollIntervals) {
    let mut pace = PollPace::Usual;
    loop {
        let ticked = match schedule::tick(store, rhythm, &SystemRandom).await {
            Ok(ticked) => {
                pace.change_to(&ticked.backlogs);
                ticked
            }
            Err(e) => {
                tracing::warn!(error = redact_for_log(&format_args!("{e:#}")), "scheduling syncs failed");
                TickOutcome::default()
            }
        };
        if ticked.mailboxes > 0 {
            tell_workers(store).await;
        }
        if !ticked.is_more {
            tokio::time::sleep(SCHEDULER_TICK).await;
        }
    }
}

/// How often mailboxes are synced of the tenants that are held back most; changes are logged.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PollPace {
    Usual,
    Slow,
    None,
}

impl PollPace {
    fn change_to(&mut self, backlogs: &[TenantBacklog]) {
        let worst = backlogs.iter().find(|backlog| !backlog.verdict.is_slow()).or(backlogs.first());
        let now = match worst.map(|backlog| backlog.verdict.is_slow()) {
            None => Self::Usual,
            Some(true) => Self::Slow,
            Some(false) => Self::None,
        };
        if std::mem::replace(self, now) == now {
            return;
        }
        let Some(TenantBacklog { tenant, verdict }) = worst else {
            tracing::info!("sync scheduling resumed");
            return;
        };
        let (tenants, reason) = (backlogs.len(), verdict.why());
        if verdict.is_slow() {
            tracing::info!(tenant.id = %tenant, tenants, reason, "sync scheduling of tenants slowed");
        } else {
            tracing::warn!(tenant.id = %tenant, tenants, reason, "sync scheduling of tenants stopped");
        }
    }
}

/// Notifies the workers of all processes of new jobs. A worker that misses it finds the jobs at its next poll.
async fn tell_workers(store: &Store) {
    if let Err(e) = store.notify_other_processes().await {
        tracing::debug!(error = redact_for_log(&e), "workers not notified of new jobs; they poll");
    }
}

/// Signals that stop the service or reload its settings.
struct ServiceSignals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl ServiceSignals {
    fn listen() -> Result<Self, Failure> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    async fn wait(&mut self) {
        loop {
            tokio::select! {
                _ = self.terminate.recv() => return,
                _ = self.interrupt.recv() => return,
                _ = self.hangup.recv() => crate::logging::reload_level(),
            }
        }
    }
}
