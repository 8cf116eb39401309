//! Users and group members of a directory by Graph: all users in a first delta round, then those that were added, changed
//! or removed.

use domain::address::canonical;
use domain::connector::Cursors;
use domain::{ConnectorError, DirectoryPeoplePage, DirectoryPerson, GroupMembersPage};
use outbound::http::{StatusCode, Url};
use serde::Deserialize;

use super::api::{Collection, GraphClient};
use super::error_mapping::GraphOperation;
use crate::http::protocol;
use crate::provider_text::{printable, valid_id};

/// Preferred page size of a delta, and Graph's maximum of group members.
const PREFER_PAGE_SIZE: &str = "odata.maxpagesize=999";
const MEMBERS_PER_PAGE: &str = "999";

const USER_FIELDS: &str =
    "id,userPrincipalName,mail,displayName,department,accountEnabled,userType,assignedPlans,proxyAddresses";

/// Cursor scopes of the `nextLink` and of the `deltaLink`.
const NEXT_PAGE_CURSOR: &str = "next";
const DELTA_CURSOR: &str = "delta";

/// Service of a licence plan that includes a mailbox, and the statuses in which it does.
const EXCHANGE_SERVICE: &str = "exchange";
const ACTIVE_PLAN_STATUSES: [&str; 2] = ["Enabled", "Warning"];

/// A user, of whom a delta has changed properties only: an absent one is unchanged, `null` says that there is none.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct GraphUser {
    id: String,
    user_principal_name: Option<String>,
    #[serde(deserialize_with = "nullable")]
    mail: Option<Option<String>>,
    #[serde(deserialize_with = "nullable")]
    display_name: Option<Option<String>>,
    #[serde(deserialize_with = "nullable")]
    department: Option<Option<String>>,
    account_enabled: Option<bool>,
    #[serde(deserialize_with = "nullable")]
    user_type: Option<Option<String>>,
    assigned_plans: Option<Vec<AssignedPlan>>,
    proxy_addresses: Option<Vec<String>>,
    #[serde(rename = "@removed")]
    removed: Option<serde::de::IgnoredAny>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct AssignedPlan {
    service: Option<String>,
    capability_status: Option<String>,
}

#[derive(Debug, Deserialize)]
struct DirectoryObject {
    id: String,
    #[serde(rename = "@odata.type")]
    kind: Option<String>,
}

#[derive(Debug, Deserialize)]
struct GraphGroup {
    id: String,
}

impl DirectoryObject {
    /// Returns whether it is a user and not a group or device; without a type it is a user.
    fn is_user(&self) -> bool {
        self.kind.as_deref().is_none_or(|kind| kind == "#microsoft.graph.user")
    }
}

/// Reads `null` as `Some(None)`, so that it differs from an absent property.
fn nullable<'de, D: serde::Deserializer<'de>, T: Deserialize<'de>>(value: D) -> Result<Option<Option<T>>, D::Error> {
    Option::<T>::deserialize(value).map(Some)
}

/// Returns a page of users and of their changes.
pub async fn users(client: GraphClient<'_>, cursors: &Cursors) -> Result<DirectoryPeoplePage, ConnectorError> {
    let link = cursors.get(NEXT_PAGE_CURSOR).or_else(|| cursors.get(DELTA_CURSOR));
    let url = match link {
        Some(link) => client.link(link)?,
        None => with_query(client.root_url(&["users", "delta"]), &[("$select", USER_FIELDS)]),
    };
    let page: Collection<GraphUser> = match client.get(GraphOperation::Users, url, PREFER_PAGE_SIZE).await {
        // Whatever it says of the link: without it everybody is listed anew.
        Err(failure) if failure.status == Some(StatusCode::BAD_REQUEST) && link.is_some() => {
            return Err(ConnectorError::CursorExpired);
        }
        page => page?,
    };
    let (cursors, is_last) = match (page.next_link, page.delta_link) {
        (Some(link), None) => (Cursors::from([(NEXT_PAGE_CURSOR.to_owned(), link)]), false),
        (None, Some(link)) => (Cursors::from([(DELTA_CURSOR.to_owned(), link)]), true),
        _ => return Err(protocol("a delta page has neither a nextLink nor a deltaLink")),
    };
    let mut users = page.value;
    // A user who was added and removed within a round may be listed twice.
    crate::people::keep_last_of_each_id(&mut users, |user| &user.id);
    let (removed, present): (Vec<GraphUser>, Vec<GraphUser>) =
        users.into_iter().partition(|user| user.removed.is_some());
    Ok(DirectoryPeoplePage {
        people: present.into_iter().map(person).collect::<Result<_, _>>()?,
        removed: removed.into_iter().map(|user| valid_id(user.id)).collect::<Result<_, _>>()?,
        cursors,
        is_last,
    })
}

