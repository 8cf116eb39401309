//! Directories (Google Workspace, Microsoft Entra ID) whose users get mailboxes automatically.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use domain::{Backfill, DirectoryLocation, DirectoryRules, InvalidField, PersonSelector, Provider};
use engine::directory::DiscoveryMode;
use engine::directory::{self, DirectoryConfig, DiscoveryReport};
use engine::operations::directories as operations;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use store::TenantStore;
use store::sql::directories::Directory;
use utoipa::ToSchema;

use super::auth::{TenantReader, TenantWriter};
use super::body::non_null;
use super::change::{ChangeRequest, Reply, etag};
use super::mailbox_changes::resolve_backfill;
use super::page::Page;
use super::problem::Problem;
use super::{IdempotencyKey, IfMatch, Path};
use crate::App;

/// A directory that is read at intervals, and the outcome of the last run.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Directory)]
pub struct DirectoryView {
    /// `gmail` or `outlook`.
    #[schema(example = "gmail")]
    provider: &'static str,
    /// Microsoft: id or domain of the directory.
    directory: Option<String>,
    /// Google: address of the administrator on whose behalf the directory is read.
    administrator: Option<String>,
    rules: RulesView,
    /// How much existing mail is fetched of new mailboxes: `all`, `none`, or a duration, such as `30d`.
    #[schema(example = "30d")]
    backfill: String,
    interval_seconds: u64,
    /// Whether the directory is read on request only.
    is_paused: bool,
    /// Time of the next run.
    #[schema(value_type = Option<String>, format = DateTime)]
    next_at: Option<Timestamp>,
    last_run: Option<RunView>,
    /// Outcome of the last dry run.
    dry_run: Option<RunView>,
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
    #[schema(value_type = String, format = DateTime)]
    updated_at: Timestamp,
}

/// Which users get a mailbox. Default: all except suspended users, guests, and users without a mailbox licence.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = DirectoryRules)]
#[serde(default, deny_unknown_fields)]
pub struct RulesView {
    /// Empty for all users.
    include: ChoiceView,
    /// Takes precedence over `include`.
    exclude: ChoiceView,
    /// Include suspended users.
    suspended: bool,
    /// Include guests.
    guests: bool,
    /// Include users without a mailbox licence.
    unlicensed: bool,
}

/// Users that match at least one of these.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = DirectoryChoice)]
#[serde(default, deny_unknown_fields)]
pub struct ChoiceView {
    /// Members of these groups, by address or id, including nested groups.
    groups: Vec<String>,
    /// Google: organisational units, including those below. Microsoft: departments.
    #[schema(example = json!(["/Sales"]))]
    units: Vec<String>,
    domains: Vec<String>,
    /// Addresses or aliases.
    addresses: Vec<String>,
}

/// Outcome of a discovery run.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = DiscoveryRun)]
pub struct RunView {
    #[schema(value_type = String, format = DateTime)]
    at: Timestamp,
    /// `done`, `held` (too many users would leave) or `failed`.
    #[schema(example = "done")]
    outcome: String,
    /// Why nothing was changed, or would be changed.
    reason: Option<String>,
    /// Users in the directory.
    people: u64,
    /// New mailboxes.
    added: u64,
    /// Existing mailboxes that were linked to a user.
    adopted: u64,
    /// Mailboxes that are synced again.
    returned: u64,
    /// Mailboxes that are not synced any more.
    left: u64,
    /// Mailboxes whose address changed.
    renamed: u64,
    /// Number of users without a mailbox, by reason.
    left_out: BTreeMap<String, u64>,
    /// For a dry run: the first thousand changes.
    items: Vec<ItemView>,
    /// Whether `items` is incomplete.
    is_cut: bool,
}

/// Change of one user's mailbox.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = DiscoveryItem)]
pub struct ItemView {
    /// `add` (a new mailbox), `adopt` (an existing mailbox is linked to the user), `return` (it is synced again), `leave`
    /// (it is not synced any more), `rename` (its address changed) or `leave_out` (the user has no mailbox, for `reason`).
    #[schema(example = "add")]
    action: String,
    provider_user_id: String,
    address: Option<String>,
    name: Option<String>,
    /// Why the user leaves or is left out.
    reason: Option<String>,
}

impl RunView {
    fn new(at: Option<Timestamp>, outcome: &str, report: Option<Value>) -> Option<Self> {
        let report: DiscoveryReport = serde_json::from_value(report?).ok()?;
        Some(Self {
            at: at?,
            outcome: outcome.to_owned(),
            reason: report.reason,
            people: report.people,
            added: report.added,
            adopted: report.adopted,
            returned: report.returned,
            left: report.left,
            renamed: report.renamed,
            left_out: report.left_out,
            items: report.items.into_iter().map(ItemView::from).collect(),
            is_cut: report.is_cut,
        })
    }
}

impl From<directory::ReportItem> for ItemView {
    fn from(item: directory::ReportItem) -> Self {
        Self {
            action: item.action,
            provider_user_id: item.provider_user_id,
            address: item.address,
            name: item.name,
            reason: item.reason,
        }
    }
}

