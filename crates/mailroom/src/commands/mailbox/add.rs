//! `mailroom mailbox add`: checks the connection first, so that no unusable mailbox is left behind.

use std::path::Path;
use std::sync::Arc;

use domain::connector::{ConnectorAccount, NoApiAccess};
use domain::{Backfill, MailboxId, MailboxSettings, MailboxState, Provider, Secret, TenantId, TenantSettings};
use engine::Engine;
use engine::accounts::mailboxes::ConnectRequest;
use engine::credentials::access::TrialAccess;
use providers::imap::{self, Auth, Connection, Tls};
use providers::outlook::is_directory;
use serde_json::{Map, Value, json};
use store::sql::mailboxes::Mailbox;
use terminal::{Failure, Output};

use super::secret::{SecretFiles, ask_password, read_secret};
use crate::app;
use crate::cli::mailbox::{AccessArgs, GmailArgs, ImapArgs, NewMailboxArgs, OutlookArgs, SyncArgs, TlsMode};
use crate::commands::sync_options::{invalid_option, read_backfill, read_bytes_per_day, read_interval};
use crate::config::Config;

/// A mailbox that is checked before it is stored.
#[derive(Debug)]
pub(super) struct MailboxCandidate {
    provider: Provider,
    tenant: TenantId,
    address: String,
    settings: MailboxSettings,
}

impl MailboxCandidate {
    pub fn of(mailbox: &Mailbox) -> Self {
        Self {
            provider: mailbox.provider,
            tenant: mailbox.tenant_id,
            address: mailbox.address.clone(),
            settings: mailbox.settings.clone(),
        }
    }
}

pub(super) async fn imap(config: &Config, engine: &Engine, args: ImapArgs, out: Output) -> Result<(), Failure> {
    let tls = match args.tls {
        TlsMode::Implicit => Tls::Implicit,
        TlsMode::Starttls => Tls::StartTls,
        TlsMode::None => Tls::None,
    };
    if tls == Tls::None && !args.allow_plaintext && !imap::is_this_machine(&args.host) {
        return Err(Failure::usage(format!(
            "--tls none would send the password to {} unencrypted; use --tls starttls or implicit, or allow it with --allow-plaintext",
            args.host
        )));
    }
    let bytes_per_day = args.bytes_per_day.as_deref().map(read_bytes_per_day).transpose()?;
    let is_token = args.token_file.is_some();
    let connection_settings = Connection {
        port: args.port.unwrap_or_else(|| tls.usual_port()),
        tls,
        user: args.user.unwrap_or_else(|| args.new.address.clone()),
        auth: if is_token { Auth::Token } else { Auth::Password },
        authority: args.ca_file.as_deref().map(read_authority).transpose()?,
        compress: None,
        host: args.host,
    };
    let settings = serde_json::to_value(&connection_settings).map_err(|e| Failure::problem(e.to_string()))?;
    let (mut candidate, backfill) = candidate(config, engine, Provider::Imap, &args.new, settings).await?;
    candidate.settings.bytes_per_day = bytes_per_day;
    candidate.settings.check().map_err(invalid_option)?;
    if is_connected(engine, &candidate).await? {
        return Err(already_connected(&args.new.tenant, &candidate.address));
    }
    // Asked for last, so that a person does not type it in vain.
    let files = SecretFiles { password: args.password_file, token: args.token_file, refresh_token: None };
    let secret = match files.read()? {
        Some(secret) => secret.value,
        None => ask_password(&connection_settings.user, &connection_settings.host).await?,
    };
    add(config, engine, &args.new, (candidate, backfill), Some(secret), out).await
}

fn read_authority(file: &Path) -> Result<String, Failure> {
    let pem = std::fs::read_to_string(file)
        .map_err(|e| Failure::problem(format!("cannot read the certificate in {} ({e})", file.display())))?;
    if !imap::has_ca_certificate(&pem) {
        return Err(Failure::problem(format!(
            "{} contains no certificate; --ca-file must be a PEM file, which begins with -----BEGIN CERTIFICATE-----",
            file.display()
        )));
    }
    Ok(pem)
}

