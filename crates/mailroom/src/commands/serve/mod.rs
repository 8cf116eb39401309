//! `mailroom serve`: everything that happens by itself, until it is told to stop.

mod parts;

use std::convert::Infallible;
use std::fs::File;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use domain::{SystemClock, WorkerId};
use engine::Engine;
use engine::schedule::{self, Rhythm, Ticked};
use engine::sync::Syncer;
use engine::watch::WatchSettings;
use engine::webhooks::{Courier, DispatchSettings};
use jiff::SignedDuration;
use jobs::leader::{self, Election, Leadership};
use jobs::{Gate, SystemDice, Worker, recurring};
use store::Store;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

use crate::cli::{self, Role};
use crate::config::{Config, DatabaseUrl, Sync};
use crate::failure::Failure;
use crate::output::{Output, tell};
use parts::Parts;

/// How long a shutdown may take: supervisors kill what takes longer.
const SHUTDOWN: Duration = Duration::from_secs(30);

const COUNT_INSTANCES: Duration = Duration::from_secs(15);

const WRITE_USAGE: Duration = Duration::from_secs(10);

/// How often the leader looks at the calendar.
const TICK: Duration = Duration::from_secs(1);

pub async fn run(config: &Config, args: &cli::Serve, out: Output) -> Result<ExitCode, Failure> {
    let has = |role| args.roles.contains(&role);
    if args.end_with_parent {
        end_with_parent()?;
    }
    crate::app::forbid_core_dumps()?;
    crate::app::raise_file_limit();
    let engine = crate::app::open(config).await?;
    // A wrong key is told now, and not by the first mailbox.
    engine.vault.unlock().await?;
    engine::keys::ensure_operator_key(&engine.store, &config.auth.admin_key_file).await?;
    let _only_one = lock(config)?;
    let recorder = web::Recorder::install().map_err(|e| Failure::problem(format!("cannot keep metrics: {e}")))?;
    let mut signals = Signals::listen()?;
    let (stop, stopped) = watch::channel(false);
    let (close, closed) = watch::channel(false);
    let (open, is_open) = watch::channel(true);
    let app = web_app(config, &engine, recorder, is_open)?;
    let mut servers = Parts::default();
    let listener = bind(config.server.listen, "server.listen").await?;
    let is_key = engine::keys::is_operator_key(&engine.store, &config.auth.admin_key_file).await?;
    announce(&listener, args, &config.auth.admin_key_file, is_key, out)?;
    servers.add("web server", web::serve(listener, app.clone(), closed.clone()));
    if let Some(address) = config.server.metrics_listen {
        let listener = bind(address, "server.metrics_listen").await?;
        servers.add("metrics server", web::serve_metrics(listener, app, closed));
    }
    let name = config.instance.id.clone().unwrap_or_else(|| WorkerId::new(&SystemClock).to_string());
    let syncer = crate::app::syncer(config, &engine, &name)?;
    let mut workers = Parts::default();
    prepare_pushes(config, &engine).await?;
    if has(Role::Worker) {
        let worker = crate::app::start_worker(config, &syncer, &name);
        workers.add("worker", work(worker, stopped.clone()));
        workers.add("count of instances", count_instances(syncer.clone(), stopped.clone()));
        workers.add("count of usage", write_usage(syncer.clone(), stopped.clone()));
        let courier = crate::app::courier(config, &engine)?;
        workers.add("delivery to webhooks", tell_of_events(courier, name.clone(), stopped.clone()));
        if config.sync.listen {
            workers.add("listener", listen(syncer, name.clone(), stopped.clone()));
        }
    }
    if has(Role::Scheduler) {
        workers.add(
            "scheduler",
            keep_schedules(engine.store.clone(), name, config.sync.clone(), crate::app::gate(config)?, stopped),
        );
    }

    let missed = tokio::select! {
        () = signals.wait() => None,
        missed = workers.first_to_end() => Some(missed),
        missed = servers.first_to_end() => Some(missed),
    };
    open.send_replace(false);
    if let Some(missed) = &missed {
        tracing::error!("{missed}; the process ends, so that it is started anew");
    }
    tell("Stopping: what runs is finished or given back. Once more to stop at once.");
    stop.send_replace(true);
    let wind_up = async {
        workers.finish().await;
        close.send_replace(true);
        servers.finish().await;
    };
    tokio::select! {
        wound_up = tokio::time::timeout(SHUTDOWN, wind_up) => if wound_up.is_err() {
            tell("Stopped, though not all had ended; what ran here begins again when its lease runs out.");
        },
        () = signals.wait() => tell("Stopped at once; what ran here begins again when its lease runs out."),
    }
    match missed {
        None => Ok(ExitCode::SUCCESS),
        Some(missed) => Err(Failure::problem(format!("{missed}; start `mailroom serve` again"))),
    }
}

