//! API keys of tenants, managed by the operator.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use domain::{ApiKeyId, TenantId};
use engine::operations::api_keys::{self, NewKey};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use store::sql::keys::ApiKey;
use utoipa::ToSchema;

use super::Path;
use super::auth::{Operator, OperatorForTenant};
use super::body::non_null;
use super::change::{ChangeRequest, Reply};
use super::page::Page;
use super::problem::Problem;
use super::tenants::find;
use crate::App;

/// An API key, without the key itself.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ApiKey)]
pub struct KeyView {
    #[schema(value_type = String, format = "uuid")]
    id: ApiKeyId,
    name: String,
    #[schema(example = json!(["read"]))]
    scopes: Vec<String>,
    #[schema(value_type = Option<String>, format = DateTime)]
    expires_at: Option<Timestamp>,
    #[schema(value_type = Option<String>, format = DateTime)]
    last_used_at: Option<Timestamp>,
    #[schema(value_type = Option<String>, format = DateTime)]
    revoked_at: Option<Timestamp>,
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
}

impl From<ApiKey> for KeyView {
    fn from(key: ApiKey) -> Self {
        let ApiKey { id, name, scopes, expires_at, last_used_at, revoked_at, created_at } = key;
        Self { id, name, scopes, expires_at, last_used_at, revoked_at, created_at }
    }
}

/// List the API keys of a tenant, including revoked ones.
///
/// The keys themselves are never shown.
#[utoipa::path(get, path = "/v1/tenants/{id}/api-keys", operation_id = "list_api_keys", tag = "tenants", params(("id" = String, Path)), responses(
    (status = 200, description = "API keys of the tenant", body = Page<KeyView>)))]
pub async fn list(
    _: Operator,
    State(app): State<App>,
    Path(id): Path<TenantId>,
) -> Result<Json<Page<KeyView>>, Problem> {
    let keys = app.engine.store.tenant(find(&app, id).await?.id).list_api_keys().await?;
    Ok(Json(Page { items: keys.into_iter().map(KeyView::from).collect(), next_cursor: None }))
}

/// API key to create.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewApiKey {
    /// Name for people.
    #[schema(example = "crm", min_length = 1, max_length = 100)]
    name: String,
    /// Any of `read`, `write` and `admin`; `write` includes `read`. Default: `read`.
    #[serde(default = "default_scopes")]
    #[schema(example = json!(["read", "write"]))]
    scopes: Vec<String>,
    #[serde(default, deserialize_with = "non_null")]
    #[schema(value_type = Option<String>, format = DateTime, nullable = false)]
    expires_at: Option<Timestamp>,
}

fn default_scopes() -> Vec<String> {
    vec!["read".to_owned()]
}

/// A new API key. The key is shown only in this response.
#[derive(Debug, Serialize, ToSchema)]
pub struct CreatedKey {
    #[schema(value_type = String, format = "uuid")]
    id: ApiKeyId,
    name: String,
    scopes: Vec<String>,
    #[schema(value_type = Option<String>, format = DateTime)]
    expires_at: Option<Timestamp>,
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
    /// The key; store it safely.
    key: String,
}

/// Create an API key for a tenant.
///
/// The key is shown only in this response.
#[utoipa::path(post, path = "/v1/tenants/{id}/api-keys", operation_id = "create_api_key", tag = "tenants",
    params(("id" = String, Path), super::IdempotencyKey), request_body = NewApiKey, responses(
    (status = 201, description = "The key was created", body = CreatedKey, headers(("Location" = String)))))]
pub async fn create(
    State(app): State<App>,
    change: ChangeRequest<OperatorForTenant, NewApiKey>,
) -> Result<Response, Problem> {
    let NewApiKey { name, scopes, expires_at } = change.body.clone();
    let new = NewKey { name, scopes, expires_at };
    let created = api_keys::create(&change.invocation(&app, show_created), change.by.tenant.id, new).await?;
    Ok(show_created(&created)?.into_response())
}

fn show_created(created: &api_keys::CreatedKey) -> anyhow::Result<Reply> {
    let api_keys::CreatedKey { id, tenant, new, created_at, key } = created.clone();
    let NewKey { name, scopes, expires_at } = new;
    let location = format!("/v1/tenants/{tenant}/api-keys/{id}");
    let shown = CreatedKey { id, name, scopes, expires_at, created_at, key: key.expose().clone() };
    Ok(Reply::created(location, &shown)?.with_secret())
}

/// Revoke an API key, effective at once.
#[utoipa::path(delete, path = "/v1/tenants/{id}/api-keys/{key}", operation_id = "revoke_api_key", tag = "tenants",
    params(("id" = String, Path), ("key" = String, Path), super::IdempotencyKey), responses(
    (status = 204, description = "The key was revoked")))]
pub async fn revoke(
    State(app): State<App>,
    Path((_, id)): Path<(TenantId, ApiKeyId)>,
    change: ChangeRequest<OperatorForTenant>,
) -> Result<Response, Problem> {
    let call = change.invocation(&app, |()| Ok(Reply::no_content()));
    api_keys::revoke(&call, change.by.tenant.id, id).await?;
    Ok(Reply::no_content().into_response())
}
