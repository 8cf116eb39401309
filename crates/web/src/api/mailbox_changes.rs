//! Connects, changes, pauses, resumes, syncs and disconnects mailboxes.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use domain::{Backfill, MailboxId, MailboxSettings, MailboxState, Provider, TenantSettings};
use engine::accounts::erasure::EraseMailbox;
use engine::accounts::mailboxes::{ConnectRequest, NextMailbox, is_conflict};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::json;
use store::sql::mailboxes::Mailbox;
use store::{Precondition, StoreError};
use utoipa::{IntoParams, ToSchema};

use super::auth::TenantWriter;
use super::body::non_null;
use super::change::{AuditAction, ChangeRequest, Reply};
use super::connection_body::{ConnectionBody, connection_body};
use super::mailbox_settings::MailboxSettingsInput;
use super::mailboxes::{MailboxView, find};
use super::problem::Problem;
use super::users::parse_address;
use super::{Path, Query};
use crate::App;

/// Attempts of a change that conflicts with concurrent changes of the mailbox.
const MAX_CHANGE_ATTEMPTS: usize = 5;

/// Mailbox to connect. Which of the fields of a connection it has depends on the provider.
#[derive(Debug, Deserialize, ToSchema)]
pub struct NewMailbox {
    #[schema(example = "me@acme.test", min_length = 3, max_length = 320)]
    address: String,
    /// Provider of the mailbox, or `files` for a mailbox for imported files.
    #[schema(value_type = String, example = "imap")]
    provider: ProviderName,
    /// Names of the folders to sync. Default: the tenant's setting, else all except drafts, spam and trash.
    #[serde(default, deserialize_with = "non_null")]
    #[schema(nullable = false)]
    folders: Option<Vec<String>>,
    /// Names of folders not to sync. Default: the tenant's setting.
    #[serde(default, deserialize_with = "non_null")]
    #[schema(nullable = false)]
    exclude: Option<Vec<String>>,
    /// Seconds between syncs. Default: the tenant's setting, else `sync.interval`.
    #[serde(default, deserialize_with = "non_null")]
    #[schema(minimum = 1, maximum = 2_592_000, nullable = false)]
    interval_seconds: Option<u64>,
    /// Maximum number of bytes to fetch per day, for IMAP; 0 is no limit.
    #[serde(default, deserialize_with = "non_null")]
    #[schema(nullable = false)]
    bytes_per_day: Option<u64>,
    /// How much existing mail to fetch: `all`, `none`, or a number of days, such as `30d`. Default: the tenant's setting, else
    /// `sync.backfill`.
    #[serde(default, deserialize_with = "non_null")]
    #[schema(example = "30d", nullable = false)]
    backfill: Option<String>,
    #[serde(flatten, deserialize_with = "connection_body")]
    #[schema(value_type = BTreeMap<String, Object>)]
    connection: ConnectionBody,
}

/// A provider by its name.
#[derive(Debug, Clone, Copy)]
struct ProviderName(Provider);

impl<'de> Deserialize<'de> for ProviderName {
    fn deserialize<D: Deserializer<'de>>(text: D) -> Result<Self, D::Error> {
        let name = String::deserialize(text)?;
        Provider::parse(&name).map(Self).ok_or_else(|| D::Error::custom(format!("must be {}", provider_names())))
    }
}

/// Names all providers: "imap, gmail, outlook or files".
fn provider_names() -> String {
    let remote = Provider::ALL.into_iter().filter(|provider| *provider != Provider::Files).map(Provider::as_str);
    format!("{} or {}", remote.collect::<Vec<_>>().join(", "), Provider::Files.as_str())
}

/// Changes to a mailbox. Absent fields stay as they are.
#[derive(Debug, Deserialize, ToSchema)]
pub struct MailboxChange {
    #[serde(default, deserialize_with = "non_null")]
    #[schema(nullable = false)]
    folders: Option<Vec<String>>,
    #[serde(default, deserialize_with = "non_null")]
    #[schema(nullable = false)]
    exclude: Option<Vec<String>>,
    #[serde(default, deserialize_with = "non_null")]
    #[schema(minimum = 1, maximum = 2_592_000, nullable = false)]
    interval_seconds: Option<u64>,
    #[serde(default, deserialize_with = "non_null")]
    #[schema(nullable = false)]
    bytes_per_day: Option<u64>,
    #[serde(flatten, deserialize_with = "connection_body")]
    #[schema(value_type = BTreeMap<String, Object>)]
    connection: ConnectionBody,
}

