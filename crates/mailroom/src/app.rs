//! From settings to a working engine.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use connectors::google::GoogleOAuth;
use connectors::http::{Deadlines, Http};
use connectors::microsoft::MicrosoftOAuth;
use content::spool::Spool;
use domain::{Consent, Provider, Sha256, SystemClock, TenantId};
use engine::audit::Entry;
use engine::calls::budget::Budget;
use engine::calls::{CallSettings, Calls, Pace};
use engine::gate::Redis;
use engine::jobs::Keep;
use engine::oidc::Oidc;
use engine::push::{GmailPushes, GraphPushes, PushSettings};
use engine::secrets::KeySource;
use engine::sync::{SyncSettings, Syncer};
use engine::webhooks::{Courier, Policy, Sender, SystemResolver};
use engine::{Cpu, Engine, Vault};
use futures_util::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use jobs::{Gate, NoGate, Settings, SystemDice, Worker};
use store::blobs::{Blobs, RemoteSettings};
use store::record::Record;
use store::sql::jobs::KeepFor;
use store::sql::mailboxes::Mailbox;
use store::sql::tenants::Tenant;
use store::{Location, Store, TenantStore};

use crate::config::{BlobsUrl, Config, DatabaseUrl};
use crate::failure::Failure;

pub fn location(config: &Config) -> Location {
    match &config.database.url {
        DatabaseUrl::Sqlite(path) => Location::Sqlite { path: path.clone(), connections: config.database.pool },
        DatabaseUrl::Postgres(url) => {
            Location::Postgres { url: url.expose().clone(), connections: config.database.pool }
        }
    }
}

/// The database as it is, whatever its schema.
pub fn open_store(config: &Config) -> Result<Store, Failure> {
    Ok(Store::open(&location(config), Arc::new(SystemClock))?)
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

/// It asks for the master key when it is first used; `unlock` does so at once.
pub fn vault(config: &Config, store: &Store) -> Vault {
    let source = match &config.secrets.key {
        Some(key) => KeySource::Given(key.clone()),
        None => KeySource::File(config.secrets.key_file.clone()),
    };
    Vault::new(store.clone(), source)
}

/// A process that holds secrets leaves no image of its memory behind.
pub fn forbid_core_dumps() -> Result<(), Failure> {
    use rustix::process::{Resource, Rlimit, setrlimit};
    let failed = |e| Failure::problem(format!("cannot forbid core dumps: {e}"));
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) }).map_err(failed)?;
    // The limit alone does not do where cores are piped into a program. This also keeps other processes of the same user
    // from looking into our memory.
    #[cfg(target_os = "linux")]
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable).map_err(failed)?;
    Ok(())
}

/// As many open files and connections as the system lets us have: the usual 1,024 are for programs that ask for few.
pub fn raise_file_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    if let Err(e) = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum }) {
        tracing::warn!("cannot raise the limit of open files: {e}");
    }
}

/// Ready to work: an embedded database is brought up to date, a PostgreSQL must be.
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
        patience: config.import.patience,
    })
}

/// What syncs mailboxes, in the name of this process.
pub fn syncer(config: &Config, engine: &Engine, holder: &str) -> Result<Syncer, Failure> {
    let (google, microsoft) = (&config.providers.google, &config.providers.microsoft);
    let connectors = connectors::all(&google.settings, &microsoft.settings);
    let connectors = connectors.map_err(|e| Failure::problem(format!("cannot speak to mail providers: {e}")))?;
    let settings = SyncSettings {
        holder: holder.to_owned(),
        lease: config.sync.lease,
        duplicate_check: config.sync.duplicate_check,
    };
    let redis = redis(config)?;
    let calls = Calls::new(call_settings(config), Arc::new(SystemDice), redis.clone());
    let syncer = Syncer::new(engine.clone(), settings, connectors, calls)
        .with_workers(config.sync.mailbox_workers)
        .with_discovery_workers(config.sync.discovery_workers);
    Ok(match redis {
        Some(redis) => syncer.with_gate(Arc::new(redis)),
        None => syncer,
    })
}

