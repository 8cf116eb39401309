//! A mailbox is connected: tried out first, so that nothing half-made is left behind.

use std::path::Path;
use std::sync::Arc;

use connectors::imap::{self, Auth, Connection, Tls};
use connectors::microsoft::is_directory;
use domain::connector::{Account, NoAccess};
use domain::{MailboxId, MailboxState, Provider, Secret, TenantId};
use engine::Engine;
use engine::access::Trial;
use engine::mailboxes::{Backfill, Connect};
use engine::sync::connection;
use serde_json::{Map, Value, json};
use store::sql::mailboxes::Mailbox;

use super::secret::{SecretFiles, ask_password, read_secret};
use crate::app;
use crate::cli::mailbox::{self as cli, Common, Gmail, Imap, Opened, Outlook, Scripted, Wanted};
use crate::config::units::{parse_backfill, parse_duration, parse_size};
use crate::config::{Config, MOST_BYTES_PER_DAY};
use crate::failure::Failure;
use crate::output::Output;

/// What is tried out before it is stored.
#[derive(Debug)]
pub(super) struct Candidate {
    provider: Provider,
    tenant: TenantId,
    address: String,
    settings: Value,
}

impl Candidate {
    pub fn of(mailbox: &Mailbox) -> Self {
        Self {
            provider: mailbox.provider,
            tenant: mailbox.tenant_id,
            address: mailbox.address.clone(),
            settings: mailbox.settings.clone(),
        }
    }
}

pub(super) async fn imap(config: &Config, engine: &Engine, args: Imap, out: Output) -> Result<(), Failure> {
    let tls = match args.tls {
        cli::Tls::Implicit => Tls::Implicit,
        cli::Tls::Starttls => Tls::StartTls,
        cli::Tls::None => Tls::None,
    };
    if tls == Tls::None && !args.allow_plaintext && !imap::is_this_machine(&args.host) {
        return Err(Failure::usage(format!(
            "--tls none would send the password to {} in the open; use --tls starttls or implicit, or say --allow-plaintext",
            args.host
        )));
    }
    let bytes_per_day = args.bytes_per_day.as_deref().map(read_bytes_per_day).transpose()?;
    let is_token = args.token_file.is_some();
    let reaching = Connection {
        port: args.port.unwrap_or_else(|| tls.usual_port()),
        tls,
        user: args.user.unwrap_or_else(|| args.common.address.clone()),
        auth: if is_token { Auth::Token } else { Auth::Password },
        authority: args.ca_file.as_deref().map(read_authority).transpose()?,
        compress: None,
        host: args.host,
    };
    let settings = serde_json::to_value(&reaching).map_err(|e| Failure::problem(e.to_string()))?;
    let (mut candidate, backfill) = candidate(config, engine, Provider::Imap, &args.common, settings).await?;
    if let Some(bytes) = bytes_per_day {
        candidate.settings["bytes_per_day"] = bytes.into();
    }
    if is_there(engine, &candidate).await? {
        return Err(already_there(&args.common.tenant, &candidate.address));
    }
    // Asked for last, so that nobody types it in vain.
    let files = SecretFiles { password: args.password_file, token: args.token_file, refresh_token: None };
    let secret = match files.read()? {
        Some(secret) => secret.value,
        None => ask_password(&reaching.user, &reaching.host).await?,
    };
    add(config, engine, &args.common, (candidate, backfill), Some(secret), out).await
}

fn read_bytes_per_day(text: &str) -> Result<u64, Failure> {
    let bytes = parse_size(text).ok().filter(|bytes| *bytes <= MOST_BYTES_PER_DAY);
    bytes.ok_or_else(|| {
        Failure::usage(format!(
            "--bytes-per-day wants a size like \"500 MB\", or \"0 B\" for as much as there is, not {text:?}"
        ))
    })
}

fn read_authority(file: &Path) -> Result<String, Failure> {
    let pem = std::fs::read_to_string(file)
        .map_err(|e| Failure::problem(format!("cannot read the certificate in {} ({e})", file.display())))?;
    if !imap::has_authority(&pem) {
        return Err(Failure::problem(format!(
            "{} has no certificate in it; --ca-file wants one as PEM, which begins with -----BEGIN CERTIFICATE-----",
            file.display()
        )));
    }
    Ok(pem)
}