impl From<RulesView> for DirectoryRules {
    fn from(rules: RulesView) -> Self {
        let RulesView { include, exclude, suspended, guests, unlicensed } = rules;
        Self { include: include.into(), exclude: exclude.into(), suspended, guests, unlicensed }
    }
}

impl From<ChoiceView> for PersonSelector {
    fn from(choice: ChoiceView) -> Self {
        let ChoiceView { groups, units, domains, addresses } = choice;
        Self { groups, units, domains, addresses }
    }
}

impl DirectoryView {
    fn new(found: Directory) -> anyhow::Result<Self> {
        let place: DirectoryLocation = serde_json::from_value(found.settings)?;
        let outcome = found.outcome.unwrap_or_default();
        Ok(Self {
            provider: found.provider.as_str(),
            directory: place.directory,
            administrator: place.administrator,
            rules: serde_json::from_value(found.rules)?,
            backfill: Backfill::from_seconds(found.backfill_seconds).to_string(),
            interval_seconds: found.interval_seconds,
            is_paused: found.is_paused,
            next_at: Some(found.next_at).filter(|_| !found.is_paused),
            last_run: RunView::new(found.last_run_at, &outcome, found.last_run),
            dry_run: RunView::new(found.dry_run_at, dry_run_outcome(found.dry_run.as_ref()), found.dry_run),
            created_at: found.created_at,
            updated_at: found.updated_at,
        })
    }
}

/// Returns the outcome of a dry run. A complete listing with a reason would be held: too many users would leave.
fn dry_run_outcome(report: Option<&Value>) -> &'static str {
    match report.map(|report| (report["reason"].is_string(), report["is_whole"] == true)) {
        Some((true, true)) => "held",
        Some((true, false)) => "failed",
        _ => "done",
    }
}

impl From<InvalidField> for Problem {
    fn from(wrong: InvalidField) -> Self {
        Self::invalid(&wrong.field, wrong.why_with(str::to_owned))
    }
}

/// Parses the provider in a path; one without directories is a 404.
fn provider(name: &str) -> Result<Provider, Problem> {
    let provider = Provider::parse(name).filter(|provider| provider.capabilities().has_directory);
    provider.ok_or_else(|| Problem::not_found("directory"))
}

async fn find(store: &TenantStore, name: &str) -> Result<Directory, Problem> {
    store.find_directory(provider(name)?).await?.ok_or_else(|| Problem::not_found("directory"))
}

/// List the directories of the tenant.
#[utoipa::path(get, path = "/v1/directories", operation_id = "list_directories", tag = "directories", responses(
    (status = 200, description = "Directories of the tenant", body = Page<DirectoryView>)))]
pub async fn list(TenantReader(store): TenantReader) -> Result<Json<Page<DirectoryView>>, Problem> {
    let found = store.list_directories().await?;
    let items = found.into_iter().map(DirectoryView::new).collect::<anyhow::Result<_>>()?;
    Ok(Json(Page { items, next_cursor: None }))
}

/// Get a directory, with the outcome of its last run and last dry run.
#[utoipa::path(get, path = "/v1/directories/{provider}", operation_id = "get_directory", tag = "directories",
    params(("provider" = String, Path, description = "Provider with a directory")), responses(
    (status = 200, description = "The directory", body = DirectoryView, headers(("ETag" = String)))))]
pub async fn get(TenantReader(store): TenantReader, Path(name): Path<String>) -> Result<Response, Problem> {
    let found = find(&store, &name).await?;
    let tag = [(header::ETAG, etag(found.version))];
    Ok((tag, Json(DirectoryView::new(found)?)).into_response())
}

/// Configuration of a directory.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DirectoryInput {
    /// Microsoft: id or domain of the directory.
    #[serde(default, deserialize_with = "non_null")]
    #[schema(nullable = false, example = "acme.onmicrosoft.com")]
    directory: Option<String>,
    /// Google: address of an administrator on whose behalf the directory is read.
    #[serde(default, deserialize_with = "non_null")]
    #[schema(nullable = false, example = "admin@acme.test")]
    administrator: Option<String>,
    #[serde(default)]
    rules: RulesView,
    /// How much existing mail to fetch of new mailboxes: `all`, `none`, or a number of days, such as `30d`. Default:
    /// the tenant's setting, else `sync.backfill`.
    #[serde(default, deserialize_with = "non_null")]
    #[schema(nullable = false, example = "30d")]
    backfill: Option<String>,
    /// Seconds between runs, from a minute to 30 days. Default: six hours.
    #[serde(default, deserialize_with = "non_null")]
    #[schema(nullable = false, minimum = 60, maximum = 2_592_000)]
    interval_seconds: Option<u64>,
    /// Read the directory on request only.
    #[serde(default)]
    is_paused: bool,
}

