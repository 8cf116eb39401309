//! Tenants, for the operator.

use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use domain::{PlanTier, TenantId};
use engine::jobs::EraseTenant;
use serde::{Deserialize, Serialize};
use store::sql::tenants::Tenant;
use utoipa::ToSchema;

use super::auth::{Landlord, Operator};
use super::body::{given, given_or_null};
use super::change::{Change, Told, What, etag};
use super::page::{Page, Paging};
use super::problem::Problem;
use super::{Path, Query};
use crate::App;

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
    #[schema(value_type = String, format = DateTime)]
    created_at: jiff::Timestamp,
    #[schema(value_type = String, format = DateTime)]
    updated_at: jiff::Timestamp,
    /// Since when it is deleted; it is erased some time after, unless it is made active again.
    #[schema(value_type = Option<String>, format = DateTime)]
    deleted_at: Option<jiff::Timestamp>,
    /// Why it must not be deleted.
    hold_reason: Option<String>,
}

impl From<Tenant> for TenantView {
    fn from(tenant: Tenant) -> Self {
        let Tenant { id, name, plan_tier, is_active, created_at, updated_at, deleted_at, hold_reason, .. } = tenant;
        Self { id, name, plan: plan_tier.as_str(), is_active, created_at, updated_at, deleted_at, hold_reason }
    }
}

impl TenantView {
    /// For the audit.
    fn told(tenant: &Tenant) -> Result<Option<serde_json::Value>, Problem> {
        Ok(Some(serde_json::to_value(Self::from(tenant.clone())).map_err(anyhow::Error::from)?))
    }
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewTenant {
    /// 1 to 100 characters on one line that are no id.
    #[schema(example = "acme", min_length = 1, max_length = 100)]
    name: String,
    #[serde(default)]
    plan: Plan,
}

#[derive(Debug, Clone, Copy, Default, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Plan {
    #[default]
    Standard,
    Vip,
}

impl From<Plan> for PlanTier {
    fn from(plan: Plan) -> Self {
        match plan {
            Plan::Standard => Self::Standard,
            Plan::Vip => Self::Vip,
        }
    }
}

fn check_name(name: &str) -> Result<(), Problem> {
    if domain::tenant::valid_name(name) {
        return Ok(());
    }
    Err(Problem::invalid("name", "it is 1 to 100 characters on one line, without blanks around them, that are no id"))
}

/// Make a tenant.
#[utoipa::path(post, path = "/v1/tenants", operation_id = "create_tenant", tag = "tenants", params(super::IdempotencyKey),
    request_body = NewTenant, responses(
    (status = 201, description = "It is there", body = TenantView,
     headers(("Location" = String), ("ETag" = String)))))]
pub async fn create(State(app): State<App>, change: Change<Operator, NewTenant>) -> Result<Response, Problem> {
    check_name(&change.body.name)?;
    let id = TenantId::new(app.engine.store.clock());
    let tenant = Tenant::new(id, &change.body.name, change.body.plan.into(), change.now);
    let told = Told::created(format!("/v1/tenants/{id}"), &TenantView::from(tenant.clone()))?.with_etag(tenant.version);
    let after = TenantView::told(&tenant)?;
    let what = What { tenant: id, action: "tenant.create", target: id.to_string(), before: None, after };
    let recording = change.record(&app, what, told).await?;
    recording.engine.store.system().add_tenant(&tenant).await?;
    recording.done().await
}

/// What is left out stays as it is.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TenantChange {
    #[serde(default, deserialize_with = "given")]
    #[schema(example = "acme", min_length = 1, max_length = 100)]
    name: Option<String>,
    #[serde(default, deserialize_with = "given")]
    #[schema(nullable = false)]
    plan: Option<Plan>,
    /// Without it nobody gets in, and nothing of it is worked on, at once. With it a tenant that was deleted is back.
    #[serde(default, deserialize_with = "given")]
    #[schema(nullable = false)]
    is_active: Option<bool>,
    /// As long as there is a reason, it cannot be deleted, nor erased if it is deleted; null lifts it.
    #[serde(default, deserialize_with = "given_or_null")]
    #[schema(value_type = Option<String>, max_length = 1000)]
    hold_reason: Option<Option<String>>,
}

/// Change a tenant.
#[utoipa::path(patch, path = "/v1/tenants/{id}", operation_id = "change_tenant", tag = "tenants",
    params(("id" = String, Path), super::IdempotencyKey, super::IfMatch), request_body = TenantChange, responses(
    (status = 200, description = "As it is now", body = TenantView, headers(("ETag" = String)))))]
