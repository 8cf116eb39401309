//! What the operator chose: `config/default.toml`, then a file, then the environment. Only this module reads the
//! environment; everything else receives typed values, so there is one place to look when a setting seems ignored.

mod client;
mod edge;
mod error;
mod google;
mod layers;
mod microsoft;
mod nearest;
mod rates;
mod read;
pub mod units;
mod urls;

pub use error::ConfigError;
pub use google::Google;
pub use microsoft::Microsoft;
pub use urls::{BlobsUrl, DatabaseUrl};

use domain::{Limits, Secret};
use engine::mailboxes::Backfill;
use engine::oidc::OidcSettings;
use engine::webhooks::Network;
use layers::Layers;
use rates::Rates;
use read::{Reader, refuse};
use serde::Serialize;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;
use web::EdgeSettings;

/// Read when no file is named; its absence is fine.
const FILE: &str = "mailroom.toml";

const DAY: Duration = Duration::from_secs(86_400);

/// No mailbox is that large; it catches a slip.
pub const MOST_BYTES_PER_DAY: u64 = 1 << 40;

#[derive(Debug, Clone)]
pub struct Config {
    pub data_dir: PathBuf,
    pub database: Database,
    pub blobs: Blobs,
    pub backup: Backup,
    pub secrets: Secrets,
    pub auth: Auth,
    pub limits: Limits,
    pub import: Import,
    pub server: Server,
    pub edge: EdgeSettings,
    pub instance: Instance,
    pub jobs: Jobs,
    pub sync: Sync,
    pub tenants: Tenants,
    pub events: Events,
    pub webhooks: Webhooks,
    pub cache: Cache,
    pub providers: Providers,
    pub log: Log,
    shown: Vec<Shown>,
}

#[derive(Debug, Clone)]
pub struct Database {
    pub url: DatabaseUrl,
    /// Connections; on SQLite for reading only.
    pub pool: usize,
}

#[derive(Debug, Clone)]
pub struct Blobs {
    pub url: BlobsUrl,
    /// How long bytes that nobody names are kept.
    pub grace: Duration,
    /// How long one request to a bucket is tried, all retries included.
    pub retry_for: Duration,
    /// Endpoint and credentials of a bucket, as the tools of its provider know them.
    pub variables: Vec<(String, Secret<String>)>,
}

#[derive(Debug, Clone)]
pub struct Backup {
    /// The login for `pg_dump` and `pg_restore`, if it is not that of `database.url`.
    pub postgres_url: Option<Secret<String>>,
}

/// Where the master key comes from.
#[derive(Debug, Clone)]
pub struct Secrets {
    pub key_file: PathBuf,
    /// In the place of the file.
    pub key: Option<Secret<String>>,
}

#[derive(Debug, Clone)]
pub struct Auth {
    /// The operator's key.
    pub admin_key_file: PathBuf,
    /// Whose tokens are as good as keys.
    pub oidc: Option<OidcSettings>,
}

/// How an import cuts its work; a batch ends at whichever limit comes first.
#[derive(Debug, Clone)]
pub struct Import {
    pub batch_messages: usize,
    pub batch_bytes: u64,
    /// Batches under way at once.
    pub in_flight: usize,
    /// How long it waits for a database that has gone away.
    pub patience: Duration,
}

#[derive(Debug, Clone)]
pub struct Server {
    pub listen: SocketAddr,
    /// `None`: the metrics are at `listen`, for this machine only.
    pub metrics_listen: Option<SocketAddr>,
}

#[derive(Debug, Clone)]
pub struct Instance {
    /// `None`: a new one each time.
    pub id: Option<String>,
}

#[derive(Debug, Clone)]
pub struct Jobs {
    pub lease: Duration,
    pub poll: Duration,
    /// Jobs at the same time that mostly wait; those that compute get a slot per core.
    pub concurrency: usize,
    pub keep_finished: Duration,
    pub keep_dead: Duration,
}

/// Mailboxes that live somewhere else.
#[derive(Debug, Clone)]
pub struct Sync {
    pub interval: Duration,
    pub seldom_interval: Duration,
    pub lease: Duration,
    pub backfill: Backfill,
    pub listen: bool,
    pub leader_election: bool,
    pub duplicate_check: bool,
    pub mailbox_workers: usize,
    pub discovery_workers: usize,
}

/// Events that are sent to their tenants' own servers.
#[derive(Debug, Clone)]
pub struct Webhooks {
    /// Networks that are not of the open internet and may be reached.
    pub allow_networks: Vec<Network>,
    /// How long it can be seen what became of a delivery.
    pub keep_deliveries: Duration,
}