/// How much may be asked of providers.
pub fn call_settings(config: &Config) -> CallSettings {
    let (google, microsoft) = (&config.providers.google, &config.providers.microsoft);
    let scripted = Pace::calls_per_second(config.providers.scripted_calls_per_second as f64);
    let project = Some(google.project_units_per_minute).filter(|units| *units > 0);
    let gmail = google.rates.pace().with_units(
        project.map(|units| Budget::per_minute(units as f64)),
        google.settings.user_units_per_minute.map(|units| Budget::per_minute(units.into())),
    );
    let requests = Some(microsoft.mailbox_requests_per_10_minutes).filter(|requests| *requests > 0);
    let outlook =
        microsoft.rates.pace().with_units(None, requests.map(|requests| Budget::per_ten_minutes(requests as f64)));
    CallSettings {
        paces: HashMap::from([
            (Provider::Scripted, scripted),
            (Provider::Imap, config.providers.imap.pace()),
            (Provider::Gmail, gmail),
            (Provider::Outlook, outlook),
        ]),
        imap_bytes_per_day: config.providers.imap_bytes_per_day,
        // As many as there may be looks at once. With all the jobs that look at its mailboxes and wait, some workers are left
        // for the other providers, whatever this one does.
        most_under_way: Some((config.sync.mailbox_workers / 2).max(1)),
        ..CallSettings::default()
    }
}

/// Who may ask for a lease.
pub fn gate(config: &Config) -> Result<Arc<dyn Gate>, Failure> {
    Ok(match redis(config)? {
        Some(redis) => Arc::new(redis),
        None => Arc::new(NoGate),
    })
}

/// What processes share, if there is something that they share it through.
pub fn redis(config: &Config) -> Result<Option<Redis>, Failure> {
    let Some(url) = &config.cache.url else { return Ok(None) };
    // Two Mailrooms at one Redis must not hold each other back.
    let database = match &config.database.url {
        DatabaseUrl::Sqlite(path) => path.display().to_string(),
        DatabaseUrl::Postgres(url) => url.expose().clone(),
    };
    let prefix = format!("mailroom:{}", &Sha256::of(database.as_bytes()).hex()[..12]);
    let failed =
        |_| Failure::usage("`cache.url` is not an address that Redis understands; it is like redis://host:6379/0");
    Redis::connect(url.expose(), &prefix).map(Some).map_err(failed)
}

/// What tells tenants' own servers of events.
pub fn courier(config: &Config, engine: &Engine) -> Result<Courier, Failure> {
    let policy = Policy::new(config.webhooks.allow_networks.iter().copied());
    let sender = Sender::new(policy, Arc::new(SystemResolver::default()));
    let sender = sender.map_err(|e| Failure::problem(format!("webhooks: {e:#}")))?;
    Ok(Courier::new(engine.clone(), sender, Arc::new(SystemDice)))
}

/// Who makes the tokens that are as good as keys, if somebody does.
pub fn issuer(config: &Config) -> Result<Option<Oidc>, Failure> {
    let Some(settings) = &config.auth.oidc else { return Ok(None) };
    let http = Http::new(ISSUER_DEADLINES).map_err(|e| Failure::problem(e.to_string()))?;
    Ok(Some(Oidc::new(settings.clone(), Box::new(Documents(http)))))
}

/// What takes Gmail's pushes, if somebody has said whose are believed.
pub fn gmail_pushes(config: &Config, engine: &Engine) -> Result<Option<GmailPushes>, Failure> {
    let google = &config.providers.google;
    let Some(service_account) = google.push_service_account.clone() else { return Ok(None) };
    let http = Http::new(ISSUER_DEADLINES).map_err(|e| Failure::problem(e.to_string()))?;
    let settings =
        PushSettings { jwks_url: google.settings.jwks_url.clone(), audience: config.push_audience(), service_account };
    Ok(Some(GmailPushes::new(engine.store.clone(), settings, Box::new(Documents(http)))))
}

/// What takes Microsoft Graph's, if it is told to call us.
pub fn graph_pushes(config: &Config, engine: &Engine) -> Option<GraphPushes> {
    let is_told = config.providers.microsoft.settings.push.is_some();
    is_told.then(|| GraphPushes::new(engine.store.clone(), engine.vault.clone()))
}

/// Who lets people say yes to us in a browser: those where we are somebody.
pub fn consents(config: &Config) -> Result<HashMap<Provider, Arc<dyn Consent>>, Failure> {
    let http = Http::new(CONSENT_DEADLINES).map_err(|e| Failure::problem(e.to_string()))?;
    let mut consents: HashMap<Provider, Arc<dyn Consent>> = HashMap::new();
    let google = GoogleOAuth::new(http, config.providers.google.settings.clone());
    if google.has_client() {
        consents.insert(Provider::Gmail, Arc::new(google));
    }
    if config.providers.microsoft.settings.has_client() {
        consents.insert(Provider::Outlook, Arc::new(microsoft(config)?));
    }
    Ok(consents)
}