pub(super) async fn scripted(config: &Config, engine: &Engine, args: Scripted, out: Output) -> Result<(), Failure> {
    let settings = json!({"url": args.url});
    let (candidate, backfill) = candidate(config, engine, Provider::Scripted, &args.common, settings).await?;
    let secret = args.token_file.as_deref().map(read_secret).transpose()?;
    add(config, engine, &args.common, (candidate, backfill), secret, out).await
}

pub(super) async fn gmail(config: &Config, engine: &Engine, args: Gmail, out: Output) -> Result<(), Failure> {
    let google = &config.providers.google.settings;
    if args.opened.app_only && google.service_account.is_none() {
        return Err(Failure::usage("--app-only needs a service account: set providers.google.service_account_file"));
    }
    if !args.opened.app_only && (google.client_id.is_none() || google.client_secret.is_none()) {
        return Err(of_use_to_one("providers.google.client_id and client_secret_file"));
    }
    let connection = connection_of(&args.opened, None);
    by_consent(config, engine, (Provider::Gmail, &args.common, &args.opened), connection, out).await
}

pub(super) async fn outlook(config: &Config, engine: &Engine, args: Outlook, out: Output) -> Result<(), Failure> {
    let settings = "providers.microsoft.client_id, and client_secret_file or certificate_file";
    if !config.providers.microsoft.settings.has_client() {
        return Err(match args.opened.app_only {
            true => Failure::usage(format!("--app-only needs an app that is registered at Microsoft: set {settings}")),
            false => of_use_to_one(settings),
        });
    }
    if let Some(directory) = args.directory.as_deref().filter(|directory| !is_directory(directory)) {
        return Err(Failure::usage(format!(
            "--directory wants the id of a directory or one of its domains, not {directory:?}"
        )));
    }
    let connection = connection_of(&args.opened, args.directory.as_deref());
    by_consent(config, engine, (Provider::Outlook, &args.common, &args.opened), connection, out).await
}

fn of_use_to_one(settings: &str) -> Failure {
    let needs = "a refresh token is of use only to the OAuth client that it was given to";
    Failure::usage(format!("{needs}: set {settings}"))
}

fn connection_of(opened: &Opened, directory: Option<&str>) -> Value {
    let mut connection = Map::new();
    if opened.app_only {
        connection.insert("app_only".to_owned(), true.into());
    }
    connection.extend(directory.map(|directory| ("directory".to_owned(), directory.into())));
    connection.into()
}

/// A mailbox that somebody has let us into.
async fn by_consent(
    config: &Config,
    engine: &Engine,
    (provider, common, opened): (Provider, &Common, &Opened),
    connection: Value,
    out: Output,
) -> Result<(), Failure> {
    let (candidate, backfill) = candidate(config, engine, provider, common, connection).await?;
    if is_there(engine, &candidate).await? {
        return Err(already_there(&common.tenant, &candidate.address));
    }
    let secret = opened.refresh_token_file.as_deref().map(read_secret).transpose()?;
    add(config, engine, common, (candidate, backfill), secret, out).await
}

/// What all providers have in common.
async fn candidate(
    config: &Config,
    engine: &Engine,
    provider: Provider,
    common: &Common,
    connection: Value,
) -> Result<(Candidate, Backfill), Failure> {
    let tenant = app::tenant(&engine.store, &common.tenant).await?;
    let Some(address) = domain::address::canonical(&common.address) else {
        return Err(Failure::usage(format!("{:?} is not an address; it wants somebody@somewhere", common.address)));
    };
    let (mut settings, backfill) = wanted(config, &common.wanted)?;
    settings.insert("connection".to_owned(), connection);
    let settings = Value::Object(settings);
    Ok((Candidate { provider, tenant: tenant.id, address, settings }, backfill))
}