pub(super) async fn gmail(config: &Config, engine: &Engine, args: GmailArgs, out: Output) -> Result<(), Failure> {
    let google = &config.providers.google.settings;
    if args.access.app_only && google.service_account.is_none() {
        return Err(Failure::usage("--app-only requires a service account; set providers.google.service_account_file"));
    }
    if !args.access.app_only && (google.client_id.is_none() || google.client_secret.is_none()) {
        return Err(missing_oauth_client("providers.google.client_id and client_secret_file"));
    }
    let connection = connection_of(&args.access, None);
    add_by_consent(config, engine, (Provider::Gmail, &args.new, &args.access), connection, out).await
}

pub(super) async fn outlook(config: &Config, engine: &Engine, args: OutlookArgs, out: Output) -> Result<(), Failure> {
    let settings = "providers.microsoft.client_id, and client_secret_file or certificate_file";
    if !config.providers.microsoft.settings.has_client() {
        if args.access.app_only {
            return Err(Failure::usage(format!("--app-only requires an app registered at Microsoft; set {settings}")));
        }
        return Err(missing_oauth_client(settings));
    }
    if let Some(directory) = args.directory.as_deref().filter(|directory| !is_directory(directory)) {
        return Err(Failure::usage(format!(
            "--directory must be the id of a directory or one of its domains, not {directory:?}"
        )));
    }
    let connection = connection_of(&args.access, args.directory.as_deref());
    add_by_consent(config, engine, (Provider::Outlook, &args.new, &args.access), connection, out).await
}

fn missing_oauth_client(settings: &str) -> Failure {
    Failure::usage(format!("a refresh token can only be used by the OAuth client it was issued to; set {settings}"))
}

fn connection_of(access: &AccessArgs, directory: Option<&str>) -> Value {
    let mut connection = Map::new();
    if access.app_only {
        connection.insert("app_only".to_owned(), true.into());
    }
    connection.extend(directory.map(|directory| ("directory".to_owned(), directory.into())));
    connection.into()
}

/// Adds a mailbox that is opened by consent of its owner or organisation.
async fn add_by_consent(
    config: &Config,
    engine: &Engine,
    (provider, new, access): (Provider, &NewMailboxArgs, &AccessArgs),
    connection: Value,
    out: Output,
) -> Result<(), Failure> {
    let (candidate, backfill) = candidate(config, engine, provider, new, connection).await?;
    if is_connected(engine, &candidate).await? {
        return Err(already_connected(&new.tenant, &candidate.address));
    }
    let secret = access.refresh_token_file.as_deref().map(read_secret).transpose()?;
    add(config, engine, new, (candidate, backfill), secret, out).await
}

/// Creates a candidate from the options that all providers have.
async fn candidate(
    config: &Config,
    engine: &Engine,
    provider: Provider,
    new: &NewMailboxArgs,
    connection: Value,
) -> Result<(MailboxCandidate, Backfill), Failure> {
    let tenant = app::find_tenant(&engine.store, &new.tenant).await?;
    let Some(address) = domain::address::canonical(&new.address) else {
        return Err(Failure::usage(format!(
            "--address must be an email address, such as me@acme.test, not {:?}",
            new.address
        )));
    };
    let (settings, backfill) = sync_settings(config, &tenant.settings, &new.sync)?;
    let settings = MailboxSettings { connection, ..settings };
    Ok((MailboxCandidate { provider, tenant: tenant.id, address, settings }, backfill))
}

