//! The admin consent endpoint.

use super::super::directory::{Authority, CONSUMERS, DirectoryChange};
use super::super::faults::MicrosoftRoute;
use super::super::world::MicrosoftWorld;
use super::assertion::unknown_application;
use super::authorize::{redirect_back, redirect_with_error};
use super::discovery::unknown_tenant;
use super::error::IdentityError;
use crate::consent::{is_loopback, page};
use crate::form::{FormFields, find_unknown, value};
use crate::response::SimResponse;
use crate::spec::Side;

const KNOWN_PARAMETERS: [&str; 4] = ["client_id", "scope", "redirect_uri", "state"];

const DECISION_PARAMETERS: [&str; 3] = ["account", "granted", "decision"];

/// Shows the consent page, or redirects at once. The decision is posted to `path`.
pub fn ask(world: &MicrosoftWorld, tenant: &str, path: &str, query: &FormFields) -> SimResponse {
    let authority = match check(world, tenant, query, &[]) {
        Ok(authority) => authority,
        Err(answer) => return *answer,
    };
    let consent = world.consent();
    if !consent.auto {
        let accounts = world.first_addresses(50, &authority);
        return SimResponse::text(200, page::HTML, page::consent("Microsoft", path, query, &accounts, None));
    }
    let account = consent.account.or_else(|| world.first_addresses(1, &authority).pop());
    finish(world, &authority, query, account.as_deref().filter(|_| !consent.denied))
}

pub fn decide(world: &MicrosoftWorld, tenant: &str, form: &FormFields) -> SimResponse {
    match check(world, tenant, form, &DECISION_PARAMETERS) {
        Ok(authority) => {
            let is_allowed = value(form, "decision") == Some("allow");
            finish(world, &authority, form, value(form, "account").filter(|_| is_allowed))
        }
        Err(answer) => *answer,
    }
}

/// Records a violation and shows the error to the person.
fn refuse(world: &MicrosoftWorld, error: &IdentityError) -> Box<SimResponse> {
    let why = format!("AADSTS{}: {}", error.code, error.message);
    world.violations.add(Side::Request, MicrosoftRoute::AdminConsent.as_str(), &why);
    Box::new(SimResponse::text(400, page::HTML, page::refusal(400, &error.error, &why)))
}

fn check(
    world: &MicrosoftWorld,
    tenant: &str,
    query: &FormFields,
    more: &[&str],
) -> Result<Authority, Box<SimResponse>> {
    let authority = world.tenant(tenant).ok_or_else(|| refuse(world, &unknown_tenant(tenant)))?;
    if let Some(name) = find_unknown(query, &KNOWN_PARAMETERS, more) {
        return Err(refuse(world, &IdentityError::request(90_100, format!("unknown parameter {name:?}"))));
    }
    if authority == Authority::Consumers {
        return Err(refuse(world, &IdentityError::request(90_112, "Personal accounts have no administrator.")));
    }
    let id = value(query, "client_id").unwrap_or_default();
    let client = world.provider.identity.find_client(id).ok_or_else(|| refuse(world, &unknown_application(id)))?;
    let redirect_uri = value(query, "redirect_uri").unwrap_or_default();
    if !client.redirect_uris.iter().any(|known| known == redirect_uri) && !is_loopback(redirect_uri) {
        return Err(refuse(world, &IdentityError::request(50_011, format!("redirect_uri={redirect_uri}"))));
    }
    Ok(authority)
}

/// Redirects back with the outcome. `None`: the administrator declined.
fn finish(world: &MicrosoftWorld, authority: &Authority, query: &FormFields, account: Option<&str>) -> SimResponse {
    let directory = match authority {
        Authority::One(id) => account.map(|_| id.clone()),
        _ => account.and_then(|account| world.find(account)).map(|mailbox| mailbox.state.directory.clone()),
    };
    let Some(directory) = directory.filter(|directory| directory != CONSUMERS) else {
        let message = "The administrator declined to consent to access the app.";
        return redirect_with_error(world, query, &IdentityError::new("access_denied", 65_004, message));
    };
    let client_id = value(query, "client_id").map(str::to_lowercase);
    world.change_directory(
        &directory,
        &DirectoryChange { admin_consent: Some(true), client_id, ..DirectoryChange::default() },
    );
    let mut parameters = vec![("admin_consent", "True".to_owned()), ("tenant", directory)];
    parameters.extend(value(query, "scope").map(|scope| ("scope", scope.to_owned())));
    redirect_back(query, parameters)
}
