//! Directories of a tenant's organisation, whose people get their mailboxes by themselves.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use connectors::microsoft::is_directory;
use domain::{Choice, Provider, Rules};
use engine::directory::{self, Place, Report, Wish, Wrong};
use engine::jobs::Discovery;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use store::TenantStore;
use store::sql::directories::Directory;
use utoipa::ToSchema;

use super::auth::{Reader, Writer};
use super::body::given;
use super::change::{Change, Told, What, etag};
use super::mailbox_changes::backfill;
use super::page::Page;
use super::problem::Problem;
use super::{IdempotencyKey, IfMatch, Path};
use crate::App;

/// A directory that is looked at again and again, and what came of the last time.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Directory)]
pub struct DirectoryView {
    /// gmail or outlook.
    #[schema(example = "gmail")]
    provider: &'static str,
    /// At Microsoft: its id or one of its domains.
    directory: Option<String>,
    /// At Google: the administrator for whom it is read.
    administrator: Option<String>,
    rules: RulesView,
    /// How much of what is there already is taken in of new mailboxes: all, none, or so many seconds.
    #[schema(example = "2592000s")]
    backfill: String,
    interval_seconds: u64,
    /// It is looked at only when somebody asks for it.
    is_paused: bool,
    /// When it is looked at again.
    #[schema(value_type = Option<String>, format = DateTime)]
    next_at: Option<Timestamp>,
    last_run: Option<RunView>,
    /// What was found the last time that somebody wanted to know what would happen.
    dry_run: Option<RunView>,
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
    #[schema(value_type = String, format = DateTime)]
    updated_at: Timestamp,
}

/// Who is wanted. Left out: everybody who works there, without those who are suspended, guests, or without a mailbox.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = DirectoryRules)]
#[serde(default, deny_unknown_fields)]
pub struct RulesView {
    /// Nothing in it: everybody.
    include: ChoiceView,
    /// Whoever is chosen by both is out.
    exclude: ChoiceView,
    /// Who is suspended is in, too.
    suspended: bool,
    guests: bool,
    unlicensed: bool,
}

/// Whoever is in one of these.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = DirectoryChoice)]
#[serde(default, deny_unknown_fields)]
pub struct ChoiceView {
    /// By address or id, with everybody who is in a group that is in it.
    groups: Vec<String>,
    /// Organisational units at Google with those below, departments at Microsoft.
    #[schema(example = json!(["/Sales"]))]
    units: Vec<String>,
    domains: Vec<String>,
    /// Aliases count.
    addresses: Vec<String>,
}

/// What came of a look at a directory.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = DiscoveryRun)]
pub struct RunView {
    #[schema(value_type = String, format = DateTime)]
    at: Timestamp,
    /// done, held or failed.
    #[schema(example = "done")]
    outcome: String,
    /// Why nothing was changed, or would be.
    reason: Option<String>,
    /// People in the directory.
    people: u64,
    added: u64,
    adopted: u64,
    returned: u64,
    left: u64,
    renamed: u64,
    /// Everybody who is not wanted, by why.
    left_out: BTreeMap<String, u64>,
    /// Of a dry run: who is concerned, the first thousand of them.
    items: Vec<ItemView>,
    /// There are more of them.
    is_cut: bool,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = DiscoveryItem)]
pub struct ItemView {
    /// add, adopt, return, leave, rename or leave_out.
    #[schema(example = "add")]
    action: String,
    provider_user_id: String,
    address: Option<String>,
    name: Option<String>,
    /// Why they are left out.
    reason: Option<String>,
}

impl RunView {
    fn new(at: Option<Timestamp>, outcome: &str, report: Option<Value>) -> Option<Self> {
        let report: Report = serde_json::from_value(report?).ok()?;
        let item = |item: directory::Item| ItemView {
            action: item.action,
            provider_user_id: item.provider_user_id,
            address: item.address,
            name: item.name,
            reason: item.reason,
        };
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
            items: report.items.into_iter().map(item).collect(),
            is_cut: report.is_cut,
        })
    }
}

impl From<RulesView> for Rules {
    fn from(rules: RulesView) -> Self {
        let RulesView { include, exclude, suspended, guests, unlicensed } = rules;
        Self { include: include.into(), exclude: exclude.into(), suspended, guests, unlicensed }
    }
}

impl From<ChoiceView> for Choice {
    fn from(choice: ChoiceView) -> Self {
        let ChoiceView { groups, units, domains, addresses } = choice;
        Self { groups, units, domains, addresses }
    }
}

impl DirectoryView {
    fn new(found: Directory) -> Result<Self, Problem> {
        let place: Place = serde_json::from_value(found.settings).map_err(anyhow::Error::from)?;
        let outcome = found.outcome.unwrap_or_default();
        Ok(Self {
            provider: found.provider.as_str(),
            directory: place.directory,
            administrator: place.administrator,
            rules: serde_json::from_value(found.rules).map_err(anyhow::Error::from)?,
            backfill: match found.backfill_seconds {
                None => "all".to_owned(),
                Some(0) => "none".to_owned(),
                Some(seconds) => format!("{seconds}s"),
            },
            interval_seconds: found.interval_seconds,
            is_paused: found.is_paused,
            next_at: Some(found.next_at).filter(|_| !found.is_paused),
            last_run: RunView::new(found.last_run_at, &outcome, found.last_run),
            dry_run: RunView::new(found.dry_run_at, of_dry_run(found.dry_run.as_ref()), found.dry_run),
            created_at: found.created_at,
            updated_at: found.updated_at,
        })
    }
}

