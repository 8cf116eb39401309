//! Who asks, and for which tenant.

use axum::extract::FromRequestParts;
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use domain::TenantId;
use engine::keys::{self, Caller};
use store::TenantStore;

use super::problem::Problem;
use crate::App;

/// By which the operator says for whom a request is.
const TENANT: &str = "x-tenant-id";

/// Whoever runs this installation; nobody else gets here.
#[derive(Debug, Clone, Copy)]
pub struct Operator;

impl FromRequestParts<App> for Operator {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        match caller(parts, app).await? {
            Caller::Operator => Ok(Self),
            Caller::Tenant(_) => Err(Problem::forbidden("this is for the operator")),
        }
    }
}

/// The door to one tenant's rows, for a caller who may read them.
#[derive(Debug, Clone)]
pub struct Reader(pub TenantStore);

impl FromRequestParts<App> for Reader {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        let named = named_tenant(parts)?;
        let tenant = match caller(parts, app).await? {
            Caller::Operator => {
                let named =
                    named.ok_or_else(|| Problem::invalid("X-Tenant-Id", "the operator says for which tenant"))?;
                let tenant = app.engine.store.system().find_tenant(&named.to_string()).await?;
                tenant.ok_or_else(|| Problem::absent("tenant"))?.id
            }
            Caller::Tenant(holder) => {
                if named.is_some_and(|named| named != holder.tenant) {
                    return Err(Problem::forbidden("this key is for another tenant than X-Tenant-Id names"));
                }
                if !holder.is_tenant_active {
                    return Err(Problem::forbidden("this tenant is not active"));
                }
                // Whoever may write or administer may read.
                if holder.scopes.is_empty() {
                    return Err(Problem::forbidden("this key has no scope, so it may do nothing"));
                }
                holder.tenant
            }
        };
        Ok(Self(app.engine.store.tenant(tenant)))
    }
}

fn named_tenant(parts: &Parts) -> Result<Option<TenantId>, Problem> {
    let Some(value) = parts.headers.get(TENANT) else { return Ok(None) };
    let id = value.to_str().ok().and_then(|text| text.parse().ok());
    id.map(Some).ok_or_else(|| Problem::invalid("X-Tenant-Id", "it is not the id of a tenant"))
}

async fn caller(parts: &Parts, app: &App) -> Result<Caller, Problem> {
    let header = parts.headers.get(AUTHORIZATION);
    let header = header.ok_or_else(|| Problem::unauthorized("send your key as `Authorization: Bearer …`"))?;
    let given = header.to_str().ok().and_then(|text| text.split_once(' '));
    let key = given.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer")).map(|(_, key)| key.trim());
    let caller = match key {
        Some(key) => keys::find_caller(&app.engine.store, key).await?,
        None => None,
    };
    caller.ok_or_else(|| Problem::unauthorized("this key is not valid: it is mistyped, revoked or has expired"))
}
