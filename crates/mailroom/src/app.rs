//! Builds the parts of the application from the configuration.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use content::spool::Spool;
use domain::{Actor, Connector, ConsentFlow, Provider, PushReader, Sha256, SystemClock, redact_for_log};
use engine::credentials::oidc::Oidc;
use engine::credentials::secrets::{KeySource, VaultError};
use engine::delivery::webhooks::{WebhookDeliverer, WebhookSender};
use engine::jobs::RetentionPeriods;
use engine::operations::{Origin, Refusal};
use engine::sync::push::PushReceiver;
use engine::sync::redis_gate::RedisGate;
use engine::sync::{SyncSettings, Syncer};
use engine::{Cpu, Engine, StorageHealth, Vault};
use futures_util::future::BoxFuture;
use jiff::SignedDuration;
use jobs::{JobKinds, LeaseGate, OpenLeaseGate, SystemRandom, Worker, WorkerSettings};
use outbound::http::{AddressPolicy, HttpClient, HttpClientError, HttpTimeouts, SystemResolver};
use outbound::limits::{Limits, WorkLimits};
use outbound::{CallSettings, Gateway, Redis};
use providers::app::AppUse;
use store::blobs::{Blobs, RemoteSettings};
use store::sql::jobs::JobRetention;
use store::sql::mailboxes::Mailbox;
use store::sql::tenants::Tenant;
use store::{Location, Store, TenantStore};
use terminal::Failure;

use crate::config::{BlobsUrl, Config, DatabaseUrl};

pub fn database_location(config: &Config) -> Location {
    match &config.database.url {
        DatabaseUrl::Sqlite(path) => Location::Sqlite { path: path.clone(), connections: config.database.pool },
        DatabaseUrl::Postgres(url) => {
            Location::Postgres { url: url.expose().clone(), connections: config.database.pool }
        }
    }
}

/// Opens the database without checking its schema.
pub fn open_store(config: &Config) -> Result<Store, Failure> {
    Ok(Store::open(&database_location(config), Arc::new(SystemClock))?)
}

pub fn open_blobs(config: &Config) -> Result<Blobs, Failure> {
    Ok(match &config.blobs.url {
        BlobsUrl::File(folder) => Blobs::local(folder)?,
        BlobsUrl::Remote { kind, bucket, prefix } => Blobs::remote(&RemoteSettings {
            kind: *kind,
            bucket: bucket.clone(),
            prefix: prefix.clone(),
            variables: config.blobs.variables.clone(),
            retry_for: config.blobs.retry_for,
        })?,
    })
}

/// Creates the vault. It loads the master key at first use; `unlock` does so at once.
pub fn vault(config: &Config, store: &Store) -> Vault {
    let source = match &config.secrets.key {
        Some(key) => KeySource::Given(key.clone()),
        None => KeySource::File(config.secrets.key_file.clone()),
    };
    Vault::new(store.clone(), source)
}

/// Disables core dumps: a process that holds secrets must not leave an image of its memory.
pub fn forbid_core_dumps() -> Result<(), Failure> {
    use rustix::process::{Resource, Rlimit, setrlimit};
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) }).map_err(core_dump_failure)?;
    // The limit has no effect where cores are piped into a program. This also keeps other processes of the same user from
    // reading our memory.
    #[cfg(target_os = "linux")]
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)
        .map_err(core_dump_failure)?;
    Ok(())
}

fn core_dump_failure(e: rustix::io::Errno) -> Failure {
    Failure::problem(format!("cannot disable core dumps: {e}"))
}

/// Raises the limit of open files to its maximum: the usual 1,024 are too few for many connections.
pub fn raise_file_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    if let Err(e) = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum }) {
        tracing::warn!(error = redact_for_log(&e), "raising the limit of open files failed");
    }
}

/// Opens the engine. An SQLite database is migrated; a PostgreSQL must have the current schema.
pub async fn open(config: &Config) -> Result<Engine, Failure> {
    let store = open_store(config)?;
    match &config.database.url {
        DatabaseUrl::Sqlite(_) => drop(store.migrate().await?),
        DatabaseUrl::Postgres(_) => store.check_schema().await?,
    }
    Ok(Engine {
        blobs: open_blobs(config)?,
        vault: vault(config, &store),
        store,
        limits: config.limits.clone(),
        spool: Spool::new(&config.data_dir.join("spool")),
        cpu: Cpu::all_cores(),
        storage: StorageHealth::default(),
        max_database_wait: config.import.patience,
    })
}

/// Creates the syncer of this process.
pub fn syncer(config: &Config, engine: &Engine, holder: &str) -> Result<Syncer, Failure> {
    let connectors = connectors(config);
    let connectors = connectors.map_err(|e| Failure::problem(format!("cannot create the provider clients: {e}")))?;
    let settings = SyncSettings {
        holder: holder.to_owned(),
        lease: config.sync.lease,
        duplicate_check: config.sync.duplicate_check,
        second_look: config.sync.second_look,
    };
    let redis = redis(config)?;
    let gateway = Gateway::new(call_settings(config), Arc::new(SystemRandom), redis.clone());
    let syncer = Syncer::new(engine.clone(), settings, connectors, gateway)
        .with_workers(config.sync.mailbox_workers)
        .with_discovery_workers(config.sync.discovery_workers);
    Ok(match redis {
        Some(redis) => syncer.with_gate(Arc::new(RedisGate(redis))),
        None => syncer,
    })
}