macro_rules! settings_input {
    ($from:expr) => {
        MailboxSettingsInput {
            common: MailboxSettings {
                folders: $from.folders.clone(),
                exclude: $from.exclude.clone(),
                interval_seconds: $from.interval_seconds,
                bytes_per_day: $from.bytes_per_day,
                ..MailboxSettings::default()
            },
            connection: &$from.connection,
        }
    };
}

/// Connect a mailbox.
///
/// It is synced at once; `GET /v1/mailboxes/{id}/health` shows whether that succeeds.
#[utoipa::path(post, path = "/v1/mailboxes", operation_id = "create_mailbox", tag = "mailboxes",
    params(super::IdempotencyKey), request_body = NewMailbox, responses(
    (status = 201, description = "The mailbox was created", body = MailboxView, headers(("Location" = String)))))]
pub async fn create(
    State(app): State<App>,
    change: ChangeRequest<TenantWriter, NewMailbox>,
) -> Result<Response, Problem> {
    let new = &change.body;
    let address = parse_address(&new.address)?;
    let tenant_settings = change.by.store.tenant_settings().await?;
    let backfill = resolve_backfill(&app, &tenant_settings, new.backfill.as_deref())?;
    let provider = new.provider.0;
    let (settings, secret) = settings_input!(new).for_new(app.providers, provider, &address, change.by.is_operator)?;
    let store = &change.by.store;
    let existing = store.find_mailbox(&address).await?;
    if existing.as_ref().is_some_and(|existing| provider == Provider::Files || is_connected(existing)) {
        return Err(Precondition::MailboxExists.into());
    }
    let id = existing.as_ref().map_or_else(|| MailboxId::new(store.clock()), |existing| existing.id);
    let state = if provider == Provider::Files { MailboxState::Active } else { MailboxState::Connecting };
    let mailbox = Mailbox {
        id,
        tenant_id: store.id,
        provider,
        address: address.clone(),
        state,
        state_reason: None,
        state_since: change.now,
        settings: settings.clone(),
        tenant_settings,
        secret_ref: None,
        is_active: true,
        created_at: existing.as_ref().map_or(change.now, |existing| existing.created_at),
        updated_at: change.now,
        version: existing.map_or(1, |existing| existing.version + 1),
    };
    let reply = Reply::created(format!("/v1/mailboxes/{id}"), &MailboxView::from(mailbox.clone()))?;
    let recording = change.record(&app, audit_action("mailbox.create", None, Some(&mailbox))?, reply).await?;
    let is_made = match provider {
        Provider::Files => recording.engine.store.tenant(store.id).add_files_mailbox(id, &address).await?,
        _ => {
            let connect = ConnectRequest { provider, address, settings, secret, backfill };
            recording.engine.connect_as(store.id, id, connect).await?
        }
    };
    if !is_made {
        return Err(Precondition::MailboxExists.into());
    }
    app.engine.notify_workers().await;
    recording.finish().await
}

/// Returns whether the mailbox is connected to a provider, so that its address is taken.
fn is_connected(mailbox: &Mailbox) -> bool {
    mailbox.state != MailboxState::Disconnected && mailbox.provider != Provider::Files
}

/// Returns the backfill of new mailboxes: the requested one, else the tenant's, else `sync.backfill`.
pub fn resolve_backfill(app: &App, tenant: &TenantSettings, requested: Option<&str>) -> Result<Backfill, Problem> {
    let requested = requested.map(str::parse::<Backfill>).transpose();
    let requested = requested.map_err(|e| Problem::invalid("backfill", e.to_string()))?;
    Ok(tenant.resolve_backfill(requested, app.backfill))
}