/// A listing that came to its end, and has a reason all the same: so many would go that it would be held.
fn of_dry_run(report: Option<&Value>) -> &'static str {
    match report.map(|report| (report["reason"].is_string(), report["is_whole"] == true)) {
        Some((true, true)) => "held",
        Some((true, false)) => "failed",
        _ => "done",
    }
}

impl From<Wrong> for Problem {
    fn from(wrong: Wrong) -> Self {
        Self::invalid(&wrong.field, wrong.why)
    }
}

/// A path leads nowhere that names no provider with directories.
fn provider(name: &str) -> Result<Provider, Problem> {
    let provider = Provider::parse(name).filter(|provider| matches!(provider, Provider::Gmail | Provider::Outlook));
    provider.ok_or_else(|| Problem::absent("directory"))
}

async fn find(store: &TenantStore, name: &str) -> Result<Directory, Problem> {
    store.find_directory(provider(name)?).await?.ok_or_else(|| Problem::absent("directory"))
}

/// All directories of the tenant.
#[utoipa::path(get, path = "/v1/directories", operation_id = "list_directories", tag = "directories", responses(
    (status = 200, description = "What was asked for", body = Page<DirectoryView>)))]
pub async fn list(Reader(store): Reader) -> Result<Json<Page<DirectoryView>>, Problem> {
    let found = store.list_directories().await?;
    let items = found.into_iter().map(DirectoryView::new).collect::<Result<_, _>>()?;
    Ok(Json(Page { items, next_cursor: None }))
}

/// One directory, with what came of the last look at it and of the last dry run.
#[utoipa::path(get, path = "/v1/directories/{provider}", operation_id = "get_directory", tag = "directories",
    params(("provider" = String, Path, description = "gmail or outlook")), responses(
    (status = 200, description = "What was asked for", body = DirectoryView, headers(("ETag" = String)))))]
pub async fn get(Reader(store): Reader, Path(name): Path<String>) -> Result<Response, Problem> {
    let found = find(&store, &name).await?;
    let tag = [(header::ETAG, etag(found.version))];
    Ok((tag, Json(DirectoryView::new(found)?)).into_response())
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DirectoryWishBody {
    /// At Microsoft: its id or one of its domains.
    #[serde(default, deserialize_with = "given")]
    #[schema(nullable = false, example = "acme.onmicrosoft.com")]
    directory: Option<String>,
    /// At Google: the address of an administrator for whom it is read.
    #[serde(default, deserialize_with = "given")]
    #[schema(nullable = false, example = "admin@acme.test")]
    administrator: Option<String>,
    #[serde(default)]
    rules: RulesView,
    /// Of new mailboxes: all, none, or days like 30d, which is what it is when it is left out.
    #[serde(default, deserialize_with = "given")]
    #[schema(nullable = false, example = "30d")]
    backfill: Option<String>,
    /// From a minute to 30 days; left out: six hours.
    #[serde(default, deserialize_with = "given")]
    #[schema(nullable = false, minimum = 60, maximum = 2_592_000)]
    interval_seconds: Option<u64>,
    #[serde(default)]
    is_paused: bool,
}

/// Say which directory the tenant has at a provider and who of it is wanted. It is looked at right away unless it is paused.
/// For the operator: our app may read the directory of every organisation that trusts it.
#[utoipa::path(put, path = "/v1/directories/{provider}", operation_id = "put_directory", tag = "directories",
    params(("provider" = String, Path, description = "gmail or outlook"), IdempotencyKey, IfMatch),
    request_body = DirectoryWishBody, responses(
    (status = 200, description = "It is so", body = DirectoryView, headers(("ETag" = String)))))]
