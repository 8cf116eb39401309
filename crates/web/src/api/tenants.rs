//! Tenants, managed by the operator.

use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use domain::{PlanTier, TenantId, TenantSettings};
use engine::operations::tenants as operations;
use serde::{Deserialize, Serialize};
use store::sql::tenants::Tenant;
use utoipa::ToSchema;

use super::auth::{Operator, OperatorForTenant};
use super::body::{non_null, nullable};
use super::change::{ChangeRequest, Reply, etag};
use super::page::{Page, PageParams};
use super::problem::Problem;
use super::settings_schemas::TenantSettingsSchema;
use super::tenant_settings::TenantSettingsChange;
use super::{Path, Query};
use crate::App;

/// A tenant.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Tenant)]
pub struct TenantView {
    #[schema(value_type = String, format = "uuid")]
    id: TenantId,
    #[schema(example = "acme")]
    name: String,
    #[schema(example = "standard")]
    plan: &'static str,
    is_active: bool,
    #[schema(value_type = TenantSettingsSchema)]
    settings: TenantSettings,
    #[schema(value_type = String, format = DateTime)]
    created_at: jiff::Timestamp,
    #[schema(value_type = String, format = DateTime)]
    updated_at: jiff::Timestamp,
    /// When the tenant was deleted. It is erased after `tenants.erase_after`, unless it is undeleted before.
    #[schema(value_type = Option<String>, format = DateTime)]
    deleted_at: Option<jiff::Timestamp>,
    /// Reason of the legal hold, which prevents deletion and erasure.
    hold_reason: Option<String>,
}

impl From<Tenant> for TenantView {
    fn from(tenant: Tenant) -> Self {
        let Tenant {
            id, name, plan_tier, is_active, settings, created_at, updated_at, deleted_at, hold_reason, ..
        } = tenant;
        let plan = plan_tier.as_str();
        Self { id, name, plan, is_active, settings, created_at, updated_at, deleted_at, hold_reason }
    }
}

/// Tenant to create.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewTenant {
    /// 1 to 100 characters on one line, not in the format of an id.
    #[schema(example = "acme", min_length = 1, max_length = 100)]
    name: String,
    #[serde(default)]
    plan: PlanInput,
    /// Defaults for its mailboxes.
    #[serde(default)]
    settings: TenantSettingsChange,
}

/// Plan of a tenant: its request rate and its share of the workers.
#[derive(Debug, Clone, Copy, Default, Deserialize, ToSchema)]
#[schema(as = Plan)]
#[serde(rename_all = "lowercase")]
pub enum PlanInput {
    #[default]
    Standard,
    Vip,
}

impl From<PlanInput> for PlanTier {
    fn from(plan: PlanInput) -> Self {
        match plan {
            PlanInput::Standard => Self::Standard,
            PlanInput::Vip => Self::Vip,
        }
    }
}

fn show_created(tenant: &Tenant) -> anyhow::Result<Reply> {
    let location = format!("/v1/tenants/{}", tenant.id);
    Ok(Reply::created(location, &TenantView::from(tenant.clone()))?.with_etag(tenant.version))
}

fn show(tenant: &Tenant) -> anyhow::Result<Reply> {
    Ok(Reply::json(StatusCode::OK, &TenantView::from(tenant.clone()))?.with_etag(tenant.version))
}

fn show_accepted(tenant: &Tenant) -> anyhow::Result<Reply> {
    Ok(Reply::json(StatusCode::ACCEPTED, &TenantView::from(tenant.clone()))?.with_etag(tenant.version))
}

/// Create a tenant.
#[utoipa::path(post, path = "/v1/tenants", operation_id = "create_tenant", tag = "tenants", params(super::IdempotencyKey),
    request_body = NewTenant, responses(
    (status = 201, description = "The tenant was created", body = TenantView,
     headers(("Location" = String), ("ETag" = String)))))]
pub async fn create(State(app): State<App>, change: ChangeRequest<Operator, NewTenant>) -> Result<Response, Problem> {
    let NewTenant { name, plan, settings } = &change.body;
    let settings = settings.over(TenantSettings::default())?;
    let new = operations::NewTenant { name: name.clone(), plan: (*plan).into(), settings };
    let created = operations::create(&change.invocation(&app, show_created), new).await?;
    Ok(show_created(&created)?.into_response())
}

