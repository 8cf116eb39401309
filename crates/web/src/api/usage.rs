//! Usage of provider budgets, and the forecast of backfills.

use axum::Json;
use axum::extract::State;
use domain::TenantId;
use engine::accounts::usage::{
    self, BackfillForecast, LimitOwner, LimitPeriod, MailboxUsage, ProviderUsage, QuotaUsage, UsageLimit,
};
use serde::Serialize;
use utoipa::ToSchema;

use super::auth::Operator;
use super::problem::Problem;
use super::{Path, tenants};
use crate::App;

/// Stored data of a tenant and its usage of providers.
#[derive(Debug, Serialize, ToSchema)]
pub struct Usage {
    emails: u64,
    attachments: u64,
    blobs: u64,
    /// Providers at which the tenant has synced mailboxes, or had some within the last day.
    providers: Vec<ProviderUsageView>,
}

/// Usage of one provider by a tenant.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ProviderUsage)]
pub struct ProviderUsageView {
    #[schema(example = "gmail")]
    provider: &'static str,
    /// Number of synced mailboxes. Inactive and paused mailboxes, and mailboxes that need new credentials, are not
    /// counted here or below.
    mailboxes: u64,
    /// Calls, weighted as the budgets count them.
    calls: SpentView,
    /// Bytes of fetched messages.
    bytes: SpentView,
    /// Messages that are listed and not stored yet.
    backlog: u64,
    /// Progress of the backfill of older mail; null when it is complete.
    backfill: Option<ForecastView>,
}

/// Amount used, with the limits that are configured.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Spent)]
pub struct SpentView {
    /// Since the beginning of the hour.
    this_hour: u64,
    /// In this hour and the 23 hours before.
    last_day: u64,
    limits: Vec<LimitView>,
}

/// A limit, and what is left of it.
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

/// Progress and expected end of a backfill.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Forecast)]
pub struct ForecastView {
    stored: u64,
    to_fetch: u64,
    /// Whether all older mail is listed, so that the numbers are final.
    is_listed: bool,
    /// Expected end at the rate of the last minutes.
    #[schema(value_type = Option<String>, format = DateTime)]
    ends_at: Option<jiff::Timestamp>,
    /// Why the end cannot be estimated.
    #[schema(example = "older mail is still being listed")]
    unknown: Option<&'static str>,
}

/// Usage of its provider by a mailbox.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Budget)]
pub struct MailboxBudget {
    /// Calls of all the tenant's mailboxes at this provider, which share a budget.
    calls: SpentView,
    /// Bytes of this mailbox's messages.
    bytes: SpentView,
}

impl From<ProviderUsage> for ProviderUsageView {
    fn from(usage: ProviderUsage) -> Self {
        let ProviderUsage { provider, mailboxes, calls, bytes, backlog, backfill } = usage;
        let backfill = backfill.map(ForecastView::from);
        Self { provider, mailboxes, calls: calls.into(), bytes: bytes.into(), backlog, backfill }
    }
}

impl From<QuotaUsage> for SpentView {
    fn from(QuotaUsage { this_hour, last_day, limits }: QuotaUsage) -> Self {
        Self { this_hour, last_day, limits: limits.into_iter().map(LimitView::from).collect() }
    }
}

impl From<UsageLimit> for LimitView {
    fn from(UsageLimit { of, per, allowed, left }: UsageLimit) -> Self {
        let of = match of {
            LimitOwner::Mailbox => LimitOf::Mailbox,
            LimitOwner::Tenant => LimitOf::Tenant,
            LimitOwner::AllTenants => LimitOf::AllTenants,
        };
        let per = match per {
            LimitPeriod::Hour => LimitPer::Hour,
            LimitPeriod::Day => LimitPer::Day,
        };
        Self { of, per, allowed, left }
    }
}

impl From<BackfillForecast> for ForecastView {
    fn from(BackfillForecast { stored, to_fetch, is_listed, ends_at, unknown }: BackfillForecast) -> Self {
        Self { stored, to_fetch, is_listed, ends_at, unknown }
    }
}

impl MailboxBudget {
    /// Returns the budget, the backlog and the progress of the backfill.
    pub fn of(usage: MailboxUsage) -> (Self, u64, Option<ForecastView>) {
        let MailboxUsage { calls, bytes, backlog, backfill } = usage;
        (Self { calls: calls.into(), bytes: bytes.into() }, backlog, backfill.map(ForecastView::from))
    }
}

/// Get the stored data of a tenant and its usage of providers.
#[utoipa::path(get, path = "/v1/tenants/{id}/usage", operation_id = "get_usage", tag = "tenants", params(("id" = String, Path)), responses(
    (status = 200, description = "Usage of the tenant", body = Usage)))]
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
