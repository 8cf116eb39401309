//! Users and group members of an organisation by Google's Directory API, as its administrator. It has no deltas, so every
//! listing is a full snapshot.

use domain::address::canonical;
use domain::connector::Cursors;
use domain::{ConnectorError, DirectoryPeoplePage, DirectoryPerson, GroupMembersPage};
use serde::Deserialize;

use super::api::GmailClient;
use super::error_mapping::GmailOperation;
use crate::provider_text::{printable, valid_id};

/// Google's maximum (`maxResults`).
const USERS_PER_PAGE: &str = "500";
const MEMBERS_PER_PAGE: &str = "200";

const USER_FIELDS: &str = "nextPageToken,users(id,primaryEmail,aliases,name/fullName,orgUnitPath,suspended,archived,\
                      isMailboxSetup,isGuestUser)";

/// Cursor scope of the next page's token.
const NEXT_PAGE_CURSOR: &str = "next";

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct UserList {
    #[serde(default)]
    users: Vec<GoogleUser>,
    next_page_token: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct GoogleUser {
    id: String,
    primary_email: Option<String>,
    #[serde(default)]
    aliases: Vec<String>,
    name: Option<UserName>,
    org_unit_path: Option<String>,
    suspended: Option<bool>,
    archived: Option<bool>,
    is_mailbox_setup: Option<bool>,
    is_guest_user: Option<bool>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct UserName {
    full_name: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct MemberList {
    #[serde(default)]
    members: Vec<GroupMember>,
    next_page_token: Option<String>,
}

#[derive(Debug, Deserialize)]
struct GroupMember {
    /// A person outside of the organisation has none.
    id: Option<String>,
    #[serde(rename = "type")]
    kind: Option<String>,
}

impl GroupMember {
    /// Returns whether it is a user and not a group; without a `type` it is a user.
    fn is_user(&self) -> bool {
        self.kind.as_deref().is_none_or(|kind| kind == "USER")
    }
}

/// Returns a page of the organisation's users.
pub async fn users(client: GmailClient<'_>, cursors: &Cursors) -> Result<DirectoryPeoplePage, ConnectorError> {
    let mut url = client.gmail.directory_url(&["users"]);
    let query =
        [("customer", "my_customer"), ("maxResults", USERS_PER_PAGE), ("projection", "basic"), ("fields", USER_FIELDS)];
    url.query_pairs_mut()
        .extend_pairs(query)
        .extend_pairs(cursors.get(NEXT_PAGE_CURSOR).map(|token| ("pageToken", token)));
    let page: UserList = client.get(0, GmailOperation::Users, url).await?;
    let mut people: Vec<DirectoryPerson> = page.users.into_iter().map(person).collect::<Result<_, _>>()?;
    crate::people::keep_last_of_each_id(&mut people, |person| &person.id);
    let (cursors, is_last) = next_cursors(page.next_page_token);
    Ok(DirectoryPeoplePage { people, removed: Vec::new(), cursors, is_last })
}

/// Returns a page of the people in a group and in its subgroups.
pub async fn members(
    client: GmailClient<'_>,
    group: &str,
    cursors: &Cursors,
) -> Result<GroupMembersPage, ConnectorError> {
    let mut url = client.gmail.directory_url(&["groups", group, "members"]);
    let query = [("includeDerivedMembership", "true"), ("maxResults", MEMBERS_PER_PAGE)];
    url.query_pairs_mut()
        .extend_pairs(query)
        .extend_pairs(cursors.get(NEXT_PAGE_CURSOR).map(|token| ("pageToken", token)));
    let page: MemberList = client.get(0, GmailOperation::Group, url).await?;
    let people = page.members.into_iter().filter(GroupMember::is_user).filter_map(|member| member.id);
    let members = people.map(valid_id).collect::<Result<_, _>>()?;
    let (cursors, is_last) = next_cursors(page.next_page_token);
    Ok(GroupMembersPage { members, cursors, is_last })
}

fn next_cursors(token: Option<String>) -> (Cursors, bool) {
    let cursors: Cursors = token.into_iter().map(|token| (NEXT_PAGE_CURSOR.to_owned(), token)).collect();
    let is_last = cursors.is_empty();
    (cursors, is_last)
}

fn person(user: GoogleUser) -> Result<DirectoryPerson, ConnectorError> {
    let address = user.primary_email.as_deref().and_then(canonical);
    let full_name = user.name.and_then(|name| name.full_name).map(|full_name| printable(&full_name));
    Ok(DirectoryPerson {
        id: valid_id(user.id)?,
        aliases: Some(crate::people::aliases(user.aliases.iter().map(String::as_str), address.as_deref())),
        address,
        name: full_name.filter(|full_name| !full_name.is_empty()),
        unit: user.org_unit_path.map(|path| printable(&path)),
        // An archived account is kept for its data only.
        is_suspended: user.suspended.map(|suspended| suspended || user.archived == Some(true)).or(user.archived),
        is_guest: Some(user.is_guest_user == Some(true)),
        is_licensed: user.is_mailbox_setup,
    })
}
