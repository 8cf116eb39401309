//! Mailboxes: their state, health, folders and completeness.

use axum::Json;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use domain::{ExclusionReason, FolderId, MailboxId, MailboxSettings, TenantId};
use engine::accounts::usage;
use engine::sync::explain_hold;
use engine::sync::push::{self, PushStatus};
use serde::Serialize;
use store::TenantStore;
use store::sql::folders::FolderCount;
use store::sql::mailboxes::Mailbox;
use store::sql::sync::{HeldRemovals, LedgerCounts};
use utoipa::ToSchema;

use super::auth::TenantReader;
use super::change::etag;
use super::page::{Page, PageParams};
use super::problem::Problem;
use super::settings_schemas::MailboxSettingsSchema;
use super::usage::{ForecastView, MailboxBudget};
use super::{Path, Query};
use crate::App;

/// A connected account, or a mailbox for imported files. Its credentials are never shown.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Mailbox)]
pub struct MailboxView {
    #[schema(value_type = String, format = "uuid")]
    id: MailboxId,
    #[schema(value_type = String, format = "uuid")]
    tenant_id: TenantId,
    #[schema(example = "imap")]
    provider: &'static str,
    #[schema(example = "me@acme.test")]
    address: String,
    /// `connecting` (not synced successfully yet), `active`, `paused`, `needs_reauth` (its credentials are refused),
    /// `error` (its syncs keep failing) or `disconnected`.
    #[schema(example = "active")]
    state: &'static str,
    /// `false`: the mailbox is not synced, because its owner left the directory or the directory's rules exclude them. Its
    /// mail is kept.
    is_active: bool,
    /// Reason of the state.
    state_reason: Option<String>,
    #[schema(value_type = String, format = DateTime)]
    state_since: jiff::Timestamp,
    #[schema(value_type = MailboxSettingsSchema)]
    settings: MailboxSettings,
    #[schema(value_type = String, format = DateTime)]
    created_at: jiff::Timestamp,
    #[schema(value_type = String, format = DateTime)]
    updated_at: jiff::Timestamp,
    /// State of push notifications; absent in lists, and for providers without push.
    #[serde(skip_serializing_if = "Option::is_none")]
    push: Option<PushView>,
}

/// State of push notifications of a mailbox. Without them, it is synced at intervals.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Push)]
pub struct PushView {
    #[schema(example = "on")]
    state: PushState,
    /// When the subscription at the provider expires; it is renewed every day.
    #[schema(value_type = Option<String>, format = DateTime)]
    expires_at: Option<jiff::Timestamp>,
    #[schema(value_type = Option<String>, format = DateTime)]
    last_push_at: Option<jiff::Timestamp>,
    /// Reason of the states `off` and `failing`.
    reason: Option<String>,
}

#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum PushState {
    Off,
    On,
    Failing,
}

impl From<PushStatus> for PushView {
    fn from(status: PushStatus) -> Self {
        let state = match status.state {
            push::PushState::Off => PushState::Off,
            push::PushState::On => PushState::On,
            push::PushState::Failing => PushState::Failing,
        };
        let PushStatus { expires_at, last_push_at, reason, .. } = status;
        Self { state, expires_at, last_push_at, reason }
    }
}

async fn find_push(store: &TenantStore, mailbox: &Mailbox) -> Result<Option<PushView>, Problem> {
    Ok(push::find_push_status(store, mailbox).await?.map(PushView::from))
}

impl From<Mailbox> for MailboxView {
    fn from(mailbox: Mailbox) -> Self {
        Self {
            id: mailbox.id,
            tenant_id: mailbox.tenant_id,
            provider: mailbox.provider.as_str(),
            address: mailbox.address,
            state: mailbox.state.as_str(),
            is_active: mailbox.is_active,
            state_reason: mailbox.state_reason,
            state_since: mailbox.state_since,
            settings: mailbox.settings,
            created_at: mailbox.created_at,
            updated_at: mailbox.updated_at,
            push: None,
        }
    }
}

/// List the mailboxes of the tenant.
#[utoipa::path(get, path = "/v1/mailboxes", operation_id = "list_mailboxes", tag = "mailboxes", params(PageParams), responses(
    (status = 200, description = "Mailboxes of the tenant", body = Page<MailboxView>)))]
