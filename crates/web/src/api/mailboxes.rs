//! Mailboxes and how they do.

use axum::Json;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use domain::{FolderId, LeftOut, MailboxId, TenantId};
use engine::push::{self, Standing};
use engine::usage;
use serde::Serialize;
use store::TenantStore;
use store::sql::folders::FolderCount;
use store::sql::mailboxes::Mailbox;
use utoipa::ToSchema;

use super::auth::Reader;
use super::change::etag;
use super::page::{Page, Paging};
use super::problem::Problem;
use super::usage::{Budget, ForecastView};
use super::{Path, Query};
use crate::App;

/// A connected account, or a place that files are imported into. Its secret is nowhere in here.
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
    #[schema(example = "active")]
    state: &'static str,
    /// False: nobody looks at it, for its owner is not in the directory any more or not wanted by its rules. Its mail stays.
    is_active: bool,
    /// Why it is in this state.
    state_reason: Option<String>,
    #[schema(value_type = String, format = DateTime)]
    state_since: jiff::Timestamp,
    /// How it is reached and what is wanted of it.
    #[schema(value_type = Object)]
    settings: serde_json::Value,
    #[schema(value_type = String, format = DateTime)]
    created_at: jiff::Timestamp,
    #[schema(value_type = String, format = DateTime)]
    updated_at: jiff::Timestamp,
    /// Whether its provider tells us of news; not there where it never does, and in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    push: Option<Push>,
}

/// Whether a provider tells us of news by itself. Where it does not, the mailbox is looked at by the clock.
#[derive(Debug, Serialize, ToSchema)]
pub struct Push {
    #[schema(example = "on")]
    state: PushState,
    /// Until when it has agreed to; that is renewed every day.
    #[schema(value_type = Option<String>, format = DateTime)]
    expires_at: Option<jiff::Timestamp>,
    #[schema(value_type = Option<String>, format = DateTime)]
    last_push_at: Option<jiff::Timestamp>,
    /// Why it is off or failing.
    reason: Option<String>,
}

#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum PushState {
    Off,
    On,
    Failing,
}

impl From<Standing> for Push {
    fn from(standing: Standing) -> Self {
        let state = match standing.state {
            push::PushState::Off => PushState::Off,
            push::PushState::On => PushState::On,
            push::PushState::Failing => PushState::Failing,
        };
        let Standing { expires_at, last_push_at, reason, .. } = standing;
        Self { state, expires_at, last_push_at, reason }
    }
}

async fn find_push(store: &TenantStore, mailbox: &Mailbox) -> Result<Option<Push>, Problem> {
    Ok(push::find_standing(store, mailbox).await?.map(Push::from))
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

/// All mailboxes of the tenant.
#[utoipa::path(get, path = "/v1/mailboxes", operation_id = "list_mailboxes", tag = "mailboxes", params(Paging), responses(
    (status = 200, description = "What was asked for", body = Page<MailboxView>)))]
pub async fn list(Reader(store): Reader, Query(paging): Query<Paging>) -> Result<Json<Page<MailboxView>>, Problem> {
    let limit = paging.limit()?;
    let mailboxes = store.list_mailboxes_after(paging.after()?, limit + 1).await?;
    Ok(Json(Page::cut(mailboxes, limit, |mailbox| mailbox.id).map(MailboxView::from)))
}

/// One mailbox.
#[utoipa::path(get, path = "/v1/mailboxes/{id}", operation_id = "get_mailbox", tag = "mailboxes", params(("id" = String, Path)), responses(
    (status = 200, description = "What was asked for", body = MailboxView, headers(("ETag" = String)))))]
pub async fn get(Reader(store): Reader, Path(id): Path<MailboxId>) -> Result<Response, Problem> {
    let mailbox = find(&store, id).await?;
    let tag = [(header::ETAG, etag(mailbox.version))];
    let push = find_push(&store, &mailbox).await?;
    Ok((tag, Json(MailboxView { push, ..MailboxView::from(mailbox) })).into_response())
}

pub async fn find(store: &TenantStore, id: MailboxId) -> Result<Mailbox, Problem> {
    store.find_mailbox(&id.to_string()).await?.ok_or_else(|| Problem::absent("mailbox"))
}

/// Whether mail comes in, and if not, why.
#[derive(Debug, Serialize, ToSchema)]
pub struct Health {
    #[schema(example = "active")]
    state: &'static str,
    state_reason: Option<String>,
    /// False: nobody looks at it, whatever its state, for its owner is not in the directory any more or not wanted by its rules.
    is_active: bool,
    /// Why its owner is left out, as in what is told of users; nothing where nobody is, and for what a directory left behind that was removed.
    #[schema(example = "gone")]
    left_out: Option<&'static str>,
    /// When it was last up to date.
    #[schema(value_type = Option<String>, format = DateTime)]
    last_sync_at: Option<jiff::Timestamp>,
    /// Nothing: nobody looks at it.
    #[schema(value_type = Option<String>, format = DateTime)]
    next_sync_at: Option<jiff::Timestamp>,
    /// Looks in a row that failed, and what the last of them met.
    error_count: u64,
    last_error: Option<String>,
    /// It is not called until then, and why.
    paused: Option<Paused>,
    /// Whether all that was there before is known.
    is_backfill_listed: bool,
    /// How far it is with that; nothing: all of it is here.
    backfill: Option<ForecastView>,
    /// Messages that are known and not here yet, old and new.
    backlog: u64,
    /// What is used of its provider, and what is left.
    budget: Budget,
    /// Whether its provider tells us of news; nothing where it never does.
    push: Option<Push>,
}

