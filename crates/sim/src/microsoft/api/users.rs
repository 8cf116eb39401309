//! People: who one is, who there is in a directory, and who came, changed and went.

use serde_json::{Value, json};

use super::super::error::Refusal;
use super::super::faults::Kind;
use super::super::links::Place;
use super::super::people_filter::{PeopleFilter, department};
use super::super::world::{Mailbox, World, principal_name};
use super::call::Entered;
use super::delta::{self, Log};
use super::select;
use crate::answer::Answer;
use crate::people::{Field, Organisation, Person, State};

/// A page unless it is said, and the most that is given.
const PAGE: usize = 100;
const MOST: usize = 999;

/// A link to what changes later is good for so long.
const LINK_MS: i64 = 7 * 24 * 3_600_000;

/// The most ids that a filter of a delta query names.
const MOST_IDS: usize = 50;

/// What comes without `$select`.
const COMMON: [&str; 11] = [
    "businessPhones",
    "displayName",
    "givenName",
    "id",
    "jobTitle",
    "mail",
    "mobilePhone",
    "officeLocation",
    "preferredLanguage",
    "surname",
    "userPrincipalName",
];

/// A licence with a mailbox in it, and the part of it that is the mailbox.
const LICENCE: &str = "3b555118-da6a-4418-894f-7df1e2096870";
const EXCHANGE: &str = "9aaf7827-d63c-4b61-89c3-182f06f82e5c";
/// One without.
const OTHER_LICENCE: &str = "f30db892-07e9-47e9-837c-80727f46fd3d";

/// All that is known of somebody.
fn known(person: &Person, domain: &str) -> Value {
    let empty = |text: &str| if text.is_empty() { Value::Null } else { json!(text) };
    let joined = jiff::Timestamp::from_millisecond(person.joined_ms).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
    let mut shown = json!({
        "id": person.id,
        "userPrincipalName": principal_name(person, domain),
        "mail": person.address,
        "displayName": person.full_name(),
        "givenName": empty(&person.given_name),
        "surname": empty(&person.family_name),
        "department": empty(department(person)),
        "accountEnabled": !person.is_suspended,
        "userType": if person.is_guest { "Guest" } else { "Member" },
        "createdDateTime": joined.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        "proxyAddresses": proxies(person),
    });
    for missing in ["jobTitle", "mobilePhone", "officeLocation", "preferredLanguage"] {
        shown[missing] = Value::Null;
    }
    shown["businessPhones"] = json!([]);
    (shown["assignedLicenses"], shown["assignedPlans"]) = licences(person, &shown["createdDateTime"]);
    shown
}

/// The one that is written to from, in capitals, and the others.
fn proxies(person: &Person) -> Vec<String> {
    let others = person.aliases.iter().map(|alias| format!("smtp:{alias}"));
    std::iter::once(format!("SMTP:{}", person.address)).chain(others).collect()
}

/// Whoever has no mailbox may have another licence, and a plan that was taken away stays as one.
fn licences(person: &Person, since: &Value) -> (Value, Value) {
    if person.is_guest {
        return (json!([]), json!([]));
    }
    let sku = if person.is_licensed { LICENCE } else { OTHER_LICENCE };
    let plan = |service: &str, id: &str, status: &str| json!({"assignedDateTime": since, "capabilityStatus": status, "service": service, "servicePlanId": id});
    let mut plans = vec![plan("MicrosoftOffice", "43de0ff5-c92c-492b-9116-175376d08c38", "Enabled")];
    if person.is_licensed {
        plans.push(plan("exchange", EXCHANGE, "Enabled"));
    } else if person.touched.contains_key(&Field::Licence) {
        plans.push(plan("exchange", EXCHANGE, "Deleted"));
    }
    (json!([{"disabledPlans": [], "skuId": sku}]), json!(plans))
}

/// What was asked for, or what comes by itself.
pub fn shown(person: &Person, domain: &str, select: Option<&[String]>) -> Value {
    let common: Vec<String> = COMMON.map(str::to_owned).to_vec();
    select::exactly(known(person, domain), Some(select.unwrap_or(&common)))
}

pub fn get(entered: &Entered<'_>, mailbox: &Mailbox) -> Answer {
    let person = entered.world.person(mailbox);
    let domain = entered.world.people.read().get(&mailbox.directory).map(|found| found.domain().to_owned());
    let mut shown = shown(&person, &domain.unwrap_or_default(), entered.select.as_deref());
    shown["@odata.context"] = json!(format!("{}/v1.0/$metadata#users/$entity", entered.world.url()));
    Answer::json(shown)
}