/// Set the tenant's directory at a provider, and which of its users get a mailbox.
///
/// It is read at once, unless it is paused. Requires the operator's key: this server's app can read the directory of every
/// organisation that trusts it.
#[utoipa::path(put, path = "/v1/directories/{provider}", operation_id = "put_directory", tag = "directories",
    params(("provider" = String, Path, description = "Provider with a directory"), IdempotencyKey, IfMatch),
    request_body = DirectoryInput, responses(
    (status = 200, description = "The directory after the change", body = DirectoryView, headers(("ETag" = String)))))]
pub async fn put(
    State(app): State<App>,
    Path(name): Path<String>,
    change: ChangeRequest<TenantWriter, DirectoryInput>,
) -> Result<Response, Problem> {
    if !change.by.is_operator {
        return Err(Problem::forbidden(
            "this operation requires the operator's key: it gives access to any mailbox of an organisation",
        ));
    }
    let store = &change.by.store;
    let provider = provider(&name)?;
    let before = store.find_directory(provider).await?;
    let call = change.invocation(&app, show);
    if let Some(before) = &before {
        call.check_version(before.version)?;
    }
    let body = &change.body;
    let definition = DirectoryConfig {
        provider,
        location: DirectoryLocation { directory: body.directory.clone(), administrator: body.administrator.clone() },
        rules: body.rules.clone().into(),
        backfill: resolve_backfill(&app, &store.tenant_settings().await?, body.backfill.as_deref())?,
        interval: body.interval_seconds.map_or(directory::DEFAULT_DISCOVERY_INTERVAL, Duration::from_secs),
        is_paused: body.is_paused,
    };
    let definition = definition.validate(app.providers)?;
    let after = operations::put(&call, store.id, before.as_ref(), &definition).await?;
    Ok(show(&after)?.into_response())
}

fn show(directory: &Directory) -> anyhow::Result<Reply> {
    Ok(Reply::json(StatusCode::OK, &DirectoryView::new(directory.clone())?)?.with_etag(directory.version))
}

/// Delete a directory and its users.
///
/// Mailboxes stay as they are, as if each had been connected by hand.
#[utoipa::path(delete, path = "/v1/directories/{provider}", operation_id = "delete_directory", tag = "directories",
    params(("provider" = String, Path, description = "Provider with a directory"), IdempotencyKey, IfMatch), responses(
    (status = 204, description = "The directory was deleted")))]
pub async fn delete(
    State(app): State<App>,
    Path(name): Path<String>,
    change: ChangeRequest<TenantWriter>,
) -> Result<Response, Problem> {
    let found = find(&change.by.store, &name).await?;
    let call = change.invocation(&app, |()| Ok(Reply::no_content()));
    operations::delete(&call, change.by.store.id, &found).await?;
    Ok(Reply::no_content().into_response())
}

/// Discovery run to start.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DiscoveryRequest {
    /// `gmail` or `outlook`. Default: all directories of the tenant.
    #[serde(default, deserialize_with = "non_null")]
    #[schema(nullable = false)]
    provider: Option<String>,
    /// Only report what would change; the directory shows it as `dry_run`.
    #[serde(default)]
    dry_run: bool,
    /// Apply the changes however many users leave.
    #[serde(default)]
    force: bool,
}

/// Requested discovery runs.
#[derive(Debug, Serialize, ToSchema)]
pub struct DiscoveryRequested {
    /// Directories that are read as soon as a worker is free.
    #[schema(example = json!(["gmail"]))]
    providers: Vec<&'static str>,
    dry_run: bool,
}

/// Read the tenant's directories now, instead of at their next time.
///
/// `GET /v1/directories/{provider}` shows the outcome.
#[utoipa::path(post, path = "/v1/directory/discover", operation_id = "discover_directory", tag = "directories",
    params(IdempotencyKey), request_body = DiscoveryRequest, responses(
    (status = 202, description = "The discovery was requested", body = DiscoveryRequested)))]
pub async fn discover(
    State(app): State<App>,
    change: ChangeRequest<TenantWriter, DiscoveryRequest>,
) -> Result<Response, Problem> {
    let store = &change.by.store;
    let DiscoveryRequest { provider: name, dry_run, force } = &change.body;
    if *dry_run && *force {
        return Err(Problem::invalid("force", "cannot be combined with dry_run"));
    }
    let found = match name {
        Some(name) => vec![find(store, name).await?],
        None => store.list_directories().await?,
    };
    if found.is_empty() {
        return Err(Problem::not_found("directory"));
    }
    let mode = match (dry_run, force) {
        (true, _) => DiscoveryMode::Dry,
        (_, true) => DiscoveryMode::Forced,
        _ => DiscoveryMode::Usual,
    };
    let providers: Vec<Provider> = found.iter().map(|found| found.provider).collect();
    let names: Vec<&'static str> = providers.iter().map(|provider| provider.as_str()).collect();
    let reply = Reply::json(StatusCode::ACCEPTED, &DiscoveryRequested { providers: names, dry_run: *dry_run })?;
    let call = change.invocation(&app, |()| Ok(reply.clone()));
    operations::discover(&call, store.id, &providers, mode).await?;
    Ok(reply.clone().into_response())
}
