//! The configuration: `config/default.toml`, then a file, then the environment. Only this module reads the environment;
//! everything else receives typed values, so there is one place to look when a setting seems ignored.

mod edge;
mod error;
mod kubernetes;
mod layers;
mod provider_source;
mod reader;
mod urls;

pub use error::ConfigError;
pub use urls::{BlobsUrl, DatabaseUrl};

use domain::{Backfill, MessageLimits, Provider, Secret};
use engine::credentials::oidc::OidcSettings;
use layers::SettingLayers;
use outbound::http::Network;
use providers::app::ProviderApp;
use reader::{SettingsReader, invalid_setting};
use serde::Serialize;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use web::EdgeSettings;

/// File that is read if none is named and it exists.
const DEFAULT_CONFIG_FILE: &str = "mailroom.toml";

const DAY: Duration = Duration::from_secs(86_400);

#[derive(Debug, Clone)]
pub struct Config {
    pub data_dir: PathBuf,
    pub database: DatabaseConfig,
    pub blobs: BlobsConfig,
    pub backup: BackupConfig,
    pub secrets: SecretsConfig,
    pub auth: AuthConfig,
    pub limits: MessageLimits,
    pub import: ImportConfig,
    pub server: ServerConfig,
    pub edge: EdgeSettings,
    pub instance: InstanceConfig,
    pub jobs: JobsConfig,
    pub sync: SyncConfig,
    pub tenants: TenantsConfig,
    pub events: EventsConfig,
    pub webhooks: WebhooksConfig,
    pub cache: CacheConfig,
    pub providers: ProvidersConfig,
    pub log: LogConfig,
    /// Variables that begin like settings and were passed over, because Kubernetes makes them for a Service.
    pub service_variables: Vec<String>,
    shown: Vec<ShownSetting>,
}

#[derive(Debug, Clone)]
pub struct DatabaseConfig {
    pub url: DatabaseUrl,
    /// Connections; on SQLite for reading only.
    pub pool: usize,
}

#[derive(Debug, Clone)]
pub struct BlobsConfig {
    pub url: BlobsUrl,
    /// How long unreferenced bytes are kept.
    pub grace: Duration,
    /// Time limit of one request to a bucket, including retries.
    pub retry_for: Duration,
    /// Endpoint and credentials of a bucket, in the variables that its provider's tools read.
    pub variables: Vec<(String, Secret<String>)>,
}

#[derive(Debug, Clone)]
pub struct BackupConfig {
    /// Login for `pg_dump` and `pg_restore`, if it differs from `database.url`.
    pub postgres_url: Option<Secret<String>>,
}

/// Source of the master key.
#[derive(Debug, Clone)]
pub struct SecretsConfig {
    pub key_file: PathBuf,
    /// The key itself, instead of a file.
    pub key: Option<Secret<String>>,
}

#[derive(Debug, Clone)]
pub struct AuthConfig {
    /// File with the operator's API key.
    pub admin_key_file: PathBuf,
    /// OpenID Connect issuer whose tokens are accepted in place of API keys.
    pub oidc: Option<OidcSettings>,
}

/// Batch sizes of an import; a batch ends at the limit that is reached first.
#[derive(Debug, Clone)]
pub struct ImportConfig {
    pub batch_messages: usize,
    pub batch_bytes: u64,
    /// Concurrent batches.
    pub in_flight: usize,
    /// How long an import waits for an unavailable database.
    pub patience: Duration,
}

#[derive(Debug, Clone)]
pub struct ServerConfig {
    pub listen: SocketAddr,
    /// `None`: metrics are served at `listen`, to this machine only.
    pub metrics_listen: Option<SocketAddr>,
}

#[derive(Debug, Clone)]
pub struct InstanceConfig {
    /// `None`: random at each start.
    pub id: Option<String>,
}

#[derive(Debug, Clone)]
pub struct JobsConfig {
    pub lease: Duration,
    pub poll: Duration,
    /// Concurrent jobs that mostly wait; CPU-bound jobs get one slot per core.
    pub concurrency: usize,
    pub keep_finished: Duration,
    pub keep_dead: Duration,
}

