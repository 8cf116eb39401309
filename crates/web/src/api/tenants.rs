//! Tenants and their keys, for the operator.

use axum::Json;
use axum::extract::State;
use domain::TenantId;
use serde::Serialize;
use store::sql::keys::ApiKey;
use store::sql::tenants::Tenant;
use utoipa::ToSchema;

use super::auth::Operator;
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
}

impl From<Tenant> for TenantView {
    fn from(tenant: Tenant) -> Self {
        let Tenant { id, name, plan_tier, is_active, created_at, updated_at, .. } = tenant;
        Self { id, name, plan: plan_tier.as_str(), is_active, created_at, updated_at }
    }
}

/// All tenants.
#[utoipa::path(get, path = "/v1/tenants", operation_id = "list_tenants", tag = "tenants", params(Paging), responses(
    (status = 200, description = "What was asked for", body = Page<TenantView>), super::Refusals))]
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
    (status = 200, description = "What was asked for", body = TenantView), super::Refusals))]
pub async fn get(_: Operator, State(app): State<App>, Path(id): Path<TenantId>) -> Result<Json<TenantView>, Problem> {
    Ok(Json(find(&app, id).await?.into()))
}

async fn find(app: &App, id: TenantId) -> Result<Tenant, Problem> {
    let found = app.engine.store.system().find_tenant(&id.to_string()).await?;
    found.ok_or_else(|| Problem::absent("tenant"))
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ApiKey)]
pub struct KeyView {
    #[schema(value_type = String, format = "uuid")]
    id: domain::ApiKeyId,
    name: String,
    #[schema(example = json!(["read"]))]
    scopes: Vec<String>,
    #[schema(value_type = Option<String>, format = DateTime)]
    expires_at: Option<jiff::Timestamp>,
    #[schema(value_type = Option<String>, format = DateTime)]
    last_used_at: Option<jiff::Timestamp>,
    #[schema(value_type = Option<String>, format = DateTime)]
    revoked_at: Option<jiff::Timestamp>,
    #[schema(value_type = String, format = DateTime)]
    created_at: jiff::Timestamp,
}

impl From<ApiKey> for KeyView {
    fn from(key: ApiKey) -> Self {
        let ApiKey { id, name, scopes, expires_at, last_used_at, revoked_at, created_at } = key;
        Self { id, name, scopes, expires_at, last_used_at, revoked_at, created_at }
    }
}

/// The keys of a tenant, also those that are revoked; never the keys themselves.
#[utoipa::path(get, path = "/v1/tenants/{id}/api-keys", operation_id = "list_api_keys", tag = "tenants", params(("id" = String, Path)), responses(
    (status = 200, description = "What was asked for", body = Page<KeyView>), super::Refusals))]
pub async fn keys(
    _: Operator,
    State(app): State<App>,
    Path(id): Path<TenantId>,
) -> Result<Json<Page<KeyView>>, Problem> {
    let keys = app.engine.store.tenant(find(&app, id).await?.id).list_api_keys().await?;
    Ok(Json(Page { items: keys.into_iter().map(KeyView::from).collect(), next_cursor: None }))
}

/// How much a tenant has stored.
#[derive(Debug, Serialize, ToSchema)]
pub struct Usage {
    emails: u64,
    attachments: u64,
    blobs: u64,
}

/// How much a tenant has stored.
#[utoipa::path(get, path = "/v1/tenants/{id}/usage", operation_id = "get_usage", tag = "tenants", params(("id" = String, Path)), responses(
    (status = 200, description = "What was asked for", body = Usage), super::Refusals))]
pub async fn usage(_: Operator, State(app): State<App>, Path(id): Path<TenantId>) -> Result<Json<Usage>, Problem> {
    let totals = app.engine.store.tenant(find(&app, id).await?.id).totals().await?;
    Ok(Json(Usage { emails: totals.emails, attachments: totals.attachments, blobs: totals.blobs }))
}