#[derive(Debug, Clone)]
pub struct Tenants {
    /// How long after it was deleted a tenant is erased.
    pub erase_after: Duration,
}

#[derive(Debug, Clone)]
pub struct Events {
    pub keep: Duration,
}

#[derive(Debug, Clone)]
pub struct Cache {
    pub url: Option<Secret<String>>,
}

/// How fast each provider may be called, and how much may be fetched from it.
#[derive(Debug, Clone)]
pub struct Providers {
    pub google: Google,
    pub microsoft: Microsoft,
    /// Of each mailbox that does not say it itself; 0: as many as one likes. `None`: what its server is known to bear.
    pub imap_bytes_per_day: Option<u64>,
    pub imap: Rates,
    pub scripted_calls_per_second: usize,
}

#[derive(Debug, Clone)]
pub struct Log {
    pub level: LogLevel,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogLevel {
    Off,
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

impl LogLevel {
    const ALL: [(&str, Self); 6] = [
        ("off", Self::Off),
        ("error", Self::Error),
        ("warn", Self::Warn),
        ("info", Self::Info),
        ("debug", Self::Debug),
        ("trace", Self::Trace),
    ];

    /// The word of the setting, which log filters take as it is.
    pub fn as_str(self) -> &'static str {
        Self::ALL[self as usize].0
    }
}

/// One line of `mailroom config show`; `value` has its secrets hidden.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Shown {
    pub key: &'static str,
    pub value: String,
    /// "default", "mailroom.toml line 3", or the name of an environment variable.
    pub source: String,
}

impl Config {
    /// The configuration of this process.
    #[expect(clippy::disallowed_methods, reason = "the one place that reads the environment")]
    pub fn from_environment(config_file: Option<&Path>) -> Result<Self, ConfigError> {
        // Not `vars`: that one panics when any variable, ours or not, is not UTF-8.
        let variables: Vec<(OsString, OsString)> = std::env::vars_os().collect();
        let home =
            variables.iter().find(|(name, value)| name == "HOME" && !value.is_empty()).map(|(_, value)| value.into());
        Self::load(config_file, variables, home)
    }

    /// `config_file` must exist when it is given; otherwise `mailroom.toml` in the working directory is read if present.
    pub fn load(
        config_file: Option<&Path>,
        environment: impl IntoIterator<Item = (impl Into<OsString>, impl Into<OsString>)>,
        home: Option<PathBuf>,
    ) -> Result<Self, ConfigError> {
        Self::load_in(Path::new(""), config_file, environment, home)
    }

    fn load_in(
        folder: &Path,
        config_file: Option<&Path>,
        environment: impl IntoIterator<Item = (impl Into<OsString>, impl Into<OsString>)>,
        home: Option<PathBuf>,
    ) -> Result<Self, ConfigError> {
        let mut layers = Layers::defaults()?;
        let usual = folder.join(FILE);
        match config_file {
            Some(path) => layers.add_file(path)?,
            // A file that is there and can't be looked at is an error, not an absence.
            None if usual.try_exists().unwrap_or(true) => layers.add_file(&usual)?,
            None => {}
        }
        let environment: Vec<(OsString, OsString)> =
            environment.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
        let providers = provider_variables(&environment);
        layers.add_environment(environment)?;
        Self::understand(Reader::new(layers, home), providers)
    }

    /// Every setting in force, in the order of `default.toml`.
    pub fn show(&self) -> &[Shown] {
        &self.shown
    }

    /// The login that dumps and restores a PostgreSQL; `None` on SQLite.
    pub fn dump_url(&self) -> Option<&Secret<String>> {
        match &self.database.url {
            DatabaseUrl::Sqlite(_) => None,
            DatabaseUrl::Postgres(url) => Some(self.backup.postgres_url.as_ref().unwrap_or(url)),
        }
    }

    /// Whom the tokens of Gmail's pushes must be for: unless somebody says otherwise, the address that they are sent to.
    pub fn push_audience(&self) -> String {
        let said = self.providers.google.push_audience.clone();
        said.unwrap_or_else(|| format!("{}/v1/hooks/gmail", self.edge.public_url))
    }