/// Sync of mailboxes with their providers.
#[derive(Debug, Clone)]
pub struct SyncConfig {
    pub interval: Duration,
    pub seldom_interval: Duration,
    pub lease: Duration,
    pub backfill: Backfill,
    pub listen: bool,
    pub leader_election: bool,
    pub duplicate_check: bool,
    pub second_look: Duration,
    pub mailbox_workers: usize,
    pub discovery_workers: usize,
}

/// Delivery of events to the servers of tenants.
#[derive(Debug, Clone)]
pub struct WebhooksConfig {
    /// Non-public networks that webhooks may reach.
    pub allow_networks: Vec<Network>,
    /// How long deliveries are kept.
    pub keep_deliveries: Duration,
}

#[derive(Debug, Clone)]
pub struct TenantsConfig {
    /// Delay between the deletion of a tenant and its erasure.
    pub erase_after: Duration,
}

#[derive(Debug, Clone)]
pub struct EventsConfig {
    pub keep: Duration,
}

#[derive(Debug, Clone)]
pub struct CacheConfig {
    pub url: Option<Secret<String>>,
}

/// Our app at each provider.
#[derive(Debug, Clone)]
pub struct ProvidersConfig(Vec<Arc<dyn ProviderApp>>);

impl ProvidersConfig {
    /// Reads the settings of all providers; `public_url` is where they reach this server.
    fn read(read: &mut SettingsReader, public_url: &str) -> Result<Self, ConfigError> {
        let apps = providers::registry::ALL.iter().map(|folder| (folder.read_app)(read, public_url));
        Ok(Self(apps.collect::<Result<_, _>>()?))
    }

    pub fn iter(&self) -> impl Iterator<Item = &(dyn ProviderApp + 'static)> {
        self.0.iter().map(AsRef::as_ref)
    }

    /// Finds our app at a provider; imported files have none.
    pub fn find(&self, provider: Provider) -> Option<&(dyn ProviderApp + 'static)> {
        self.iter().find(|app| app.declaration().provider == provider)
    }
}

#[derive(Debug, Clone)]
pub struct LogConfig {
    /// `None`: the default of the command.
    pub level: Option<LogLevel>,
}

impl LogConfig {
    /// Returns the level in force. By default the service logs one line per request and per sync; commands print their own
    /// results, so they log problems only.
    pub fn level(&self, is_service: bool) -> LogLevel {
        let default = if is_service { LogLevel::Info } else { LogLevel::Warn };
        self.level.unwrap_or(default)
    }
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

    /// Returns the word of the setting, which is also that of a log filter.
    pub fn as_str(self) -> &'static str {
        Self::ALL[self as usize].0
    }
}

/// One line of `mailroom config show`; secrets in `value` are hidden.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ShownSetting {
    pub key: &'static str,
    pub value: String,
    /// "default", "mailroom.toml line 3", or the name of an environment variable.
    pub source: String,
}

impl Config {
    /// Loads the configuration of this process.
    #[expect(clippy::disallowed_methods, reason = "the one place that reads the environment")]
    pub fn from_environment(config_file: Option<&Path>) -> Result<Self, ConfigError> {
        // Not `vars`, which panics if any variable, ours or not, is not UTF-8.
        let variables: Vec<(OsString, OsString)> = std::env::vars_os().collect();
        let home =
            variables.iter().find(|(name, value)| name == "HOME" && !value.is_empty()).map(|(_, value)| value.into());
        Self::load(config_file, variables, home)
    }