/// What is wanted of a mailbox, wherever it is.
pub(super) fn wanted(config: &Config, wanted: &Wanted) -> Result<(Map<String, Value>, Backfill), Failure> {
    let backfill = match &wanted.backfill {
        None => config.sync.backfill,
        Some(text) => parse_backfill(text).ok_or_else(|| {
            Failure::usage(format!("--backfill wants all, none or a duration like 30d, not {text:?}"))
        })?,
    };
    let mut settings = Map::new();
    for (key, folders) in [("folders", &wanted.folders), ("exclude", &wanted.exclude)] {
        if !folders.is_empty() {
            settings.insert(key.to_owned(), json!(folders));
        }
    }
    if let Some(text) = &wanted.interval {
        let every = parse_duration(text)
            .map_err(|_| Failure::usage(format!("--interval wants a duration like 5m, not {text:?}")))?;
        settings.insert("interval_seconds".to_owned(), every.as_secs().clamp(1, 30 * 86_400).into());
    }
    Ok((settings, backfill))
}

async fn add(
    config: &Config,
    engine: &Engine,
    common: &Common,
    (candidate, backfill): (Candidate, Backfill),
    mut secret: Option<Secret<String>>,
    out: Output,
) -> Result<(), Failure> {
    if !common.no_check {
        let mend = |sentence| Failure::problem(format!("{sentence}; mend that, or add it with --no-check"));
        let newer = check(config, engine, &candidate, secret.as_ref()).await.map_err(mend)?;
        secret = newer.or(secret);
    }
    let Candidate { provider, tenant, address, settings } = candidate;
    let after = json!({"address": address, "provider": provider.as_str(), "settings": settings});
    let recorded = app::recorded(engine, tenant, "mailbox.create", &address, after).await?;
    let connect = Connect { provider, address: address.clone(), settings, secret, backfill };
    let Some(id) = recorded.connect(tenant, connect).await? else {
        return Err(already_there(&common.tenant, &address));
    };
    engine.store.tell_of_jobs().await?;
    if out.json {
        return out.object(&json!({"id": id, "address": address, "provider": provider.as_str()}));
    }
    out.line(&format!("Connected {address} ({id}). A running `mailroom serve` begins at once."))
}

/// As the commit will see it, which decides.
async fn is_there(engine: &Engine, candidate: &Candidate) -> Result<bool, Failure> {
    let there = engine.store.tenant(candidate.tenant).find_mailbox(&candidate.address).await?;
    Ok(there.is_some_and(|there| there.state != MailboxState::Disconnected && there.provider != Provider::Files))
}

fn already_there(tenant: &str, address: &str) -> Failure {
    Failure::problem(format!(
        "tenant {tenant} has a mailbox {address} already; `mailroom mailbox show {address} --tenant {tenant}` shows it"
    ))
}

/// Whether the account can be used; if not, a sentence that says what is wrong. Gives what is to be kept in the place of
/// the secret, if its provider says so.
pub(super) async fn check(
    config: &Config,
    engine: &Engine,
    candidate: &Candidate,
    secret: Option<&Secret<String>>,
) -> Result<Option<Secret<String>>, String> {
    let Candidate { provider, tenant, address, settings } = candidate;
    let mut account = Account {
        tenant: *tenant,
        mailbox: MailboxId::new(engine.store.clock()),
        address: address.clone(),
        settings: connection(settings),
        secret: secret.cloned(),
        folders: Vec::new(),
        sweep_since: None,
        access: Arc::new(NoAccess),
    };
    let cannot = |why: String| format!("cannot use {address}: {why}");
    // What a server says to the owner of a mailbox is for the owner, and not for a connector's errors, which are logged.
    if *provider == Provider::Imap {
        return imap::try_out(&account).await.map(|()| None).map_err(cannot);
    }
    let syncer = app::syncer(config, engine, "command").map_err(|e| e.to_string())?;
    let Some(connector) = syncer.connectors.get(provider) else {
        return Err(format!("this program does not speak {}", provider.as_str()));
    };
    let trial = Arc::new(Trial::new(connector.clone(), account.clone()));
    account.access = trial.clone();
    connector.check(&account).await.map_err(|e| cannot(e.to_string()))?;
    Ok(trial.secret().await)
}
