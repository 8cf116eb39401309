//! Who there is in a directory, who came, changed and went, and who is in which group.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use sim::microsoft::{CLIENT_ID, CLIENT_SECRET};
use sim::people::{NewOrganisation, Organised, State};

use super::place::{Place, code};
use crate::client::{Answered, encoded};

const DOMAIN: &str = "fabrikam.example";

/// With so many people, and a program that may look at them.
async fn company(people: usize) -> (Place, String) {
    let place = Place::new().await;
    let new = NewOrganisation { domain: DOMAIN.to_owned(), people, ..NewOrganisation::default() };
    place.world.organise(&new).unwrap();
    let token = program(&place, DOMAIN, json!({"admin_consent": true})).await;
    (place, token)
}

async fn program(place: &Place, domain: &str, consent: Value) -> String {
    place.steer("PUT", &format!("directories/{domain}"), consent).await;
    let fields = [
        ("grant_type", "client_credentials"),
        ("scope", "https://graph.microsoft.com/.default"),
        ("client_id", CLIENT_ID),
        ("client_secret", CLIENT_SECRET),
    ];
    let answered = place.form(&format!("/{domain}/oauth2/v2.0/token"), &fields).await;
    answered.json()["access_token"].as_str().unwrap_or_else(|| panic!("{}", answered.text())).to_owned()
}

/// A whole link, or what comes after `/v1.0`.
async fn ask(place: &Place, token: &str, path: &str, more: &[(&str, &str)]) -> Answered {
    let path = path.strip_prefix(&place.server.url()).map_or_else(|| format!("/v1.0{path}"), str::to_owned);
    let authorization = format!("Bearer {token}");
    let fields = [&[("Authorization", authorization.as_str())], more].concat();
    place.send("GET", &path, &fields, b"").await.unwrap()
}

async fn get(place: &Place, token: &str, path: &str) -> Value {
    let answered = ask(place, token, path, &[]).await;
    assert_eq!(answered.status, 200, "{path}: {}", answered.text());
    answered.json()
}

/// All items up to the last page, and the link to what changes later if there is one.
async fn walk(place: &Place, token: &str, path: &str, more: &[(&str, &str)]) -> (Vec<Value>, Option<String>) {
    let (mut items, mut next) = (Vec::new(), path.to_owned());
    loop {
        let answered = ask(place, token, &next, more).await;
        assert_eq!(answered.status, 200, "{next}: {}", answered.text());
        let page = answered.json();
        items.extend(page["value"].as_array().unwrap().iter().cloned());
        match page["@odata.nextLink"].as_str() {
            Some(link) => next = link.to_owned(),
            None => return (items, page["@odata.deltaLink"].as_str().map(str::to_owned)),
        }
    }
}

fn ids(items: &[Value]) -> BTreeSet<String> {
    items.iter().map(|item| item["id"].as_str().unwrap().to_owned()).collect()
}

async fn apply(place: &Place, operation: Value) -> Value {
    place.steer("POST", &format!("organisations/{DOMAIN}/apply"), operation).await
}

