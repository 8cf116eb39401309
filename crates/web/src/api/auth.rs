//! Who asks, and for which tenant.

use axum::extract::{FromRequestParts, RawPathParams};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Request};
use domain::TenantId;
use engine::keys::{Caller, Holder};
use store::TenantStore;
use store::sql::tenants::Tenant;

use super::caller::caller;
use super::problem::Problem;
use crate::App;

/// By which the operator says for whom a request is.
const TENANT: &str = "x-tenant-id";

/// Who changes something.
pub trait Principal: FromRequestParts<App, Rejection = Problem> + Send {
    /// For the audit.
    fn actor(&self) -> String;
    /// Whose idempotency keys are theirs.
    fn tenant(&self) -> TenantId;
}

/// Whoever runs this installation; nobody else gets here.
#[derive(Debug, Clone, Copy)]
pub struct Operator;

impl Principal for Operator {
    fn actor(&self) -> String {
        Caller::Operator.actor()
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

    /// Of the operator it is asked for which tenant.
    fn named(self) -> Result<TenantId, Problem> {
        self.tenant.ok_or_else(|| Problem::invalid("X-Tenant-Id", "the operator says for which tenant"))
    }

    async fn of(caller: &Caller, parts: &Parts, app: &App) -> Result<Self, Problem> {
        let tenant = match (caller, named_tenant(parts)?) {
            (Caller::Operator, None) => None,
            (Caller::Operator, Some(named)) => {
                let found = app.engine.store.system().find_tenant(&named.to_string()).await?;
                Some(found.ok_or_else(|| Problem::absent("tenant"))?.id)
            }
            (Caller::Tenant(holder), named) => Some(own_tenant(holder, named)?),
        };
        Ok(Self { tenant })
    }
}

impl FromRequestParts<App> for Viewer {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        Self::of(&caller(parts, app).await?, parts, app).await
    }
}

/// The door to one tenant's rows, for a caller who may read them.
#[derive(Debug, Clone)]
pub struct Reader(pub TenantStore);

impl FromRequestParts<App> for Reader {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        let viewer = Viewer::from_request_parts(parts, app).await?;
        Ok(Self(app.engine.store.tenant(viewer.named()?)))
    }
}

/// The operator, at work on the tenant that the address names.
#[derive(Debug, Clone)]
pub struct Landlord {
    pub of: Tenant,
}

impl FromRequestParts<App> for Landlord {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        Operator::from_request_parts(parts, app).await?;
        let named = RawPathParams::from_request_parts(parts, app).await.map_err(|_| Problem::absent("tenant"))?;
        let id = named.iter().find(|(name, _)| *name == "id").and_then(|(_, id)| id.parse::<TenantId>().ok());
        let id = id.ok_or_else(Problem::nowhere)?;
        let found = app.engine.store.system().find_tenant(&id.to_string()).await?;
        Ok(Self { of: found.ok_or_else(|| Problem::absent("tenant"))? })
    }
}

impl Principal for Landlord {
    fn actor(&self) -> String {
        Caller::Operator.actor()
    }

    fn tenant(&self) -> TenantId {
        self.of.id
    }
}

/// Who may change rows of all tenants, or of one.
#[derive(Debug, Clone)]
pub struct Changer {
    pub seen: Viewer,
    is_operator: bool,
    actor: String,
}

impl FromRequestParts<App> for Changer {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        let caller = caller(parts, app).await?;
        let seen = Viewer::of(&caller, parts, app).await?;
        if let Caller::Tenant(holder) = &caller
            && !holder.scopes.iter().any(|scope| scope == "write" || scope == "admin")
        {
            return Err(Problem::forbidden("this key may only read; it takes one with the scope write"));
        }
        Ok(Self { seen, is_operator: matches!(caller, Caller::Operator), actor: caller.actor() })
    }
}

impl Principal for Changer {
    fn actor(&self) -> String {
        self.actor.clone()
    }

    fn tenant(&self) -> TenantId {
        self.seen.tenant.unwrap_or(TenantId::SYSTEM)
    }
}

/// The door to one tenant's rows, for a caller who may change them.
#[derive(Debug, Clone)]
pub struct Writer {
    pub store: TenantStore,
    pub is_operator: bool,
    actor: String,
}

impl FromRequestParts<App> for Writer {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        let Changer { seen, is_operator, actor } = Changer::from_request_parts(parts, app).await?;
        Ok(Self { store: app.engine.store.tenant(seen.named()?), is_operator, actor })
    }
}

impl Principal for Writer {
    fn actor(&self) -> String {
        self.actor.clone()
    }

    fn tenant(&self) -> TenantId {
        self.store.id
    }
}

/// Whether whoever sent these headers may still read the tenant: for answers that go on for hours.
pub async fn may_still_read(headers: &HeaderMap, app: &App, tenant: TenantId) -> bool {
    let (mut parts, ()) = Request::new(()).into_parts();
    parts.headers.clone_from(headers);
    Viewer::from_request_parts(&mut parts, app).await.is_ok_and(|viewer| viewer.may_see(tenant))
}

/// That of the key, if the key may read it.
fn own_tenant(holder: &Holder, named: Option<TenantId>) -> Result<TenantId, Problem> {
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