pub async fn put(
    State(app): State<App>,
    Path(name): Path<String>,
    change: Change<Writer, DirectoryWishBody>,
) -> Result<Response, Problem> {
    if !change.by.is_operator {
        return Err(Problem::forbidden("this is for the operator: it opens any mailbox of an organisation"));
    }
    let store = &change.by.store;
    let provider = provider(&name)?;
    let before = store.find_directory(provider).await?;
    change.expect_version(before.as_ref().map_or(0, |before| before.version))?;
    let body = &change.body;
    let wish = Wish {
        provider,
        place: Place { directory: body.directory.clone(), administrator: body.administrator.clone() },
        rules: body.rules.clone().into(),
        backfill: backfill(body.backfill.as_deref())?,
        interval: body.interval_seconds.map_or(directory::USUAL, Duration::from_secs),
        is_paused: body.is_paused,
    };
    let wish = wish.checked(is_directory)?;
    let after = Directory {
        provider,
        settings: wish.settings.clone(),
        rules: wish.rules.clone(),
        backfill_seconds: wish.backfill_seconds,
        interval_seconds: wish.interval_seconds,
        is_paused: wish.is_paused,
        version: before.as_ref().map_or(1, |before| before.version + 1),
        next_at: change.now,
        run: 0,
        is_listing: false,
        is_whole: true,
        begun_at: None,
        cursors: BTreeMap::new(),
        whole_at: None,
        outcome: before.as_ref().and_then(|before| before.outcome.clone()),
        last_run: before.as_ref().and_then(|before| before.last_run.clone()),
        last_run_at: before.as_ref().and_then(|before| before.last_run_at),
        dry_run: before.as_ref().and_then(|before| before.dry_run.clone()),
        dry_run_at: before.as_ref().and_then(|before| before.dry_run_at),
        created_at: before.as_ref().map_or(change.now, |before| before.created_at),
        updated_at: change.now,
    };
    let what = What {
        tenant: store.id,
        action: "directory.put",
        target: provider.as_str().to_owned(),
        before: before.as_ref().map(wanted),
        after: Some(wanted(&after)),
    };
    let version = after.version;
    let told = Told::json(StatusCode::OK, &DirectoryView::new(after)?)?.with_etag(version);
    let recording = change.record(&app, what, told).await?;
    recording.engine.put_directory(store.id, &wish, before.as_ref()).await?;
    recording.done().await
}

/// What somebody has said of it, for the audit.
fn wanted(directory: &Directory) -> Value {
    json!({
        "settings": directory.settings, "rules": directory.rules, "backfill_seconds": directory.backfill_seconds,
        "interval_seconds": directory.interval_seconds, "is_paused": directory.is_paused,
    })
}

/// Forget a directory and its people. Mailboxes stay as they are, as if each had been connected by hand.
#[utoipa::path(delete, path = "/v1/directories/{provider}", operation_id = "delete_directory", tag = "directories",
    params(("provider" = String, Path, description = "gmail or outlook"), IdempotencyKey, IfMatch), responses(
    (status = 204, description = "It is forgotten")))]
pub async fn delete(
    State(app): State<App>,
    Path(name): Path<String>,
    change: Change<Writer>,
) -> Result<Response, Problem> {
    let store = &change.by.store;
    let found = find(store, &name).await?;
    change.expect_version(found.version)?;
    let what = What {
        tenant: store.id,
        action: "directory.delete",
        target: found.provider.as_str().to_owned(),
        before: Some(wanted(&found)),
        after: None,
    };
    let recording = change.record(&app, what, Told::done()).await?;
    recording.engine.remove_directory(store.id, &found).await?;
    recording.done().await
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DiscoveryWish {
    /// gmail or outlook; left out: all that the tenant has.
    #[serde(default, deserialize_with = "given")]
    #[schema(nullable = false)]
    provider: Option<String>,
    /// Only find out what would happen; the directory tells it then.
    #[serde(default)]
    dry_run: bool,
    /// However many people go.
    #[serde(default)]
    force: bool,
}

#[derive(Debug, Serialize, ToSchema)]
pub struct DiscoveryRequested {
    /// The directories that are looked at as soon as a worker is free.
    #[schema(example = json!(["gmail"]))]
    providers: Vec<&'static str>,
    dry_run: bool,
}

/// Look at the tenant's directories soon, whenever they were to be. What came of it, the directory tells.
#[utoipa::path(post, path = "/v1/directory/discover", operation_id = "discover_directory", tag = "directories",
    params(IdempotencyKey), request_body = DiscoveryWish, responses(
    (status = 202, description = "They will be looked at", body = DiscoveryRequested)))]
pub async fn discover(State(app): State<App>, change: Change<Writer, DiscoveryWish>) -> Result<Response, Problem> {
    let store = &change.by.store;
    let DiscoveryWish { provider: name, dry_run, force } = &change.body;
    if *dry_run && *force {
        return Err(Problem::invalid("force", "a dry run changes nothing; send one of them"));
    }
    let found = match name {
        Some(name) => vec![find(store, name).await?],
        None => store.list_directories().await?,
    };
    if found.is_empty() {
        return Err(Problem::absent("directory"));
    }
    let how = match (dry_run, force) {
        (true, _) => Discovery::Dry,
        (_, true) => Discovery::Forced,
        _ => Discovery::Usual,
    };
    let providers: Vec<Provider> = found.iter().map(|found| found.provider).collect();
    let names: Vec<&'static str> = providers.iter().map(|provider| provider.as_str()).collect();
    let what = What {
        tenant: store.id,
        action: "directory.discover",
        target: names.join(" "),
        before: None,
        after: Some(json!({"dry_run": dry_run, "force": force})),
    };
    let told = Told::json(StatusCode::ACCEPTED, &DiscoveryRequested { providers: names, dry_run: *dry_run })?;
    let recording = change.record(&app, what, told).await?;
    recording.engine.request_discovery(store.id, &providers, how).await?;
    recording.done().await
}
