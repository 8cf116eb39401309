//! People of an organisation: one, or all of them in pages.

use serde_json::{Value, json};

use super::query::Query;
use super::{Asked, Refused, check_whose, invalid, page};
use crate::answer::Answer;
use crate::opaque;
use crate::people::{Organisation, Person, State, domain_of};

/// A page unless it is said, and the most that is given.
const SIZES: (usize, usize) = (100, 500);

/// What everybody may see of everybody.
const PUBLIC: [&str; 5] = ["kind", "id", "etag", "primaryEmail", "name"];

fn show(asked: &Asked<'_>, organisation: &Organisation, person: &Person) -> Value {
    let instant = |ms: i64| jiff::Timestamp::from_millisecond(ms).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
    let instant = |ms: i64| instant(ms).strftime("%Y-%m-%dT%H:%M:%S.000Z").to_string();
    let mut emails = vec![json!({"address": person.address, "primary": true})];
    emails.extend(person.aliases.iter().map(|alias| json!({"address": alias})));
    let mut shown = json!({
        "kind": "admin#directory#user",
        "id": person.id,
        "etag": format!("\"{:016x}\"", opaque::sum(person.changed_at, &person.id)),
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
    if asked.call.query("viewType") == Some("domain_public")
        && let Value::Object(fields) = &mut shown
    {
        fields.retain(|name, _| PUBLIC.contains(&name.as_str()));
    }
    shown
}

pub fn get(asked: &Asked<'_>, organisation: &Organisation, person: &Person) -> Answer {
    Answer::json(show(asked, organisation, person))
}

pub fn list(asked: &Asked<'_>, organisation: &Organisation) -> Result<Answer, Refused> {
    let call = asked.call;
    check_whose(call, &[])?;
    if call.query("projection") == Some("custom") && call.query("customFieldMask").is_none() {
        return Err(invalid("customFieldMask"));
    }
    let query = call.query("query").map(Query::read).transpose().map_err(|why| invalid(&why))?;
    let wanted = match call.query("showDeleted") {
        Some("true") => State::Deleted,
        _ => State::Present,
    };
    let is_wanted = |person: &Person| {
        person.state == wanted
            && call.query("domain").is_none_or(|domain| domain_of(&person.address).eq_ignore_ascii_case(domain))
            && query.as_ref().is_none_or(|query| query.fits(person))
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
    let (numbers, token) = page::next(asked, &all, SIZES)?;
    let users: Vec<Value> =
        numbers.iter().map(|number| show(asked, organisation, &organisation.people[number])).collect();
    Ok(page::answer("admin#directory#users", "users", users, token))
}