pub fn context(world: &World, what: &str) -> Value {
    json!(format!("{}/v1.0/$metadata#{what}", world.url()))
}

/// Where a listing of a directory stands.
pub fn place(entered: &Entered<'_>, of: &str) -> Result<Place, Refusal> {
    let seed = 0;
    if let Some(token) = entered.call.query("$skiptoken") {
        let read = Place::read(token, seed, of);
        return read.ok_or_else(|| Refusal::new(400, "Directory_ExpiredPageToken", "The page token is not valid."));
    }
    let size = match entered.call.query("$top").map(str::parse::<usize>) {
        None => PAGE,
        Some(Ok(top)) if (1..=MOST).contains(&top) => top,
        Some(_) => return Err(unsupported("Invalid page size specified.")),
    };
    for option in ["$orderby", "$search", "$expand", "$skip"] {
        if entered.call.query(option).is_some() {
            return Err(unsupported(&format!("{option} is not simulated for directory objects.")));
        }
    }
    if entered.call.query("$count") == Some("true") && !entered.is_eventual {
        return Err(unsupported("$count needs the header ConsistencyLevel: eventual."));
    }
    let (select, filter) = (entered.select.clone(), entered.call.query("$filter").map(str::to_owned));
    Ok(Place { of: of.to_owned(), size, select, filter, ..Place::default() })
}

pub fn unsupported(message: &str) -> Refusal {
    Refusal::new(400, "Request_UnsupportedQuery", message)
}

/// One page of a directory's listing: of all that is there, by number, what comes next.
pub fn page(entered: &Entered<'_>, place: Place, all: &[u64], what: &str, show: impl Fn(u64) -> Value) -> Answer {
    let after = place.at.map_or(0, |(_, number)| number);
    let left: Vec<u64> = all.iter().copied().filter(|number| *number > after).collect();
    let size = if entered.has(&Kind::EmptyPage) { 0 } else { place.size };
    let told = &left[..left.len().min(size)];
    let mut value: Vec<Value> = told.iter().map(|number| show(*number)).collect();
    if entered.has(&Kind::RepeatedItems) {
        value.extend(value.clone());
    }
    let mut body = json!({"@odata.context": context(entered.world, what), "value": value});
    if entered.call.query("$count") == Some("true") {
        body["@odata.count"] = json!(all.len());
    }
    if told.len() < left.len() {
        let at = told.last().map_or(place.at, |last| Some((0, *last)));
        body["@odata.nextLink"] = json!(entered.link("$skiptoken", &Place { at, ..place }.write(0)));
    }
    Answer::json(body)
}

/// Everybody in the directory, in the order in which they came.
pub fn list(entered: &Entered<'_>) -> Result<Answer, Refusal> {
    let place = place(entered, &format!("users {}", entered.access.asked.directory))?;
    let filter = place.filter.as_deref().map(PeopleFilter::read).transpose().map_err(|why| unsupported(&why))?;
    let is_first = entered.call.query("$skiptoken").is_none();
    let is_counted = entered.is_eventual && entered.call.query("$count") == Some("true");
    if is_first && !is_counted && filter.as_ref().is_some_and(PeopleFilter::is_advanced) {
        let why = "This filter needs the header ConsistencyLevel: eventual and $count=true.";
        return Err(unsupported(why));
    }
    let organisations = entered.world.people.read();
    let nobody = Organisation::default();
    let organisation = organisations.get(&entered.access.asked.directory).unwrap_or(&nobody);
    let domain = organisation.domain();
    let is_wanted = |person: &Person| filter.as_ref().is_none_or(|filter| filter.matches(person, domain));
    let all: Vec<u64> =
        organisation.present().filter(|(_, person)| is_wanted(person)).map(|(number, _)| number).collect();
    let select = place.select.clone();
    Ok(page(entered, place, &all, "users", |number| shown(&organisation.people[&number], domain, select.as_deref())))
}

