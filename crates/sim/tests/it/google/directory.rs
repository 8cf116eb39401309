//! The Admin SDK directory API.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use sim::google::{CLIENT_ID, CLIENT_SECRET, GoogleFault, GoogleFaultKind, GoogleRoute, READONLY};
use sim::people::{DirectoryProvider, NewOrganisation, PersonState};

use super::harness::GoogleHarness;
use crate::client::{HttpReply, encoded};

const DOMAIN: &str = "harbour.example";
const ADMIN: &str = "user1@harbour.example";
const USERS: &str = "https://www.googleapis.com/auth/admin.directory.user.readonly";
const GROUPS: &str = "https://www.googleapis.com/auth/admin.directory.group.readonly";
const UNITS: &str = "https://www.googleapis.com/auth/admin.directory.orgunit.readonly";

async fn company(people: usize) -> GoogleHarness {
    let harness = GoogleHarness::new().await;
    let new = NewOrganisation {
        domain: DOMAIN.to_owned(),
        more_domains: vec!["harbour.test".to_owned()],
        people,
        messages: 2,
    };
    harness.world.create_organisation(&new).unwrap();
    harness
}

/// Requests a token for a user with the service account.
async fn delegated(harness: &GoogleHarness, sub: &str, scopes: &[&str]) -> HttpReply {
    let key = harness.world.service_account_key();
    let now = harness.now_ms() / 1_000;
    let claims = json!({
        "iss": key["client_email"], "scope": scopes.join(" "), "aud": key["token_uri"], "iat": now, "exp": now + 3_600,
        "sub": sub,
    });
    let assertion = harness.world.sign_as_service_account(&claims);
    let grant = ("grant_type", "urn:ietf:params:oauth:grant-type:jwt-bearer");
    harness.form("/token", &[grant, ("assertion", &assertion)]).await
}

async fn token(harness: &GoogleHarness, sub: &str) -> String {
    let answered = delegated(harness, sub, &[USERS, GROUPS, UNITS]).await;
    answered.json()["access_token"].as_str().unwrap_or_else(|| panic!("{}", answered.text())).to_owned()
}

async fn ask(harness: &GoogleHarness, token: &str, path: &str) -> HttpReply {
    harness.get(&format!("/admin/directory/v1/{path}"), token).await
}

/// Reads all pages of a listing.
async fn walk(harness: &GoogleHarness, token: &str, path: &str, items: &str) -> Vec<Value> {
    let (mut all, mut next) = (Vec::new(), String::new());
    loop {
        let answered = ask(harness, token, &format!("{path}{next}")).await;
        assert_eq!(answered.status, 200, "{path}{next}: {}", answered.text());
        let page = answered.json();
        all.extend(page[items].as_array().into_iter().flatten().cloned());
        match page["nextPageToken"].as_str() {
            Some(token) => next = format!("&pageToken={token}"),
            None => return all,
        }
    }
}

async fn apply(harness: &GoogleHarness, operation: Value) -> Value {
    harness.control_ok("POST", &format!("organisations/{DOMAIN}/apply"), operation).await
}