    fn understand(mut read: Reader, providers: Vec<(String, Secret<String>)>) -> Result<Self, ConfigError> {
        let data_dir = read.folder("data_dir")?;
        let server = edge::server(&mut read)?;
        let edge = edge::edge(&mut read, server.listen)?;
        Ok(Self {
            database: database(&mut read, &data_dir)?,
            blobs: blobs(&mut read, &data_dir, providers)?,
            backup: backup(&mut read)?,
            secrets: secrets(&mut read, &data_dir)?,
            auth: auth(&mut read, &data_dir)?,
            limits: limits(&mut read)?,
            import: import(&mut read)?,
            server,
            instance: instance(&mut read)?,
            jobs: jobs(&mut read)?,
            sync: sync(&mut read)?,
            tenants: Tenants { erase_after: read.duration("tenants.erase_after", Duration::ZERO..=3650 * DAY)? },
            events: Events { keep: read.duration("events.keep", Duration::from_secs(3600)..=3650 * DAY)? },
            webhooks: webhooks(&mut read)?,
            cache: cache(&mut read)?,
            providers: self::providers(&mut read, &edge.public_url)?,
            log: Log { level: read.choice("log.level", &LogLevel::ALL)? },
            data_dir,
            edge,
            shown: read.into_shown(),
        })
    }
}

fn database(read: &mut Reader, data_dir: &Path) -> Result<Database, ConfigError> {
    let (url, source) = match read.secret("database.url", "database.url_file", "a URL like \"sqlite://mail.db\"")? {
        None => (DatabaseUrl::Sqlite(data_dir.join("mailroom.db")), "default".to_owned()),
        Some((text, source)) => {
            let url = match DatabaseUrl::parse(&text).map_err(|wants| refuse("database.url", &source, &wants))? {
                DatabaseUrl::Sqlite(path) => DatabaseUrl::Sqlite(read.expand(&path)?),
                postgres @ DatabaseUrl::Postgres(_) => postgres,
            };
            (url, source)
        }
    };
    read.show("database.url", url.shown(), &source);
    // The ceiling is far above what helps; it catches a slip before PostgreSQL runs out of sessions.
    Ok(Database { url, pool: read.count("database.pool", 1..=1000)? })
}

/// What the tools of each provider of object storage read, so that whatever works for them works here.
const PROVIDERS: [&str; 3] = ["AWS_", "AZURE_", "GOOGLE_"];

fn provider_variables(environment: &[(OsString, OsString)]) -> Vec<(String, Secret<String>)> {
    let text = |(name, value): &(OsString, OsString)| {
        let name = name.to_str().filter(|name| PROVIDERS.iter().any(|prefix| name.starts_with(prefix)))?;
        Some((name.to_owned(), Secret::new(value.to_str()?.to_owned())))
    };
    environment.iter().filter_map(text).collect()
}

fn blobs(read: &mut Reader, data_dir: &Path, variables: Vec<(String, Secret<String>)>) -> Result<Blobs, ConfigError> {
    let (url, source) = match read.text("blobs.url", "a URL like \"file://blobs\"")? {
        None => (BlobsUrl::File(data_dir.join("blobs")), "default".to_owned()),
        Some((text, origin)) => {
            let url = match BlobsUrl::parse(&text).map_err(|wants| refuse("blobs.url", &origin, &wants))? {
                BlobsUrl::File(path) => BlobsUrl::File(read.expand(&path)?),
                remote @ BlobsUrl::Remote { .. } => remote,
            };
            (url, origin.to_string())
        }
    };
    read.show("blobs.url", url.shown(), &source);
    let grace = read.duration("blobs.grace", Duration::ZERO..=365 * DAY)?;
    // A second still allows a retry; after ten minutes everybody has given up.
    let retry_for = read.duration("blobs.retry_for", Duration::from_secs(1)..=Duration::from_secs(600))?;
    Ok(Blobs { url, grace, retry_for, variables })
}

fn backup(read: &mut Reader) -> Result<Backup, ConfigError> {
    const WANTS: &str = "wants postgres://USER:PASSWORD@HOST:PORT/NAME";
    let given = read.secret("backup.postgres_url", "backup.postgres_url_file", "a URL like \"postgres://…\"")?;
    let Some((text, source)) = given else {
        read.show("backup.postgres_url", "as database.url", &"default");
        return Ok(Backup { postgres_url: None });
    };
    let Ok(url @ DatabaseUrl::Postgres(_)) = DatabaseUrl::parse(&text) else {
        return Err(refuse("backup.postgres_url", &source, WANTS));
    };
    read.show("backup.postgres_url", url.shown(), &source);
    Ok(Backup { postgres_url: Some(Secret::new(text)) })
}