fn connectors(config: &Config) -> Result<HashMap<Provider, Arc<dyn Connector>>, HttpClientError> {
    let http = HttpClient::new(HttpTimeouts::default())?;
    let connectors = config.providers.iter().map(|app| Ok((app.declaration().provider, app.connector(http.clone())?)));
    connectors.collect()
}

/// Returns the rate limits of all providers.
pub fn call_settings(config: &Config) -> CallSettings {
    let budgets = config.providers.iter().map(|app| (app.declaration().provider, app.budgets()));
    let quotas = config.providers.iter();
    let quotas = quotas.filter_map(|app| Some((app.declaration().provider, app.mailbox_bytes_per_day()?)));
    CallSettings {
        provider_budgets: budgets.collect(),
        mailbox_bytes_per_day: quotas.collect(),
        // Half of the workers: whatever one provider does, the other half is left for the others.
        max_in_flight: Some((config.sync.mailbox_workers / 2).max(1)),
        ..CallSettings::default()
    }
}

/// Returns all limits of this process.
pub fn limits(config: &Config) -> Limits {
    Limits {
        calls: call_settings(config),
        work: WorkLimits {
            mailbox_workers: config.sync.mailbox_workers,
            jobs: config.jobs.concurrency,
            discoveries: config.sync.discovery_workers,
        },
        requests: config.edge.limits,
    }
}

/// Returns the gate that limits contention for leases: Redis, if it is configured.
pub fn gate(config: &Config) -> Result<Arc<dyn LeaseGate>, Failure> {
    Ok(match redis(config)? {
        Some(redis) => Arc::new(RedisGate(redis)),
        None => Arc::new(OpenLeaseGate),
    })
}

/// Connects to Redis, if it is configured.
pub fn redis(config: &Config) -> Result<Option<Redis>, Failure> {
    let Some(url) = &config.cache.url else { return Ok(None) };
    // Two installations on one Redis must not share limits.
    let database = match &config.database.url {
        DatabaseUrl::Sqlite(path) => path.display().to_string(),
        DatabaseUrl::Postgres(url) => url.expose().clone(),
    };
    let prefix = format!("mailroom:{}", &Sha256::of(database.as_bytes()).hex()[..12]);
    let redis = Redis::connect(url.expose(), &prefix).map(Some);
    redis.map_err(|_| Failure::usage("`cache.url` must be a Redis URL, such as redis://host:6379/0"))
}

/// Creates the sender of webhook deliveries.
pub fn courier(config: &Config, syncer: &Syncer) -> Result<WebhookDeliverer, Failure> {
    let policy = AddressPolicy::new(config.webhooks.allow_networks.iter().copied());
    let sender = WebhookSender::new(policy, Arc::new(SystemResolver::default()));
    let sender = sender.map_err(|e| Failure::problem(format!("cannot create the webhook client: {e}")))?;
    Ok(WebhookDeliverer::new(syncer.engine.clone(), sender, syncer.gateway.clone(), Arc::new(SystemRandom)))
}

/// Creates the verifier of OpenID Connect tokens, if an issuer is configured.
pub fn issuer(config: &Config) -> Result<Option<Oidc>, Failure> {
    let Some(settings) = &config.auth.oidc else { return Ok(None) };
    let http = HttpClient::new(ISSUER_DEADLINES).map_err(|e| Failure::problem(e.to_string()))?;
    Ok(Some(Oidc::new(settings.clone(), Box::new(HttpDocuments(http)))))
}

/// Creates the receiver of the pushes of each provider for which they are configured.
pub fn pushes(config: &Config, engine: &Engine) -> Result<HashMap<Provider, PushReceiver>, Failure> {
    let readers = push_readers(config)?.into_iter().map(|reader| {
        let provider = reader.provider();
        (provider, PushReceiver::new(engine.store.clone(), engine.vault.clone(), reader))
    });
    Ok(readers.collect())
}

fn push_readers(config: &Config) -> Result<Vec<Arc<dyn PushReader>>, Failure> {
    let http = HttpClient::new(ISSUER_DEADLINES).map_err(|e| Failure::problem(e.to_string()))?;
    let readers = config.providers.iter().filter_map(|app| app.push_reader(Box::new(HttpDocuments(http.clone()))));
    Ok(readers.collect())
}

/// Creates the OAuth consent flow of each provider with a configured client.
pub fn consents(config: &Config) -> Result<HashMap<Provider, Arc<dyn ConsentFlow>>, Failure> {
    let http = HttpClient::new(CONSENT_DEADLINES).map_err(|e| Failure::problem(e.to_string()))?;
    let flows = config.providers.iter().filter_map(|app| app.consent_flow(http.clone()));
    Ok(flows.map(|flow| (flow.provider(), flow)).collect())
}