fn audit_action(
    action: &'static str,
    before: Option<&Mailbox>,
    after: Option<&Mailbox>,
) -> Result<AuditAction, Problem> {
    let either = after.or(before).ok_or_else(Problem::internal)?;
    Ok(AuditAction {
        tenant: either.tenant_id,
        action,
        target: either.id.to_string(),
        before: before.map(audit_view).transpose()?,
        after: after.map(audit_view).transpose()?,
    })
}

fn audit_view(mailbox: &Mailbox) -> Result<serde_json::Value, anyhow::Error> {
    Ok(serde_json::to_value(MailboxView::from(mailbox.clone()))?)
}

/// Change the connection or sync settings of a mailbox.
#[utoipa::path(patch, path = "/v1/mailboxes/{id}", operation_id = "change_mailbox", tag = "mailboxes",
    params(("id" = String, Path), super::IdempotencyKey, super::IfMatch), request_body = MailboxChange, responses(
    (status = 200, description = "The mailbox after the change", body = MailboxView, headers(("ETag" = String)))))]
pub async fn change(
    State(app): State<App>,
    Path(id): Path<MailboxId>,
    change: ChangeRequest<TenantWriter, MailboxChange>,
) -> Result<Response, Problem> {
    let before = find(&change.by.store, id).await?;
    change.expect_version(before.version)?;
    if before.state == MailboxState::Disconnected {
        return Err(Problem::conflict("this mailbox is disconnected; connect it again with POST /v1/mailboxes"));
    }
    let (settings, secret) = settings_input!(change.body).over(app.providers, &before)?;
    let is_orphaned = app.engine.is_orphaned(&before).await?;
    let after = NextMailbox::of(&before, change.now).changed(settings.clone(), secret.is_some(), is_orphaned);
    let reply = Reply::json(StatusCode::OK, &MailboxView::from(after.clone()))?.with_etag(after.version);
    let recording = change.record(&app, audit_action("mailbox.change", Some(&before), Some(&after))?, reply).await?;
    recording.engine.change_mailbox(&before, settings, secret).await?;
    recording.finish().await
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct DeleteMailboxParams {
    /// Erases the mail of the mailbox permanently. Default: the mail is kept.
    #[serde(default)]
    erase: bool,
}

/// Disconnect a mailbox.
///
/// Its provider is not called again, and its credentials are deleted. Its mail is kept unless `erase` is set.
#[utoipa::path(delete, path = "/v1/mailboxes/{id}", operation_id = "delete_mailbox", tag = "mailboxes",
    params(("id" = String, Path), DeleteMailboxParams, super::IdempotencyKey, super::IfMatch), responses(
    (status = 200, description = "The mailbox was disconnected", body = MailboxView)))]
pub async fn delete(
    State(app): State<App>,
    Path(id): Path<MailboxId>,
    Query(params): Query<DeleteMailboxParams>,
    change: ChangeRequest<TenantWriter>,
) -> Result<Response, Problem> {
    for _ in 0..MAX_CHANGE_ATTEMPTS {
        let before = find(&change.by.store, id).await?;
        change.expect_version(before.version)?;
        let after = NextMailbox::of(&before, change.now).disconnected();
        let reply = Reply::json(StatusCode::OK, &MailboxView::from(after.clone()))?;
        let erase = if params.erase {
            Some(EraseMailbox::request(app.engine.store.clock(), id).map_err(anyhow::Error::from)?)
        } else {
            None
        };
        let action = if params.erase { "mailbox.erase" } else { "mailbox.disconnect" };
        let recording = change.record(&app, audit_action(action, Some(&before), Some(&after))?, reply).await?;
        match recording.engine.disconnect(&before, erase).await {
            Err(e) if is_conflict(&e) => {}
            done => {
                done?;
                app.engine.notify_workers().await;
                return recording.finish().await;
            }
        }
    }
    Err(StoreError::Precondition(Precondition::MailboxChanged).into())
}

/// Sync a mailbox now, instead of at its next time.
#[utoipa::path(post, path = "/v1/mailboxes/{id}/sync", operation_id = "sync_mailbox", tag = "mailboxes",
    params(("id" = String, Path), super::IdempotencyKey), responses(
    (status = 202, description = "The sync was requested", body = MailboxView)))]