fn auth(read: &mut Reader, data_dir: &Path) -> Result<Auth, ConfigError> {
    let admin_key_file = file_in(read, "auth.admin_key_file", data_dir, "admin.key")?.0;
    Ok(Auth { admin_key_file, oidc: edge::oidc(read)? })
}

/// The path of a file that is in the data folder unless somebody says otherwise, and who says so.
fn file_in(
    read: &mut Reader,
    setting: &'static str,
    data_dir: &Path,
    name: &str,
) -> Result<(PathBuf, String), ConfigError> {
    let (path, source) = match read.text(setting, "the path of a file")? {
        None => (data_dir.join(name), "default".to_owned()),
        Some((path, origin)) => (read.expand(Path::new(&path))?, origin.to_string()),
    };
    read.show(setting, path.display().to_string(), &source);
    Ok((path, source))
}

fn secrets(read: &mut Reader, data_dir: &Path) -> Result<Secrets, ConfigError> {
    let (key_file, source) = file_in(read, "secrets.key_file", data_dir, "master.key")?;
    let key = match read.text("secrets.key", "a key in quotes") {
        // The sentence would repeat what was written.
        Err(_) => return Err(ConfigError::new("`secrets.key` wants a key in quotes: 64 hexadecimal digits or Base64")),
        Ok(None) => {
            read.show("secrets.key", "none", &"default");
            None
        }
        Ok(Some((_, origin))) if read.is_given("secrets.key_file") => {
            return Err(ConfigError::new(format!(
                "`secrets.key` ({origin}) and `secrets.key_file` ({source}) are both given; keep one of them"
            )));
        }
        Ok(Some((key, origin))) => {
            read.show("secrets.key", "***", &origin);
            Some(Secret::new(key))
        }
    };
    if let Some((_, origin)) = read.text("secrets.kms_url", "a URL")? {
        let wants = "is for a later release; keep the master key in a file (secrets.key_file) or in secrets.key";
        return Err(refuse("secrets.kms_url", &origin, wants));
    }
    read.show("secrets.kms_url", "none", &"default");
    Ok(Secrets { key_file, key })
}

/// The floors still let ordinary mail through. The ceilings are what a disk may have to spare (messages) and what a
/// database takes in one column (bodies: PostgreSQL stops at 1 GB).
fn limits(read: &mut Reader) -> Result<Limits, ConfigError> {
    const KIB: u64 = 1 << 10;
    const MIB: u64 = 1 << 20;
    const GIB: u64 = 1 << 30;
    Ok(Limits {
        message_bytes: read.size("limits.message_size", KIB..=2 * GIB)?,
        attachment_bytes: read.size("limits.attachment_size", KIB..=2 * GIB)?,
        decoded_bytes: read.size("limits.decoded_size", KIB..=4 * GIB)?,
        header_bytes: in_memory(read.size("limits.header_size", KIB..=64 * MIB)?),
        body_bytes: in_memory(read.size("limits.body_size", KIB..=256 * MIB)?),
        // Each level costs stack while parsing.
        nesting: read.count("limits.nesting", 1..=100)?,
        parts: read.count("limits.parts", 1..=100_000)?,
    })
}

fn import(read: &mut Reader) -> Result<Import, ConfigError> {
    Ok(Import {
        batch_messages: read.count("import.batch_messages", 1..=10_000)?,
        batch_bytes: read.size("import.batch_bytes", 1 << 10..=1 << 30)?,
        in_flight: read.count("import.in_flight", 1..=64)?,
        patience: read.duration("import.patience", Duration::ZERO..=7 * DAY)?,
    })
}

fn instance(read: &mut Reader) -> Result<Instance, ConfigError> {
    let Some((id, origin)) = read.text("instance.id", "a name like \"worker-1\"")? else {
        read.show("instance.id", "random per start", &"default");
        return Ok(Instance { id: None });
    };
    if id.chars().count() > 100 || id.chars().any(char::is_control) {
        return Err(refuse("instance.id", &origin, "wants at most 100 characters on one line"));
    }
    read.show("instance.id", id.clone(), &origin);
    Ok(Instance { id: Some(id) })
}

fn jobs(read: &mut Reader) -> Result<Jobs, ConfigError> {
    const SECOND: Duration = Duration::from_secs(1);
    let concurrency = if read.is_given("jobs.concurrency") {
        read.count("jobs.concurrency", 1..=10_000)?
    } else {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        read.show("jobs.concurrency", (cores * 8).to_string(), &"default");
        cores * 8
    };
    Ok(Jobs {
        lease: read.duration("jobs.lease", SECOND..=600 * SECOND)?,
        poll: read.duration("jobs.poll", SECOND..=60 * SECOND)?,
        concurrency,
        keep_finished: read.duration("jobs.keep_finished", SECOND..=3650 * DAY)?,
        keep_dead: read.duration("jobs.keep_dead", SECOND..=3650 * DAY)?,
    })
}

