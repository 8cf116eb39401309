//! Groups of an organisation, and who is in them.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{Asked, Refused, check_whose, invalid, not_found, page};
use crate::answer::Answer;
use crate::opaque;
use crate::people::{Group, Member, Organisation, domain_of};

/// A page unless it is said, and the most that is given.
const SIZES: (usize, usize) = (200, 200);

fn show(organisation: &Organisation, group: &Group) -> Value {
    let members = organisation.members(group);
    let people = members.iter().filter(|member| matches!(member, Member::Person(_))).count();
    json!({
        "kind": "admin#directory#group",
        "id": group.id,
        "etag": format!("\"{:016x}\"", opaque::sum(members.len() as u64, &group.id)),
        "email": group.address,
        "name": group.name,
        "directMembersCount": people.to_string(),
        "description": "",
        "adminCreated": true,
    })
}

fn find<'a>(asked: &Asked<'_>, organisation: &'a Organisation) -> Result<(u64, &'a Group), Refused> {
    let key = asked.call.path("groupKey");
    let is_named = |group: &Group| group.id == key || group.address.eq_ignore_ascii_case(key);
    let found = organisation.groups.iter().find(|(_, group)| is_named(group));
    found.map(|(number, group)| (*number, group)).ok_or_else(|| not_found("groupKey"))
}

pub fn get(asked: &Asked<'_>, organisation: &Organisation) -> Result<Answer, Refused> {
    Ok(Answer::json(show(organisation, find(asked, organisation)?.1)))
}

/// All of them, or those that somebody is in.
pub fn list(asked: &Asked<'_>, organisation: &Organisation) -> Result<Answer, Refused> {
    let call = asked.call;
    check_whose(call, &["userKey"])?;
    if call.query("userKey").is_some() && call.query("customer").is_some() {
        return Err(invalid("userKey cannot be used with customer"));
    }
    if call.query("query").is_some() {
        return Err(invalid("query is not simulated for groups"));
    }
    let of_whom = match call.query("userKey") {
        None => None,
        Some(key) => {
            let is_named =
                |person: &crate::people::Person| person.id == key || person.addresses().any(|own| own == key);
            let found = organisation.present().find(|(_, person)| is_named(person));
            Some(found.ok_or_else(|| not_found("userKey"))?.0)
        }
    };
    let is_wanted = |group: &Group| {
        of_whom.is_none_or(|number| group.members.contains(&Member::Person(number)))
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
    let (numbers, token) = page::next(asked, &all, SIZES)?;
    let groups = numbers.iter().map(|number| show(organisation, &organisation.groups[number])).collect();
    Ok(page::answer("admin#directory#groups", "groups", groups, token))
}

/// Those who are named in the group; with `includeDerivedMembership` all who are in it however deep.
pub fn members(asked: &Asked<'_>, organisation: &Organisation) -> Result<Answer, Refused> {
    let (number, group) = find(asked, organisation)?;
    let is_derived = asked.call.query("includeDerivedMembership") == Some("true");
    let roles: BTreeSet<&str> = asked.call.query("roles").unwrap_or("MEMBER").split(',').collect();
    if let Some(wrong) = roles.iter().find(|role| !["OWNER", "MANAGER", "MEMBER"].contains(role)) {
        return Err(invalid(&format!("roles {wrong}")));
    }
    let mut found = match is_derived {
        true => organisation.all_members(number),
        false => organisation.members(group),
    };
    if !roles.contains("MEMBER") {
        found.clear();
    }
    let mut all: Vec<u64> = found
        .iter()
        .map(|member| match member {
            Member::Person(number) | Member::Group(number) => *number,
        })
        .collect();
    all.sort_unstable();
    let (numbers, token) = page::next(asked, &all, SIZES)?;
    let members = numbers.iter().map(|number| member(organisation, *number)).collect();
    Ok(page::answer("admin#directory#members", "members", members, token))
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
        "kind": "admin#directory#member", "id": id, "etag": format!("\"{:016x}\"", opaque::sum(3, id)), "email": email,
        "role": "MEMBER", "type": kind, "status": status,
    })
}