    /// Loads `config_file`, which must exist; if `None`, `mailroom.toml` in the working directory if it exists.
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
        let mut layers = SettingLayers::defaults()?;
        let default_file = folder.join(DEFAULT_CONFIG_FILE);
        match config_file {
            Some(path) => layers.add_file(path)?,
            // A file that exists and cannot be read is an error, not an absence.
            None if default_file.try_exists().unwrap_or(true) => layers.add_file(&default_file)?,
            None => {}
        }
        let environment: Vec<(OsString, OsString)> =
            environment.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
        let providers = provider_variables(&environment);
        layers.add_environment(environment)?;
        let service_variables = layers.service_variables().to_vec();
        let config = Self::from_reader(SettingsReader::new(layers, home), providers)?;
        Ok(Self { service_variables, ..config })
    }

    /// Returns every setting in force, in the order of `default.toml`.
    pub fn show(&self) -> &[ShownSetting] {
        &self.shown
    }

    /// Returns the login for `pg_dump` and `pg_restore`; `None` on SQLite.
    pub fn dump_url(&self) -> Option<&Secret<String>> {
        match &self.database.url {
            DatabaseUrl::Sqlite(_) => None,
            DatabaseUrl::Postgres(url) => Some(self.backup.postgres_url.as_ref().unwrap_or(url)),
        }
    }

    fn from_reader(mut read: SettingsReader, providers: Vec<(String, Secret<String>)>) -> Result<Self, ConfigError> {
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
            tenants: TenantsConfig { erase_after: read.duration("tenants.erase_after", Duration::ZERO..=3650 * DAY)? },
            events: EventsConfig { keep: read.duration("events.keep", Duration::from_secs(3600)..=3650 * DAY)? },
            webhooks: webhooks(&mut read)?,
            cache: cache(&mut read)?,
            providers: ProvidersConfig::read(&mut read, &edge.public_url)?,
            log: LogConfig { level: log_level(&mut read)? },
            data_dir,
            edge,
            service_variables: Vec::new(),
            shown: read.into_shown(),
        })
    }
}

fn database(read: &mut SettingsReader, data_dir: &Path) -> Result<DatabaseConfig, ConfigError> {
    let (url, source) = match read.secret("database.url", "database.url_file", "a URL such as \"sqlite://mail.db\"")? {
        None => (DatabaseUrl::Sqlite(data_dir.join("mailroom.db")), "default".to_owned()),
        Some((text, source)) => {
            let url = match DatabaseUrl::parse(&text)
                .map_err(|expected| invalid_setting("database.url", &source, &expected))?
            {
                DatabaseUrl::Sqlite(path) => DatabaseUrl::Sqlite(read.expand(&path)?),
                postgres @ DatabaseUrl::Postgres(_) => postgres,
            };
            (url, source)
        }
    };
    read.show("database.url", url.shown(), &source);
    // The ceiling is far above what helps; it catches a typing error before PostgreSQL runs out of sessions.
    Ok(DatabaseConfig { url, pool: read.count("database.pool", 1..=1000)? })
}

/// Prefixes of the variables that the tools of object store providers read.
const OBJECT_STORE_PREFIXES: [&str; 3] = ["AWS_", "AZURE_", "GOOGLE_"];

fn provider_variables(environment: &[(OsString, OsString)]) -> Vec<(String, Secret<String>)> {
    let variables = environment.iter().filter_map(|(name, value)| {
        let name = name.to_str().filter(|name| OBJECT_STORE_PREFIXES.iter().any(|prefix| name.starts_with(prefix)))?;
        Some((name.to_owned(), Secret::new(value.to_str()?.to_owned())))
    });
    variables.collect()
}

fn blobs(
    read: &mut SettingsReader,
    data_dir: &Path,
    variables: Vec<(String, Secret<String>)>,
) -> Result<BlobsConfig, ConfigError> {
    let (url, source) = match read.text("blobs.url", "a URL such as \"file://blobs\"")? {
        None => (BlobsUrl::File(data_dir.join("blobs")), "default".to_owned()),
        Some((text, origin)) => {
            let url =
                match BlobsUrl::parse(&text).map_err(|expected| invalid_setting("blobs.url", &origin, &expected))? {
                    BlobsUrl::File(path) => BlobsUrl::File(read.expand(&path)?),
                    remote @ BlobsUrl::Remote { .. } => remote,
                };
            (url, origin.to_string())
        }
    };
    read.show("blobs.url", url.shown(), &source);
    let grace = read.duration("blobs.grace", Duration::ZERO..=365 * DAY)?;
    // A second still allows a retry; callers do not wait ten minutes.
    let retry_for = read.duration("blobs.retry_for", Duration::from_secs(1)..=Duration::from_secs(600))?;
    Ok(BlobsConfig { url, grace, retry_for, variables })
}

fn backup(read: &mut SettingsReader) -> Result<BackupConfig, ConfigError> {
    const EXPECTED: &str = "must be postgres://USER:PASSWORD@HOST:PORT/NAME";
    let given = read.secret("backup.postgres_url", "backup.postgres_url_file", "a URL such as \"postgres://…\"")?;
    let Some((text, source)) = given else {
        read.show("backup.postgres_url", "as database.url", &"default");
        return Ok(BackupConfig { postgres_url: None });
    };
    let Ok(url @ DatabaseUrl::Postgres(_)) = DatabaseUrl::parse(&text) else {
        return Err(invalid_setting("backup.postgres_url", &source, EXPECTED));
    };
    read.show("backup.postgres_url", url.shown(), &source);
    Ok(BackupConfig { postgres_url: Some(Secret::new(text)) })
}

