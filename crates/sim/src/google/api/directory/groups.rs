//! The directory API's groups and their members.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{BoxedResponse, DirectoryRequest, invalid, not_found, paging, require_customer_or_domain};
use crate::opaque_token;
use crate::people::{Group, GroupMember, Organisation, domain_of};
use crate::response::SimResponse;

/// The default and the maximum page size.
const PAGE_SIZES: (usize, usize) = (200, 200);

fn show(organisation: &Organisation, group: &Group) -> Value {
    let members = organisation.members(group);
    let people = members.iter().filter(|member| matches!(member, GroupMember::Person(_))).count();
    json!({
        "kind": "admin#directory#group",
        "id": group.id,
        "etag": format!("\"{:016x}\"", opaque_token::checksum(members.len() as u64, &group.id)),
        "email": group.address,
        "name": group.name,
        "directMembersCount": people.to_string(),
        "description": "",
        "adminCreated": true,
    })
}

fn find<'a>(request: &DirectoryRequest<'_>, organisation: &'a Organisation) -> Result<(u64, &'a Group), BoxedResponse> {
    let key = request.call.path("groupKey");
    let mut groups = organisation.groups.iter();
    let found = groups.find(|(_, group)| group.id == key || group.address.eq_ignore_ascii_case(key));
    found.map(|(number, group)| (*number, group)).ok_or_else(|| not_found("groupKey"))
}

pub fn get(request: &DirectoryRequest<'_>, organisation: &Organisation) -> Result<SimResponse, BoxedResponse> {
    Ok(SimResponse::json(show(organisation, find(request, organisation)?.1)))
}

/// Lists all groups, or those that one user is a member of.
pub fn list(request: &DirectoryRequest<'_>, organisation: &Organisation) -> Result<SimResponse, BoxedResponse> {
    let call = request.call;
    require_customer_or_domain(call, &["userKey"])?;
    if call.query("userKey").is_some() && call.query("customer").is_some() {
        return Err(invalid("userKey cannot be used with customer"));
    }
    if call.query("query").is_some() {
        return Err(invalid("query is not simulated for groups"));
    }
    let member = match call.query("userKey") {
        None => None,
        Some(key) => {
            let is_named =
                |person: &crate::people::Person| person.id == key || person.addresses().any(|own| own == key);
            let found = organisation.present().find(|(_, person)| is_named(person));
            Some(found.ok_or_else(|| not_found("userKey"))?.0)
        }
    };
    let is_wanted = |group: &Group| {
        member.is_none_or(|number| group.members.contains(&GroupMember::Person(number)))
            && call.query("domain").is_none_or(|domain| domain_of(&group.address).eq_ignore_ascii_case(domain))
    };
    let mut all: Vec<(&str, u64)> = Vec::new();
    for (number, group) in organisation.groups.iter().filter(|(_, group)| is_wanted(group)) {
        all.push((if call.query("orderBy").is_some() { group.address.as_str() } else { "" }, *number));
    }
    all.sort_unstable();
    if call.query("sortOrder") == Some("DESCENDING") && call.query("orderBy").is_some() {
        all.reverse();
    }
    let all: Vec<u64> = all.into_iter().map(|(_, number)| number).collect();
    let (numbers, token) = paging::next(request, &all, PAGE_SIZES)?;
    let groups = numbers.iter().map(|number| show(organisation, &organisation.groups[number])).collect();
    Ok(paging::answer("admin#directory#groups", "groups", groups, token))
}

/// Lists the direct members of a group; with `includeDerivedMembership` also those of nested groups.
pub fn members(request: &DirectoryRequest<'_>, organisation: &Organisation) -> Result<SimResponse, BoxedResponse> {
    let (number, group) = find(request, organisation)?;
    let is_derived = request.call.query("includeDerivedMembership") == Some("true");
    let roles: BTreeSet<&str> = request.call.query("roles").unwrap_or("MEMBER").split(',').collect();
    if let Some(wrong) = roles.iter().find(|role| !["OWNER", "MANAGER", "MEMBER"].contains(role)) {
        return Err(invalid(&format!("roles {wrong}")));
    }
    let mut found = if is_derived { organisation.all_members(number) } else { organisation.members(group) };
    if !roles.contains("MEMBER") {
        found.clear();
    }
    let mut all: Vec<u64> = found
        .iter()
        .map(|member| match member {
            GroupMember::Person(number) | GroupMember::Group(number) => *number,
        })
        .collect();
    all.sort_unstable();
    let (numbers, token) = paging::next(request, &all, PAGE_SIZES)?;
    let members = numbers.iter().map(|number| member(organisation, *number)).collect();
    Ok(paging::answer("admin#directory#members", "members", members, token))
}

fn member(organisation: &Organisation, number: u64) -> Value {
    let (id, email, kind, status) = match (organisation.people.get(&number), organisation.groups.get(&number)) {
        (Some(person), _) => {
            (&person.id, &person.address, "USER", if person.is_suspended { "SUSPENDED" } else { "ACTIVE" })
        }
        (None, Some(group)) => (&group.id, &group.address, "GROUP", "ACTIVE"),
        (None, None) => return json!({}),
    };
    json!({
        "kind": "admin#directory#member", "id": id, "etag": format!("\"{:016x}\"", opaque_token::checksum(3, id)), "email": email,
        "role": "MEMBER", "type": kind, "status": status,
    })
}