pub async fn list(
    TenantReader(store): TenantReader,
    Query(paging): Query<PageParams>,
) -> Result<Json<Page<MailboxView>>, Problem> {
    let limit = paging.limit()?;
    let mailboxes = store.list_mailboxes_after(paging.after()?, limit + 1).await?;
    Ok(Json(Page::cut(mailboxes, limit, |mailbox| mailbox.id).map(MailboxView::from)))
}

/// Get a mailbox.
#[utoipa::path(get, path = "/v1/mailboxes/{id}", operation_id = "get_mailbox", tag = "mailboxes", params(("id" = String, Path)), responses(
    (status = 200, description = "The mailbox", body = MailboxView, headers(("ETag" = String)))))]
pub async fn get(TenantReader(store): TenantReader, Path(id): Path<MailboxId>) -> Result<Response, Problem> {
    let mailbox = find(&store, id).await?;
    let tag = [(header::ETAG, etag(mailbox.version))];
    let push = find_push(&store, &mailbox).await?;
    Ok((tag, Json(MailboxView { push, ..MailboxView::from(mailbox) })).into_response())
}

pub async fn find(store: &TenantStore, id: MailboxId) -> Result<Mailbox, Problem> {
    store.find_mailbox(&id.to_string()).await?.ok_or_else(|| Problem::not_found("mailbox"))
}

/// Whether a mailbox is synced, and if not, why.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Health)]
pub struct MailboxHealth {
    #[schema(example = "active")]
    state: &'static str,
    state_reason: Option<String>,
    /// `false`: the mailbox is not synced in any state, because its owner left the directory or the directory's rules exclude
    /// them.
    is_active: bool,
    /// Why the owner is left out, as in the list of users. Null if they are not, or if the directory was removed.
    #[schema(example = "gone")]
    left_out: Option<&'static str>,
    /// When the mailbox was last up to date.
    #[schema(value_type = Option<String>, format = DateTime)]
    last_sync_at: Option<jiff::Timestamp>,
    /// Id at the provider of the last new message that a sync found. Null if no message has arrived since the mailbox was
    /// connected.
    last_message_id: Option<String>,
    /// Null if the mailbox is not synced.
    #[schema(value_type = Option<String>, format = DateTime)]
    next_sync_at: Option<jiff::Timestamp>,
    /// Number of consecutive failed syncs; `last_error` is the error of the last one.
    error_count: u64,
    last_error: Option<String>,
    /// Set while the provider is not called, as after a `Retry-After`.
    paused: Option<PauseView>,
    /// Set while much of the mailbox is missing at the provider, and its emails are kept until that is confirmed.
    removals: Option<HeldRemovalsView>,
    /// Whether all older mail is listed.
    is_backfill_listed: bool,
    /// Progress of the backfill of older mail; null when it is complete.
    backfill: Option<ForecastView>,
    /// Messages, old and new, that are listed and not stored yet.
    backlog: u64,
    /// Usage of the provider's budgets.
    budget: MailboxBudget,
    /// State of push notifications; null for providers without push.
    push: Option<PushView>,
}

/// Time until when a provider is not called, and the reason.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Pause)]
pub struct PauseView {
    #[schema(value_type = String, format = DateTime)]
    until: jiff::Timestamp,
    reason: String,
}

/// Removals that are held back.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = HeldRemovals)]
pub struct HeldRemovalsView {
    #[schema(value_type = String, format = DateTime)]
    since: jiff::Timestamp,
    /// Number of missing messages, counted in each folder.
    messages: u64,
    reason: String,
}

impl From<HeldRemovals> for HeldRemovalsView {
    fn from(held: HeldRemovals) -> Self {
        Self { since: held.since, messages: held.messages, reason: explain_hold(&held) }
    }
}

/// Get the health of a mailbox: whether it is synced, and if not, why.
#[utoipa::path(get, path = "/v1/mailboxes/{id}/health", operation_id = "get_mailbox_health", tag = "mailboxes", params(("id" = String, Path)), responses(
    (status = 200, description = "Health of the mailbox", body = MailboxHealth)))]