#[tokio::test]
async fn everybody_comes_once_over_many_pages_with_what_was_asked_for() {
    let (place, token) = company(120).await;
    let fields = "id,userPrincipalName,mail,accountEnabled,userType,assignedPlans,assignedLicenses,proxyAddresses";

    let (items, _) = walk(&place, &token, &format!("/users?$select={fields}&$top=50"), &[]).await;

    let truth = place.world.organisation(DOMAIN).unwrap();
    let present = truth.people.iter().filter(|(_, person)| person.state == State::Present);
    assert_eq!(items.len(), present.clone().count());
    let found: BTreeMap<&str, &Value> = items.iter().map(|item| (item["id"].as_str().unwrap(), item)).collect();
    for (id, person) in present {
        let item = found[id.as_str()];
        assert_eq!(item.as_object().unwrap().len(), fields.split(',').count());
        assert_eq!(item["mail"], json!(person.address));
        assert_eq!(item["accountEnabled"], json!(!person.is_suspended));
        assert_eq!(item["userType"] == "Guest", person.is_guest);
        let is_exchange = |plan: &Value| plan["service"] == "exchange" && plan["capabilityStatus"] == "Enabled";
        assert_eq!(item["assignedPlans"].as_array().unwrap().iter().any(is_exchange), person.has_mailbox);
        assert_eq!(item["proxyAddresses"].as_array().unwrap().len(), 1 + person.aliases.len());
        assert_eq!(item["userPrincipalName"].as_str().unwrap().contains("#EXT#@fabrikam.example"), person.is_guest);
    }
    for kind in [truth.people.values().any(|one| one.is_suspended), truth.people.values().any(|one| one.is_guest)] {
        assert!(kind, "there are people of every kind");
    }
    place.assert_no_violations();
}

#[tokio::test]
async fn only_what_was_selected_comes_not_even_the_id() {
    let (place, token) = company(2).await;

    let selected = get(&place, &token, "/users?$select=mail&$top=1").await;
    let common = get(&place, &token, "/users?$top=1").await;

    assert_eq!(selected["value"][0], json!({"mail": "user1@fabrikam.example"}));
    assert_eq!(common["value"][0].as_object().unwrap().len(), 11);
    assert!(common["value"][0].get("accountEnabled").is_none());
    for (path, error) in [
        ("/users?$top=1000", "Request_UnsupportedQuery"),
        ("/users?$select=shoeSize", "BadRequest"),
        ("/users?$skip=1", "BadRequest"),
        ("/users?$skiptoken=abc", "Directory_ExpiredPageToken"),
    ] {
        let answered = ask(&place, &token, path, &[]).await;
        assert_eq!((answered.status, code(&answered).as_str()), (400, error), "{path}");
    }
}

#[tokio::test]
async fn filters_choose_and_some_need_a_header_and_a_count() {
    let (place, token) = company(60).await;
    let truth = place.world.organisation(DOMAIN).unwrap();
    let eventual = [("ConsistencyLevel", "eventual")];
    let filter = |text: &str| format!("/users?$filter={}&$select=id", encoded(text));

    let guests = walk(&place, &token, &filter("userType eq 'Guest'"), &[]).await.0;
    let refused = ask(&place, &token, &filter("assignedLicenses/$count ne 0"), &eventual).await;
    let path = format!("{}&$count=true&$top=10", filter("assignedLicenses/$count ne 0 and accountEnabled eq true"));
    let first = ask(&place, &token, &path, &eventual).await.json();
    let licensed = walk(&place, &token, &path, &eventual).await.0;

    let of = |is: fn(&sim::people::TruthPerson) -> bool| -> BTreeSet<String> {
        let those = truth.people.iter().filter(|(_, person)| person.state == State::Present && is(person));
        those.map(|(id, _)| id.clone()).collect()
    };
    assert_eq!(ids(&guests), of(|person| person.is_guest));
    assert_eq!((refused.status, code(&refused).as_str()), (400, "Request_UnsupportedQuery"));
    assert_eq!(ids(&licensed), of(|person| person.is_licensed && !person.is_suspended));
    assert_eq!(first["@odata.count"], json!(licensed.len()));
    let without = ask(&place, &token, "/users?$count=true", &[]).await;
    assert_eq!((without.status, code(&without).as_str()), (400, "Request_UnsupportedQuery"));
}