fn ids(items: &[Value]) -> BTreeSet<String> {
    items.iter().map(|item| item["id"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn listing_returns_every_user_once() {
    let harness = company(90).await;
    let token = token(&harness, ADMIN).await;

    let users = walk(&harness, &token, "users?customer=my_customer&maxResults=20", "users").await;

    let truth = harness.world.organisation(DOMAIN).unwrap();
    let present = truth.people.iter().filter(|(_, person)| person.state == PersonState::Present);
    assert_eq!((users.len(), ids(&users).len()), (present.clone().count(), users.len()));
    for user in &users {
        let person = &truth.people[user["id"].as_str().unwrap()];
        assert_eq!(user["primaryEmail"], json!(person.address));
        assert_eq!(user["suspended"], json!(person.is_suspended));
        assert_eq!(user["archived"], json!(person.is_archived));
        assert_eq!(user["isMailboxSetup"], json!(person.has_mailbox));
        assert_eq!(user["orgUnitPath"], json!(person.unit));
        assert_eq!(user["isAdmin"], json!(person.is_admin));
        assert_eq!(user["customerId"], json!(truth.id));
        assert_eq!(user["aliases"].as_array().map_or(0, Vec::len), person.aliases.len());
        assert_eq!(user["isGuestUser"] == true, person.is_guest);
    }
    harness.assert_no_violations();
}

#[tokio::test]
async fn listings_are_filtered_ordered_and_masked() {
    let harness = company(90).await;
    let token = token(&harness, ADMIN).await;
    let truth = harness.world.organisation(DOMAIN).unwrap();
    let of = |is: &dyn Fn(&sim::people::PersonTruth) -> bool| -> BTreeSet<String> {
        let those = truth.people.iter().filter(|(_, person)| person.state == PersonState::Present && is(person));
        those.map(|(id, _)| id.clone()).collect()
    };
    let users = async |more: &str| walk(&harness, &token, &format!("users?customer=my_customer{more}"), "users").await;

    let query = |text: &str| format!("&query={}", encoded(text));
    let sales = users(&query("orgUnitPath='/Sales' isSuspended=false")).await;
    let domain = walk(&harness, &token, "users?domain=harbour.test", "users").await;
    let sorted = users("&orderBy=email&sortOrder=DESCENDING&maxResults=7").await;
    let deleted = users("&showDeleted=true").await;
    let few = users(&format!("&fields={}&maxResults=500", encoded("nextPageToken,users(id,name/fullName)"))).await;

    assert_eq!(ids(&sales), of(&|person| person.unit.starts_with("/Sales") && !person.is_suspended));
    assert_eq!(ids(&domain), of(&|person| person.address.ends_with("@harbour.test")));
    let addresses: Vec<&str> = sorted.iter().map(|user| user["primaryEmail"].as_str().unwrap()).collect();
    assert!(addresses.is_sorted_by(|one, other| one > other));
    let gone = truth.people.values().filter(|person| person.state == PersonState::Deleted).count();
    assert_eq!((deleted.len(), deleted.iter().all(|user| user["deletionTime"].is_string())), (gone, true));
    assert_eq!(few[0].as_object().unwrap().keys().collect::<Vec<_>>(), ["id", "name"]);
    harness.assert_no_violations();
    for (path, status, reason) in [
        ("users", 400, "badRequest"),
        ("users?customer=my_customer&maxResults=501", 400, "invalid"),
        ("users?customer=my_customer&pageToken=abc", 400, "invalid"),
        ("users?customer=my_customer&query=shoeSize%3D4", 400, "invalid"),
        ("users?customer=my_customer&fields=shoes", 400, "invalid"),
        ("users?customer=C0other", 403, "forbidden"),
        ("users?domain=elsewhere.example", 404, "notFound"),
        ("users/nobody@harbour.example", 404, "notFound"),
    ] {
        let answered = ask(&harness, &token, path).await;
        assert_eq!((answered.status, answered.reason().as_str()), (status, reason), "{path}");
    }
}

#[tokio::test]
async fn page_token_expires_after_three_days() {
    let harness = company(20).await;
    let token_for = async || token(&harness, ADMIN).await;
    let path = "users?customer=my_customer&maxResults=5";
    let page = ask(&harness, &token_for().await, path).await.json();
    let next = page["nextPageToken"].as_str().unwrap();

    let other = ask(&harness, &token_for().await, &format!("{path}&orderBy=email&pageToken={next}")).await;
    harness.advance_ms(3 * 24 * 3_600_000 - 1);
    let in_time = ask(&harness, &token_for().await, &format!("{path}&pageToken={next}")).await;
    harness.advance_ms(1);
    let late = ask(&harness, &token_for().await, &format!("{path}&pageToken={next}")).await;

    assert_eq!((other.status, in_time.status, late.status), (400, 200, 400));
}

#[tokio::test]
async fn administrators_read_only_their_organisation() {
    let harness = company(4).await;
    let other = NewOrganisation { domain: "quay.example".to_owned(), people: 3, ..NewOrganisation::default() };
    harness.world.create_organisation(&other).unwrap();
    let (admin, nobody) = (token(&harness, ADMIN).await, token(&harness, "user2@harbour.test").await);
    let theirs = token(&harness, "user1@quay.example").await;
    let mail = delegated(&harness, ADMIN, &[READONLY]).await.json()["access_token"].as_str().unwrap().to_owned();
    let list = "users?customer=my_customer";

    let refused = ask(&harness, &nobody, list).await;
    let public = ask(&harness, &nobody, &format!("{list}&viewType=domain_public")).await;
    let without_scope = ask(&harness, &mail, list).await;

    assert_eq!((refused.status, refused.reason().as_str()), (403, "forbidden"));
    assert_eq!(public.json()["users"][0].as_object().unwrap().len(), 5);
    assert_eq!(without_scope.reason(), "insufficientPermissions");
    let own = ask(&harness, &admin, list).await.json();
    assert_eq!(own["users"].as_array().unwrap().len(), 4);
    assert_eq!(ask(&harness, &theirs, list).await.json()["users"].as_array().unwrap().len(), 3);
    assert_eq!(ask(&harness, &theirs, &format!("users/{ADMIN}")).await.status, 404);

    harness.control_ok("PUT", "delegation", json!({"domain": "quay.example", "scopes": [READONLY]})).await;
    let refused = delegated(&harness, "user1@quay.example", &[USERS]).await;
    assert_eq!(refused.json()["error"], "unauthorized_client");
    assert_eq!(delegated(&harness, ADMIN, &[USERS]).await.status, 200, "others still may");
}

#[tokio::test]
async fn groups_and_units_are_nested() {
    let harness = company(30).await;
    let token = token(&harness, ADMIN).await;
    let truth = harness.world.organisation(DOMAIN).unwrap();

    let groups = walk(&harness, &token, "groups?customer=my_customer&maxResults=2", "groups").await;
    let leaders = "groups/leaders@harbour.example";
    let id = ask(&harness, &token, leaders).await.json()["id"].as_str().unwrap().to_owned();
    let direct = walk(&harness, &token, &format!("{leaders}/members?maxResults=2"), "members").await;
    let all = walk(&harness, &token, &format!("groups/{id}/members?includeDerivedMembership=true"), "members").await;
    let of_admin = walk(&harness, &token, &format!("groups?userKey={ADMIN}"), "groups").await;
    let units = async |more: &str| {
        let listed = ask(&harness, &token, &format!("customer/my_customer/orgunits?{more}")).await.json();
        let paths = listed["organizationUnits"].as_array().cloned().unwrap_or_default();
        paths.iter().map(|unit| unit["orgUnitPath"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };

    assert_eq!(ids(&groups), truth.groups.keys().cloned().collect());
    assert_eq!(ids(&direct), truth.groups[&id].members.iter().cloned().collect());
    let people: Vec<Value> = all.iter().filter(|member| member["type"] == "USER").cloned().collect();
    assert_eq!(ids(&people), truth.groups[&id].all_people.iter().cloned().collect());
    assert!(people.len() > direct.len());
    assert!(ids(&of_admin).contains(&id));
    assert_eq!(units("type=children").await, ["/Engineering", "/Finance", "/Sales", "/Support"]);
    assert_eq!(units("type=all&orgUnitPath=/Sales").await, ["/Sales/North"]);
    harness.assert_no_violations();
}

#[tokio::test]
async fn mail_access_follows_the_persons_state() {
    let harness = company(3).await;
    let profile = async |who: &str| {
        let given = delegated(&harness, who, &[READONLY]).await;
        let Some(token) = given.json()["access_token"].as_str().map(str::to_owned) else {
            return given.json()["error"].as_str().unwrap().to_owned();
        };
        let answered = harness.get("/gmail/v1/users/me/profile", &token).await;
        match answered.status {
            200 => answered.json()["emailAddress"].as_str().unwrap().to_owned(),
            _ => answered.reason(),
        }
    };
    let ann = "ann@harbour.example";
    let id = apply(&harness, json!({"op": "join", "address": ann, "messages": 3})).await["person"].clone();
    let granted = harness.world.grant(ann).unwrap();
    let refresh = granted.refresh_token.unwrap();
    let fields = [
        ("grant_type", "refresh_token"),
        ("refresh_token", refresh.as_str()),
        ("client_id", CLIENT_ID),
        ("client_secret", CLIENT_SECRET),
    ];

    assert_eq!(profile(ann).await, ann);
    apply(&harness, json!({"op": "set", "person": ann, "address": "anna@harbour.example"})).await;
    assert_eq!(profile("anna@harbour.example").await, "anna@harbour.example");
    assert_eq!(profile(ann).await, "anna@harbour.example", "the old address is an alias");
    apply(&harness, json!({"op": "set", "person": id, "suspended": true})).await;
    assert_eq!(profile("anna@harbour.example").await, "invalid_grant");
    assert_eq!(harness.get("/gmail/v1/users/me/profile", &granted.access_token).await.status, 401);
    assert_eq!(harness.form("/token", &fields).await.json()["error"], "invalid_grant");
    apply(&harness, json!({"op": "set", "person": id, "suspended": false, "licensed": false})).await;
    assert_eq!(harness.form("/token", &fields).await.status, 200);
    assert_eq!(profile("anna@harbour.example").await, "failedPrecondition");
    apply(&harness, json!({"op": "set", "person": id, "licensed": true})).await;
    apply(&harness, json!({"op": "delete", "person": id})).await;
    assert_eq!(profile("anna@harbour.example").await, "invalid_grant");
    apply(&harness, json!({"op": "restore", "person": id})).await;
    assert_eq!(profile("anna@harbour.example").await, "anna@harbour.example");
    assert_eq!(harness.world.truth(ann).unwrap().messages.len(), 3);
}

#[tokio::test]
async fn directory_faults_are_injected() {
    let harness = company(12).await;
    let token = token(&harness, ADMIN).await;
    let once = |kind| GoogleFault { route: Some(GoogleRoute::UsersList), ..GoogleFault::once(kind) };

    harness.world.add_fault(once(GoogleFaultKind::QuotaExceeded));
    let refused = ask(&harness, &token, "users?customer=my_customer").await;
    harness.world.add_fault(once(GoogleFaultKind::EmptyPage));
    let empty = ask(&harness, &token, "users?customer=my_customer").await.json();
    let rest = format!("users?customer=my_customer&pageToken={}", empty["nextPageToken"].as_str().unwrap());
    let rest = ask(&harness, &token, &rest).await.json();

    assert_eq!((refused.status, refused.reason().as_str()), (403, "quotaExceeded"));
    assert!(empty.get("users").is_none());
    assert_eq!(rest["users"].as_array().unwrap().len(), 12);
}
