//! Connects, changes, pauses, resumes, syncs and disconnects mailboxes.

use std::borrow::Cow;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use domain::{Backfill, MailboxId, MailboxSettings, Provider, TenantSettings};
use engine::operations::mailboxes::{self, ConnectRequest, MailErasure, ResumeRequest};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use store::sql::mailboxes::Mailbox;
use utoipa::openapi::{ObjectBuilder, RefOr, Schema, Type};
use utoipa::{IntoParams, PartialSchema, ToSchema};

use super::auth::TenantWriter;
use super::body::{non_null, nullable};
use super::change::{ChangeRequest, Reply};
use super::connection_body::{ConnectionBody, connection_body};
use super::mailbox_settings::MailboxSettingsInput;
use super::mailboxes::{MailboxView, find};
use super::problem::Problem;
use super::users::parse_address;
use super::{Path, Query};
use crate::App;

/// Mailbox to connect. Which of the fields of a connection it has depends on the provider.
#[derive(Debug, Deserialize, ToSchema)]
pub struct NewMailbox {
    #[schema(example = "me@acme.test", min_length = 3, max_length = 320)]
    address: String,
    /// Provider of the mailbox, or `files` for a mailbox for imported files.
    #[schema(example = "imap")]
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

impl PartialSchema for ProviderName {
    fn schema() -> RefOr<Schema> {
        let names = Provider::ALL.map(Provider::as_str);
        ObjectBuilder::new().schema_type(Type::String).enum_values(Some(names)).into()
    }
}

impl ToSchema for ProviderName {
    fn name() -> Cow<'static, str> {
        "MailboxProvider".into()
    }
}

/// Names all providers: "imap, gmail, outlook or files".
fn provider_names() -> String {
    let remote = Provider::ALL.into_iter().filter(|provider| *provider != Provider::Files).map(Provider::as_str);
    format!("{} or {}", remote.collect::<Vec<_>>().join(", "), Provider::Files.as_str())
}

/// Changes to a mailbox. Absent fields stay as they are; null removes a setting of the mailbox's own, so that its tenant's or
/// the server's applies.
#[derive(Debug, Deserialize, ToSchema)]
pub struct MailboxChange {
    #[serde(default, deserialize_with = "nullable")]
    #[schema(value_type = Option<Vec<String>>)]
    folders: Option<Option<Vec<String>>>,
    #[serde(default, deserialize_with = "nullable")]
    #[schema(value_type = Option<Vec<String>>)]
    exclude: Option<Option<Vec<String>>>,
    #[serde(default, deserialize_with = "nullable")]
    #[schema(minimum = 1, maximum = 2_592_000, value_type = Option<u64>)]
    interval_seconds: Option<Option<u64>>,
    #[serde(default, deserialize_with = "nullable")]
    #[schema(value_type = Option<u64>)]
    bytes_per_day: Option<Option<u64>>,
    #[serde(flatten, deserialize_with = "connection_body")]
    #[schema(value_type = BTreeMap<String, Object>)]
    connection: ConnectionBody,
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
    let common = MailboxSettings {
        folders: new.folders.clone(),
        exclude: new.exclude.clone(),
        interval_seconds: new.interval_seconds,
        bytes_per_day: new.bytes_per_day,
        ..MailboxSettings::default()
    };
    let provider = new.provider.0;
    let input = MailboxSettingsInput { common, connection: &new.connection };
    let (settings, secret) = input.for_new(app.providers, provider, &address, change.by.is_operator)?;
    let request = ConnectRequest { provider, address, settings, secret, backfill };
    let call = change.invocation(&app, show_created);
    let created = mailboxes::create(&call, change.by.store.id, &request).await?;
    Ok(show_created(&created)?.into_response())
}

fn show_created(mailbox: &Mailbox) -> anyhow::Result<Reply> {
    Reply::created(format!("/v1/mailboxes/{}", mailbox.id), &MailboxView::from(mailbox.clone()))
}

fn show(mailbox: &Mailbox) -> anyhow::Result<Reply> {
    Reply::json(StatusCode::OK, &MailboxView::from(mailbox.clone()))
}

fn show_changed(mailbox: &Mailbox) -> anyhow::Result<Reply> {
    Ok(show(mailbox)?.with_etag(mailbox.version))
}

fn show_accepted(mailbox: &Mailbox) -> anyhow::Result<Reply> {
    Reply::json(StatusCode::ACCEPTED, &MailboxView::from(mailbox.clone()))
}