#[tokio::test]
async fn a_round_of_changes_tells_who_came_changed_and_went() {
    let (place, token) = company(30).await;
    let select = "$select=id,mail,userPrincipalName,accountEnabled,proxyAddresses,jobTitle";
    let (all, link) = walk(&place, &token, &format!("/users/delta?{select}"), &[]).await;
    let truth = place.world.organisation(DOMAIN).unwrap();
    let present = truth.people.iter().filter(|(_, person)| person.state == State::Present);
    assert_eq!(ids(&all), present.map(|(id, _)| id.clone()).collect());
    assert!(all.iter().all(|item| item.get("jobTitle").is_none()), "what was never set is not told");

    let joined = apply(&place, json!({"op": "join", "address": "new@fabrikam.example"})).await["person"].clone();
    let renamed = json!({"op": "set", "person": "user2@fabrikam.example", "address": "two@fabrikam.example"});
    let renamed = apply(&place, renamed).await["person"].clone();
    let suspended = json!({"op": "set", "person": "user3@fabrikam.example", "suspended": true});
    let suspended = apply(&place, suspended).await["person"].clone();
    let deleted = apply(&place, json!({"op": "delete", "person": "user4@fabrikam.example"})).await["person"].clone();
    let purged = apply(&place, json!({"op": "purge", "person": "user6@fabrikam.example"})).await["person"].clone();
    let minimal = [("Prefer", "return=minimal")];
    let (changes, next) = walk(&place, &token, &link.unwrap(), &minimal).await;

    let of = |id: &Value| changes.iter().find(|item| item["id"] == *id).unwrap().clone();
    assert_eq!(of(&joined)["mail"], "new@fabrikam.example");
    let proxies = json!(["SMTP:two@fabrikam.example", "smtp:user2@fabrikam.example"]);
    let (name, id) = ("two@fabrikam.example", renamed.clone());
    assert_eq!(of(&renamed), json!({"id": id, "mail": name, "userPrincipalName": name, "proxyAddresses": proxies}));
    assert_eq!(of(&suspended), json!({"id": suspended, "accountEnabled": false}));
    assert_eq!(of(&deleted), json!({"id": deleted, "@removed": {"reason": "changed"}}));
    assert_eq!(of(&purged), json!({"id": purged, "@removed": {"reason": "deleted"}}));
    assert_eq!(ids(&changes).len(), 5);

    apply(&place, json!({"op": "restore", "person": deleted})).await;
    let (changes, next) = walk(&place, &token, &next.unwrap(), &minimal).await;
    assert_eq!(changes[0]["mail"], "user4@fabrikam.example", "whoever comes back comes whole");
    assert_eq!(ids(&walk(&place, &token, &next.unwrap(), &[]).await.0).len(), 0);
    place.assert_no_violations();
}

#[tokio::test]
async fn a_round_may_begin_now_and_is_about_some_if_they_are_named() {
    let (place, token) = company(5).await;
    let truth = place.world.organisation(DOMAIN).unwrap();
    let first = truth.people.keys().next().unwrap().clone();

    let (nobody, link) = walk(&place, &token, "/users/delta?$select=mail&$deltatoken=latest", &[]).await;
    let filter = encoded(&format!("id eq '{first}'"));
    let (one, _) = walk(&place, &token, &format!("/users/delta?$filter={filter}"), &[]).await;
    apply(&place, json!({"op": "alias", "person": first, "add": ["other@fabrikam.example"]})).await;
    let (changed, _) = walk(&place, &token, &link.unwrap(), &[]).await;

    assert_eq!(nobody, Vec::<Value>::new());
    assert_eq!(ids(&one), BTreeSet::from([first.clone()]));
    assert_eq!(ids(&changed), BTreeSet::from([first]));
    for wrong in ["$top=5", "$filter=mail%20eq%20'x'", "$count=true"] {
        assert_eq!(ask(&place, &token, &format!("/users/delta?{wrong}"), &[]).await.status, 400, "{wrong}");
    }
}