fn sync(read: &mut Reader) -> Result<Sync, ConfigError> {
    const SECOND: Duration = Duration::from_secs(1);
    let switch = [("true", true), ("false", false)];
    Ok(Sync {
        interval: read.duration("sync.interval", SECOND..=DAY)?,
        seldom_interval: read.duration("sync.seldom_interval", SECOND..=DAY)?,
        lease: read.duration("sync.lease", SECOND..=600 * SECOND)?,
        backfill: backfill(read)?,
        listen: read.choice("sync.listen", &switch)?,
        leader_election: read.choice("sync.leader_election", &switch)?,
        duplicate_check: read.choice("sync.duplicate_check", &switch)?,
        mailbox_workers: read.count("sync.mailbox_workers", 1..=10_000)?,
        discovery_workers: read.count("sync.discovery_workers", 1..=10_000)?,
    })
}

fn webhooks(read: &mut Reader) -> Result<Webhooks, ConfigError> {
    const NETWORKS: &str = "webhooks.allow_networks";
    const WANTS: &str = "a list of networks like \"10.1.0.0/16\"";
    let mut allow_networks = Vec::new();
    let Some((texts, origin)) = read.list(NETWORKS, WANTS)? else {
        read.show(NETWORKS, "none", &"default");
        return Ok(Webhooks { allow_networks, keep_deliveries: keep_deliveries(read)? });
    };
    for text in &texts {
        // Not only an address: what is opened should be said in full.
        let network = text.parse::<Network>().ok().filter(|network| network.addr() == network.network());
        let wants = || format!("wants {WANTS}, with nothing after its last bit, not {}", text.escape_debug());
        allow_networks.push(network.ok_or_else(|| refuse(NETWORKS, &origin, &wants()))?);
    }
    read.show(NETWORKS, texts.join(", "), &origin);
    Ok(Webhooks { allow_networks, keep_deliveries: keep_deliveries(read)? })
}

fn keep_deliveries(read: &mut Reader) -> Result<Duration, ConfigError> {
    read.duration("webhooks.keep_deliveries", Duration::from_secs(1)..=3650 * DAY)
}

fn cache(read: &mut Reader) -> Result<Cache, ConfigError> {
    const WANTS: &str = "an address like \"redis://host:6379/0\"";
    let Some((url, origin)) = read.text("cache.url", WANTS)? else {
        read.show("cache.url", "none", &"default");
        return Ok(Cache { url: None });
    };
    if !(url.starts_with("redis://") || url.starts_with("rediss://")) {
        return Err(refuse("cache.url", &origin, &format!("wants {WANTS}")));
    }
    // It may have a password in it.
    read.show("cache.url", "***", &origin);
    Ok(Cache { url: Some(Secret::new(url)) })
}

fn providers(read: &mut Reader, public_url: &str) -> Result<Providers, ConfigError> {
    let google = google::google(read)?;
    let microsoft = microsoft::microsoft(read, public_url)?;
    const IMAP: &str = "providers.imap.bytes_per_day";
    let imap_bytes_per_day = if read.is_given(IMAP) {
        Some(read.size(IMAP, 0..=MOST_BYTES_PER_DAY)?)
    } else {
        read.show(IMAP, "0 B, and 2 GB at Gmail", &"default");
        None
    };
    let imap = rates::rates(read, rates::IMAP)?;
    let scripted_calls_per_second = read.count("providers.scripted.calls_per_second", 1..=1_000_000)?;
    Ok(Providers { google, microsoft, imap_bytes_per_day, imap, scripted_calls_per_second })
}

fn backfill(read: &mut Reader) -> Result<Backfill, ConfigError> {
    const WANTS: &str = "\"all\", \"none\", or a duration like \"30d\"";
    let Some((text, origin)) = read.text("sync.backfill", WANTS)? else {
        return Err(refuse("sync.backfill", "default", WANTS));
    };
    let backfill = units::parse_backfill(&text).ok_or_else(|| refuse("sync.backfill", &origin, WANTS))?;
    read.show("sync.backfill", text, &origin);
    Ok(backfill)
}

fn in_memory(bytes: u64) -> usize {
    usize::try_from(bytes).expect("the ceilings of these settings fit every machine we build for")
}

#[cfg(test)]
mod tests;
