//! The Admin SDK directory API: users, groups and organisational units.

mod field_mask;
mod groups;
mod paging;
mod query;
mod units;
mod users;

use super::super::error::error;
use super::super::faults::{GoogleFaultKind, GoogleRoute};
use super::super::world::{GoogleMailbox, GoogleWorld};
use super::call::boxed_error;
use crate::people::{Organisation, Person};
use crate::response::{ResponseBody, SimResponse};
use crate::spec::{Document, MethodCall};

type BoxedResponse = Box<SimResponse>;

/// A directory API request and the account that makes it.
pub struct DirectoryRequest<'a> {
    pub world: &'a GoogleWorld,
    /// The mailbox of the person who asks.
    pub mailbox: &'a GoogleMailbox,
    pub document: &'static Document,
    pub call: &'a MethodCall<'static>,
    pub faults: &'a [GoogleFaultKind],
}

pub fn answer(route: GoogleRoute, request: &DirectoryRequest<'_>) -> Result<SimResponse, BoxedResponse> {
    let call = request.call;
    let mask =
        call.query("fields").map(|text| field_mask::FieldMask::read(text, request.document, call.method)).transpose();
    let mask = mask.map_err(|why| invalid(&why))?;
    let organisations = request.world.provider.people.read();
    let found = organisations.find(&request.mailbox.id).and_then(|found| organisations.get(&found.organisation));
    let organisation = found.ok_or_else(not_authorized)?;
    let person = organisations.person(&request.mailbox.id).ok_or_else(not_authorized)?;
    // Everyone in the organisation may read the public fields of its users.
    let is_public = matches!(route, GoogleRoute::UsersList | GoogleRoute::UsersGet)
        && call.query("viewType") == Some("domain_public");
    if !person.is_admin && !is_public {
        return Err(not_authorized());
    }
    check_customer(call, organisation)?;
    let mut answer = match route {
        GoogleRoute::UsersList => users::list(request, organisation)?,
        GoogleRoute::UsersGet => {
            users::get(request, organisation, found_person(&organisations, organisation, call.path("userKey"))?)
        }
        GoogleRoute::GroupsList => groups::list(request, organisation)?,
        GoogleRoute::GroupsGet => groups::get(request, organisation)?,
        GoogleRoute::MembersList => groups::members(request, organisation)?,
        GoogleRoute::OrgUnitsList => units::list(request, organisation)?,
        _ => error(404, "notFound", "There is no such method."),
    };
    if let (Some(mask), ResponseBody::Json(value)) = (mask, &mut answer.body) {
        mask.apply(value);
    }
    Ok(answer)
}

fn not_authorized() -> BoxedResponse {
    boxed_error(403, "forbidden", "Not Authorized to access this resource/API")
}

fn invalid(why: &str) -> BoxedResponse {
    boxed_error(400, "invalid", &format!("Invalid Input: {why}"))
}

fn not_found(what: &str) -> BoxedResponse {
    boxed_error(404, "notFound", &format!("Resource Not Found: {what}"))
}

/// Refuses a customer or domain that is not the caller's organisation.
fn check_customer(call: &MethodCall<'static>, organisation: &Organisation) -> Result<(), BoxedResponse> {
    let in_path = Some(call.path("customerId")).filter(|given| !given.is_empty());
    match call.query("customer").or(in_path) {
        Some(given) if given != "my_customer" && given != organisation.id => return Err(not_authorized()),
        _ => {}
    }
    match call.query("domain") {
        Some(domain) if !organisation.domains.iter().any(|own| own.eq_ignore_ascii_case(domain)) => {
            Err(boxed_error(404, "notFound", "Domain not found."))
        }
        _ => Ok(()),
    }
}

/// Refuses a listing that names neither a customer nor a domain.
fn require_customer_or_domain(call: &MethodCall<'static>, others: &[&str]) -> Result<(), BoxedResponse> {
    let is_named = ["customer", "domain"].iter().chain(others).any(|name| call.query(name).is_some());
    if is_named { Ok(()) } else { Err(boxed_error(400, "badRequest", "Bad Request: customer or domain is required")) }
}

/// Finds a present person of the organisation by id or any address.
fn found_person<'a>(
    organisations: &'a crate::people::Organisations,
    organisation: &Organisation,
    key: &str,
) -> Result<&'a Person, BoxedResponse> {
    let found = organisations.find(key).filter(|found| found.organisation == organisation.id);
    let person = found.and_then(|_| organisations.person(key)).filter(|person| person.is_present());
    person
        .filter(|person| person.id == key || person.addresses().any(|own| own.eq_ignore_ascii_case(key)))
        .ok_or_else(|| not_found("userKey"))
}
