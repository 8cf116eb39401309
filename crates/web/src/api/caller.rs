//! Whose key came with a request. Whoever sends wrong ones, or more than their share, is told so before the database is
//! asked.

use std::net::IpAddr;

use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use domain::{PlanTier, Sha256, TenantId};
use engine::keys::{self, Caller, Who};
use engine::oidc::Found;

use super::problem::Problem;
use crate::App;
use crate::edge::{ClientAddress, Known, Passage};

pub async fn caller(parts: &Parts, app: &App) -> Result<Caller, Problem> {
    let bearer = bearer(parts)?;
    // Without an address it is no request, but a look whether a key still holds.
    let Some(ClientAddress(address)) = parts.extensions.get() else {
        return find(bearer, app).await?.ok_or_else(invalid);
    };
    let hash = Sha256::of(bearer.as_bytes());
    match app.edge.guesses.look(*address, hash) {
        Known::TooMany(wait) => return Err(Problem::too_many("too many wrong keys came from your address", wait)),
        Known::Good(Some((tenant, plan))) => admit(parts, app, tenant, plan).await?,
        Known::Good(None) | Known::Nothing => {}
    }
    let found = find(bearer, app).await;
    if found.as_ref().is_err_and(Problem::is_of_the_client) {
        app.edge.guesses.was_wrong(*address, hash);
    }
    let caller = remember(app, *address, hash, found?)?;
    if let Caller::Tenant(holder) = &caller {
        admit(parts, app, holder.tenant, holder.plan).await?;
        if let Who::Key(key) = holder.who {
            app.edge.uses.record(key);
        }
    }
    Ok(caller)
}

fn bearer(parts: &Parts) -> Result<&str, Problem> {
    let header = parts.headers.get(AUTHORIZATION);
    let header = header.ok_or_else(|| Problem::unauthorized("send your key as `Authorization: Bearer …`"))?;
    let given = header.to_str().ok().and_then(|text| text.split_once(' '));
    let bearer = given.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer")).map(|(_, bearer)| bearer.trim());
    bearer.ok_or_else(invalid)
}

/// `Err` of 401 or 403 for a token that is not good here: its holder is told why, for tokens are made elsewhere.
async fn find(bearer: &str, app: &App) -> Result<Option<Caller>, Problem> {
    let store = &app.engine.store;
    let issuer = app.issuer.as_ref().filter(|_| !bearer.starts_with(keys::PREFIX));
    let Some(issuer) = issuer else { return Ok(keys::find_caller(store, bearer).await?) };
    match issuer.find_holder(store, bearer).await? {
        Found::Holder(holder) => Ok(Some(Caller::Tenant(holder))),
        Found::Refused(why) => Err(Problem::unauthorized(&format!("this token is not valid: {why}"))),
        Found::NoTenant => Err(Problem::forbidden("this token is for no tenant here")),
        Found::NoKeys => Err(Problem::overloaded("the issuer of this token cannot be reached")),
    }
}

fn remember(app: &App, address: IpAddr, key: Sha256, caller: Option<Caller>) -> Result<Caller, Problem> {
    let guesses = &app.edge.guesses;
    let Some(caller) = caller else {
        guesses.was_wrong(address, key);
        return Err(invalid());
    };
    let tenant = match &caller {
        Caller::Operator => None,
        Caller::Tenant(holder) => Some((holder.tenant, holder.plan)),
    };
    guesses.was_good(address, key, tenant);
    Ok(caller)
}

/// The operator is not limited.
pub async fn admit(parts: &Parts, app: &App, tenant: TenantId, plan: PlanTier) -> Result<(), Problem> {
    match Passage::of(parts) {
        Some(passage) => passage.admit(&app.edge.rates, tenant, plan).await,
        None => Ok(()),
    }
}

fn invalid() -> Problem {
    Problem::unauthorized("this key is not valid: it is mistyped, revoked or has expired")
}