#[tokio::test]
async fn links_to_changes_end_after_a_week_or_when_they_are_made_to() {
    const DAY_MS: i64 = 24 * 3_600_000;
    let (place, token) = company(3).await;
    place.world.set_access_token_lifetime(3_600 * 24 * 30);
    let token_for_long = program(&place, DOMAIN, json!({})).await;
    let (_, link) = walk(&place, &token, "/users/delta", &[]).await;
    let link = link.unwrap();

    place.pass_ms(7 * DAY_MS - 1);
    let in_time = ask(&place, &token_for_long, &link, &[]).await;
    place.pass_ms(1);
    let late = ask(&place, &token_for_long, &link, &[]).await;
    let (_, link) = walk(&place, &token_for_long, "/users/delta", &[]).await;
    apply(&place, json!({"op": "expire_delta"})).await;
    let forgotten = ask(&place, &token_for_long, &link.unwrap(), &[]).await;

    assert_eq!((in_time.status, late.status, forgotten.status), (200, 410, 410));
    assert!(late.header("location").unwrap().ends_with("/v1.0/users/delta?$deltatoken="));
}

#[tokio::test]
async fn groups_have_members_and_members_of_members() {
    let (place, token) = company(20).await;
    let truth = place.world.organisation(DOMAIN).unwrap();
    let eventual = [("ConsistencyLevel", "eventual")];

    let (groups, _) = walk(&place, &token, "/groups?$select=id,displayName,mail&$top=2", &[]).await;
    let filter = encoded("mail eq 'leaders@fabrikam.example'");
    let leaders = get(&place, &token, &format!("/groups?$filter={filter}")).await["value"][0]["id"].clone();
    let leaders = leaders.as_str().unwrap();
    let (direct, _) = walk(&place, &token, &format!("/groups/{leaders}/members?$select=id"), &[]).await;
    let cast = format!("/groups/{leaders}/transitiveMembers/microsoft.graph.user?$select=id,mail");
    let refused = ask(&place, &token, &cast, &[]).await;
    let (all, _) = walk(&place, &token, &format!("{cast}&$count=true&$top=2"), &eventual).await;

    assert_eq!(ids(&groups), truth.groups.keys().cloned().collect());
    assert_eq!(ids(&direct), truth.groups[leaders].members.iter().cloned().collect());
    assert!(direct.iter().any(|item| item["@odata.type"] == "#microsoft.graph.group"));
    assert_eq!((refused.status, code(&refused).as_str()), (400, "Request_UnsupportedQuery"));
    assert_eq!(ids(&all), truth.groups[leaders].all_people.iter().cloned().collect());
    assert!(all.len() > direct.len());
    assert_eq!(code(&ask(&place, &token, "/groups/nobody/members", &[]).await), "Request_ResourceNotFound");
    place.assert_no_violations();
}

#[tokio::test]
async fn directories_know_nothing_of_each_other_and_tell_only_who_may_ask() {
    let (place, token) = company(4).await;
    let more = vec!["fabrikam.test".to_owned()];
    let other = NewOrganisation {
        domain: "tailspin.example".to_owned(),
        more_domains: more,
        people: 3,
        ..NewOrganisation::default()
    };
    let id = place.world.organise(&other).unwrap();
    let consent = json!({"admin_consent": true, "permissions": ["User.Read.All"]});
    let others = program(&place, "fabrikam.test", consent).await;

    let own = walk(&place, &token, "/users?$select=mail", &[]).await.0;
    let theirs = walk(&place, &others, "/users?$select=mail", &[]).await.0;

    assert_eq!(place.world.directory("fabrikam.test").unwrap().id, id);
    assert!(place.world.organise(&other).is_none(), "domains have one owner");
    assert!(own.iter().all(|item| item["mail"].as_str().unwrap().ends_with("@fabrikam.example")));
    let domains: BTreeSet<&str> =
        theirs.iter().map(|item| item["mail"].as_str().unwrap().split('@').nth(1).unwrap()).collect();
    assert_eq!(domains, BTreeSet::from(["tailspin.example", "fabrikam.test"]));
    let groups = ask(&place, &others, "/groups", &[]).await;
    assert_eq!((groups.status, code(&groups).as_str()), (403, "Authorization_RequestDenied"));
    assert_eq!(ask(&place, &others, "/users/user1@fabrikam.example", &[]).await.status, 404);
    let alone = program(&place, "tailspin.example", json!({"admin_consent": true, "permissions": ["Mail.Read"]})).await;
    assert_eq!(ask(&place, &alone, "/users", &[]).await.status, 403);
}

