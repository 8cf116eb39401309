//! What is used of providers, what is left, and when what waits will be here.

use axum::Json;
use axum::extract::State;
use domain::TenantId;
use engine::usage::{self, Forecast, Limit, MailboxUsage, ProviderUsage, Span, Spent, Whose};
use serde::Serialize;
use utoipa::ToSchema;

use super::auth::Operator;
use super::problem::Problem;
use super::{Path, tenants};
use crate::App;

/// How much a tenant has stored, and what it uses of its providers.
#[derive(Debug, Serialize, ToSchema)]
pub struct Usage {
    emails: u64,
    attachments: u64,
    blobs: u64,
    /// Those where it has mailboxes that are looked at, or had in the last day.
    providers: Vec<ProviderUsageView>,
}

/// What a tenant uses of a provider.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ProviderUsage)]
pub struct ProviderUsageView {
    #[schema(example = "gmail")]
    provider: &'static str,
    /// Those that are looked at. Those that are switched off, paused or refused count neither here nor below.
    mailboxes: u64,
    /// Calls as budgets count them.
    calls: SpentView,
    /// Bytes of messages that were fetched.
    bytes: SpentView,
    /// Messages that are known and not here yet.
    backlog: u64,
    /// How far it is with what was there before; nothing: all of it is here.
    backfill: Option<ForecastView>,
}

/// How much was used. Where nobody has set a limit, none is told.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Spent)]
pub struct SpentView {
    /// Since the hour began.
    this_hour: u64,
    /// In this hour and the 23 before.
    last_day: u64,
    limits: Vec<LimitView>,
}

/// Who may use how much in which time, and what is left of that.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Limit)]
pub struct LimitView {
    of: LimitOf,
    per: LimitPer,
    allowed: u64,
    left: u64,
}

#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum LimitOf {
    Mailbox,
    Tenant,
    AllTenants,
}

#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum LimitPer {
    Hour,
    Day,
}

/// When what was there before is here.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Forecast)]
pub struct ForecastView {
    stored: u64,
    to_fetch: u64,
    /// Whether that is all there is.
    is_listed: bool,
    /// About then, if it goes on as in the last minutes.
    #[schema(value_type = Option<String>, format = DateTime)]
    ends_at: Option<jiff::Timestamp>,
    /// Why nobody knows when.
    #[schema(example = "older mail is still being listed")]
    unknown: Option<&'static str>,
}

/// What a mailbox uses of its provider.
#[derive(Debug, Serialize, ToSchema)]
pub struct Budget {
    /// Of all the tenant's mailboxes at this provider: they share what may be called.
    calls: SpentView,
    /// Of this mailbox's messages.
    bytes: SpentView,
}

impl From<ProviderUsage> for ProviderUsageView {
    fn from(usage: ProviderUsage) -> Self {
        let ProviderUsage { provider, mailboxes, calls, bytes, backlog, backfill } = usage;
        let backfill = backfill.map(ForecastView::from);
        Self { provider, mailboxes, calls: calls.into(), bytes: bytes.into(), backlog, backfill }
    }
}

impl From<Spent> for SpentView {
    fn from(Spent { this_hour, last_day, limits }: Spent) -> Self {
        Self { this_hour, last_day, limits: limits.into_iter().map(LimitView::from).collect() }
    }
}

impl From<Limit> for LimitView {
    fn from(Limit { of, per, allowed, left }: Limit) -> Self {
        let of = match of {
            Whose::Mailbox => LimitOf::Mailbox,
            Whose::Tenant => LimitOf::Tenant,
            Whose::AllTenants => LimitOf::AllTenants,
        };
        let per = match per {
            Span::Hour => LimitPer::Hour,
            Span::Day => LimitPer::Day,
        };
        Self { of, per, allowed, left }
    }
}

impl From<Forecast> for ForecastView {
    fn from(Forecast { stored, to_fetch, is_listed, ends_at, unknown }: Forecast) -> Self {
        Self { stored, to_fetch, is_listed, ends_at, unknown }
    }
}

impl Budget {
    /// And what waits, and how far it is with what was there before.
    pub fn of(usage: MailboxUsage) -> (Self, u64, Option<ForecastView>) {
        let MailboxUsage { calls, bytes, backlog, backfill } = usage;
        (Self { calls: calls.into(), bytes: bytes.into() }, backlog, backfill.map(ForecastView::from))
    }
}

/// How much a tenant has stored, and what it uses of its providers.
#[utoipa::path(get, path = "/v1/tenants/{id}/usage", operation_id = "get_usage", tag = "tenants", params(("id" = String, Path)), responses(
    (status = 200, description = "What was asked for", body = Usage)))]
pub async fn usage(_: Operator, State(app): State<App>, Path(id): Path<TenantId>) -> Result<Json<Usage>, Problem> {
    let store = app.engine.store.tenant(tenants::find(&app, id).await?.id);
    let totals = store.totals().await?;
    let providers = usage::of_tenant(&store, Some(&app.engine.store.system()), &app.budgets).await?;
    Ok(Json(Usage {
        emails: totals.emails,
        attachments: totals.attachments,
        blobs: totals.blobs,
        providers: providers.into_iter().map(ProviderUsageView::from).collect(),
    }))
}
