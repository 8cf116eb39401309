//! Users, their changes, and groups of a directory.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use sim::microsoft::{CLIENT_ID, CLIENT_SECRET};
use sim::people::{DirectoryProvider, NewOrganisation, PersonState};

use super::harness::{MicrosoftHarness, code};
use crate::client::{HttpReply, encoded};

const DOMAIN: &str = "fabrikam.example";

/// Creates an organisation and an app-only token that may read it.
async fn company(people: usize) -> (MicrosoftHarness, String) {
    let harness = MicrosoftHarness::new().await;
    let new = NewOrganisation { domain: DOMAIN.to_owned(), people, ..NewOrganisation::default() };
    harness.world.create_organisation(&new).unwrap();
    let token = program(&harness, DOMAIN, json!({"admin_consent": true})).await;
    (harness, token)
}

async fn program(harness: &MicrosoftHarness, domain: &str, consent: Value) -> String {
    harness.control_ok("PUT", &format!("directories/{domain}"), consent).await;
    let fields = [
        ("grant_type", "client_credentials"),
        ("scope", "https://graph.microsoft.com/.default"),
        ("client_id", CLIENT_ID),
        ("client_secret", CLIENT_SECRET),
    ];
    let answered = harness.form(&format!("/{domain}/oauth2/v2.0/token"), &fields).await;
    answered.json()["access_token"].as_str().unwrap_or_else(|| panic!("{}", answered.text())).to_owned()
}

/// Requests a link, or a path below `/v1.0`.
async fn ask(harness: &MicrosoftHarness, token: &str, path: &str, more: &[(&str, &str)]) -> HttpReply {
    let path = path.strip_prefix(&harness.server.url()).map_or_else(|| format!("/v1.0{path}"), str::to_owned);
    let authorization = format!("Bearer {token}");
    let fields = [&[("Authorization", authorization.as_str())], more].concat();
    harness.send("GET", &path, &fields, b"").await.unwrap()
}

async fn get(harness: &MicrosoftHarness, token: &str, path: &str) -> Value {
    let answered = ask(harness, token, path, &[]).await;
    assert_eq!(answered.status, 200, "{path}: {}", answered.text());
    answered.json()
}