pub fn microsoft(config: &Config) -> Result<MicrosoftOAuth, Failure> {
    let http = Http::new(CONSENT_DEADLINES).map_err(|e| Failure::problem(e.to_string()))?;
    Ok(MicrosoftOAuth::new(http, config.providers.microsoft.settings.clone()))
}

/// A person waits for it.
const CONSENT_DEADLINES: Deadlines = Deadlines {
    connect: Duration::from_secs(5),
    silence: Duration::from_secs(15),
    answer: Duration::from_secs(20),
    stream: Duration::from_secs(20),
};

/// A request waits for it, the first time.
const ISSUER_DEADLINES: Deadlines = Deadlines {
    connect: Duration::from_secs(3),
    silence: Duration::from_secs(5),
    answer: Duration::from_secs(5),
    stream: Duration::from_secs(5),
};

#[derive(Debug)]
struct Documents(Http);

impl engine::oidc::Documents for Documents {
    fn get<'a>(&'a self, url: &'a str) -> BoxFuture<'a, anyhow::Result<serde_json::Value>> {
        Box::pin(async move { Ok(self.0.get_json(url).await?) })
    }
}

/// Works on jobs of every kind.
pub fn start_worker(config: &Config, syncer: &Syncer, name: &str) -> Worker {
    let signed = |duration| SignedDuration::try_from(duration).unwrap_or(SignedDuration::MAX);
    let keep = Keep {
        jobs: KeepFor { finished: config.jobs.keep_finished, dead: config.jobs.keep_dead },
        events: signed(config.events.keep),
        deliveries: config.webhooks.keep_deliveries,
        blobs: signed(config.blobs.grace),
    };
    let settings = Settings {
        name: name.to_owned(),
        lease: config.jobs.lease,
        poll: config.jobs.poll,
        io_slots: config.jobs.concurrency,
        remote_slots: config.sync.mailbox_workers,
        cpu_slots: std::thread::available_parallelism().map_or(1, usize::from),
        grace: SHUTDOWN_GRACE,
    };
    let kinds = engine::jobs::kinds(syncer, keep);
    Worker::start(syncer.engine.store.clone(), kinds, settings, Arc::new(SystemDice))
}

/// What jobs get that are under way, of the 30 seconds that a shutdown may take.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(25);

pub async fn tenant(store: &Store, name_or_id: &str) -> Result<Tenant, Failure> {
    store.system().find_tenant(name_or_id).await?.ok_or_else(|| {
        Failure::problem(format!("there is no tenant {name_or_id:?}; `mailroom tenant list` shows those that are"))
    })
}

pub async fn tenant_store(engine: &Engine, name_or_id: &str) -> Result<TenantStore, Failure> {
    Ok(engine.store.tenant(tenant(&engine.store, name_or_id).await?.id))
}

/// For who wants something done for a tenant: nothing is, for one that is deactivated.
pub async fn must_be_active(store: &TenantStore, name: &str) -> Result<(), Failure> {
    match store.is_active().await? {
        true => Ok(()),
        false => Err(Failure::problem(format!(
            "tenant {name} is deactivated; `mailroom tenant activate {name}` lets its work go on"
        ))),
    }
}

/// The mailbox that an option names, if it names one.
pub async fn mailbox(store: &TenantStore, address_or_id: Option<&str>) -> Result<Option<Mailbox>, Failure> {
    let Some(given) = address_or_id else { return Ok(None) };
    let address = domain::address::canonical(given).unwrap_or_else(|| given.to_owned());
    match store.find_mailbox(&address).await? {
        Some(mailbox) => Ok(Some(mailbox)),
        None => Err(Failure::problem(format!(
            "this tenant has no mailbox {given:?}; `mailroom tenant show` lists those that it has"
        ))),
    }
}

/// What a command changes stands in the audit, as what is changed over HTTP does; nothing secret belongs in here.
pub async fn recorded(
    engine: &Engine,
    tenant: TenantId,
    action: &'static str,
    target: &str,
    after: serde_json::Value,
) -> Result<Engine, Failure> {
    let at = engine.store.system().now().await?;
    let at = Timestamp::from_millisecond(at.as_millisecond()).unwrap_or(at);
    let actor = format!("command:{}", rustix::process::getuid().as_raw());
    let (target, after) = (target.to_owned(), Some(after).filter(|after| !after.is_null()));
    let entry = Entry { at, actor, action, target, address: None, request_id: None, before: None, after };
    Ok(engine.recording(Record { tenant, at, entry: Some(entry.text()), answer: None }))
}

/// Whether files can be made in a folder, which is made if it is not there.
pub fn is_writable(folder: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(folder)?;
    tempfile::NamedTempFile::new_in(folder).map(drop)
}
