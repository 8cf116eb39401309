//! API keys of tenants, managed by the operator.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use domain::{ApiKeyId, TenantId};
use engine::credentials::api_keys::{self, NewKey};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::json;
use store::sql::keys::ApiKey;
use utoipa::ToSchema;

use super::Path;
use super::auth::{Operator, OperatorForTenant};
use super::body::non_null;
use super::change::{AuditAction, ChangeRequest, Reply};
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
#[derive(Debug, Deserialize, ToSchema)]
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
    let NewApiKey { name, scopes, expires_at } = &change.body;
    check(name, scopes, *expires_at, change.now)?;
    let tenant = change.by.tenant.id;
    let (id, key) = api_keys::new_key(app.engine.store.clock())?;
    let created = CreatedKey {
        id,
        name: name.clone(),
        scopes: scopes.clone(),
        expires_at: *expires_at,
        created_at: change.now,
        key: key.expose().clone(),
    };
    let reply = Reply::created(format!("/v1/tenants/{tenant}/api-keys/{id}"), &created)?.with_secret();
    let after = Some(json!({"id": id, "name": name, "scopes": scopes, "expires_at": expires_at}));
    let action = AuditAction { tenant, action: "api_key.create", target: id.to_string(), before: None, after };
    let recording = change.record(&app, action, reply).await?;
    let new = NewKey { id, key: &key, name, scopes, expires_at: *expires_at, created_at: change.now };
    api_keys::store_key(&recording.engine.store.tenant(tenant), &new).await?;
    recording.finish().await
}

fn check(name: &str, scopes: &[String], expires_at: Option<Timestamp>, now: Timestamp) -> Result<(), Problem> {
    if name.trim().is_empty() || name.chars().count() > 100 || name.chars().any(char::is_control) {
        return Err(Problem::invalid("name", "must have 1 to 100 characters on one line"));
    }
    if scopes.is_empty() || scopes.iter().any(|scope| !api_keys::SCOPES.contains(&scope.as_str())) {
        return Err(Problem::invalid("scopes", format!("must be one or more of {}", api_keys::SCOPES.join(", "))));
    }
    if expires_at.is_some_and(|at| at <= now) {
        return Err(Problem::invalid("expires_at", "must be in the future"));
    }
    Ok(())
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
    let tenant = change.by.tenant.id;
    let keys = app.engine.store.tenant(tenant).list_api_keys().await?;
    let key = keys.into_iter().find(|key| key.id == id && key.revoked_at.is_none());
    let key = key.ok_or_else(no_valid_key)?;
    let before = Some(json!({"id": id, "name": key.name, "scopes": key.scopes, "expires_at": key.expires_at}));
    let action = AuditAction { tenant, action: "api_key.revoke", target: id.to_string(), before, after: None };
    let recording = change.record(&app, action, Reply::no_content()).await?;
    if !recording.engine.store.tenant(tenant).revoke_api_key(id).await? {
        return Err(no_valid_key());
    }
    recording.finish().await
}

fn no_valid_key() -> Problem {
    Problem::new(StatusCode::NOT_FOUND, "this tenant has no valid key with this id")
}
