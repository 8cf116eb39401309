//! Authenticates the bearer of a request. Throttled addresses and tenants above their rate limit are refused before the
//! database is queried.

use std::net::IpAddr;

use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use domain::{Actor, PlanTier, Sha256, TenantId};
use engine::credentials::api_keys::{self, Caller};
use engine::credentials::oidc::TokenLookup;

use super::problem::Problem;
use crate::App;
use crate::edge::{ClientAddress, KeyHistory, RequestContext};

pub async fn caller(parts: &Parts, app: &App) -> Result<Caller, Problem> {
    let bearer = bearer(parts)?;
    // Without an address this is not a request, but an event stream that checks its key again.
    let Some(ClientAddress(address)) = parts.extensions.get() else {
        return find(bearer, app).await?.ok_or_else(invalid);
    };
    let hash = Sha256::of(bearer.as_bytes());
    match app.edge.auth_throttle.check(*address, hash) {
        KeyHistory::Throttled(wait) => {
            return Err(Problem::too_many_requests("too many invalid keys were sent from this address", wait));
        }
        KeyHistory::RecentlyValid(Some((tenant, plan))) => admit(parts, app, tenant, plan).await?,
        KeyHistory::RecentlyValid(None) | KeyHistory::Unknown => {}
    }
    let found = find(bearer, app).await;
    if found.as_ref().is_err_and(Problem::is_client_error) {
        app.edge.auth_throttle.record_failure(*address, hash);
    }
    let caller = remember(app, *address, hash, found?)?;
    if let Caller::Tenant(holder) = &caller {
        admit(parts, app, holder.tenant, holder.plan).await?;
        if let Actor::Key(key) = holder.actor {
            app.edge.key_usage.record(key);
        }
    }
    Ok(caller)
}

fn bearer(parts: &Parts) -> Result<&str, Problem> {
    let header = parts.headers.get(AUTHORIZATION);
    let header = header.ok_or_else(|| {
        Problem::unauthorized("the Authorization header is missing; send `Authorization: Bearer KEY`")
    })?;
    let given = header.to_str().ok().and_then(|text| text.split_once(' '));
    let bearer = given.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer")).map(|(_, bearer)| bearer.trim());
    bearer.ok_or_else(invalid)
}

/// Finds the owner of a key or token. An invalid token is a 401 or 403 with the reason, since tokens are issued elsewhere.
async fn find(bearer: &str, app: &App) -> Result<Option<Caller>, Problem> {
    let store = &app.engine.store;
    let issuer = app.issuer.as_ref().filter(|_| !bearer.starts_with(api_keys::PREFIX));
    let Some(issuer) = issuer else { return Ok(api_keys::find_caller(store, bearer).await?) };
    match issuer.find_principal(store, bearer).await? {
        TokenLookup::Holder(holder) => Ok(Some(Caller::Tenant(holder))),
        TokenLookup::Refused(why) => Err(Problem::unauthorized(&format!("the token is not valid: {why}"))),
        TokenLookup::NoTenant => Err(Problem::forbidden("the token names no tenant of this server")),
        TokenLookup::NoKeys => Err(Problem::overloaded("the issuer of the token cannot be reached")),
    }
}

fn remember(app: &App, address: IpAddr, key: Sha256, caller: Option<Caller>) -> Result<Caller, Problem> {
    let throttle = &app.edge.auth_throttle;
    let Some(caller) = caller else {
        throttle.record_failure(address, key);
        return Err(invalid());
    };
    let tenant = match &caller {
        Caller::Operator => None,
        Caller::Tenant(holder) => Some((holder.tenant, holder.plan)),
    };
    throttle.record_success(address, key, tenant);
    Ok(caller)
}

/// Counts the request against the tenant's limits. The operator is not limited.
pub async fn admit(parts: &Parts, app: &App, tenant: TenantId, plan: PlanTier) -> Result<(), Problem> {
    match RequestContext::of(parts) {
        Some(context) => context.admit(&app.edge, tenant, plan).await,
        None => Ok(()),
    }
}

fn invalid() -> Problem {
    Problem::unauthorized("the key is not valid: it is mistyped, revoked or expired")
}
