//! People by Graph's directory: everybody in a first round, then who came, changed and went.

use domain::address::canonical;
use domain::connector::Cursors;
use domain::{ConnectorError, MembersPage, PeoplePage, Person};
use reqwest::Url;
use serde::Deserialize;

use super::api::{Call, Collection};
use super::refusal::What;
use crate::http::protocol;
use crate::names::{name, shown};

/// A page of changes, as a wish; and the most of a group's members that Graph gives.
const PAGE: &str = "odata.maxpagesize=999";
const MEMBERS_PAGE: &str = "999";

const FIELDS: &str =
    "id,userPrincipalName,mail,displayName,department,accountEnabled,userType,assignedPlans,proxyAddresses";

/// Where a round goes on, and where the next one begins.
const NEXT: &str = "next";
const DELTA: &str = "delta";

/// A part of a licence that is a mailbox, and when it is one.
const MAIL_SERVICE: &str = "exchange";
const GOOD: [&str; 2] = ["Enabled", "Warning"];

/// What is not there was not told; `null` says that there is none.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct User {
    id: String,
    user_principal_name: Option<String>,
    #[serde(deserialize_with = "told")]
    mail: Option<Option<String>>,
    #[serde(deserialize_with = "told")]
    display_name: Option<Option<String>>,
    #[serde(deserialize_with = "told")]
    department: Option<Option<String>>,
    account_enabled: Option<bool>,
    #[serde(deserialize_with = "told")]
    user_type: Option<Option<String>>,
    assigned_plans: Option<Vec<Plan>>,
    proxy_addresses: Option<Vec<String>>,
    #[serde(rename = "@removed")]
    removed: Option<serde::de::IgnoredAny>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Plan {
    service: Option<String>,
    capability_status: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Member {
    id: String,
    #[serde(rename = "@odata.type")]
    kind: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Group {
    id: String,
}

fn told<'de, D: serde::Deserializer<'de>, T: Deserialize<'de>>(value: D) -> Result<Option<Option<T>>, D::Error> {
    Option::<T>::deserialize(value).map(Some)
}

pub async fn users(call: Call<'_>, cursors: &Cursors) -> Result<PeoplePage, ConnectorError> {
    let url = match cursors.get(NEXT).or_else(|| cursors.get(DELTA)) {
        Some(link) => call.link(link)?,
        None => with_query(call.wide_url(&["users", "delta"]), &[("$select", FIELDS)]),
    };
    let page: Collection<User> = call.get(What::People, url, PAGE).await?;
    let (cursors, is_last) = match (page.next_link, page.delta_link) {
        (Some(link), None) => (Cursors::from([(NEXT.to_owned(), link)]), false),
        (None, Some(link)) => (Cursors::from([(DELTA.to_owned(), link)]), true),
        _ => return Err(protocol("a page that does not say how it goes on")),
    };
    let mut users = page.value;
    // Who came and went within a round may be told of twice.
    crate::people::once(&mut users, |user| &user.id);
    let (gone, there): (Vec<User>, Vec<User>) = users.into_iter().partition(|user| user.removed.is_some());
    Ok(PeoplePage {
        people: there.into_iter().map(person).collect::<Result<_, _>>()?,
        gone: gone.into_iter().map(|user| name(user.id)).collect::<Result<_, _>>()?,
        cursors,
        is_last,
    })
}

/// However deep they are in it.
pub async fn members(call: Call<'_>, group: &str, cursors: &Cursors) -> Result<MembersPage, ConnectorError> {
    let url = match cursors.get(NEXT) {
        Some(link) => call.link(link)?,
        None => {
            let id = group_id(call, group).await?;
            let url = call.wide_url(&["groups", &id, "transitiveMembers"]);
            with_query(url, &[("$select", "id"), ("$top", MEMBERS_PAGE)])
        }
    };
    let page: Collection<Member> = call.get(What::Group, url, "").await?;
    let is_person = |member: &Member| member.kind.as_deref().is_none_or(|kind| kind == "#microsoft.graph.user");
    let people = page.value.into_iter().filter(is_person).map(|member| name(member.id));
    let cursors: Cursors = page.next_link.into_iter().map(|link| (NEXT.to_owned(), link)).collect();
    Ok(MembersPage { members: people.collect::<Result<_, _>>()?, is_last: cursors.is_empty(), cursors })
}

/// Groups are called by id, and named by address.
async fn group_id(call: Call<'_>, group: &str) -> Result<String, ConnectorError> {
    if !group.contains('@') {
        return Ok(group.to_owned());
    }
    let filter = format!("mail eq '{}'", group.replace('\'', "''"));
    let url = with_query(call.wide_url(&["groups"]), &[("$filter", &filter), ("$select", "id")]);
    let found: Collection<Group> = call.get(What::Group, url, "").await?;
    let first = found.value.into_iter().next().ok_or(ConnectorError::Gone)?;
    name(first.id)
}

fn with_query(mut url: Url, query: &[(&str, &str)]) -> Url {
    url.query_pairs_mut().extend_pairs(query);
    url
}

fn person(user: User) -> Result<Person, ConnectorError> {
    let login = user.user_principal_name.as_deref().and_then(canonical);
    let mail = user.mail.as_ref().map(|mail| mail.as_deref().and_then(canonical));
    // Who has no address there may still have a mailbox under the name they sign in with.
    let address = match mail {
        Some(Some(mail)) => Some(mail),
        _ => login.clone().filter(|_| user.mail.is_some() || user.proxy_addresses.is_some()),
    };
    let aliases = user.proxy_addresses.as_ref().map(|proxies| {
        let smtp = proxies.iter().filter_map(|proxy| {
            let (kind, address) = proxy.split_once(':')?;
            kind.eq_ignore_ascii_case("smtp").then_some(address)
        });
        crate::people::aliases(smtp.chain(login.as_deref()), address.as_deref())
    });
    let text = |told: Option<Option<String>>| told.map(|text| shown(&text.unwrap_or_default()));
    Ok(Person {
        id: name(user.id)?,
        address,
        aliases,
        name: text(user.display_name),
        unit: text(user.department),
        is_suspended: user.account_enabled.map(|is_enabled| !is_enabled),
        is_guest: user.user_type.map(|kind| kind.is_some_and(|kind| kind.eq_ignore_ascii_case("guest"))),
        is_licensed: user.assigned_plans.map(|plans| plans.iter().any(is_mailbox)),
    })
}

fn is_mailbox(plan: &Plan) -> bool {
    plan.service.as_deref().is_some_and(|service| service.eq_ignore_ascii_case(MAIL_SERVICE))
        && plan.capability_status.as_deref().is_some_and(|status| GOOD.contains(&status))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(value: Value) -> Person {
        person(serde_json::from_value(value).unwrap()).unwrap()
    }

    #[test]
    fn what_is_not_told_is_not_made_up() {
        let told = read(json!({"id": "1", "accountEnabled": false}));
        assert_eq!(told, Person { id: "1".to_owned(), is_suspended: Some(true), ..Person::default() });

        let emptied = read(json!({"id": "1", "department": null, "assignedPlans": []}));
        assert_eq!((emptied.unit.as_deref(), emptied.is_licensed), (Some(""), Some(false)));
    }

    #[test]
    fn the_address_is_the_one_they_write_from_and_all_else_is_an_alias() {
        let ann = read(json!({
            "id": "1", "mail": "Ann@acme.test", "userPrincipalName": "a.b@acme.onmicrosoft.test", "userType": "Member",
            "proxyAddresses": ["SMTP:Ann@acme.test", "smtp:annie@acme.test", "SIP:ann@acme.test", "x500:/o=a"],
            "assignedPlans": [{"service": "exchange", "capabilityStatus": "Warning"}],
        }));
        assert_eq!(ann.address.as_deref(), Some("ann@acme.test"));
        assert_eq!(ann.aliases.unwrap(), ["a.b@acme.onmicrosoft.test", "annie@acme.test"]);
        assert_eq!((ann.is_guest, ann.is_licensed), (Some(false), Some(true)));

        let nameless = read(json!({"id": "1", "mail": null, "userPrincipalName": "x@acme.test", "proxyAddresses": []}));
        assert_eq!(nameless.address.as_deref(), Some("x@acme.test"));
    }

    #[test]
    fn a_plan_that_was_taken_away_is_no_mailbox() {
        let plan =
            |status: &str| json!({"id": "1", "assignedPlans": [{"service": "exchange", "capabilityStatus": status}]});
        assert_eq!(read(plan("Enabled")).is_licensed, Some(true));
        for ended in ["Deleted", "Suspended", "LockedOut"] {
            assert_eq!(read(plan(ended)).is_licensed, Some(false), "{ended}");
        }
    }
}
