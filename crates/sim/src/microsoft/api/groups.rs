//! Groups, and who is in them.

use serde_json::{Value, json};

use super::super::error::Refusal;
use super::super::faults::Route;
use super::call::Entered;
use super::{select, users};
use crate::answer::Answer;
use crate::people::{Group, Member, Organisation};

fn show(group: &Group) -> Value {
    let nickname = group.address.split('@').next().unwrap_or_default();
    let made = jiff::Timestamp::from_millisecond(group.made_ms).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
    json!({
        "id": group.id,
        "displayName": group.name,
        "description": null,
        "mail": group.address,
        "mailEnabled": true,
        "mailNickname": nickname,
        "securityEnabled": false,
        "groupTypes": ["Unified"],
        "visibility": "Private",
        "createdDateTime": made.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
    })
}

pub fn answer(route: Route, entered: &Entered<'_>) -> Result<Answer, Refusal> {
    let organisations = entered.world.people.read();
    let nobody = Organisation::default();
    let organisation = organisations.get(&entered.access.asked.directory).unwrap_or(&nobody);
    match route {
        Route::GroupsList => list(entered, organisation),
        Route::GroupsGet => {
            let (_, group) = find(entered, organisation)?;
            let mut shown = select::exactly(show(group), entered.select.as_deref());
            shown["@odata.context"] = users::context(entered.world, "groups/$entity");
            Ok(Answer::json(shown))
        }
        _ => members(route, entered, organisation),
    }
}

fn find<'a>(entered: &Entered<'_>, organisation: &'a Organisation) -> Result<(u64, &'a Group), Refusal> {
    let id = entered.call.path("group-id");
    let found = organisation.groups.iter().find(|(_, group)| group.id == id);
    let (number, group) = found.ok_or_else(|| {
        let message =
            format!("Resource '{id}' does not exist or one of its queried reference-property objects are not present.");
        Refusal::new(404, "Request_ResourceNotFound", message)
    })?;
    Ok((*number, group))
}

/// By name or address, if that is asked for.
fn list(entered: &Entered<'_>, organisation: &Organisation) -> Result<Answer, Refusal> {
    let place = users::place(entered, &format!("groups {}", organisation.id))?;
    let wanted = place.filter.as_deref().map(filter).transpose()?;
    let is_wanted = |group: &Group| match &wanted {
        None => true,
        Some((Field::Mail, wanted)) => group.address.eq_ignore_ascii_case(wanted),
        Some((Field::Name, wanted)) => group.name.eq_ignore_ascii_case(wanted),
    };
    let all: Vec<u64> =
        organisation.groups.iter().filter(|(_, group)| is_wanted(group)).map(|(number, _)| *number).collect();
    let select = place.select.clone();
    let one = |number| select::exactly(show(&organisation.groups[&number]), select.as_deref());
    Ok(users::page(entered, place, &all, "groups", one))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Field {
    Mail,
    Name,
}

fn filter(text: &str) -> Result<(Field, String), Refusal> {
    let wrong = || users::unsupported("Groups are filtered by mail eq '…' or displayName eq '…'.");
    let (field, value) = text.split_once(" eq ").ok_or_else(wrong)?;
    let value = value.trim().strip_prefix('\'').and_then(|value| value.strip_suffix('\'')).ok_or_else(wrong)?;
    match field.trim() {
        "mail" => Ok((Field::Mail, value.to_owned())),
        "displayName" => Ok((Field::Name, value.to_owned())),
        _ => Err(wrong()),
    }
}

/// Those who are named in the group, or all who are in it however deep; only people, if the path ends with that.
fn members(route: Route, entered: &Entered<'_>, organisation: &Organisation) -> Result<Answer, Refusal> {
    let (number, group) = find(entered, organisation)?;
    let is_cast = entered.call.method.id.ends_with("/microsoft.graph.user");
    let is_first = entered.call.query("$skiptoken").is_none();
    let place = users::place(entered, &format!("{} {number} {}", route.as_str(), organisation.id))?;
    if is_cast && is_first && !(entered.is_eventual && entered.call.query("$count") == Some("true")) {
        return Err(users::unsupported("A cast needs the header ConsistencyLevel: eventual and $count=true."));
    }
    if place.filter.is_some() {
        return Err(users::unsupported("$filter is not simulated for members."));
    }
    let found = match route {
        Route::GroupsAllMembers => organisation.all_members(number),
        _ => organisation.members(group),
    };
    let is_wanted = |member: &&Member| !is_cast || matches!(member, Member::Person(_));
    let mut all: Vec<u64> = found.iter().filter(is_wanted).map(|member| number_of(*member)).collect();
    all.sort_unstable();
    let select = place.select.clone();
    let show = |number: u64| {
        let (mut shown, kind) = match organisation.people.get(&number) {
            Some(person) => (users::shown(person, organisation.domain(), select.as_deref()), "user"),
            None => (select::exactly(show(&organisation.groups[&number]), select.as_deref()), "group"),
        };
        if !is_cast {
            shown["@odata.type"] = json!(format!("#microsoft.graph.{kind}"));
        }
        shown
    };
    Ok(users::page(entered, place, &all, if is_cast { "users" } else { "directoryObjects" }, show))
}

/// An organisation counts people and groups together.
fn number_of(member: Member) -> u64 {
    match member {
        Member::Person(number) | Member::Group(number) => number,
    }
}