fn auth(read: &mut SettingsReader, data_dir: &Path) -> Result<AuthConfig, ConfigError> {
    let admin_key_file = file_in(read, "auth.admin_key_file", data_dir, "admin.key")?.0;
    Ok(AuthConfig { admin_key_file, oidc: edge::oidc(read)? })
}

/// Reads the path of a file, by default in the data folder. Returns it with its source.
fn file_in(
    read: &mut SettingsReader,
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

fn secrets(read: &mut SettingsReader, data_dir: &Path) -> Result<SecretsConfig, ConfigError> {
    let (key_file, source) = file_in(read, "secrets.key_file", data_dir, "master.key")?;
    let key = match read.text("secrets.key", "a key in quotes") {
        // The usual error would repeat the secret.
        Err(_) => {
            return Err(ConfigError::new("`secrets.key` must be a key in quotes: 64 hexadecimal digits or Base64"));
        }
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
        let expected = "is not supported yet; keep the master key in a file (secrets.key_file) or in secrets.key";
        return Err(invalid_setting("secrets.kms_url", &origin, expected));
    }
    read.show("secrets.kms_url", "none", &"default");
    Ok(SecretsConfig { key_file, key })
}

/// The minimums still let ordinary mail through. The maximums are what a disk may have to spare (messages) and what a
/// database stores in one column (bodies: PostgreSQL stops at 1 GB).
fn limits(read: &mut SettingsReader) -> Result<MessageLimits, ConfigError> {
    const KIB: u64 = 1 << 10;
    const MIB: u64 = 1 << 20;
    const GIB: u64 = 1 << 30;
    Ok(MessageLimits {
        message_bytes: read.size("limits.message_size", KIB..=2 * GIB)?,
        attachment_bytes: read.size("limits.attachment_size", KIB..=2 * GIB)?,
        decoded_bytes: read.size("limits.decoded_size", KIB..=4 * GIB)?,
        header_bytes: in_memory(read.size("limits.header_size", KIB..=64 * MIB)?),
        body_bytes: in_memory(read.size("limits.body_size", KIB..=256 * MIB)?),
        // Each level uses stack while parsing.
        nesting: read.count("limits.nesting", 1..=100)?,
        parts: read.count("limits.parts", 1..=100_000)?,
    })
}

fn import(read: &mut SettingsReader) -> Result<ImportConfig, ConfigError> {
    Ok(ImportConfig {
        batch_messages: read.count("import.batch_messages", 1..=10_000)?,
        batch_bytes: read.size("import.batch_bytes", 1 << 10..=1 << 30)?,
        in_flight: read.count("import.in_flight", 1..=64)?,
        patience: read.duration("import.patience", Duration::ZERO..=7 * DAY)?,
    })
}

fn instance(read: &mut SettingsReader) -> Result<InstanceConfig, ConfigError> {
    let Some((id, origin)) = read.text("instance.id", "a name such as \"worker-1\"")? else {
        read.show("instance.id", "random per start", &"default");
        return Ok(InstanceConfig { id: None });
    };
    if id.chars().count() > 100 || id.chars().any(char::is_control) {
        return Err(invalid_setting("instance.id", &origin, "must have at most 100 characters on one line"));
    }
    read.show("instance.id", id.clone(), &origin);
    Ok(InstanceConfig { id: Some(id) })
}

fn jobs(read: &mut SettingsReader) -> Result<JobsConfig, ConfigError> {
    const SECOND: Duration = Duration::from_secs(1);
    let concurrency = if read.is_given("jobs.concurrency") {
        read.count("jobs.concurrency", 1..=10_000)?
    } else {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        read.show("jobs.concurrency", (cores * 8).to_string(), &"default");
        cores * 8
    };
    Ok(JobsConfig {
        lease: read.duration("jobs.lease", SECOND..=600 * SECOND)?,
        poll: read.duration("jobs.poll", SECOND..=60 * SECOND)?,
        concurrency,
        keep_finished: read.duration("jobs.keep_finished", SECOND..=3650 * DAY)?,
        keep_dead: read.duration("jobs.keep_dead", SECOND..=3650 * DAY)?,
    })
}

fn sync(read: &mut SettingsReader) -> Result<SyncConfig, ConfigError> {
    const SECOND: Duration = Duration::from_secs(1);
    let switch = [("true", true), ("false", false)];
    Ok(SyncConfig {
        interval: read.duration("sync.interval", SECOND..=DAY)?,
        seldom_interval: read.duration("sync.seldom_interval", SECOND..=DAY)?,
        lease: read.duration("sync.lease", SECOND..=600 * SECOND)?,
        backfill: backfill(read)?,
        listen: read.choice("sync.listen", &switch)?,
        leader_election: read.choice("sync.leader_election", &switch)?,
        duplicate_check: read.choice("sync.duplicate_check", &switch)?,
        second_look: read.duration("sync.second_look", SECOND..=DAY)?,
        mailbox_workers: read.count("sync.mailbox_workers", 1..=10_000)?,
        discovery_workers: read.count("sync.discovery_workers", 1..=10_000)?,
    })
}

fn webhooks(read: &mut SettingsReader) -> Result<WebhooksConfig, ConfigError> {
    const NETWORKS: &str = "webhooks.allow_networks";
    const EXPECTED: &str = "a list of networks such as \"10.1.0.0/16\"";
    let mut allow_networks = Vec::new();
    let Some((texts, origin)) = read.list(NETWORKS, EXPECTED)? else {
        read.show(NETWORKS, "none", &"default");
        return Ok(WebhooksConfig { allow_networks, keep_deliveries: keep_deliveries(read)? });
    };
    for text in &texts {
        // Only with a prefix length: what is allowed must be explicit.
        let network = text.parse::<Network>().ok().filter(|network| network.addr() == network.network());
        allow_networks.push(network.ok_or_else(|| {
            let expected = format!("must be {EXPECTED}, without host bits, not {}", text.escape_debug());
            invalid_setting(NETWORKS, &origin, &expected)
        })?);
    }
    read.show(NETWORKS, texts.join(", "), &origin);
    Ok(WebhooksConfig { allow_networks, keep_deliveries: keep_deliveries(read)? })
}

fn keep_deliveries(read: &mut SettingsReader) -> Result<Duration, ConfigError> {
    read.duration("webhooks.keep_deliveries", Duration::from_secs(1)..=3650 * DAY)
}

fn cache(read: &mut SettingsReader) -> Result<CacheConfig, ConfigError> {
    const EXPECTED: &str = "an address such as \"redis://host:6379/0\"";
    let Some((url, origin)) = read.text("cache.url", EXPECTED)? else {
        read.show("cache.url", "none", &"default");
        return Ok(CacheConfig { url: None });
    };
    if !(url.starts_with("redis://") || url.starts_with("rediss://")) {
        return Err(invalid_setting("cache.url", &origin, &format!("must be {EXPECTED}")));
    }
    // The URL may contain a password.
    read.show("cache.url", "***", &origin);
    Ok(CacheConfig { url: Some(Secret::new(url)) })
}

fn backfill(read: &mut SettingsReader) -> Result<Backfill, ConfigError> {
    const EXPECTED: &str = "\"all\", \"none\", or a duration such as \"30d\"";
    let Some((text, origin)) = read.text("sync.backfill", EXPECTED)? else {
        return Err(invalid_setting("sync.backfill", "default", &format!("must be {EXPECTED}")));
    };
    let backfill = text
        .parse::<Backfill>()
        .map_err(|_| invalid_setting("sync.backfill", &origin, &format!("must be {EXPECTED}")))?;
    read.show("sync.backfill", text, &origin);
    Ok(backfill)
}

fn log_level(read: &mut SettingsReader) -> Result<Option<LogLevel>, ConfigError> {
    const KEY: &str = "log.level";
    if read.is_given(KEY) {
        return read.choice(KEY, &LogLevel::ALL).map(Some);
    }
    read.show(KEY, "info for serve, warn for other commands", &"default");
    Ok(None)
}

fn in_memory(bytes: u64) -> usize {
    usize::try_from(bytes).expect("the maximum of these settings fits into a usize")
}

#[cfg(test)]
mod tests;
