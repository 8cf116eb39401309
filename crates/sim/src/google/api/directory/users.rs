//! The directory API's users.

use serde_json::{Value, json};

use super::query::UserQuery;
use super::{BoxedResponse, DirectoryRequest, invalid, paging, require_customer_or_domain};
use crate::opaque_token;
use crate::people::{Organisation, Person, PersonState, domain_of};
use crate::response::SimResponse;

/// The default and the maximum page size.
const PAGE_SIZES: (usize, usize) = (100, 500);

/// Fields that everyone in the organisation may read.
const PUBLIC_FIELDS: [&str; 5] = ["kind", "id", "etag", "primaryEmail", "name"];

/// Formats as `2026-02-01T12:00:00.000Z`.
fn instant(ms: i64) -> String {
    let at = jiff::Timestamp::from_millisecond(ms).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
    at.strftime("%Y-%m-%dT%H:%M:%S.000Z").to_string()
}

fn show(request: &DirectoryRequest<'_>, organisation: &Organisation, person: &Person) -> Value {
    let mut emails = vec![json!({"address": person.address, "primary": true})];
    emails.extend(person.aliases.iter().map(|alias| json!({"address": alias})));
    let mut shown = json!({
        "kind": "admin#directory#user",
        "id": person.id,
        "etag": format!("\"{:016x}\"", opaque_token::checksum(person.changed_at, &person.id)),
        "primaryEmail": person.address,
        "name": {
            "givenName": person.given_name, "familyName": person.family_name, "fullName": person.full_name(),
        },
        "isAdmin": person.is_admin,
        "isDelegatedAdmin": false,
        "lastLoginTime": instant(if person.is_licensed { person.joined_ms } else { 0 }),
        "creationTime": instant(person.joined_ms),
        "agreedToTerms": true,
        "suspended": person.is_suspended,
        "archived": person.is_archived,
        "changePasswordAtNextLogin": false,
        "ipWhitelisted": false,
        "emails": emails,
        "customerId": organisation.id,
        "orgUnitPath": person.unit,
        "isMailboxSetup": person.is_licensed && !person.is_guest,
        "isEnrolledIn2Sv": false,
        "isEnforcedIn2Sv": false,
        "includeInGlobalAddressList": true,
    });
    if !person.aliases.is_empty() {
        shown["aliases"] = json!(person.aliases);
    }
    if person.is_suspended {
        shown["suspensionReason"] = json!("ADMIN");
    }
    if person.is_guest {
        shown["isGuestUser"] = json!(true);
    }
    if let Some(deleted_ms) = person.deleted_ms {
        shown["deletionTime"] = json!(instant(deleted_ms));
    }
    if request.call.query("viewType") == Some("domain_public")
        && let Value::Object(fields) = &mut shown
    {
        fields.retain(|name, _| PUBLIC_FIELDS.contains(&name.as_str()));
    }
    shown
}

pub fn get(request: &DirectoryRequest<'_>, organisation: &Organisation, person: &Person) -> SimResponse {
    SimResponse::json(show(request, organisation, person))
}

pub fn list(request: &DirectoryRequest<'_>, organisation: &Organisation) -> Result<SimResponse, BoxedResponse> {
    let call = request.call;
    require_customer_or_domain(call, &[])?;
    if call.query("projection") == Some("custom") && call.query("customFieldMask").is_none() {
        return Err(invalid("customFieldMask"));
    }
    let query = call.query("query").map(UserQuery::read).transpose().map_err(|why| invalid(&why))?;
    let wanted = match call.query("showDeleted") {
        Some("true") => PersonState::Deleted,
        _ => PersonState::Present,
    };
    let is_wanted = |person: &Person| {
        person.state == wanted
            && call.query("domain").is_none_or(|domain| domain_of(&person.address).eq_ignore_ascii_case(domain))
            && query.as_ref().is_none_or(|query| query.matches(person))
    };
    let mut all: Vec<(String, u64)> = Vec::new();
    for (number, person) in organisation.people.iter().filter(|(_, person)| is_wanted(person)) {
        let key = match call.query("orderBy") {
            Some("email") => person.address.clone(),
            Some("givenName") => person.given_name.to_lowercase(),
            Some("familyName") => person.family_name.to_lowercase(),
            _ => String::new(),
        };
        all.push((key, *number));
    }
    all.sort();
    if call.query("sortOrder") == Some("DESCENDING") && call.query("orderBy").is_some() {
        all.reverse();
    }
    let all: Vec<u64> = all.into_iter().map(|(_, number)| number).collect();
    let (numbers, token) = paging::next(request, &all, PAGE_SIZES)?;
    let users: Vec<Value> =
        numbers.iter().map(|number| show(request, organisation, &organisation.people[number])).collect();
    Ok(paging::answer("admin#directory#users", "users", users, token))
}