/// Returns the backfill of new mailboxes: the requested one, else the tenant's, else `sync.backfill`.
pub fn resolve_backfill(app: &App, tenant: &TenantSettings, requested: Option<&str>) -> Result<Backfill, Problem> {
    let requested = requested.map(str::parse::<Backfill>).transpose();
    let requested = requested.map_err(|e| Problem::invalid("backfill", e.to_string()))?;
    Ok(tenant.resolve_backfill(requested, app.backfill))
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
    let call = change.invocation(&app, show_changed);
    // Before the form: over another row it means something else.
    call.check_version(before.version)?;
    mailboxes::check_connected(&before)?;
    let body = &change.body;
    let common = MailboxSettings {
        folders: body.folders.clone().flatten(),
        exclude: body.exclude.clone().flatten(),
        interval_seconds: body.interval_seconds.flatten(),
        bytes_per_day: body.bytes_per_day.flatten(),
        ..MailboxSettings::default()
    };
    let input = MailboxSettingsInput { common, connection: &body.connection };
    let (settings, secret) = input.over(app.providers, &inheriting(&before, body))?;
    let changed = mailboxes::change(&call, &before, settings, secret.as_ref()).await?;
    Ok(show_changed(&changed)?.into_response())
}

/// Returns the mailbox without the settings of its own that are removed, so that it inherits them.
fn inheriting(mailbox: &Mailbox, change: &MailboxChange) -> Mailbox {
    let mut settings = mailbox.settings.clone();
    for (field, is_removed) in [
        ("folders", change.folders == Some(None)),
        ("exclude", change.exclude == Some(None)),
        ("interval_seconds", change.interval_seconds == Some(None)),
        ("bytes_per_day", change.bytes_per_day == Some(None)),
    ] {
        if is_removed {
            settings.unset(field);
        }
    }
    Mailbox { settings, ..mailbox.clone() }
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
    let erasure = if params.erase { MailErasure::ByJob } else { MailErasure::None };
    let deleted = mailboxes::delete(&change.invocation(&app, show), change.by.store.id, id, erasure).await?;
    Ok(show(&deleted)?.into_response())
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
    let mailbox = mailboxes::sync(&change.invocation(&app, show_accepted), change.by.store.id, id).await?;
    Ok(show_accepted(&mailbox)?.into_response())
}

/// Apply the removals of a mailbox that are held back.
///
/// When much of a mailbox is missing at its provider, its emails are kept until that is confirmed; see `removals` in its health.
/// This removes them now.
#[utoipa::path(post, path = "/v1/mailboxes/{id}/apply-removals", operation_id = "apply_mailbox_removals", tag = "mailboxes",
    params(("id" = String, Path), super::IdempotencyKey), responses(
    (status = 202, description = "The removal was requested", body = MailboxView)))]
pub async fn apply_removals(
    State(app): State<App>,
    Path(id): Path<MailboxId>,
    change: ChangeRequest<TenantWriter>,
) -> Result<Response, Problem> {
    let mailbox = mailboxes::apply_removals(&change.invocation(&app, show_accepted), change.by.store.id, id).await?;
    Ok(show_accepted(&mailbox)?.into_response())
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
    let paused = mailboxes::pause(&change.invocation(&app, show), change.by.store.id, id).await?;
    Ok(show(&paused)?.into_response())
}

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct ResumeMailboxParams {
    /// Forgets where the listings of the mailbox stand, and compares all of it with its provider. Nothing is lost by it.
    reset_cursors: bool,
}

/// Resume a mailbox: it is synced again, and messages that had failed are fetched again.
#[utoipa::path(post, path = "/v1/mailboxes/{id}/resume", operation_id = "resume_mailbox", tag = "mailboxes",
    params(("id" = String, Path), ResumeMailboxParams, super::IdempotencyKey), responses(
    (status = 200, description = "The mailbox was resumed", body = MailboxView)))]
pub async fn resume(
    State(app): State<App>,
    Path(id): Path<MailboxId>,
    Query(params): Query<ResumeMailboxParams>,
    change: ChangeRequest<TenantWriter>,
) -> Result<Response, Problem> {
    let request = ResumeRequest { secret: None, resets_cursors: params.reset_cursors };
    let resumed = mailboxes::resume(&change.invocation(&app, show), change.by.store.id, id, request).await?;
    Ok(show(&resumed)?.into_response())
}
