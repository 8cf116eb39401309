//! Who asks, and for which tenant.

use axum::extract::FromRequestParts;
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use axum::http::{HeaderMap, Request};
use domain::TenantId;
use engine::keys::{self, Caller};
use store::TenantStore;
use store::sql::keys::KeyHolder;

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

/// Who sees rows of all tenants, or of one.
#[derive(Debug, Clone, Copy)]
pub struct Viewer {
    /// `None`: all, which only the operator sees.
    pub tenant: Option<TenantId>,
}

impl Viewer {
    pub fn may_see(self, tenant: TenantId) -> bool {
        self.tenant.is_none_or(|own| own == tenant)
    }
}

impl FromRequestParts<App> for Viewer {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        let tenant = match (caller(parts, app).await?, named_tenant(parts)?) {
            (Caller::Operator, None) => None,
            (Caller::Operator, Some(named)) => {
                let found = app.engine.store.system().find_tenant(&named.to_string()).await?;
                Some(found.ok_or_else(|| Problem::absent("tenant"))?.id)
            }
            (Caller::Tenant(holder), named) => Some(own_tenant(&holder, named)?),
        };
        Ok(Self { tenant })
    }
}

/// The door to one tenant's rows, for a caller who may read them.
#[derive(Debug, Clone)]
pub struct Reader(pub TenantStore);

impl FromRequestParts<App> for Reader {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        let viewer = Viewer::from_request_parts(parts, app).await?;
        let unnamed = || Problem::invalid("X-Tenant-Id", "the operator says for which tenant");
        Ok(Self(app.engine.store.tenant(viewer.tenant.ok_or_else(unnamed)?)))
    }
}

/// Whether whoever sent these headers may still read the tenant: for answers that go on for hours.
pub async fn may_still_read(headers: &HeaderMap, app: &App, tenant: TenantId) -> bool {
    let (mut parts, ()) = Request::new(()).into_parts();
    parts.headers.clone_from(headers);
    Viewer::from_request_parts(&mut parts, app).await.is_ok_and(|viewer| viewer.may_see(tenant))
}

/// That of the key, if the key may read it.
fn own_tenant(holder: &KeyHolder, named: Option<TenantId>) -> Result<TenantId, Problem> {
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
    Ok(holder.tenant)
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
