//! Who there is in an organisation, as Google's directory tells it to administrators.

mod fields;
mod groups;
mod page;
mod query;
mod units;
mod users;

use super::super::error::error;
use super::super::faults::{Kind, Route};
use super::super::world::{Mailbox, World};
use super::call::refused;
use crate::answer::{Answer, Body};
use crate::people::{Organisation, Person};
use crate::spec::{Call, Document};

type Refused = Box<Answer>;

/// What is asked of the directory, and by whom.
pub struct Asked<'a> {
    pub world: &'a World,
    /// Of whoever asks.
    pub mailbox: &'a Mailbox,
    pub document: &'static Document,
    pub call: &'a Call<'static>,
    pub faults: &'a [Kind],
}

pub fn answer(route: Route, asked: &Asked<'_>) -> Result<Answer, Refused> {
    let call = asked.call;
    let mask = call.query("fields").map(|text| fields::Mask::read(text, asked.document, call.method)).transpose();
    let mask = mask.map_err(|why| invalid(&why))?;
    let organisations = asked.world.people.read();
    let found = organisations.find(&asked.mailbox.id).and_then(|found| organisations.get(&found.organisation));
    let organisation = found.ok_or_else(not_authorized)?;
    let person = organisations.person(&asked.mailbox.id).ok_or_else(not_authorized)?;
    // Anybody may look at what all of an organisation may see of each other.
    let is_public =
        matches!(route, Route::UsersList | Route::UsersGet) && call.query("viewType") == Some("domain_public");
    if !person.is_admin && !is_public {
        return Err(not_authorized());
    }
    check_customer(call, organisation)?;
    let mut answer = match route {
        Route::UsersList => users::list(asked, organisation)?,
        Route::UsersGet => {
            users::get(asked, organisation, found_person(&organisations, organisation, call.path("userKey"))?)
        }
        Route::GroupsList => groups::list(asked, organisation)?,
        Route::GroupsGet => groups::get(asked, organisation)?,
        Route::MembersList => groups::members(asked, organisation)?,
        Route::OrgUnitsList => units::list(asked, organisation)?,
        _ => error(404, "notFound", "There is no such method."),
    };
    if let (Some(mask), Body::Json(value)) = (mask, &mut answer.body) {
        mask.apply(value);
    }
    Ok(answer)
}

fn not_authorized() -> Refused {
    refused(403, "forbidden", "Not Authorized to access this resource/API")
}

fn invalid(why: &str) -> Refused {
    refused(400, "invalid", &format!("Invalid Input: {why}"))
}

fn not_found(what: &str) -> Refused {
    refused(404, "notFound", &format!("Resource Not Found: {what}"))
}

/// One's own organisation, by whatever name, and no other.
fn check_customer(call: &Call<'static>, organisation: &Organisation) -> Result<(), Refused> {
    let in_path = Some(call.path("customerId")).filter(|given| !given.is_empty());
    match call.query("customer").or(in_path) {
        Some(given) if given != "my_customer" && given != organisation.id => return Err(not_authorized()),
        _ => {}
    }
    match call.query("domain") {
        Some(domain) if !organisation.domains.iter().any(|own| own.eq_ignore_ascii_case(domain)) => {
            Err(refused(404, "notFound", "Domain not found."))
        }
        _ => Ok(()),
    }
}

/// A listing is of a customer or of a domain.
fn check_whose(call: &Call<'static>, others: &[&str]) -> Result<(), Refused> {
    let is_named = ["customer", "domain"].iter().chain(others).any(|name| call.query(name).is_some());
    if is_named { Ok(()) } else { Err(refused(400, "badRequest", "Bad Request: customer or domain is required")) }
}

/// Somebody of the organisation who is there, by id or any address.
fn found_person<'a>(
    organisations: &'a crate::people::Organisations,
    organisation: &Organisation,
    key: &str,
) -> Result<&'a Person, Refused> {
    let found = organisations.find(key).filter(|found| found.organisation == organisation.id);
    let person = found.and_then(|_| organisations.person(key)).filter(|person| person.is_present());
    let is_named = |person: &&Person| person.id == key || person.addresses().any(|own| own.eq_ignore_ascii_case(key));
    person.filter(is_named).ok_or_else(|| not_found("userKey"))
}