/// Returns the sync settings that mailboxes of all providers have, and the backfill.
pub(super) fn sync_settings(
    config: &Config,
    tenant: &TenantSettings,
    args: &SyncArgs,
) -> Result<(MailboxSettings, Backfill), Failure> {
    let requested = args.backfill.as_deref().map(read_backfill).transpose()?;
    let settings = MailboxSettings {
        folders: (!args.folders.is_empty()).then(|| args.folders.clone()),
        exclude: (!args.exclude.is_empty()).then(|| args.exclude.clone()),
        interval_seconds: args.interval.as_deref().map(read_interval).transpose()?,
        ..MailboxSettings::default()
    };
    settings.check().map_err(invalid_option)?;
    Ok((settings, tenant.resolve_backfill(requested, config.sync.backfill)))
}

async fn add(
    config: &Config,
    engine: &Engine,
    new: &NewMailboxArgs,
    (candidate, backfill): (MailboxCandidate, Backfill),
    mut secret: Option<Secret<String>>,
    out: Output,
) -> Result<(), Failure> {
    if !new.no_check {
        let checked = check(config, engine, &candidate, secret.as_ref()).await;
        let newer = checked.map_err(|e| Failure::problem(format!("{e}; fix that, or add it with --no-check")))?;
        secret = newer.or(secret);
    }
    let MailboxCandidate { provider, tenant, address, settings } = candidate;
    let after = json!({"address": address, "provider": provider.as_str(), "settings": settings});
    let audited = app::audited(engine, tenant, "mailbox.create", &address, after).await?;
    let connect = ConnectRequest { provider, address: address.clone(), settings, secret, backfill };
    let Some(id) = audited.connect(tenant, connect).await? else {
        return Err(already_connected(&new.tenant, &address));
    };
    engine.store.notify_other_processes().await?;
    if out.json {
        return out.object(&json!({"id": id, "address": address, "provider": provider.as_str()}));
    }
    out.line(&format!("Connected {address} ({id}). A running `mailroom serve` syncs it at once."))
}

/// Returns whether the address is connected already. The commit checks it again.
async fn is_connected(engine: &Engine, candidate: &MailboxCandidate) -> Result<bool, Failure> {
    let existing = engine.store.tenant(candidate.tenant).find_mailbox(&candidate.address).await?;
    Ok(existing
        .is_some_and(|existing| existing.state != MailboxState::Disconnected && existing.provider != Provider::Files))
}

fn already_connected(tenant: &str, address: &str) -> Failure {
    Failure::problem(format!(
        "tenant {tenant} already has a mailbox {address}; `mailroom mailbox show {address} --tenant {tenant}` shows it"
    ))
}

/// Checks that the account can be opened. Fails with a sentence; returns a new secret if the provider issued one.
pub(super) async fn check(
    config: &Config,
    engine: &Engine,
    candidate: &MailboxCandidate,
    secret: Option<&Secret<String>>,
) -> Result<Option<Secret<String>>, String> {
    let MailboxCandidate { provider, tenant, address, settings } = candidate;
    let mut account = ConnectorAccount {
        tenant: *tenant,
        mailbox: MailboxId::new(engine.store.clock()),
        address: address.clone(),
        settings: settings.connection_json(),
        secret: secret.cloned(),
        folders: Vec::new(),
        sweep_since: None,
        access: Arc::new(NoApiAccess),
    };
    // The text of an IMAP server is for the person who connects the mailbox; errors of connectors are logged, so they omit it.
    if *provider == Provider::Imap {
        return imap::check_connection(&account)
            .await
            .map(|()| None)
            .map_err(|e| format!("cannot open {address}: {e}"));
    }
    let syncer = app::syncer(config, engine, "command").map_err(|e| e.to_string())?;
    let Some(connector) = syncer.connectors.get(provider) else {
        return Err(format!("this program does not support {}", provider.as_str()));
    };
    let trial = Arc::new(TrialAccess::new(connector.clone(), account.clone()));
    account.access = trial.clone();
    connector.check(&account).await.map_err(|e| format!("cannot open {address}: {e}"))?;
    Ok(trial.secret().await)
}
