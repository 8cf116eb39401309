//! People by Google's directory, for an administrator of their organisation: pages of everybody, for it does not tell what
//! has changed.

use domain::address::canonical;
use domain::connector::Cursors;
use domain::{ConnectorError, MembersPage, PeoplePage, Person};
use serde::Deserialize;

use super::api::Call;
use super::refusal::What;
use crate::names::{name, shown};

/// The most that Google gives.
const PAGE: &str = "500";
const MEMBERS_PAGE: &str = "200";

const FIELDS: &str = "nextPageToken,users(id,primaryEmail,aliases,name/fullName,orgUnitPath,suspended,archived,\
                      isMailboxSetup,isGuestUser)";

/// Where a listing goes on.
const NEXT: &str = "next";

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Users {
    #[serde(default)]
    users: Vec<User>,
    next_page_token: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct User {
    id: String,
    primary_email: Option<String>,
    #[serde(default)]
    aliases: Vec<String>,
    name: Option<Name>,
    org_unit_path: Option<String>,
    suspended: Option<bool>,
    archived: Option<bool>,
    is_mailbox_setup: Option<bool>,
    is_guest_user: Option<bool>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Name {
    full_name: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Members {
    #[serde(default)]
    members: Vec<Member>,
    next_page_token: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Member {
    /// Somebody outside of the organisation has none.
    id: Option<String>,
    #[serde(rename = "type")]
    kind: Option<String>,
}

pub async fn users(call: Call<'_>, cursors: &Cursors) -> Result<PeoplePage, ConnectorError> {
    let mut url = call.gmail.directory_url(&["users"]);
    let query = [("customer", "my_customer"), ("maxResults", PAGE), ("projection", "basic"), ("fields", FIELDS)];
    url.query_pairs_mut().extend_pairs(query).extend_pairs(cursors.get(NEXT).map(|token| ("pageToken", token)));
    let page: Users = call.get_from(0, What::People, url).await?;
    let mut people: Vec<Person> = page.users.into_iter().map(person).collect::<Result<_, _>>()?;
    crate::people::once(&mut people, |person| &person.id);
    let (cursors, is_last) = after(page.next_page_token);
    Ok(PeoplePage { people, gone: Vec::new(), cursors, is_last })
}

pub async fn members(call: Call<'_>, group: &str, cursors: &Cursors) -> Result<MembersPage, ConnectorError> {
    let mut url = call.gmail.directory_url(&["groups", group, "members"]);
    let query = [("includeDerivedMembership", "true"), ("maxResults", MEMBERS_PAGE)];
    url.query_pairs_mut().extend_pairs(query).extend_pairs(cursors.get(NEXT).map(|token| ("pageToken", token)));
    let page: Members = call.get_from(0, What::Group, url).await?;
    let is_person = |member: &Member| member.kind.as_deref().is_none_or(|kind| kind == "USER");
    let people = page.members.into_iter().filter(is_person).filter_map(|member| member.id);
    let members = people.map(name).collect::<Result<_, _>>()?;
    let (cursors, is_last) = after(page.next_page_token);
    Ok(MembersPage { members, cursors, is_last })
}

fn after(token: Option<String>) -> (Cursors, bool) {
    let cursors: Cursors = token.into_iter().map(|token| (NEXT.to_owned(), token)).collect();
    let is_last = cursors.is_empty();
    (cursors, is_last)
}

fn person(user: User) -> Result<Person, ConnectorError> {
    let address = user.primary_email.as_deref().and_then(canonical);
    let full_name = user.name.and_then(|name| name.full_name).map(|full_name| shown(&full_name));
    Ok(Person {
        id: name(user.id)?,
        aliases: Some(crate::people::aliases(user.aliases.iter().map(String::as_str), address.as_deref())),
        address,
        name: full_name.filter(|full_name| !full_name.is_empty()),
        unit: user.org_unit_path.map(|path| shown(&path)),
        // Whose account is kept only for its data does not work there any more.
        is_suspended: user.suspended.map(|suspended| suspended || user.archived == Some(true)).or(user.archived),
        is_guest: Some(user.is_guest_user == Some(true)),
        is_licensed: user.is_mailbox_setup,
    })
}
