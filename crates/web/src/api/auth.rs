//! Extractors for authentication and authorisation: who sends a request, and for which tenant.

use axum::extract::{FromRequestParts, RawPathParams};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Request};
use domain::{Actor, TenantId};
use engine::credentials::api_keys::{Caller, Principal, SCOPES};
use store::TenantStore;
use store::sql::tenants::Tenant;

use super::caller::caller;
use super::problem::Problem;
use crate::App;

/// Header by which the operator selects a tenant.
const TENANT_HEADER: &str = "x-tenant-id";

/// Authenticated sender of a change.
pub trait ChangeActor: FromRequestParts<App, Rejection = Problem> + Send {
    /// Returns the actor for the audit log.
    fn actor(&self) -> Actor;
    /// Returns the tenant that scopes the idempotency keys of this sender.
    fn tenant(&self) -> TenantId;
}

/// Admits the operator only.
#[derive(Debug, Clone, Copy)]
pub struct Operator;

impl ChangeActor for Operator {
    fn actor(&self) -> Actor {
        Actor::Operator
    }

    fn tenant(&self) -> TenantId {
        TenantId::SYSTEM
    }
}

impl FromRequestParts<App> for Operator {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        match caller(parts, app).await? {
            Caller::Operator => Ok(Self),
            Caller::Tenant(_) => Err(Problem::forbidden("this operation requires the operator's key")),
        }
    }
}

/// Read access to the rows of all tenants, or of one.
#[derive(Debug, Clone, Copy)]
pub struct ReadAccess {
    /// `None` for all tenants, which only the operator may read.
    pub tenant: Option<TenantId>,
}

impl ReadAccess {
    /// Returns whether rows of this tenant may be read.
    pub fn may_see(self, tenant: TenantId) -> bool {
        self.tenant.is_none_or(|own| own == tenant)
    }

    /// Fails if the operator has not selected a tenant.
    fn required_tenant(self) -> Result<TenantId, Problem> {
        self.tenant.ok_or_else(|| Problem::invalid("X-Tenant-Id", "is required with the operator's key"))
    }

    async fn of(caller: &Caller, parts: &Parts, app: &App) -> Result<Self, Problem> {
        let tenant = match (caller, tenant_header(parts)?) {
            (Caller::Operator, None) => None,
            (Caller::Operator, Some(named)) => {
                let found = app.engine.store.system().find_tenant(&named.to_string()).await?;
                Some(found.ok_or_else(|| Problem::not_found("tenant"))?.id)
            }
            (Caller::Tenant(holder), named) => Some(own_tenant(holder, named)?),
        };
        Ok(Self { tenant })
    }
}

impl FromRequestParts<App> for ReadAccess {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        Self::of(&caller(parts, app).await?, parts, app).await
    }
}

/// Read access to the rows of one tenant.
#[derive(Debug, Clone)]
pub struct TenantReader(pub TenantStore);

impl FromRequestParts<App> for TenantReader {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        let access = ReadAccess::from_request_parts(parts, app).await?;
        Ok(Self(app.engine.store.tenant(access.required_tenant()?)))
    }
}

/// The operator, with the tenant that the path names.
#[derive(Debug, Clone)]
pub struct OperatorForTenant {
    pub tenant: Tenant,
}

impl FromRequestParts<App> for OperatorForTenant {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        Operator::from_request_parts(parts, app).await?;
        let named = RawPathParams::from_request_parts(parts, app).await.map_err(|_| Problem::not_found("tenant"))?;
        let id = named.iter().find(|(name, _)| *name == "id").and_then(|(_, id)| id.parse::<TenantId>().ok());
        let id = id.ok_or_else(Problem::no_such_route)?;
        let found = app.engine.store.system().find_tenant(&id.to_string()).await?;
        Ok(Self { tenant: found.ok_or_else(|| Problem::not_found("tenant"))? })
    }
}

impl ChangeActor for OperatorForTenant {
    fn actor(&self) -> Actor {
        Actor::Operator
    }

    fn tenant(&self) -> TenantId {
        self.tenant.id
    }
}

/// Write access to the rows of all tenants, or of one.
#[derive(Debug, Clone)]
pub struct WriteAccess {
    pub scope: ReadAccess,
    is_operator: bool,
    actor: Actor,
}

impl FromRequestParts<App> for WriteAccess {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        let caller = caller(parts, app).await?;
        let scope = ReadAccess::of(&caller, parts, app).await?;
        if let Caller::Tenant(holder) = &caller
            && !holder.scopes.iter().any(|scope| scope == "write" || scope == "admin")
        {
            return Err(Problem::forbidden("this key cannot write; use a key with the scope `write`"));
        }
        Ok(Self { scope, is_operator: matches!(caller, Caller::Operator), actor: caller.actor() })
    }
}

impl ChangeActor for WriteAccess {
    fn actor(&self) -> Actor {
        self.actor.clone()
    }

    fn tenant(&self) -> TenantId {
        self.scope.tenant.unwrap_or(TenantId::SYSTEM)
    }
}

/// Write access to the rows of one tenant.
#[derive(Debug, Clone)]
pub struct TenantWriter {
    pub store: TenantStore,
    pub is_operator: bool,
    actor: Actor,
}

impl FromRequestParts<App> for TenantWriter {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        let WriteAccess { scope, is_operator, actor } = WriteAccess::from_request_parts(parts, app).await?;
        Ok(Self { store: app.engine.store.tenant(scope.required_tenant()?), is_operator, actor })
    }
}

impl ChangeActor for TenantWriter {
    fn actor(&self) -> Actor {
        self.actor.clone()
    }

    fn tenant(&self) -> TenantId {
        self.store.id
    }
}

/// Returns whether the key in these headers may still read the tenant: for event streams, which last for hours.
pub async fn may_still_read(headers: &HeaderMap, app: &App, tenant: TenantId) -> bool {
    let (mut parts, ()) = Request::new(()).into_parts();
    parts.headers.clone_from(headers);
    ReadAccess::from_request_parts(&mut parts, app).await.is_ok_and(|access| access.may_see(tenant))
}

/// Returns the tenant of a key, if the key may read it.
fn own_tenant(holder: &Principal, named: Option<TenantId>) -> Result<TenantId, Problem> {
    if named.is_some_and(|named| named != holder.tenant) {
        return Err(Problem::forbidden("this key belongs to another tenant than X-Tenant-Id"));
    }
    if !holder.is_tenant_active {
        return Err(Problem::forbidden("this tenant is deactivated; the operator can activate it"));
    }
    // The scopes `write` and `admin` include `read`.
    if !holder.scopes.iter().any(|scope| SCOPES.contains(&scope.as_str())) {
        return Err(Problem::forbidden("this key or token cannot read; use one with the scope `read`"));
    }
    Ok(holder.tenant)
}

fn tenant_header(parts: &Parts) -> Result<Option<TenantId>, Problem> {
    let Some(value) = parts.headers.get(TENANT_HEADER) else { return Ok(None) };
    let id = value.to_str().ok().and_then(|text| text.parse().ok());
    id.map(Some).ok_or_else(|| Problem::invalid("X-Tenant-Id", "must be the id of a tenant"))
}