#[derive(Debug, Serialize, ToSchema)]
pub struct Paused {
    #[schema(value_type = String, format = DateTime)]
    until: jiff::Timestamp,
    reason: String,
}

/// Whether mail of a mailbox comes in, and if not, why.
#[utoipa::path(get, path = "/v1/mailboxes/{id}/health", operation_id = "get_mailbox_health", tag = "mailboxes", params(("id" = String, Path)), responses(
    (status = 200, description = "What was asked for", body = Health)))]
pub async fn health(
    Reader(store): Reader,
    State(app): State<App>,
    Path(id): Path<MailboxId>,
) -> Result<Json<Health>, Problem> {
    let mailbox = find(&store, id).await?;
    let sync = store.find_sync(id).await?;
    let push = find_push(&store, &mailbox).await?;
    let left_out = store.find_left_out(id).await?;
    let is_looked_at = mailbox.is_looked_at();
    let pause = sync.as_ref().and_then(|sync| sync.paused.as_ref());
    let (budget, backlog, backfill) = Budget::of(usage::of_mailbox(&store, &mailbox, pause, &app.budgets).await?);
    let (mut health, sync) = (
        Health {
            state: mailbox.state.as_str(),
            state_reason: mailbox.state_reason,
            is_active: mailbox.is_active,
            left_out: left_out.map(LeftOut::as_str),
            last_sync_at: None,
            next_sync_at: None,
            error_count: 0,
            last_error: None,
            paused: None,
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
        health.next_sync_at = sync.next_sync_at.filter(|_| is_looked_at);
        health.error_count = sync.error_count;
        health.last_error = sync.last_error;
        health.paused = sync.paused.map(|pause| Paused { until: pause.until, reason: pause.reason });
    }
    Ok(Json(health))
}

/// A folder or label, and how many emails are in it.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Folder)]
pub struct FolderView {
    #[schema(value_type = String, format = "uuid")]
    id: FolderId,
    #[schema(example = "INBOX")]
    name: String,
    /// What it is for, where the provider says so: inbox, sent, drafts, trash, …
    role: Option<String>,
    /// Whether its mail is wanted.
    is_in_scope: bool,
    emails: u64,
}

impl From<FolderCount> for FolderView {
    fn from(folder: FolderCount) -> Self {
        let FolderCount { id, name, role, is_in_scope, emails } = folder;
        Self { id, name, role, is_in_scope, emails }
    }
}

/// The folders of a mailbox, all of them.
#[utoipa::path(get, path = "/v1/mailboxes/{id}/folders", operation_id = "list_folders", tag = "mailboxes",
    params(("id" = String, Path)), responses(
    (status = 200, description = "What was asked for", body = Page<FolderView>)))]
pub async fn folders(Reader(store): Reader, Path(id): Path<MailboxId>) -> Result<Json<Page<FolderView>>, Problem> {
    let mailbox = find(&store, id).await?;
    let folders = store.list_folder_counts(mailbox.id).await?;
    Ok(Json(Page { items: folders.into_iter().map(FolderView::from).collect(), next_cursor: None }))
}

/// How far the messages that the provider showed have come. Each is in exactly one of these.
#[derive(Debug, Serialize, ToSchema)]
pub struct Completeness {
    /// Stored and searchable.
    processed: u64,
    /// Known, and on the way.
    queued: u64,
    processing: u64,
    /// Could not be fetched or stored.
    failed: u64,
    /// Not wanted.
    skipped: u64,
    /// No longer at the provider.
    gone: u64,
    /// Those of which we are not sure; there are none, or something is wrong.
    unbalanced: u64,
    /// Nothing is on the way, and nothing is wrong.
    is_complete: bool,
}

/// How far the messages of a mailbox have come. `mailroom verify` compares with the provider, too.
#[utoipa::path(get, path = "/v1/mailboxes/{id}/completeness", operation_id = "get_completeness", tag = "mailboxes",
    params(("id" = String, Path)), responses(
    (status = 200, description = "What was asked for", body = Completeness)))]
pub async fn completeness(Reader(store): Reader, Path(id): Path<MailboxId>) -> Result<Json<Completeness>, Problem> {
    let mailbox = find(&store, id).await?;
    let counts = store.count_ledger(mailbox.id).await?;
    let of = |state: &str| counts.live.get(state).copied().unwrap_or(0);
    let (queued, processing, failed) = (of("queued"), of("processing"), of("failed"));
    Ok(Json(Completeness {
        processed: of("processed"),
        queued,
        processing,
        failed,
        skipped: of("skipped"),
        gone: counts.gone,
        unbalanced: counts.unbalanced,
        is_complete: queued + processing + failed + counts.unbalanced == 0,
    }))
}