pub async fn sync(
    State(app): State<App>,
    Path(id): Path<MailboxId>,
    change: ChangeRequest<TenantWriter>,
) -> Result<Response, Problem> {
    let mailbox = find(&change.by.store, id).await?;
    if !mailbox.provider.capabilities().is_remote || !mailbox.is_active || !mailbox.state.is_synced() {
        return Err(Problem::conflict(format!("this mailbox {} and cannot be synced", describe_state(&mailbox))));
    }
    let reply = Reply::json(StatusCode::ACCEPTED, &MailboxView::from(mailbox.clone()))?;
    let recording = change.record(&app, state_action("mailbox.sync", &mailbox), reply).await?;
    recording.engine.request_sync(&mailbox).await?;
    recording.finish().await
}

/// Completes the sentence "this mailbox …".
fn describe_state(mailbox: &Mailbox) -> String {
    match mailbox.provider {
        Provider::Files => "is for imported files".to_owned(),
        _ if !mailbox.is_active => "belongs to a user whom the directory or its rules exclude".to_owned(),
        _ => format!("is {}", mailbox.state.as_str()),
    }
}

fn state_action(action: &'static str, mailbox: &Mailbox) -> AuditAction {
    let before = Some(json!({"state": mailbox.state.as_str()}));
    AuditAction { tenant: mailbox.tenant_id, action, target: mailbox.id.to_string(), before, after: None }
}

/// Pause a mailbox: its provider is not called until it is resumed.
#[utoipa::path(post, path = "/v1/mailboxes/{id}/pause", operation_id = "pause_mailbox", tag = "mailboxes",
    params(("id" = String, Path), super::IdempotencyKey), responses(
    (status = 200, description = "The mailbox was paused", body = MailboxView)))]
pub async fn pause(
    State(app): State<App>,
    Path(id): Path<MailboxId>,
    change: ChangeRequest<TenantWriter>,
) -> Result<Response, Problem> {
    for _ in 0..MAX_CHANGE_ATTEMPTS {
        let before = find_connected(&change, id).await?;
        let after = NextMailbox::of(&before, change.now).paused();
        let reply = Reply::json(StatusCode::OK, &MailboxView::from(after.clone()))?;
        let recording = change.record(&app, audit_action("mailbox.pause", Some(&before), Some(&after))?, reply).await?;
        match recording.engine.pause_mailbox(&before).await {
            Err(e) if is_conflict(&e) => {}
            done => return done.map(drop).map_err(Problem::from).map(|()| recording)?.finish().await,
        }
    }
    Err(StoreError::Precondition(Precondition::MailboxChanged).into())
}

/// Resume a mailbox: it is synced again, and messages that had failed are fetched again.
#[utoipa::path(post, path = "/v1/mailboxes/{id}/resume", operation_id = "resume_mailbox", tag = "mailboxes",
    params(("id" = String, Path), super::IdempotencyKey), responses(
    (status = 200, description = "The mailbox was resumed", body = MailboxView)))]
pub async fn resume(
    State(app): State<App>,
    Path(id): Path<MailboxId>,
    change: ChangeRequest<TenantWriter>,
) -> Result<Response, Problem> {
    for _ in 0..MAX_CHANGE_ATTEMPTS {
        let before = find_connected(&change, id).await?;
        let after = NextMailbox::of(&before, change.now).resumed(app.engine.is_orphaned(&before).await?);
        let reply = Reply::json(StatusCode::OK, &MailboxView::from(after.clone()))?;
        let recording =
            change.record(&app, audit_action("mailbox.resume", Some(&before), Some(&after))?, reply).await?;
        match recording.engine.resume_mailbox(&before, None).await {
            Err(e) if is_conflict(&e) => {}
            done => return done.map(drop).map_err(Problem::from).map(|()| recording)?.finish().await,
        }
    }
    Err(StoreError::Precondition(Precondition::MailboxChanged).into())
}

async fn find_connected(change: &ChangeRequest<TenantWriter>, id: MailboxId) -> Result<Mailbox, Problem> {
    let mailbox = find(&change.by.store, id).await?;
    match mailbox.state {
        MailboxState::Disconnected => Err(Problem::conflict("this mailbox is disconnected")),
        _ => Ok(mailbox),
    }
}
