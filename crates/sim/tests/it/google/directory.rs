//! Who there is in an organisation, as the directory tells its administrators.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use sim::google::{CLIENT_ID, CLIENT_SECRET, Fault, Kind, READONLY, Route};
use sim::people::{NewOrganisation, Organised, State};

use super::place::{Answered, Place, encoded};

const DOMAIN: &str = "harbour.example";
const ADMIN: &str = "user1@harbour.example";
const USERS: &str = "https://www.googleapis.com/auth/admin.directory.user.readonly";
const GROUPS: &str = "https://www.googleapis.com/auth/admin.directory.group.readonly";
const UNITS: &str = "https://www.googleapis.com/auth/admin.directory.orgunit.readonly";

async fn company(people: usize) -> Place {
    let place = Place::new().await;
    let new = NewOrganisation {
        domain: DOMAIN.to_owned(),
        more_domains: vec!["harbour.test".to_owned()],
        people,
        messages: 2,
    };
    place.world.organise(&new).unwrap();
    place
}

/// What the service account gets for somebody.
async fn delegated(place: &Place, sub: &str, scopes: &[&str]) -> Answered {
    let key = place.world.service_account_key();
    let now = place.now_ms() / 1_000;
    let claims = json!({
        "iss": key["client_email"], "scope": scopes.join(" "), "aud": key["token_uri"], "iat": now, "exp": now + 3_600,
        "sub": sub,
    });
    let assertion = place.world.sign_as_service_account(&claims);
    let grant = ("grant_type", "urn:ietf:params:oauth:grant-type:jwt-bearer");
    place.form("/token", &[grant, ("assertion", &assertion)]).await
}

async fn token(place: &Place, sub: &str) -> String {
    let answered = delegated(place, sub, &[USERS, GROUPS, UNITS]).await;
    answered.json()["access_token"].as_str().unwrap_or_else(|| panic!("{}", answered.text())).to_owned()
}

async fn ask(place: &Place, token: &str, path: &str) -> Answered {
    place.get(&format!("/admin/directory/v1/{path}"), token).await
}

/// All items of a listing, page by page.
async fn walk(place: &Place, token: &str, path: &str, items: &str) -> Vec<Value> {
    let (mut all, mut next) = (Vec::new(), String::new());
    loop {
        let answered = ask(place, token, &format!("{path}{next}")).await;
        assert_eq!(answered.status, 200, "{path}{next}: {}", answered.text());
        let page = answered.json();
        all.extend(page[items].as_array().into_iter().flatten().cloned());
        match page["nextPageToken"].as_str() {
            Some(token) => next = format!("&pageToken={token}"),
            None => return all,
        }
    }
}

async fn apply(place: &Place, operation: Value) -> Value {
    place.steer("POST", &format!("organisations/{DOMAIN}/apply"), operation).await
}

