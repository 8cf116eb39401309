//! `mailroom mailbox add`: checks the connection first, so that no unusable mailbox is left behind.

use std::sync::Arc;

use domain::connector::{ConnectorAccount, NoApiAccess};
use domain::{Backfill, MailboxId, MailboxSettings, MailboxState, Provider, Secret, TenantId, TenantSettings};
use engine::Engine;
use engine::credentials::access::TrialAccess;
use engine::operations::mailboxes::{self, ConnectRequest};
use engine::operations::{Invocation, Refusal};
use providers::app::AppUse;
use providers::registry::DECLARATIONS;
use serde_json::{Value, json};
use store::Precondition;
use store::sql::mailboxes::Mailbox;
use terminal::{Failure, Output};

use super::connection::{invalid_field, read_fields};
use super::secret::ask_password;
use crate::app;
use crate::cli::mailbox::{AddMailboxArgs, NewMailboxArgs, SyncArgs};
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

pub(super) async fn run(
    config: &Config,
    engine: &Engine,
    provider: Provider,
    args: AddMailboxArgs,
    out: Output,
) -> Result<(), Failure> {
    let declaration = DECLARATIONS.find(provider).ok_or_else(|| Failure::usage("there is no such provider"))?;
    let connection = &declaration.connection;
    let input = read_fields(&args.fields)?;
    let made = (connection.connect)(&input, &args.new.address).map_err(|wrong| invalid_field(connection, &wrong))?;
    let is_app_only = made.settings["app_only"] == true;
    app::check_app_use(config, provider, if is_app_only { AppUse::AppOnly } else { AppUse::RefreshToken })?;
    let bytes_per_day = args.bytes_per_day.as_deref().map(read_bytes_per_day).transpose()?;
    let (mut candidate, backfill) = candidate(config, engine, provider, &args.new, made.settings).await?;
    candidate.settings.bytes_per_day = bytes_per_day;
    candidate.settings.check().map_err(invalid_option)?;
    if is_connected(engine, &candidate).await? {
        return Err(already_connected(&args.new.tenant, &candidate.address));
    }
    // Asked for last, so that a person does not type it in vain.
    let secret = match (made.missing, connection.prompt) {
        (None, _) => made.secret,
        (Some(_), Some(prompt)) => Some(ask_password(&prompt(&candidate.settings.connection)).await?),
        (Some(missing), None) => return Err(invalid_field(connection, &missing)),
    };
    add(config, engine, &args.new, (candidate, backfill), secret, out).await
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
    let origin = app::origin();
    let call = Invocation::begin(engine, &origin).await?;
    let request = ConnectRequest { provider, address, settings, secret, backfill };
    let created = mailboxes::create(&call, tenant, &request).await.map_err(|refusal: Refusal| {
        if refusal.is(Precondition::MailboxExists) {
            return already_connected(&new.tenant, &request.address);
        }
        app::refused(refusal)
    })?;
    let (id, address) = (created.id, created.address);
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
    let syncer = app::syncer(config, engine, "command").map_err(|e| e.to_string())?;
    let Some(connector) = syncer.connectors.get(provider) else {
        return Err(format!("this program does not support {}", provider.as_str()));
    };
    let trial = Arc::new(TrialAccess::new(connector.clone(), account.clone()));
    account.access = trial.clone();
    connector.explain_check(&account).await.map_err(|e| format!("cannot open {address}: {e}"))?;
    Ok(trial.secret().await)
}