async fn prepare_pushes(config: &Config, engine: &Engine) -> Result<(), Failure> {
    let providers = &config.providers;
    if providers.google.settings.topic.is_some() || providers.microsoft.settings.push.is_some() {
        // It may not have been there before.
        engine.store.system().want_watches_that_are_off().await?;
    }
    if let Some(why) = providers.microsoft.lacks_pushes() {
        tracing::warn!(provider = "outlook", "nothing is pushed: {why}");
    }
    Ok(())
}

/// As if somebody had told us to stop, when whoever started us is gone.
fn end_with_parent() -> Result<(), Failure> {
    #[cfg(target_os = "linux")]
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::TERM))
        .map_err(|e| Failure::problem(format!("cannot follow the process that started this one: {e}")))?;
    Ok(())
}

/// What answers over HTTP.
fn web_app(
    config: &Config,
    engine: &Engine,
    recorder: web::Recorder,
    is_open: watch::Receiver<bool>,
) -> Result<web::App, Failure> {
    Ok(web::App {
        engine: engine.clone(),
        recorder,
        hub: Arc::new(web::Hub::new(engine.store.clone())),
        edge: Arc::new(web::Edge::new(config.edge.clone(), crate::app::redis(config)?)),
        issuer: crate::app::issuer(config)?,
        gmail_pushes: crate::app::gmail_pushes(config, engine)?,
        graph_pushes: crate::app::graph_pushes(config, engine),
        consents: crate::app::consents(config)?,
        under_way: web::UnderWay::default(),
        budgets: Arc::new(crate::app::call_settings(config)),
        webhook_policy: engine::webhooks::Policy::new(config.webhooks.allow_networks.iter().copied()),
        erase_after: SignedDuration::try_from(config.tenants.erase_after).unwrap_or(SignedDuration::MAX),
        is_open,
    })
}

/// On an embedded database one process serves; commands work beside it.
fn lock(config: &Config) -> Result<Option<File>, Failure> {
    let DatabaseUrl::Sqlite(path) = &config.database.url else { return Ok(None) };
    let path = path.with_extension("serve-lock");
    let file = File::create(&path)?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(std::fs::TryLockError::WouldBlock) => Err(Failure::problem(
            "another `mailroom serve` runs on this SQLite database; stop it first, or use PostgreSQL for several",
        )),
        Err(std::fs::TryLockError::Error(e)) => Err(Failure::problem(format!("cannot lock {}: {e}", path.display()))),
    }
}

async fn bind(address: std::net::SocketAddr, key: &str) -> Result<TcpListener, Failure> {
    TcpListener::bind(address).await.map_err(|e| {
        Failure::problem(format!(
            "cannot listen on {address} ({e}); stop what listens there, or set {key} to another address"
        ))
    })
}

/// `is_key`: whether the file has the key of this database in it.
fn announce(
    listener: &TcpListener,
    args: &cli::Serve,
    key_file: &Path,
    is_key: Option<bool>,
    out: Output,
) -> Result<(), Failure> {
    let address = listener.local_addr()?;
    let roles: Vec<&str> = args.roles.iter().map(|role| role.as_str()).collect();
    if out.json {
        return out.object(&serde_json::json!({"listening": address.to_string(), "roles": roles}));
    }
    out.line(&format!("Mailroom listens on http://{address} ({}).", roles.join(", ")))?;
    let key_file = key_file.display();
    match is_key {
        None => return Ok(()), // kept elsewhere
        Some(false) => {
            tell(&format!("The key in {key_file} is not the operator's key of this database; put that one there."));
            return Ok(());
        }
        Some(true) => {}
    }
    tell(&format!(
        "The operator's key is in {key_file}; http://{address}/docs shows what can be done. To make a tenant:"
    ));
    tell(&format!("  curl http://{address}/v1/tenants \\"));
    tell(&format!("    -H \"Authorization: Bearer $(cat '{key_file}')\" \\"));
    tell("    -H 'Content-Type: application/json' -d '{\"name\": \"acme\"}'");
    Ok(())
}

async fn work(worker: Worker, stopped: watch::Receiver<bool>) -> Result<(), Infallible> {
    worker.work_until(is_true(stopped)).await;
    Ok(())
}

/// Budgets are shared by as many as there are, when Redis does not say.
async fn count_instances(syncer: Syncer, stopped: watch::Receiver<bool>) -> Result<(), Infallible> {
    let count = async {
        loop {
            if let Ok(workers) = syncer.engine.store.system().list_workers().await {
                syncer.calls.set_instances(workers.len().max(1));
            }
            tokio::time::sleep(COUNT_INSTANCES).await;
        }
    };
    tokio::select! {
        () = count => {}
        () = is_true(stopped) => {}
    }
    Ok(())
}

