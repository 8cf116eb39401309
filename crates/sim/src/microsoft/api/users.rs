//! Users: profile, listing, delta.

use serde_json::{Value, json};

use super::super::error::GraphError;
use super::super::faults::MicrosoftFaultKind;
use super::super::link_state::LinkState;
use super::super::user_filter::{UserFilter, department};
use super::super::world::{MicrosoftMailbox, MicrosoftWorld, principal_name};
use super::call::GraphCallContext;
use super::delta::{self, ChangeLog};
use super::select;
use crate::people::{Organisation, Person, PersonField, PersonState};
use crate::response::SimResponse;

/// The default page size; the maximum follows.
const DEFAULT_PAGE_SIZE: usize = 100;
const MAX_PAGE_SIZE: usize = 999;

/// The lifetime of a delta link.
const DELTA_LINK_LIFETIME_MS: i64 = 7 * 24 * 3_600_000;

/// The maximum number of ids in the filter of a delta query.
const MAX_FILTER_IDS: usize = 50;

/// Properties returned without `$select`.
const DEFAULT_PROPERTIES: [&str; 11] = [
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

/// A SKU with a mailbox; its Exchange plan follows.
const EXCHANGE_SKU: &str = "3b555118-da6a-4418-894f-7df1e2096870";
const EXCHANGE_PLAN: &str = "9aaf7827-d63c-4b61-89c3-182f06f82e5c";
/// A SKU without a mailbox.
const SKU_WITHOUT_MAILBOX: &str = "f30db892-07e9-47e9-837c-80727f46fd3d";

fn text_or_null(text: &str) -> Value {
    if text.is_empty() { Value::Null } else { json!(text) }
}

/// Renders all properties of a user.
fn all_properties(person: &Person, domain: &str) -> Value {
    let joined = jiff::Timestamp::from_millisecond(person.joined_ms).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
    let mut shown = json!({
        "id": person.id,
        "userPrincipalName": principal_name(person, domain),
        "mail": person.address,
        "displayName": person.full_name(),
        "givenName": text_or_null(&person.given_name),
        "surname": text_or_null(&person.family_name),
        "department": text_or_null(department(person)),
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

/// Renders `proxyAddresses`: the primary address in capitals, then the aliases.
fn proxies(person: &Person) -> Vec<String> {
    let others = person.aliases.iter().map(|alias| format!("smtp:{alias}"));
    std::iter::once(format!("SMTP:{}", person.address)).chain(others).collect()
}

fn plan(since: &Value, service: &str, id: &str, status: &str) -> Value {
    json!({"assignedDateTime": since, "capabilityStatus": status, "service": service, "servicePlanId": id})
}

/// Renders licences and plans. A plan that was taken away stays with the status Deleted.
fn licences(person: &Person, since: &Value) -> (Value, Value) {
    if person.is_guest {
        return (json!([]), json!([]));
    }
    let sku = if person.is_licensed { EXCHANGE_SKU } else { SKU_WITHOUT_MAILBOX };
    let mut plans = vec![plan(since, "MicrosoftOffice", "43de0ff5-c92c-492b-9116-175376d08c38", "Enabled")];
    if person.is_licensed {
        plans.push(plan(since, "exchange", EXCHANGE_PLAN, "Enabled"));
    } else if person.touched.contains_key(&PersonField::Licence) {
        plans.push(plan(since, "exchange", EXCHANGE_PLAN, "Deleted"));
    }
    (json!([{"disabledPlans": [], "skuId": sku}]), json!(plans))
}

/// Renders the requested or default properties of a user.
pub fn shown(person: &Person, domain: &str, select: Option<&[String]>) -> Value {
    let common: Vec<String> = DEFAULT_PROPERTIES.map(str::to_owned).to_vec();
    select::exactly(all_properties(person, domain), Some(select.unwrap_or(&common)))
}

pub fn get(context: &GraphCallContext<'_>, mailbox: &MicrosoftMailbox) -> SimResponse {
    let person = context.world.person(mailbox);
    let domain =
        context.world.provider.people.read().get(&mailbox.state.directory).map(|found| found.domain().to_owned());
    let mut shown = shown(&person, &domain.unwrap_or_default(), context.select.as_deref());
    shown["@odata.context"] = json!(format!("{}/v1.0/$metadata#users/$entity", context.world.url()));
    SimResponse::json(shown)
}

pub fn odata_context(world: &MicrosoftWorld, what: &str) -> Value {
    json!(format!("{}/v1.0/$metadata#{what}", world.url()))
}

/// Returns the state of a directory listing: from its link, or from the query.
pub fn link_state(context: &GraphCallContext<'_>, of: &str) -> Result<LinkState, GraphError> {
    let seed = 0;
    if let Some(token) = context.call.query("$skiptoken") {
        let read = LinkState::read(token, seed, of);
        return read.ok_or_else(|| GraphError::new(400, "Directory_ExpiredPageToken", "The page token is not valid."));
    }
    let size = match context.call.query("$top").map(str::parse::<usize>) {
        None => DEFAULT_PAGE_SIZE,
        Some(Ok(top)) if (1..=MAX_PAGE_SIZE).contains(&top) => top,
        Some(_) => return Err(unsupported("Invalid page size specified.")),
    };
    for option in ["$orderby", "$search", "$expand", "$skip"] {
        if context.call.query(option).is_some() {
            return Err(unsupported(&format!("{option} is not simulated for directory objects.")));
        }
    }
    if context.call.query("$count") == Some("true") && !context.is_eventual {
        return Err(unsupported("$count needs the header ConsistencyLevel: eventual."));
    }
    let (select, filter) = (context.select.clone(), context.call.query("$filter").map(str::to_owned));
    Ok(LinkState { of: of.to_owned(), size, select, filter, ..LinkState::default() })
}

pub fn unsupported(message: &str) -> GraphError {
    GraphError::new(400, "Request_UnsupportedQuery", message)
}

/// Builds the next page of a directory listing, ordered by number.
pub fn page(
    context: &GraphCallContext<'_>,
    state: LinkState,
    all: &[u64],
    what: &str,
    show: impl Fn(u64) -> Value,
) -> SimResponse {
    let after = state.at.map_or(0, |(_, number)| number);
    let left: Vec<u64> = all.iter().copied().filter(|number| *number > after).collect();
    let size = if context.has(&MicrosoftFaultKind::EmptyPage) { 0 } else { state.size };
    let reported = &left[..left.len().min(size)];
    let mut value: Vec<Value> = reported.iter().map(|number| show(*number)).collect();
    if context.has(&MicrosoftFaultKind::RepeatedItems) {
        value.extend(value.clone());
    }
    let mut body = json!({"@odata.context": odata_context(context.world, what), "value": value});
    if context.call.query("$count") == Some("true") {
        body["@odata.count"] = json!(all.len());
    }
    if reported.len() < left.len() {
        let at = reported.last().map_or(state.at, |last| Some((0, *last)));
        body["@odata.nextLink"] = json!(context.link("$skiptoken", &LinkState { at, ..state }.write(0)));
    }
    SimResponse::json(body)
}

/// Lists the users of a directory in order of joining.
pub fn list(context: &GraphCallContext<'_>) -> Result<SimResponse, GraphError> {
    let state = link_state(context, &format!("users {}", context.access.grant.directory))?;
    let filter = state.filter.as_deref().map(UserFilter::read).transpose().map_err(|why| unsupported(&why))?;
    let is_first = context.call.query("$skiptoken").is_none();
    let is_counted = context.is_eventual && context.call.query("$count") == Some("true");
    if is_first && !is_counted && filter.as_ref().is_some_and(UserFilter::is_advanced) {
        let why = "This filter needs the header ConsistencyLevel: eventual and $count=true.";
        return Err(unsupported(why));
    }
    let organisations = context.world.provider.people.read();
    let nobody = Organisation::default();
    let organisation = organisations.get(&context.access.grant.directory).unwrap_or(&nobody);
    let domain = organisation.domain();
    let all: Vec<u64> = organisation
        .present()
        .filter(|(_, person)| filter.as_ref().is_none_or(|filter| filter.matches(person, domain)))
        .map(|(number, _)| number)
        .collect();
    let select = state.select.clone();
    Ok(page(context, state, &all, "users", |number| shown(&organisation.people[&number], domain, select.as_deref())))
}

/// Answers a delta query of users.
pub fn changes(context: &GraphCallContext<'_>) -> Result<SimResponse, GraphError> {
    for option in ["$orderby", "$search", "$expand", "$skip", "$top", "$count"] {
        if context.call.query(option).is_some() {
            return Err(unsupported(&format!("{option} is not supported with delta.")));
        }
    }
    let organisations = context.world.provider.people.read();
    let nobody = Organisation::default();
    let organisation = organisations.get(&context.access.grant.directory).unwrap_or(&nobody);
    let log =
        ChangeLog { seed: 0, changes: organisation.changes, oldest: organisation.oldest, page: DEFAULT_PAGE_SIZE };
    let state = open_round(context, &log, &format!("users delta {}", organisation.id))?;
    let ids = state.filter.as_deref().map(named_ids).transpose()?;
    let mut left: Vec<(delta::DeltaPosition, &Person)> = Vec::new();
    for (number, person) in
        organisation.people.iter().filter(|(_, person)| ids.as_ref().is_none_or(|ids| ids.contains(&person.id)))
    {
        let at = if state.is_initial { (0, *number) } else { (person.changed_at as i64, *number) };
        let is_new = if state.is_initial { person.is_present() } else { person.changed_at > state.start };
        if is_new && state.at.is_none_or(|before| at > before) {
            left.push((at, person));
        }
    }
    left.sort_by_key(|(at, _)| *at);
    // One more than a page shows whether there are more.
    left.truncate(delta::page_size(context, &state) + 1);
    let left =
        left.into_iter().map(|(at, person)| (at, changed(context, &state, person, organisation.domain()))).collect();
    let mut answer = delta::page(context, &log, state, left);
    if let crate::response::ResponseBody::Json(body) = &mut answer.body {
        body["@odata.context"] = odata_context(context.world, "users");
    }
    Ok(answer)
}

/// Opens a round like those of mail, but it may start at the latest state, and its links expire after a week.
fn open_round(context: &GraphCallContext<'_>, log: &ChangeLog, of: &str) -> Result<LinkState, GraphError> {
    if context.call.query("$deltatoken") == Some("latest") {
        let select = context.select.clone();
        let filter = context.call.query("$filter").map(str::to_owned);
        return Ok(LinkState {
            of: of.to_owned(),
            start: log.changes,
            size: log.page,
            select,
            filter,
            ..LinkState::default()
        });
    }
    let state = delta::open_round(context, log, of)?;
    let is_old = state.issued_ms > 0 && context.world.now_ms() - state.issued_ms >= DELTA_LINK_LIFETIME_MS;
    if is_old { Err(delta::expired()) } else { Ok(state) }
}

fn quoted_id(part: &str) -> Option<String> {
    Some(part.trim().strip_prefix("id eq '")?.strip_suffix('\'')?.to_owned())
}

/// Parses `id eq '…'`, several of them joined by `or`.
fn named_ids(filter: &str) -> Result<Vec<String>, GraphError> {
    let ids: Option<Vec<String>> = filter.split(" or ").map(quoted_id).collect();
    ids.filter(|ids| ids.len() <= MAX_FILTER_IDS)
        .ok_or_else(|| unsupported("Only $filter=id eq '…' is supported with delta, for up to 50 ids."))
}

fn removed(person: &Person, reason: &str) -> Value {
    json!({"id": person.id, "@removed": {"reason": reason}})
}

/// Renders a changed user: new ones with all properties, others with only the changed ones if that is preferred.
fn changed(context: &GraphCallContext<'_>, state: &LinkState, person: &Person, domain: &str) -> Value {
    match person.state {
        PersonState::Deleted => return removed(person, "changed"),
        PersonState::Purged => return removed(person, "deleted"),
        PersonState::Present => {}
    }
    let mut reported = shown(person, domain, state.select.as_deref());
    let is_known = !state.is_initial && person.entered_at <= state.start;
    let touched: Vec<&str> = person.touched_since(state.start).flat_map(properties).copied().collect();
    if let Value::Object(fields) = &mut reported {
        // Properties that were never set are left out.
        fields.retain(|_, value| !value.is_null());
        if is_known && context.prefer.is_minimal {
            fields.retain(|name, _| touched.contains(&name.as_str()));
        }
    }
    reported["id"] = json!(person.id);
    reported
}

/// Returns Graph's names of a person's field.
fn properties(field: PersonField) -> &'static [&'static str] {
    match field {
        PersonField::Address => &["userPrincipalName", "mail", "proxyAddresses"],
        PersonField::Aliases => &["proxyAddresses"],
        PersonField::Name => &["displayName", "givenName", "surname"],
        PersonField::Unit => &["department"],
        PersonField::Suspended => &["accountEnabled"],
        PersonField::Licence => &["assignedLicenses", "assignedPlans"],
        PersonField::Admin | PersonField::Archived => &[],
    }
}