/// Fails unless our app at the provider is configured for this.
pub fn check_app_use(config: &Config, provider: Provider, intended: AppUse) -> Result<(), Failure> {
    let Some(app) = config.providers.find(provider) else { return Ok(()) };
    app.check_use(intended).map_err(Failure::usage)
}

/// A person waits for the response.
const CONSENT_DEADLINES: HttpTimeouts = HttpTimeouts {
    connect: Duration::from_secs(5),
    read: Duration::from_secs(15),
    response: Duration::from_secs(20),
    stream: Duration::from_secs(20),
};

/// The first request with a token waits for the response.
const ISSUER_DEADLINES: HttpTimeouts = HttpTimeouts {
    connect: Duration::from_secs(3),
    read: Duration::from_secs(5),
    response: Duration::from_secs(5),
    stream: Duration::from_secs(5),
};

/// Fetches JSON documents of an issuer over HTTP.
#[derive(Debug)]
struct HttpDocuments(HttpClient);

impl jwt::Documents for HttpDocuments {
    fn get<'a>(&'a self, url: &'a str) -> BoxFuture<'a, anyhow::Result<serde_json::Value>> {
        Box::pin(async move { Ok(self.0.get_json(url).await?) })
    }
}

/// Starts a worker for jobs of all kinds.
pub fn start_worker(config: &Config, syncer: &Syncer, name: &str) -> Worker {
    let keep = RetentionPeriods {
        jobs: JobRetention { finished: config.jobs.keep_finished, dead: config.jobs.keep_dead },
        events: bounded(config.events.keep),
        deliveries: config.webhooks.keep_deliveries,
        blobs: bounded(config.blobs.grace),
    };
    let kinds = engine::jobs::kinds(syncer, keep);
    start_worker_of(config, &syncer.engine.store, kinds, name)
}

/// Starts a worker for jobs of these kinds.
pub fn start_worker_of(config: &Config, store: &Store, kinds: JobKinds, name: &str) -> Worker {
    let settings = WorkerSettings {
        name: name.to_owned(),
        lease: config.jobs.lease,
        poll: config.jobs.poll,
        io_slots: config.jobs.concurrency,
        remote_slots: config.sync.mailbox_workers,
        cpu_slots: std::thread::available_parallelism().map_or(1, usize::from),
        grace: SHUTDOWN_GRACE,
    };
    Worker::start(store.clone(), kinds, settings, Arc::new(SystemRandom))
}

/// Converts a duration; one that is too long becomes the longest.
pub fn bounded(duration: Duration) -> SignedDuration {
    SignedDuration::try_from(duration).unwrap_or(SignedDuration::MAX)
}

/// Time for running jobs to finish, of the 30 seconds that a shutdown may take.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(25);

pub async fn find_tenant(store: &Store, name_or_id: &str) -> Result<Tenant, Failure> {
    store.system().find_tenant(name_or_id).await?.ok_or_else(|| {
        Failure::problem(format!("there is no tenant {name_or_id:?}; `mailroom tenant list` shows all tenants"))
    })
}

pub async fn tenant_store(engine: &Engine, name_or_id: &str) -> Result<TenantStore, Failure> {
    Ok(engine.store.tenant(find_tenant(&engine.store, name_or_id).await?.id))
}

/// Fails if the tenant is deactivated: no work is done for it then.
pub async fn check_tenant_active(store: &TenantStore, name: &str) -> Result<(), Failure> {
    if store.is_active().await? {
        return Ok(());
    }
    Err(Failure::problem(format!("tenant {name} is deactivated; `mailroom tenant activate {name}` activates it")))
}

/// Finds the mailbox that an option names. Fails if it does not exist.
pub async fn find_mailbox(store: &TenantStore, address_or_id: Option<&str>) -> Result<Option<Mailbox>, Failure> {
    let Some(given) = address_or_id else { return Ok(None) };
    let address = domain::address::canonical(given).unwrap_or_else(|| given.to_owned());
    match store.find_mailbox(&address).await? {
        Some(mailbox) => Ok(Some(mailbox)),
        None => Err(Failure::problem(format!(
            "this tenant has no mailbox {given:?}; `mailroom tenant show` lists its mailboxes"
        ))),
    }
}

/// Returns the user who runs this command.
pub fn actor() -> Actor {
    Actor::Command { user: rustix::process::getuid().as_raw() }
}

/// Returns whom operations that this command calls are recorded under.
pub fn origin() -> Origin {
    actor().into()
}

/// Returns what a command says of a refused operation.
pub fn refused(refusal: Refusal) -> Failure {
    match refusal {
        Refusal::Store(e) => e.into(),
        Refusal::Other(e) => match e.downcast::<VaultError>() {
            Ok(e) => e.into(),
            Err(e) => e.into(),
        },
        Refusal::Invalid { field, why } => Failure::usage(format!("{field} {why}")),
        refusal => Failure::problem(refusal.to_string()),
    }
}

/// Checks that files can be created in a folder, which is created if absent.
pub fn check_writable(folder: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(folder)?;
    tempfile::NamedTempFile::new_in(folder).map(drop)
}