pub async fn health(
    TenantReader(store): TenantReader,
    State(app): State<App>,
    Path(id): Path<MailboxId>,
) -> Result<Json<MailboxHealth>, Problem> {
    let mailbox = find(&store, id).await?;
    let sync = store.find_sync_state(id).await?;
    let push = find_push(&store, &mailbox).await?;
    let left_out = store.find_exclusion(id).await?;
    let is_looked_at = mailbox.is_sync_enabled();
    let pause = sync.as_ref().and_then(|sync| sync.paused.as_ref());
    let (budget, backlog, backfill) =
        MailboxBudget::of(usage::of_mailbox(&store, &mailbox, pause, &app.budgets).await?);
    let (mut health, sync) = (
        MailboxHealth {
            state: mailbox.state.as_str(),
            state_reason: mailbox.state_reason,
            is_active: mailbox.is_active,
            left_out: left_out.map(ExclusionReason::as_str),
            last_sync_at: None,
            last_message_id: None,
            next_sync_at: None,
            error_count: 0,
            last_error: None,
            paused: None,
            removals: None,
            is_backfill_listed: sync.as_ref().is_none_or(|sync| sync.is_history_done),
            backfill,
            backlog,
            budget,
            push,
        },
        sync,
    );
    if let Some(sync) = sync {
        health.last_sync_at = sync.last_sync_at;
        health.last_message_id = sync.last_message_id;
        health.next_sync_at = sync.next_sync_at.filter(|_| is_looked_at);
        health.error_count = sync.error_count;
        health.last_error = sync.last_error;
        health.removals = sync.held_removals.map(HeldRemovalsView::from);
        health.paused = sync.paused.map(|pause| PauseView { until: pause.until, reason: pause.reason });
    }
    Ok(Json(health))
}

/// A folder or label, with its number of emails.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Folder)]
pub struct FolderView {
    #[schema(value_type = String, format = "uuid")]
    id: FolderId,
    #[schema(example = "INBOX")]
    name: String,
    /// Role of the folder, where the provider has one: `inbox`, `sent`, `drafts`, `trash`, …
    role: Option<String>,
    /// Whether its mail is synced.
    is_in_scope: bool,
    emails: u64,
}

impl From<FolderCount> for FolderView {
    fn from(folder: FolderCount) -> Self {
        let FolderCount { id, name, role, is_in_scope, emails } = folder;
        Self { id, name, role, is_in_scope, emails }
    }
}

/// List all folders of a mailbox.
#[utoipa::path(get, path = "/v1/mailboxes/{id}/folders", operation_id = "list_folders", tag = "mailboxes",
    params(("id" = String, Path)), responses(
    (status = 200, description = "Folders of the mailbox", body = Page<FolderView>)))]
pub async fn folders(
    TenantReader(store): TenantReader,
    Path(id): Path<MailboxId>,
) -> Result<Json<Page<FolderView>>, Problem> {
    let mailbox = find(&store, id).await?;
    let folders = store.list_folder_counts(mailbox.id).await?;
    Ok(Json(Page { items: folders.into_iter().map(FolderView::from).collect(), next_cursor: None }))
}

/// Number of the provider's messages in each state. Each message is in exactly one of them.
#[derive(Debug, Serialize, ToSchema)]
pub struct Completeness {
    /// Stored and searchable.
    processed: u64,
    /// Listed, and waiting to be fetched.
    queued: u64,
    processing: u64,
    /// Could not be fetched or stored.
    failed: u64,
    /// Not to be stored.
    skipped: u64,
    /// No longer at the provider.
    gone: u64,
    /// Inconsistent ledger rows; anything but 0 is a defect.
    unbalanced: u64,
    /// Whether nothing is pending, failed or inconsistent.
    is_complete: bool,
}

/// Get the completeness of a mailbox: the number of messages in each state.
///
/// `mailroom verify` also compares them with the provider.
#[utoipa::path(get, path = "/v1/mailboxes/{id}/completeness", operation_id = "get_completeness", tag = "mailboxes",
    params(("id" = String, Path)), responses(
    (status = 200, description = "Completeness of the mailbox", body = Completeness)))]
pub async fn completeness(
    TenantReader(store): TenantReader,
    Path(id): Path<MailboxId>,
) -> Result<Json<Completeness>, Problem> {
    let mailbox = find(&store, id).await?;
    let counts = store.count_ledger(mailbox.id).await?;
    let (queued, processing, failed) =
        (live_count(&counts, "queued"), live_count(&counts, "processing"), live_count(&counts, "failed"));
    Ok(Json(Completeness {
        processed: live_count(&counts, "processed"),
        queued,
        processing,
        failed,
        skipped: live_count(&counts, "skipped"),
        gone: counts.gone,
        unbalanced: counts.unbalanced,
        is_complete: queued + processing + failed + counts.unbalanced == 0,
    }))
}

fn live_count(counts: &LedgerCounts, state: &str) -> u64 {
    counts.live.get(state).copied().unwrap_or(0)
}