/// Reads all pages. Returns the items, and the delta link if there is one.
async fn walk(
    harness: &MicrosoftHarness,
    token: &str,
    path: &str,
    more: &[(&str, &str)],
) -> (Vec<Value>, Option<String>) {
    let (mut items, mut next) = (Vec::new(), path.to_owned());
    loop {
        let answered = ask(harness, token, &next, more).await;
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

async fn apply(harness: &MicrosoftHarness, operation: Value) -> Value {
    harness.control_ok("POST", &format!("organisations/{DOMAIN}/apply"), operation).await
}

#[tokio::test]
async fn listing_returns_every_user_once() {
    let (harness, token) = company(120).await;
    let fields = "id,userPrincipalName,mail,accountEnabled,userType,assignedPlans,assignedLicenses,proxyAddresses";

    let (items, _) = walk(&harness, &token, &format!("/users?$select={fields}&$top=50"), &[]).await;

    let truth = harness.world.organisation(DOMAIN).unwrap();
    let present = truth.people.iter().filter(|(_, person)| person.state == PersonState::Present);
    assert_eq!(items.len(), present.clone().count());
    let found: BTreeMap<&str, &Value> = items.iter().map(|item| (item["id"].as_str().unwrap(), item)).collect();
    for (id, person) in present {
        let item = found[id.as_str()];
        assert_eq!(item.as_object().unwrap().len(), fields.split(',').count());
        assert_eq!(item["mail"], json!(person.address));
        assert_eq!(item["accountEnabled"], json!(!person.is_suspended));
        assert_eq!(item["userType"] == "Guest", person.is_guest);
        assert_eq!(
            item["assignedPlans"]
                .as_array()
                .unwrap()
                .iter()
                .any(|plan| plan["service"] == "exchange" && plan["capabilityStatus"] == "Enabled"),
            person.has_mailbox
        );
        assert_eq!(item["proxyAddresses"].as_array().unwrap().len(), 1 + person.aliases.len());
        assert_eq!(item["userPrincipalName"].as_str().unwrap().contains("#EXT#@fabrikam.example"), person.is_guest);
    }
    for kind in [truth.people.values().any(|one| one.is_suspended), truth.people.values().any(|one| one.is_guest)] {
        assert!(kind, "there are people of every kind");
    }
    harness.assert_no_violations();
}

#[tokio::test]
async fn select_omits_even_the_id() {
    let (harness, token) = company(2).await;

    let selected = get(&harness, &token, "/users?$select=mail&$top=1").await;
    let common = get(&harness, &token, "/users?$top=1").await;

    assert_eq!(selected["value"][0], json!({"mail": "user1@fabrikam.example"}));
    assert_eq!(common["value"][0].as_object().unwrap().len(), 11);
    assert!(common["value"][0].get("accountEnabled").is_none());
    for (path, error) in [
        ("/users?$top=1000", "Request_UnsupportedQuery"),
        ("/users?$select=shoeSize", "BadRequest"),
        ("/users?$skip=1", "BadRequest"),
        ("/users?$skiptoken=abc", "Directory_ExpiredPageToken"),
    ] {
        let answered = ask(&harness, &token, path, &[]).await;
        assert_eq!((answered.status, code(&answered).as_str()), (400, error), "{path}");
    }
}

#[tokio::test]
async fn advanced_filters_need_eventual_consistency() {
    let (harness, token) = company(60).await;
    let truth = harness.world.organisation(DOMAIN).unwrap();
    let eventual = [("ConsistencyLevel", "eventual")];
    let filter = |text: &str| format!("/users?$filter={}&$select=id", encoded(text));

    let guests = walk(&harness, &token, &filter("userType eq 'Guest'"), &[]).await.0;
    let refused = ask(&harness, &token, &filter("assignedLicenses/$count ne 0"), &eventual).await;
    let path = format!("{}&$count=true&$top=10", filter("assignedLicenses/$count ne 0 and accountEnabled eq true"));
    let first = ask(&harness, &token, &path, &eventual).await.json();
    let licensed = walk(&harness, &token, &path, &eventual).await.0;

    let of = |is: fn(&sim::people::PersonTruth) -> bool| -> BTreeSet<String> {
        let those = truth.people.iter().filter(|(_, person)| person.state == PersonState::Present && is(person));
        those.map(|(id, _)| id.clone()).collect()
    };
    assert_eq!(ids(&guests), of(|person| person.is_guest));
    assert_eq!((refused.status, code(&refused).as_str()), (400, "Request_UnsupportedQuery"));
    assert_eq!(ids(&licensed), of(|person| person.is_licensed && !person.is_suspended));
    assert_eq!(first["@odata.count"], json!(licensed.len()));
    let without = ask(&harness, &token, "/users?$count=true", &[]).await;
    assert_eq!((without.status, code(&without).as_str()), (400, "Request_UnsupportedQuery"));
}

#[tokio::test]
async fn user_delta_reports_all_changes() {
    let (harness, token) = company(30).await;
    let select = "$select=id,mail,userPrincipalName,accountEnabled,proxyAddresses,jobTitle";
    let (all, link) = walk(&harness, &token, &format!("/users/delta?{select}"), &[]).await;
    let truth = harness.world.organisation(DOMAIN).unwrap();
    let present = truth.people.iter().filter(|(_, person)| person.state == PersonState::Present);
    assert_eq!(ids(&all), present.map(|(id, _)| id.clone()).collect());
    assert!(all.iter().all(|item| item.get("jobTitle").is_none()), "what was never set is not told");

    let joined = apply(&harness, json!({"op": "join", "address": "new@fabrikam.example"})).await["person"].clone();
    let renamed = json!({"op": "set", "person": "user2@fabrikam.example", "address": "two@fabrikam.example"});
    let renamed = apply(&harness, renamed).await["person"].clone();
    let suspended = json!({"op": "set", "person": "user3@fabrikam.example", "suspended": true});
    let suspended = apply(&harness, suspended).await["person"].clone();
    let deleted = apply(&harness, json!({"op": "delete", "person": "user4@fabrikam.example"})).await["person"].clone();
    let purged = apply(&harness, json!({"op": "purge", "person": "user6@fabrikam.example"})).await["person"].clone();
    let minimal = [("Prefer", "return=minimal")];
    let (changes, next) = walk(&harness, &token, &link.unwrap(), &minimal).await;

    let of = |id: &Value| changes.iter().find(|item| item["id"] == *id).unwrap().clone();
    assert_eq!(of(&joined)["mail"], "new@fabrikam.example");
    let proxies = json!(["SMTP:two@fabrikam.example", "smtp:user2@fabrikam.example"]);
    let (name, id) = ("two@fabrikam.example", renamed.clone());
    assert_eq!(of(&renamed), json!({"id": id, "mail": name, "userPrincipalName": name, "proxyAddresses": proxies}));
    assert_eq!(of(&suspended), json!({"id": suspended, "accountEnabled": false}));
    assert_eq!(of(&deleted), json!({"id": deleted, "@removed": {"reason": "changed"}}));
    assert_eq!(of(&purged), json!({"id": purged, "@removed": {"reason": "deleted"}}));
    assert_eq!(ids(&changes).len(), 5);

    apply(&harness, json!({"op": "restore", "person": deleted})).await;
    let (changes, next) = walk(&harness, &token, &next.unwrap(), &minimal).await;
    assert_eq!(changes[0]["mail"], "user4@fabrikam.example", "whoever comes back comes whole");
    assert_eq!(ids(&walk(&harness, &token, &next.unwrap(), &[]).await.0).len(), 0);
    harness.assert_no_violations();
}

#[tokio::test]
async fn user_delta_starts_now_for_named_ids() {
    let (harness, token) = company(5).await;
    let truth = harness.world.organisation(DOMAIN).unwrap();
    let first = truth.people.keys().next().unwrap().clone();

    let (nobody, link) = walk(&harness, &token, "/users/delta?$select=mail&$deltatoken=latest", &[]).await;
    let filter = encoded(&format!("id eq '{first}'"));
    let (one, _) = walk(&harness, &token, &format!("/users/delta?$filter={filter}"), &[]).await;
    apply(&harness, json!({"op": "alias", "person": first, "add": ["other@fabrikam.example"]})).await;
    let (changed, _) = walk(&harness, &token, &link.unwrap(), &[]).await;

    assert_eq!(nobody, Vec::<Value>::new());
    assert_eq!(ids(&one), BTreeSet::from([first.clone()]));
    assert_eq!(ids(&changed), BTreeSet::from([first]));
    for wrong in ["$top=5", "$filter=mail%20eq%20'x'", "$count=true"] {
        assert_eq!(ask(&harness, &token, &format!("/users/delta?{wrong}"), &[]).await.status, 400, "{wrong}");
    }
}

#[tokio::test]
async fn delta_links_expire_after_a_week() {
    const DAY_MS: i64 = 24 * 3_600_000;
    let (harness, token) = company(3).await;
    harness.world.set_access_token_lifetime(3_600 * 24 * 30);
    let token_for_long = program(&harness, DOMAIN, json!({})).await;
    let (_, link) = walk(&harness, &token, "/users/delta", &[]).await;
    let link = link.unwrap();

    harness.advance_ms(7 * DAY_MS - 1);
    let in_time = ask(&harness, &token_for_long, &link, &[]).await;
    harness.advance_ms(1);
    let late = ask(&harness, &token_for_long, &link, &[]).await;
    let (_, link) = walk(&harness, &token_for_long, "/users/delta", &[]).await;
    apply(&harness, json!({"op": "expire_delta"})).await;
    let forgotten = ask(&harness, &token_for_long, &link.unwrap(), &[]).await;

    assert_eq!((in_time.status, late.status, forgotten.status), (200, 410, 410));
    assert!(late.header("location").unwrap().ends_with("/v1.0/users/delta?$deltatoken="));
}

#[tokio::test]
async fn groups_have_transitive_members() {
    let (harness, token) = company(20).await;
    let truth = harness.world.organisation(DOMAIN).unwrap();
    let eventual = [("ConsistencyLevel", "eventual")];

    let (groups, _) = walk(&harness, &token, "/groups?$select=id,displayName,mail&$top=2", &[]).await;
    let filter = encoded("mail eq 'leaders@fabrikam.example'");
    let leaders = get(&harness, &token, &format!("/groups?$filter={filter}")).await["value"][0]["id"].clone();
    let leaders = leaders.as_str().unwrap();
    let (direct, _) = walk(&harness, &token, &format!("/groups/{leaders}/members?$select=id"), &[]).await;
    let cast = format!("/groups/{leaders}/transitiveMembers/microsoft.graph.user?$select=id,mail");
    let refused = ask(&harness, &token, &cast, &[]).await;
    let (all, _) = walk(&harness, &token, &format!("{cast}&$count=true&$top=2"), &eventual).await;

    assert_eq!(ids(&groups), truth.groups.keys().cloned().collect());
    assert_eq!(ids(&direct), truth.groups[leaders].members.iter().cloned().collect());
    assert!(direct.iter().any(|item| item["@odata.type"] == "#microsoft.graph.group"));
    assert_eq!((refused.status, code(&refused).as_str()), (400, "Request_UnsupportedQuery"));
    assert_eq!(ids(&all), truth.groups[leaders].all_people.iter().cloned().collect());
    assert!(all.len() > direct.len());
    assert_eq!(code(&ask(&harness, &token, "/groups/nobody/members", &[]).await), "Request_ResourceNotFound");
    harness.assert_no_violations();
}

#[tokio::test]
async fn directories_are_isolated() {
    let (harness, token) = company(4).await;
    let more = vec!["fabrikam.test".to_owned()];
    let other = NewOrganisation {
        domain: "tailspin.example".to_owned(),
        more_domains: more,
        people: 3,
        ..NewOrganisation::default()
    };
    let id = harness.world.create_organisation(&other).unwrap();
    let consent = json!({"admin_consent": true, "permissions": ["User.Read.All"]});
    let others = program(&harness, "fabrikam.test", consent).await;

    let own = walk(&harness, &token, "/users?$select=mail", &[]).await.0;
    let theirs = walk(&harness, &others, "/users?$select=mail", &[]).await.0;

    assert_eq!(harness.world.directory("fabrikam.test").unwrap().id, id);
    assert!(harness.world.create_organisation(&other).is_none(), "domains have one owner");
    assert!(own.iter().all(|item| item["mail"].as_str().unwrap().ends_with("@fabrikam.example")));
    let domains: BTreeSet<&str> =
        theirs.iter().map(|item| item["mail"].as_str().unwrap().split('@').nth(1).unwrap()).collect();
    assert_eq!(domains, BTreeSet::from(["tailspin.example", "fabrikam.test"]));
    let groups = ask(&harness, &others, "/groups", &[]).await;
    assert_eq!((groups.status, code(&groups).as_str()), (403, "Authorization_RequestDenied"));
    assert_eq!(ask(&harness, &others, "/users/user1@fabrikam.example", &[]).await.status, 404);
    let alone =
        program(&harness, "tailspin.example", json!({"admin_consent": true, "permissions": ["Mail.Read"]})).await;
    assert_eq!(ask(&harness, &alone, "/users", &[]).await.status, 403);
}

#[tokio::test]
async fn mail_access_follows_the_persons_state() {
    let (harness, token) = company(3).await;
    let inbox = async |name: &str| {
        let answered = ask(&harness, &token, &format!("/users/{}/mailFolders/inbox", encoded(name)), &[]).await;
        if answered.status == 200 { "200".to_owned() } else { code(&answered) }
    };
    let ann = apply(&harness, json!({"op": "join", "address": "Ann@fabrikam.example", "messages": 3})).await["person"]
        .clone();
    let ann = ann.as_str().unwrap();
    let guest = json!({"op": "join", "address": "eve@elsewhere.example", "guest": true});
    apply(&harness, guest).await;

    assert_eq!(inbox("ann@fabrikam.example").await, "200");
    assert_eq!(inbox("eve_elsewhere.example#EXT#@fabrikam.example").await, "MailboxNotEnabledForRESTAPI");
    apply(&harness, json!({"op": "set", "person": ann, "address": "anna@fabrikam.example"})).await;
    assert_eq!(inbox("anna@fabrikam.example").await, "200");
    assert_eq!(inbox("ann@fabrikam.example").await, "Request_ResourceNotFound", "an alias is no name to sign in with");
    assert_eq!(harness.world.truth("anna@fabrikam.example").unwrap().messages.len(), 3);
    apply(&harness, json!({"op": "set", "person": ann, "suspended": true})).await;
    assert_eq!(inbox(ann).await, "200", "programs still read what is there");
    apply(&harness, json!({"op": "set", "person": ann, "licensed": false})).await;
    assert_eq!(inbox(ann).await, "MailboxNotEnabledForRESTAPI");
    apply(&harness, json!({"op": "set", "person": ann, "licensed": true, "suspended": false})).await;
    apply(&harness, json!({"op": "delete", "person": ann})).await;
    assert_eq!(inbox(ann).await, "Request_ResourceNotFound");
    apply(&harness, json!({"op": "restore", "person": ann})).await;
    assert_eq!(inbox(ann).await, "200");

    apply(&harness, json!({"op": "purge", "person": ann})).await;
    let again = apply(&harness, json!({"op": "join", "address": "anna@fabrikam.example"})).await["person"].clone();
    assert_ne!(again, json!(ann), "somebody else has the address now");
    assert_eq!(harness.world.truth("anna@fabrikam.example").unwrap().messages.len(), 0);
}

#[tokio::test]
async fn suspended_or_deleted_user_cannot_sign_in() {
    let (harness, _) = company(3).await;
    let granted = harness.world.grant("user2@fabrikam.example").unwrap();
    let refresh = granted.refresh_token.unwrap();
    let fields = [
        ("grant_type", "refresh_token"),
        ("refresh_token", refresh.as_str()),
        ("client_id", CLIENT_ID),
        ("client_secret", CLIENT_SECRET),
    ];
    let number = async || harness.form("/common/oauth2/v2.0/token", &fields).await.json()["error_codes"][0].clone();

    assert_eq!(number().await, Value::Null);
    apply(&harness, json!({"op": "set", "person": "user2@fabrikam.example", "suspended": true})).await;
    assert_eq!(number().await, 50_057);
    assert_eq!(harness.get("/v1.0/me", &granted.access_token).await.status, 401);
    apply(&harness, json!({"op": "set", "person": "user2@fabrikam.example", "suspended": false})).await;
    assert_eq!(number().await, Value::Null);
    apply(&harness, json!({"op": "delete", "person": "user2@fabrikam.example"})).await;
    assert_eq!(number().await, 50_034);
}