/// Changes to a tenant. Absent fields stay as they are.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TenantChange {
    #[serde(default, deserialize_with = "non_null")]
    #[schema(example = "acme", min_length = 1, max_length = 100)]
    name: Option<String>,
    #[serde(default, deserialize_with = "non_null")]
    #[schema(nullable = false)]
    plan: Option<PlanInput>,
    /// `false`: the tenant's keys are refused and its jobs do not run, at once. A deleted tenant cannot be activated; it
    /// can be undeleted.
    #[serde(default, deserialize_with = "non_null")]
    #[schema(nullable = false)]
    is_active: Option<bool>,
    /// Defaults for its mailboxes, obeyed from their next sync on.
    #[serde(default, deserialize_with = "non_null")]
    #[schema(nullable = false)]
    settings: Option<TenantSettingsChange>,
    /// Places a legal hold: the tenant cannot be deleted or erased. Null lifts the hold.
    #[serde(default, deserialize_with = "nullable")]
    #[schema(value_type = Option<String>, max_length = 1000)]
    hold_reason: Option<Option<String>>,
}

/// Change a tenant.
#[utoipa::path(patch, path = "/v1/tenants/{id}", operation_id = "change_tenant", tag = "tenants",
    params(("id" = String, Path), super::IdempotencyKey, super::IfMatch), request_body = TenantChange, responses(
    (status = 200, description = "The tenant after the change", body = TenantView, headers(("ETag" = String)))))]
pub async fn change(
    State(app): State<App>,
    change: ChangeRequest<OperatorForTenant, TenantChange>,
) -> Result<Response, Problem> {
    let before = &change.by.tenant;
    let call = change.invocation(&app, show);
    call.check_version(before.version)?;
    let TenantChange { name, plan, is_active, settings, hold_reason } = &change.body;
    let settings = settings.as_ref().map(|settings| settings.over(before.settings.clone())).transpose()?;
    let parts = operations::TenantChange {
        name: name.clone(),
        plan: plan.map(PlanTier::from),
        is_active: *is_active,
        settings,
        hold_reason: hold_reason.clone(),
    };
    let changed = operations::change(&call, before, parts).await?;
    Ok(show(&changed)?.into_response())
}

/// Delete a tenant.
///
/// Its keys are refused at once; its data is erased after `tenants.erase_after`, until when it can be undeleted.
#[utoipa::path(delete, path = "/v1/tenants/{id}", operation_id = "delete_tenant", tag = "tenants",
    params(("id" = String, Path), super::IdempotencyKey, super::IfMatch), responses(
    (status = 202, description = "The tenant was deleted; its data will be erased", body = TenantView, headers(("ETag" = String)))))]
pub async fn delete(State(app): State<App>, change: ChangeRequest<OperatorForTenant>) -> Result<Response, Problem> {
    let call = change.invocation(&app, show_accepted);
    let deleted = operations::delete(&call, &change.by.tenant, app.erase_after).await?;
    Ok(show_accepted(&deleted)?.into_response())
}

/// Undelete a tenant.
///
/// Its keys are accepted again and its data is not erased. Impossible once the erasure has begun.
#[utoipa::path(post, path = "/v1/tenants/{id}/undelete", operation_id = "undelete_tenant", tag = "tenants",
    params(("id" = String, Path), super::IdempotencyKey, super::IfMatch), responses(
    (status = 200, description = "The tenant was restored and is active", body = TenantView, headers(("ETag" = String)))))]
pub async fn undelete(State(app): State<App>, change: ChangeRequest<OperatorForTenant>) -> Result<Response, Problem> {
    let restored = operations::undelete(&change.invocation(&app, show), &change.by.tenant).await?;
    Ok(show(&restored)?.into_response())
}

/// List all tenants.
#[utoipa::path(get, path = "/v1/tenants", operation_id = "list_tenants", tag = "tenants", params(PageParams), responses(
    (status = 200, description = "Tenants", body = Page<TenantView>)))]
pub async fn list(
    _: Operator,
    State(app): State<App>,
    Query(paging): Query<PageParams>,
) -> Result<Json<Page<TenantView>>, Problem> {
    let limit = paging.limit()?;
    let tenants = app.engine.store.system().list_tenants_after(paging.after()?, limit + 1).await?;
    Ok(Json(Page::cut(tenants, limit, |tenant| tenant.id).map(TenantView::from)))
}

/// Get a tenant.
#[utoipa::path(get, path = "/v1/tenants/{id}", operation_id = "get_tenant", tag = "tenants", params(("id" = String, Path)), responses(
    (status = 200, description = "The tenant", body = TenantView, headers(("ETag" = String)))))]
pub async fn get(_: Operator, State(app): State<App>, Path(id): Path<TenantId>) -> Result<Response, Problem> {
    let tenant = find(&app, id).await?;
    let tag = [(header::ETAG, etag(tenant.version))];
    Ok((tag, Json(TenantView::from(tenant))).into_response())
}

pub async fn find(app: &App, id: TenantId) -> Result<Tenant, Problem> {
    let found = app.engine.store.system().find_tenant(&id.to_string()).await?;
    found.ok_or_else(|| Problem::not_found("tenant"))
}
