//! Groups and their members.

use serde_json::{Value, json};

use super::super::error::GraphError;
use super::super::faults::MicrosoftRoute;
use super::call::GraphCallContext;
use super::{select, users};
use crate::people::{Group, GroupMember, Organisation};
use crate::response::SimResponse;

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

pub fn answer(route: MicrosoftRoute, context: &GraphCallContext<'_>) -> Result<SimResponse, GraphError> {
    let organisations = context.world.provider.people.read();
    let nobody = Organisation::default();
    let organisation = organisations.get(&context.access.grant.directory).unwrap_or(&nobody);
    match route {
        MicrosoftRoute::GroupsList => list(context, organisation),
        MicrosoftRoute::GroupsGet => {
            let (_, group) = find(context, organisation)?;
            let mut shown = select::exactly(show(group), context.select.as_deref());
            shown["@odata.context"] = users::odata_context(context.world, "groups/$entity");
            Ok(SimResponse::json(shown))
        }
        _ => members(route, context, organisation),
    }
}

fn find<'a>(context: &GraphCallContext<'_>, organisation: &'a Organisation) -> Result<(u64, &'a Group), GraphError> {
    let id = context.call.path("group-id");
    let found = organisation.groups.iter().find(|(_, group)| group.id == id);
    let (number, group) = found.ok_or_else(|| {
        let message =
            format!("Resource '{id}' does not exist or one of its queried reference-property objects are not present.");
        GraphError::new(404, "Request_ResourceNotFound", message)
    })?;
    Ok((*number, group))
}

/// Lists groups, filtered by name or address if requested.
fn list(context: &GraphCallContext<'_>, organisation: &Organisation) -> Result<SimResponse, GraphError> {
    let state = users::link_state(context, &format!("groups {}", organisation.id))?;
    let wanted = state.filter.as_deref().map(filter).transpose()?;
    let all: Vec<u64> = organisation
        .groups
        .iter()
        .filter(|(_, group)| wanted.as_ref().is_none_or(|(property, value)| property.matches(group, value)))
        .map(|(number, _)| *number)
        .collect();
    let select = state.select.clone();
    Ok(users::page(context, state, &all, "groups", |number| {
        select::exactly(show(&organisation.groups[&number]), select.as_deref())
    }))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum GroupProperty {
    Mail,
    Name,
}

impl GroupProperty {
    fn matches(self, group: &Group, value: &str) -> bool {
        match self {
            Self::Mail => group.address.eq_ignore_ascii_case(value),
            Self::Name => group.name.eq_ignore_ascii_case(value),
        }
    }
}

fn unsupported_filter() -> GraphError {
    users::unsupported("Groups are filtered by mail eq '…' or displayName eq '…'.")
}

fn filter(text: &str) -> Result<(GroupProperty, String), GraphError> {
    let (field, value) = text.split_once(" eq ").ok_or_else(unsupported_filter)?;
    let value =
        value.trim().strip_prefix('\'').and_then(|value| value.strip_suffix('\'')).ok_or_else(unsupported_filter)?;
    match field.trim() {
        "mail" => Ok((GroupProperty::Mail, value.to_owned())),
        "displayName" => Ok((GroupProperty::Name, value.to_owned())),
        _ => Err(unsupported_filter()),
    }
}

/// Lists direct or transitive members; only users if the path ends with a cast.
fn members(
    route: MicrosoftRoute,
    context: &GraphCallContext<'_>,
    organisation: &Organisation,
) -> Result<SimResponse, GraphError> {
    let (number, group) = find(context, organisation)?;
    let is_cast = context.call.method.id.ends_with("/microsoft.graph.user");
    let is_first = context.call.query("$skiptoken").is_none();
    let state = users::link_state(context, &format!("{} {number} {}", route.as_str(), organisation.id))?;
    if is_cast && is_first && !(context.is_eventual && context.call.query("$count") == Some("true")) {
        return Err(users::unsupported("A cast needs the header ConsistencyLevel: eventual and $count=true."));
    }
    if state.filter.is_some() {
        return Err(users::unsupported("$filter is not simulated for members."));
    }
    let found = match route {
        MicrosoftRoute::GroupsAllMembers => organisation.all_members(number),
        _ => organisation.members(group),
    };
    let mut all: Vec<u64> = found
        .iter()
        .filter(|member| !is_cast || matches!(member, GroupMember::Person(_)))
        .map(|member| number_of(*member))
        .collect();
    all.sort_unstable();
    let select = state.select.clone();
    Ok(users::page(context, state, &all, if is_cast { "users" } else { "directoryObjects" }, |number: u64| {
        let (mut shown, kind) = match organisation.people.get(&number) {
            Some(person) => (users::shown(person, organisation.domain(), select.as_deref()), "user"),
            None => (select::exactly(show(&organisation.groups[&number]), select.as_deref()), "group"),
        };
        if !is_cast {
            shown["@odata.type"] = json!(format!("#microsoft.graph.{kind}"));
        }
        shown
    }))
}

/// Returns a member's number. People and groups share one sequence.
fn number_of(member: GroupMember) -> u64 {
    match member {
        GroupMember::Person(number) | GroupMember::Group(number) => number,
    }
}