#[tokio::test]
async fn what_becomes_of_a_person_becomes_of_the_mail() {
    let (place, token) = company(3).await;
    let inbox = async |name: &str| {
        let answered = ask(&place, &token, &format!("/users/{}/mailFolders/inbox", encoded(name)), &[]).await;
        if answered.status == 200 { "200".to_owned() } else { code(&answered) }
    };
    let ann =
        apply(&place, json!({"op": "join", "address": "Ann@fabrikam.example", "messages": 3})).await["person"].clone();
    let ann = ann.as_str().unwrap();
    let guest = json!({"op": "join", "address": "eve@elsewhere.example", "guest": true});
    apply(&place, guest).await;

    assert_eq!(inbox("ann@fabrikam.example").await, "200");
    assert_eq!(inbox("eve_elsewhere.example#EXT#@fabrikam.example").await, "MailboxNotEnabledForRESTAPI");
    apply(&place, json!({"op": "set", "person": ann, "address": "anna@fabrikam.example"})).await;
    assert_eq!(inbox("anna@fabrikam.example").await, "200");
    assert_eq!(inbox("ann@fabrikam.example").await, "Request_ResourceNotFound", "an alias is no name to sign in with");
    assert_eq!(place.world.truth("anna@fabrikam.example").unwrap().messages.len(), 3);
    apply(&place, json!({"op": "set", "person": ann, "suspended": true})).await;
    assert_eq!(inbox(ann).await, "200", "programs still read what is there");
    apply(&place, json!({"op": "set", "person": ann, "licensed": false})).await;
    assert_eq!(inbox(ann).await, "MailboxNotEnabledForRESTAPI");
    apply(&place, json!({"op": "set", "person": ann, "licensed": true, "suspended": false})).await;
    apply(&place, json!({"op": "delete", "person": ann})).await;
    assert_eq!(inbox(ann).await, "Request_ResourceNotFound");
    apply(&place, json!({"op": "restore", "person": ann})).await;
    assert_eq!(inbox(ann).await, "200");

    apply(&place, json!({"op": "purge", "person": ann})).await;
    let again = apply(&place, json!({"op": "join", "address": "anna@fabrikam.example"})).await["person"].clone();
    assert_ne!(again, json!(ann), "somebody else has the address now");
    assert_eq!(place.world.truth("anna@fabrikam.example").unwrap().messages.len(), 0);
}

#[tokio::test]
async fn whoever_is_suspended_or_gone_cannot_sign_in_until_that_ends() {
    let (place, _) = company(3).await;
    let granted = place.world.grant("user2@fabrikam.example").unwrap();
    let refresh = granted.refresh_token.unwrap();
    let fields = [
        ("grant_type", "refresh_token"),
        ("refresh_token", refresh.as_str()),
        ("client_id", CLIENT_ID),
        ("client_secret", CLIENT_SECRET),
    ];
    let number = async || place.form("/common/oauth2/v2.0/token", &fields).await.json()["error_codes"][0].clone();

    assert_eq!(number().await, Value::Null);
    apply(&place, json!({"op": "set", "person": "user2@fabrikam.example", "suspended": true})).await;
    assert_eq!(number().await, 50_057);
    assert_eq!(place.get("/v1.0/me", &granted.access_token).await.status, 401);
    apply(&place, json!({"op": "set", "person": "user2@fabrikam.example", "suspended": false})).await;
    assert_eq!(number().await, Value::Null);
    apply(&place, json!({"op": "delete", "person": "user2@fabrikam.example"})).await;
    assert_eq!(number().await, 50_034);
}