fn ids(items: &[Value]) -> BTreeSet<String> {
    items.iter().map(|item| item["id"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn everybody_comes_once_over_many_pages() {
    let place = company(90).await;
    let token = token(&place, ADMIN).await;

    let users = walk(&place, &token, "users?customer=my_customer&maxResults=20", "users").await;

    let truth = place.world.organisation(DOMAIN).unwrap();
    let present = truth.people.iter().filter(|(_, person)| person.state == State::Present);
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
    place.assert_no_violations();
}

#[tokio::test]
async fn listings_are_chosen_from_ordered_and_cut_to_what_was_asked_for() {
    let place = company(90).await;
    let token = token(&place, ADMIN).await;
    let truth = place.world.organisation(DOMAIN).unwrap();
    let of = |is: &dyn Fn(&sim::people::TruthPerson) -> bool| -> BTreeSet<String> {
        let those = truth.people.iter().filter(|(_, person)| person.state == State::Present && is(person));
        those.map(|(id, _)| id.clone()).collect()
    };
    let users = async |more: &str| walk(&place, &token, &format!("users?customer=my_customer{more}"), "users").await;

    let query = |text: &str| format!("&query={}", encoded(text));
    let sales = users(&query("orgUnitPath='/Sales' isSuspended=false")).await;
    let domain = walk(&place, &token, "users?domain=harbour.test", "users").await;
    let sorted = users("&orderBy=email&sortOrder=DESCENDING&maxResults=7").await;
    let deleted = users("&showDeleted=true").await;
    let few = users(&format!("&fields={}&maxResults=500", encoded("nextPageToken,users(id,name/fullName)"))).await;

    assert_eq!(ids(&sales), of(&|person| person.unit.starts_with("/Sales") && !person.is_suspended));
    assert_eq!(ids(&domain), of(&|person| person.address.ends_with("@harbour.test")));
    let addresses: Vec<&str> = sorted.iter().map(|user| user["primaryEmail"].as_str().unwrap()).collect();
    assert!(addresses.is_sorted_by(|one, other| one > other));
    let gone = truth.people.values().filter(|person| person.state == State::Deleted).count();
    assert_eq!((deleted.len(), deleted.iter().all(|user| user["deletionTime"].is_string())), (gone, true));
    assert_eq!(few[0].as_object().unwrap().keys().collect::<Vec<_>>(), ["id", "name"]);
    place.assert_no_violations();
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
        let answered = ask(&place, &token, path).await;
        assert_eq!((answered.status, answered.reason().as_str()), (status, reason), "{path}");
    }
}

#[tokio::test]
async fn a_page_token_is_good_for_three_days_and_for_the_same_question() {
    let place = company(20).await;
    let token_for = async || token(&place, ADMIN).await;
    let path = "users?customer=my_customer&maxResults=5";
    let page = ask(&place, &token_for().await, path).await.json();
    let next = page["nextPageToken"].as_str().unwrap();

    let other = ask(&place, &token_for().await, &format!("{path}&orderBy=email&pageToken={next}")).await;
    place.pass_ms(3 * 24 * 3_600_000 - 1);
    let in_time = ask(&place, &token_for().await, &format!("{path}&pageToken={next}")).await;
    place.pass_ms(1);
    let late = ask(&place, &token_for().await, &format!("{path}&pageToken={next}")).await;

    assert_eq!((other.status, in_time.status, late.status), (400, 200, 400));
}

#[tokio::test]
async fn only_administrators_look_and_only_at_their_own() {
    let place = company(4).await;
    let other = NewOrganisation { domain: "quay.example".to_owned(), people: 3, ..NewOrganisation::default() };
    place.world.organise(&other).unwrap();
    let (admin, nobody) = (token(&place, ADMIN).await, token(&place, "user2@harbour.test").await);
    let theirs = token(&place, "user1@quay.example").await;
    let mail = delegated(&place, ADMIN, &[READONLY]).await.json()["access_token"].as_str().unwrap().to_owned();
    let list = "users?customer=my_customer";

    let refused = ask(&place, &nobody, list).await;
    let public = ask(&place, &nobody, &format!("{list}&viewType=domain_public")).await;
    let without_scope = ask(&place, &mail, list).await;

    assert_eq!((refused.status, refused.reason().as_str()), (403, "forbidden"));
    assert_eq!(public.json()["users"][0].as_object().unwrap().len(), 5);
    assert_eq!(without_scope.reason(), "insufficientPermissions");
    let own = ask(&place, &admin, list).await.json();
    assert_eq!(own["users"].as_array().unwrap().len(), 4);
    assert_eq!(ask(&place, &theirs, list).await.json()["users"].as_array().unwrap().len(), 3);
    assert_eq!(ask(&place, &theirs, &format!("users/{ADMIN}")).await.status, 404);

    place.steer("PUT", "delegation", json!({"domain": "quay.example", "scopes": [READONLY]})).await;
    let refused = delegated(&place, "user1@quay.example", &[USERS]).await;
    assert_eq!(refused.json()["error"], "unauthorized_client");
    assert_eq!(delegated(&place, ADMIN, &[USERS]).await.status, 200, "others still may");
}

#[tokio::test]
async fn groups_have_members_and_units_have_units() {
    let place = company(30).await;
    let token = token(&place, ADMIN).await;
    let truth = place.world.organisation(DOMAIN).unwrap();

    let groups = walk(&place, &token, "groups?customer=my_customer&maxResults=2", "groups").await;
    let leaders = "groups/leaders@harbour.example";
    let id = ask(&place, &token, leaders).await.json()["id"].as_str().unwrap().to_owned();
    let direct = walk(&place, &token, &format!("{leaders}/members?maxResults=2"), "members").await;
    let all = walk(&place, &token, &format!("groups/{id}/members?includeDerivedMembership=true"), "members").await;
    let of_admin = walk(&place, &token, &format!("groups?userKey={ADMIN}"), "groups").await;
    let units = async |more: &str| {
        let listed = ask(&place, &token, &format!("customer/my_customer/orgunits?{more}")).await.json();
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
    place.assert_no_violations();
}

#[tokio::test]
async fn what_becomes_of_a_person_becomes_of_the_mail() {
    let place = company(3).await;
    let profile = async |who: &str| {
        let given = delegated(&place, who, &[READONLY]).await;
        let Some(token) = given.json()["access_token"].as_str().map(str::to_owned) else {
            return given.json()["error"].as_str().unwrap().to_owned();
        };
        let answered = place.get("/gmail/v1/users/me/profile", &token).await;
        match answered.status {
            200 => answered.json()["emailAddress"].as_str().unwrap().to_owned(),
            _ => answered.reason(),
        }
    };
    let ann = "ann@harbour.example";
    let id = apply(&place, json!({"op": "join", "address": ann, "messages": 3})).await["person"].clone();
    let granted = place.world.grant(ann).unwrap();
    let refresh = granted.refresh_token.unwrap();
    let fields = [
        ("grant_type", "refresh_token"),
        ("refresh_token", refresh.as_str()),
        ("client_id", CLIENT_ID),
        ("client_secret", CLIENT_SECRET),
    ];

    assert_eq!(profile(ann).await, ann);
    apply(&place, json!({"op": "set", "person": ann, "address": "anna@harbour.example"})).await;
    assert_eq!(profile("anna@harbour.example").await, "anna@harbour.example");
    assert_eq!(profile(ann).await, "anna@harbour.example", "the old address is an alias");
    apply(&place, json!({"op": "set", "person": id, "suspended": true})).await;
    assert_eq!(profile("anna@harbour.example").await, "invalid_grant");
    assert_eq!(place.get("/gmail/v1/users/me/profile", &granted.access_token).await.status, 401);
    assert_eq!(place.form("/token", &fields).await.json()["error"], "invalid_grant");
    apply(&place, json!({"op": "set", "person": id, "suspended": false, "licensed": false})).await;
    assert_eq!(place.form("/token", &fields).await.status, 200);
    assert_eq!(profile("anna@harbour.example").await, "failedPrecondition");
    apply(&place, json!({"op": "set", "person": id, "licensed": true})).await;
    apply(&place, json!({"op": "delete", "person": id})).await;
    assert_eq!(profile("anna@harbour.example").await, "invalid_grant");
    apply(&place, json!({"op": "restore", "person": id})).await;
    assert_eq!(profile("anna@harbour.example").await, "anna@harbour.example");
    assert_eq!(place.world.truth(ann).unwrap().messages.len(), 3);
}

#[tokio::test]
async fn the_directory_fails_when_it_is_told_to() {
    let place = company(12).await;
    let token = token(&place, ADMIN).await;
    let once = |kind| Fault { route: Some(Route::UsersList), ..Fault::once(kind) };

    place.world.add_fault(once(Kind::QuotaExceeded));
    let refused = ask(&place, &token, "users?customer=my_customer").await;
    place.world.add_fault(once(Kind::EmptyPage));
    let empty = ask(&place, &token, "users?customer=my_customer").await.json();
    let rest = format!("users?customer=my_customer&pageToken={}", empty["nextPageToken"].as_str().unwrap());
    let rest = ask(&place, &token, &rest).await.json();

    assert_eq!((refused.status, refused.reason().as_str()), (403, "quotaExceeded"));
    assert!(empty.get("users").is_none());
    assert_eq!(rest["users"].as_array().unwrap().len(), 12);
}