/// Returns a page of the people in a group and in its subgroups.
pub async fn members(
    client: GraphClient<'_>,
    group: &str,
    cursors: &Cursors,
) -> Result<GroupMembersPage, ConnectorError> {
    let url = match cursors.get(NEXT_PAGE_CURSOR) {
        Some(link) => client.link(link)?,
        None => {
            let id = group_id(client, group).await?;
            let url = client.root_url(&["groups", &id, "transitiveMembers"]);
            with_query(url, &[("$select", "id"), ("$top", MEMBERS_PER_PAGE)])
        }
    };
    let page: Collection<DirectoryObject> = client.get(GraphOperation::Group, url, "").await?;
    let people = page.value.into_iter().filter(DirectoryObject::is_user).map(|member| valid_id(member.id));
    let cursors: Cursors = page.next_link.into_iter().map(|link| (NEXT_PAGE_CURSOR.to_owned(), link)).collect();
    Ok(GroupMembersPage { members: people.collect::<Result<_, _>>()?, is_last: cursors.is_empty(), cursors })
}

/// Returns the id of a group that is named by its id or its address.
async fn group_id(client: GraphClient<'_>, group: &str) -> Result<String, ConnectorError> {
    if !group.contains('@') {
        return Ok(group.to_owned());
    }
    let filter = format!("mail eq '{}'", group.replace('\'', "''"));
    let url = with_query(client.root_url(&["groups"]), &[("$filter", &filter), ("$select", "id")]);
    let found: Collection<GraphGroup> = client.get(GraphOperation::Group, url, "").await?;
    let first = found.value.into_iter().next().ok_or(ConnectorError::Gone)?;
    valid_id(first.id)
}

fn with_query(mut url: Url, query: &[(&str, &str)]) -> Url {
    url.query_pairs_mut().extend_pairs(query);
    url
}

fn person(user: GraphUser) -> Result<DirectoryPerson, ConnectorError> {
    let login = user.user_principal_name.as_deref().and_then(canonical);
    let mail = user.mail.as_ref().map(|mail| mail.as_deref().and_then(canonical));
    // A user without `mail` may still have a mailbox under the sign-in name.
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

    Ok(DirectoryPerson {
        id: valid_id(user.id)?,
        address,
        aliases,
        name: user.display_name.map(|name| printable(&name.unwrap_or_default())),
        unit: user.department.map(|department| printable(&department.unwrap_or_default())),
        is_suspended: user.account_enabled.map(|is_enabled| !is_enabled),
        is_guest: user.user_type.map(|kind| kind.is_some_and(|kind| kind.eq_ignore_ascii_case("guest"))),
        is_licensed: user.assigned_plans.map(|plans| plans.iter().any(is_mailbox)),
    })
}

/// Returns whether a licence plan includes a mailbox.
fn is_mailbox(plan: &AssignedPlan) -> bool {
    plan.service.as_deref().is_some_and(|service| service.eq_ignore_ascii_case(EXCHANGE_SERVICE))
        && plan.capability_status.as_deref().is_some_and(|status| ACTIVE_PLAN_STATUSES.contains(&status))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(value: Value) -> DirectoryPerson {
        person(serde_json::from_value(value).unwrap()).unwrap()
    }

    #[test]
    fn absent_properties_stay_unknown() {
        let disabled = read(json!({"id": "1", "accountEnabled": false}));
        assert_eq!(
            disabled,
            DirectoryPerson { id: "1".to_owned(), is_suspended: Some(true), ..DirectoryPerson::default() }
        );

        let emptied = read(json!({"id": "1", "department": null, "assignedPlans": []}));
        assert_eq!((emptied.unit.as_deref(), emptied.is_licensed), (Some(""), Some(false)));
    }

    #[test]
    fn mail_is_the_address_and_all_others_are_aliases() {
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
    fn ended_plan_has_no_mailbox() {
        for (status, is_licensed) in [("Enabled", true), ("Deleted", false), ("Suspended", false), ("LockedOut", false)]
        {
            let user = json!({"id": "1", "assignedPlans": [{"service": "exchange", "capabilityStatus": status}]});
            assert_eq!(read(user).is_licensed, Some(is_licensed), "{status}");
        }
    }
}