/// Everybody, and then who came, changed and went.
pub fn changes(entered: &Entered<'_>) -> Result<Answer, Refusal> {
    for option in ["$orderby", "$search", "$expand", "$skip", "$top", "$count"] {
        if entered.call.query(option).is_some() {
            return Err(unsupported(&format!("{option} is not supported with delta.")));
        }
    }
    let organisations = entered.world.people.read();
    let nobody = Organisation::default();
    let organisation = organisations.get(&entered.access.asked.directory).unwrap_or(&nobody);
    let log = Log { seed: 0, changes: organisation.changes, oldest: organisation.oldest, page: PAGE };
    let place = begun(entered, &log, &format!("users delta {}", organisation.id))?;
    let ids = place.filter.as_deref().map(named_ids).transpose()?;
    let is_wanted = |person: &Person| ids.as_ref().is_none_or(|ids| ids.contains(&person.id));
    let mut left: Vec<(delta::At, &Person)> = Vec::new();
    for (number, person) in organisation.people.iter().filter(|(_, person)| is_wanted(person)) {
        let at = if place.is_initial { (0, *number) } else { (person.changed_at as i64, *number) };
        let is_new = match place.is_initial {
            true => person.is_present(),
            false => person.changed_at > place.start,
        };
        if is_new && place.at.is_none_or(|before| at > before) {
            left.push((at, person));
        }
    }
    left.sort_by_key(|(at, _)| *at);
    // One more than fits a page tells that there is more.
    left.truncate(delta::page_size(entered, &place) + 1);
    let shown = |(at, person): (delta::At, &Person)| (at, changed(entered, &place, person, organisation.domain()));
    let left = left.into_iter().map(shown).collect();
    let mut answer = delta::page(entered, &log, place, left);
    if let crate::answer::Body::Json(body) = &mut answer.body {
        body["@odata.context"] = context(entered.world, "users");
    }
    Ok(answer)
}

/// As a round of mail's changes begins, but that it may begin now, and that its links end after a week.
fn begun(entered: &Entered<'_>, log: &Log, of: &str) -> Result<Place, Refusal> {
    if entered.call.query("$deltatoken") == Some("latest") {
        let select = entered.select.clone();
        let filter = entered.call.query("$filter").map(str::to_owned);
        return Ok(Place { of: of.to_owned(), start: log.changes, size: log.page, select, filter, ..Place::default() });
    }
    let place = delta::begun(entered, log, of)?;
    let is_old = place.issued_ms > 0 && entered.world.now_ms() - place.issued_ms >= LINK_MS;
    if is_old { Err(delta::expired()) } else { Ok(place) }
}

/// `id eq '…'`, several of them with `or`.
fn named_ids(filter: &str) -> Result<Vec<String>, Refusal> {
    let id = |part: &str| Some(part.trim().strip_prefix("id eq '")?.strip_suffix('\'')?.to_owned());
    let ids: Option<Vec<String>> = filter.split(" or ").map(id).collect();
    let wrong = || unsupported("Only $filter=id eq '…' is supported with delta, for up to 50 ids.");
    ids.filter(|ids| ids.len() <= MOST_IDS).ok_or_else(wrong)
}

/// Whoever is new comes whole; of others at least what changed, and only that if it is preferred.
fn changed(entered: &Entered<'_>, place: &Place, person: &Person, domain: &str) -> Value {
    let removed = |reason: &str| json!({"id": person.id, "@removed": {"reason": reason}});
    match person.state {
        State::Deleted => return removed("changed"),
        State::Purged => return removed("deleted"),
        State::Present => {}
    }
    let mut told = shown(person, domain, place.select.as_deref());
    let is_known = !place.is_initial && person.entered_at <= place.start;
    let touched: Vec<&str> = person.touched_since(place.start).flat_map(properties).copied().collect();
    if let Value::Object(fields) = &mut told {
        // What was never set is not told.
        fields.retain(|_, value| !value.is_null());
        if is_known && entered.prefer.is_minimal {
            fields.retain(|name, _| touched.contains(&name.as_str()));
        }
    }
    told["id"] = json!(person.id);
    told
}

/// What Graph calls it.
fn properties(field: Field) -> &'static [&'static str] {
    match field {
        Field::Address => &["userPrincipalName", "mail", "proxyAddresses"],
        Field::Aliases => &["proxyAddresses"],
        Field::Name => &["displayName", "givenName", "surname"],
        Field::Unit => &["department"],
        Field::Suspended => &["accountEnabled"],
        Field::Licence => &["assignedLicenses", "assignedPlans"],
        Field::Admin | Field::Archived => &[],
    }
}