pub async fn change(State(app): State<App>, change: Change<Landlord, TenantChange>) -> Result<Response, Problem> {
    let before = change.by.of.clone();
    change.expect_version(before.version)?;
    if before.erasing_at.is_some() {
        return Err(Problem::conflict("this tenant is being erased; nothing brings it back"));
    }
    let TenantChange { name, plan, is_active, hold_reason } = &change.body;
    let mut after = before.changed_at(change.now);
    if let Some(name) = name {
        check_name(name)?;
        after.name.clone_from(name);
    }
    if let Some(plan) = plan {
        after.plan_tier = (*plan).into();
    }
    if let Some(is_active) = is_active {
        after.is_active = *is_active;
        after.deleted_at = before.deleted_at.filter(|_| !is_active);
    }
    if let Some(reason) = hold_reason {
        let is_short = reason.as_ref().is_none_or(|reason| reason.chars().count() <= 1000);
        let is_empty = |reason: &String| reason.trim().is_empty() || reason.contains('\0');
        if !is_short || reason.as_ref().is_some_and(is_empty) {
            return Err(Problem::invalid("hold_reason", "it is a text of 1 to 1000 characters, or null"));
        }
        after.hold_reason.clone_from(reason);
    }
    let told = Told::json(StatusCode::OK, &TenantView::from(after.clone()))?.with_etag(after.version);
    let recording = change.record(&app, what("tenant.change", &before, &after)?, told).await?;
    recording.engine.store.system().change_tenant(&before, &after).await?;
    recording.done().await
}

/// Delete a tenant: nobody gets in any more, at once; what it has is erased some time after.
#[utoipa::path(delete, path = "/v1/tenants/{id}", operation_id = "delete_tenant", tag = "tenants",
    params(("id" = String, Path), super::IdempotencyKey, super::IfMatch), responses(
    (status = 202, description = "It will be erased", body = TenantView, headers(("ETag" = String)))))]
pub async fn delete(State(app): State<App>, change: Change<Landlord>) -> Result<Response, Problem> {
    let before = change.by.of.clone();
    change.expect_version(before.version)?;
    if let Some(reason) = &before.hold_reason {
        return Err(Problem::conflict(format!("this tenant is on hold ({reason}); lift that first")));
    }
    if before.deleted_at.is_some() {
        return Err(Problem::conflict("this tenant is deleted already; it is erased when its time has come"));
    }
    let after = Tenant { is_active: false, deleted_at: Some(change.now), ..before.changed_at(change.now) };
    let told = Told::json(StatusCode::ACCEPTED, &TenantView::from(after.clone()))?.with_etag(after.version);
    let erase = EraseTenant::at(&app.engine, before.id, change.now, app.erase_after)?;
    let recording = change.record(&app, what("tenant.delete", &before, &after)?, told).await?;
    recording.engine.store.system().delete_tenant(&before, &after, erase).await?;
    recording.done().await
}

fn what(action: &'static str, before: &Tenant, after: &Tenant) -> Result<What, Problem> {
    let target = before.id.to_string();
    Ok(What { tenant: before.id, action, target, before: TenantView::told(before)?, after: TenantView::told(after)? })
}

/// All tenants.
#[utoipa::path(get, path = "/v1/tenants", operation_id = "list_tenants", tag = "tenants", params(Paging), responses(
    (status = 200, description = "What was asked for", body = Page<TenantView>)))]
pub async fn list(
    _: Operator,
    State(app): State<App>,
    Query(paging): Query<Paging>,
) -> Result<Json<Page<TenantView>>, Problem> {
    let limit = paging.limit()?;
    let tenants = app.engine.store.system().list_tenants_after(paging.after()?, limit + 1).await?;
    Ok(Json(Page::cut(tenants, limit, |tenant| tenant.id).map(TenantView::from)))
}

/// One tenant.
#[utoipa::path(get, path = "/v1/tenants/{id}", operation_id = "get_tenant", tag = "tenants", params(("id" = String, Path)), responses(
    (status = 200, description = "What was asked for", body = TenantView, headers(("ETag" = String)))))]
pub async fn get(_: Operator, State(app): State<App>, Path(id): Path<TenantId>) -> Result<Response, Problem> {
    let tenant = find(&app, id).await?;
    let tag = [(header::ETAG, etag(tenant.version))];
    Ok((tag, Json(TenantView::from(tenant))).into_response())
}

pub async fn find(app: &App, id: TenantId) -> Result<Tenant, Problem> {
    let found = app.engine.store.system().find_tenant(&id.to_string()).await?;
    found.ok_or_else(|| Problem::absent("tenant"))
}