/// What was asked of providers, for people. What jobs ask while the process winds up is not counted.
async fn write_usage(syncer: Syncer, mut stopped: watch::Receiver<bool>) -> Result<(), Infallible> {
    let mut is_over = false;
    while !is_over {
        is_over = tokio::time::timeout(WRITE_USAGE, stopped.wait_for(|stopped| *stopped)).await.is_ok();
        if let Err(e) = syncer.calls.write_usage(&syncer.engine.store).await {
            tracing::debug!("what was used of providers is written later: {e}");
        }
    }
    Ok(())
}

/// To mailboxes whose servers tell by themselves what is new.
async fn listen(syncer: Syncer, name: String, stopped: watch::Receiver<bool>) -> Result<(), Infallible> {
    let settings = WatchSettings::new(&name, Arc::new(SystemDice));
    engine::watch::watch(&syncer, &settings, is_true(stopped)).await;
    Ok(())
}

/// To the servers of those who want to be told.
async fn tell_of_events(courier: Courier, name: String, stopped: watch::Receiver<bool>) -> Result<(), Infallible> {
    engine::webhooks::dispatch(&courier, &DispatchSettings::new(&name), is_true(stopped)).await;
    Ok(())
}

async fn keep_schedules(
    store: Store,
    name: String,
    settings: Sync,
    gate: Arc<dyn Gate>,
    stopped: watch::Receiver<bool>,
) -> Result<(), Infallible> {
    if !settings.leader_election {
        // Each slot of the calendar and each mailbox is still taken once, whoever is first.
        tokio::select! {
            () = lead(&store, None, &settings) => {}
            () = is_true(stopped) => {}
        }
        return Ok(());
    }
    let election = Election { name: "scheduler".to_owned(), holder: name, lease: leader::LEASE, gate };
    let lead = |leadership| lead(&store, Some(leadership), &settings);
    leader::lead(&store, &election, is_true(stopped), lead).await;
    Ok(())
}

async fn is_true(mut told: watch::Receiver<bool>) {
    let _ = told.wait_for(|told| *told).await;
}

/// Ends only with the leadership.
async fn lead(store: &Store, leadership: Option<Leadership>, settings: &Sync) {
    for schedule in engine::jobs::schedules() {
        if let Err(e) = recurring::define(store, &SystemClock, &schedule).await {
            tracing::error!(schedule = schedule.name, "cannot define a schedule: {e}");
        }
    }
    let rhythm = Rhythm { usual: settings.interval, seldom: settings.seldom_interval };
    tokio::join!(keep_calendar(store, leadership), look_for_mailboxes(store, &rhythm));
}

async fn keep_calendar(store: &Store, leadership: Option<Leadership>) {
    loop {
        match recurring::tick(store, &SystemClock, leadership.as_ref().map(Leadership::token)).await {
            Ok(ticked) if ticked.fired.is_empty() => {}
            Ok(_) => tell_workers(store).await,
            Err(e) => tracing::warn!("schedules: {e}"),
        }
        tokio::time::sleep(TICK).await;
    }
}

async fn look_for_mailboxes(store: &Store, rhythm: &Rhythm) {
    let mut pace = Pace::Usual;
    loop {
        let (mailboxes, is_more) = match schedule::tick(store, rhythm, &SystemDice).await {
            Ok(Ticked::Asked { mailboxes, is_more }) => {
                pace.becomes(Pace::Usual, "");
                (mailboxes, is_more)
            }
            Ok(Ticked::Slowed { mailboxes, why }) => {
                pace.becomes(Pace::Slow, &why);
                (mailboxes, false)
            }
            Ok(Ticked::HeldBack(why)) => {
                pace.becomes(Pace::None, &why);
                (0, false)
            }
            Err(e) => {
                tracing::warn!("looking for mailboxes that are due: {e:#}");
                (0, false)
            }
        };
        if mailboxes > 0 {
            tell_workers(store).await;
        }
        if !is_more {
            tokio::time::sleep(TICK).await;
        }
    }
}

/// How often mailboxes are looked at, which is said when it changes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pace {
    Usual,
    Slow,
    None,
}

impl Pace {
    fn becomes(&mut self, now: Self, why: &str) {
        if std::mem::replace(self, now) == now {
            return;
        }
        match now {
            Self::Usual => tracing::info!("mailboxes are looked at as usual again"),
            Self::Slow => tracing::info!("mailboxes are looked at less often: {why}"),
            Self::None => tracing::warn!("mailboxes are not looked at for now: {why}"),
        }
    }
}

/// Workers may be other processes; whoever misses it finds the jobs by looking.
async fn tell_workers(store: &Store) {
    if let Err(e) = store.tell_of_jobs().await {
        tracing::debug!("workers are not told of new jobs: {e}");
    }
}

/// What tells us to stop.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
}

impl Signals {
    fn listen() -> Result<Self, Failure> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    async fn wait(&mut self) {
        loop {
            tokio::select! {
                _ = self.terminate.recv() => return,
                _ = self.interrupt.recv() => return,
                _ = self.hang_up.recv() => crate::logging::reload_level(),
            }
        }
    }
}
