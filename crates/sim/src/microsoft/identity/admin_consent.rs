//! Where an administrator lets a program into a whole directory.

use super::super::directory::{CONSUMERS, DirectoryChange, Tenant};
use super::super::faults::Route;
use super::super::world::World;
use super::assertion::not_found;
use super::authorize::{back, back_wrong};
use super::discovery::unknown;
use super::error::Wrong;
use crate::answer::Answer;
use crate::consent::{is_loopback, page};
use crate::form::value;
use crate::spec::Side;

const KNOWN: [&str; 4] = ["client_id", "scope", "redirect_uri", "state"];

const DECIDED: [&str; 3] = ["account", "granted", "decision"];

type Pairs = [(String, String)];

/// `path`: where what is clicked goes to.
pub fn ask(world: &World, tenant: &str, path: &str, query: &Pairs) -> Answer {
    let place = match check(world, tenant, query, &[]) {
        Ok(place) => place,
        Err(answer) => return *answer,
    };
    let consent = world.consent();
    if !consent.auto {
        let accounts = world.first_addresses(50, &place);
        return Answer::text(200, page::HTML, page::consent("Microsoft", path, query, &accounts, None));
    }
    let account = consent.account.or_else(|| world.first_addresses(1, &place).pop());
    finish(world, &place, query, account.as_deref().filter(|_| !consent.denied))
}

pub fn decide(world: &World, tenant: &str, form: &Pairs) -> Answer {
    match check(world, tenant, form, &DECIDED) {
        Ok(place) => {
            let is_allowed = value(form, "decision") == Some("allow");
            finish(world, &place, form, value(form, "account").filter(|_| is_allowed))
        }
        Err(answer) => *answer,
    }
}

fn check(world: &World, tenant: &str, query: &Pairs, more: &[&str]) -> Result<Tenant, Box<Answer>> {
    let refuse = |wrong: Wrong| {
        let why = format!("AADSTS{}: {}", wrong.code, wrong.message);
        world.violations.add(Side::Request, Route::AdminConsent.as_str(), &why);
        Box::new(Answer::text(400, page::HTML, page::refusal(400, &wrong.error, &why)))
    };
    let place = world.tenant(tenant).ok_or_else(|| refuse(unknown(tenant)))?;
    let is_unknown = |name: &&(String, String)| !KNOWN.contains(&name.0.as_str()) && !more.contains(&name.0.as_str());
    if let Some((name, _)) = query.iter().find(is_unknown) {
        return Err(refuse(Wrong::request(90_100, format!("unknown parameter {name:?}"))));
    }
    if place == Tenant::Consumers {
        return Err(refuse(Wrong::request(90_112, "Personal accounts have no administrator.")));
    }
    let id = value(query, "client_id").unwrap_or_default();
    let client = world.identity.client(id).ok_or_else(|| refuse(not_found(id)))?;
    let redirect_uri = value(query, "redirect_uri").unwrap_or_default();
    if !client.redirect_uris.iter().any(|known| known == redirect_uri) && !is_loopback(redirect_uri) {
        return Err(refuse(Wrong::request(50_011, format!("redirect_uri={redirect_uri}"))));
    }
    Ok(place)
}

/// Nobody: it was refused.
fn finish(world: &World, place: &Tenant, query: &Pairs, account: Option<&str>) -> Answer {
    let directory = match place {
        Tenant::One(id) => account.map(|_| id.clone()),
        _ => account.and_then(|account| world.find(account)).map(|mailbox| mailbox.directory.clone()),
    };
    let Some(directory) = directory.filter(|directory| directory != CONSUMERS) else {
        let message = "The administrator declined to consent to access the app.";
        return back_wrong(world, query, &Wrong::new("access_denied", 65_004, message));
    };
    let client_id = value(query, "client_id").map(str::to_lowercase);
    world.change_directory(
        &directory,
        &DirectoryChange { admin_consent: Some(true), client_id, ..DirectoryChange::default() },
    );
    let mut told = vec![("admin_consent", "True".to_owned()), ("tenant", directory)];
    told.extend(value(query, "scope").map(|scope| ("scope", scope.to_owned())));
    back(query, told)
}
