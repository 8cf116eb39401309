//! Programs that act for themselves: an administrator's consent, a secret or a certificate.

use serde_json::{Value, json};
use sim::microsoft::{CLIENT_ID, CLIENT_SECRET, Consent, NewAccount, sign_as_client};

use super::place::{ANN, Place, code};
use crate::client::{Answered, encoded};

const TOKEN: &str = "/contoso.example/oauth2/v2.0/token";
const DEFAULT: &str = "https://graph.microsoft.com/.default";

async fn by_secret(place: &Place, path: &str) -> Answered {
    let fields = [
        ("grant_type", "client_credentials"),
        ("scope", DEFAULT),
        ("client_id", CLIENT_ID),
        ("client_secret", CLIENT_SECRET),
    ];
    place.form(path, &fields).await
}

async fn by_certificate(place: &Place, assertion: &str) -> Answered {
    let fields = [
        ("grant_type", "client_credentials"),
        ("scope", DEFAULT),
        ("client_id", CLIENT_ID),
        ("client_assertion_type", "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"),
        ("client_assertion", assertion),
    ];
    place.form(TOKEN, &fields).await
}

fn claims(place: &Place, name: &str) -> Value {
    let now = place.now_ms() / 1_000;
    json!({
        "aud": format!("{}{TOKEN}", place.server.url()), "iss": CLIENT_ID, "sub": CLIENT_ID, "jti": name,
        "nbf": now, "iat": now, "exp": now + 600,
    })
}

fn number(answered: &Answered) -> u64 {
    answered.json()["error_codes"][0].as_u64().unwrap()
}

#[tokio::test]
async fn a_program_gets_in_once_an_administrator_has_consented() {
    let place = Place::with_ann(0).await;
    place.world.create(&NewAccount { address: "eve@outlook.com".to_owned(), messages: 0, seed: None });
    place.world.create(&NewAccount { address: "bob@fabrikam.example".to_owned(), messages: 0, seed: None });
    assert_eq!(number(&by_secret(&place, TOKEN).await), 700_016);
    assert_eq!(number(&by_secret(&place, "/common/oauth2/v2.0/token").await), 9_001_023);
    assert_eq!(number(&by_secret(&place, "/nowhere.test/oauth2/v2.0/token").await), 90_002);

    place.world.set_consent(Consent { auto: true, ..Consent::default() });
    let back = encoded("http://localhost/done");
    let path =
        format!("/contoso.example/v2.0/adminconsent?client_id={CLIENT_ID}&scope={DEFAULT}&redirect_uri={back}&state=x");
    let answered = place.send("GET", &path, &[], b"").await.unwrap();
    let location = answered.header("location").unwrap().to_owned();
    let directory = place.world.directory("contoso.example").unwrap().id;
    for part in ["admin_consent=True", &format!("tenant={directory}"), "state=x"] {
        assert!(location.contains(part), "{location}");
    }

    let token = by_secret(&place, TOKEN).await.json();
    assert!(token["refresh_token"].is_null());
    let token = token["access_token"].as_str().unwrap();
    assert_eq!(place.get(&format!("/v1.0/users/{ANN}"), token).await.json()["mail"], ANN);
    assert_eq!(place.get("/v1.0/me", token).await.status, 400);
    for other in ["eve@outlook.com", "bob@fabrikam.example", "nobody@contoso.example"] {
        let answered = place.get(&format!("/v1.0/users/{other}"), token).await;
        assert_eq!((answered.status, code(&answered).as_str()), (404, "Request_ResourceNotFound"), "{other}");
    }
    place.assert_no_violations();
}

#[tokio::test]
async fn an_administrator_who_refuses_lets_nobody_in() {
    let place = Place::with_ann(0).await;
    place.world.set_consent(Consent { auto: true, denied: true, ..Consent::default() });
    let path = format!("/organizations/adminconsent?client_id={CLIENT_ID}&redirect_uri=http://localhost/done&state=x");

    let answered = place.send("GET", &path, &[], b"").await.unwrap();

    assert!(answered.header("location").unwrap().contains("error=access_denied"));
    assert_eq!(number(&by_secret(&place, TOKEN).await), 700_016);
}

#[tokio::test]
async fn a_certificate_opens_in_both_forms_and_each_assertion_once() {
    let place = Place::with_ann(0).await;
    place.steer("PUT", "directories/contoso.example", json!({"admin_consent": true})).await;

    let assertion = sign_as_client(&claims(&place, "1"), false);
    assert_eq!(by_certificate(&place, &assertion).await.status, 200);
    assert_eq!(number(&by_certificate(&place, &assertion).await), 700_027, "a name comes once");
    assert_eq!(by_certificate(&place, &sign_as_client(&claims(&place, "2"), true)).await.status, 200);
}

#[tokio::test]
async fn an_assertion_for_somebody_else_or_from_another_time_is_refused() {
    let place = Place::with_ann(0).await;
    place.steer("PUT", "directories/contoso.example", json!({"admin_consent": true})).await;
    let now = place.now_ms() / 1_000;
    for (field, doctored, expected) in [
        ("aud", json!("https://login.microsoftonline.com/common/oauth2/v2.0/token"), 700_023),
        ("iss", json!("somebody"), 700_021),
        ("exp", json!(now + 3_600), 700_024),
        ("nbf", json!(now + 590), 700_024),
        ("jti", Value::Null, 700_027),
    ] {
        let mut claims = claims(&place, "1");
        claims[field] = doctored;

        let answered = by_certificate(&place, &sign_as_client(&claims, false)).await;

        assert_eq!((answered.status, number(&answered)), (401, expected), "{field}");
    }
    let altered = sign_as_client(&claims(&place, "1"), false).replace('.', "x.");
    assert_eq!(number(&by_certificate(&place, &altered).await), 700_027);
}

#[tokio::test]
async fn one_account_does_not_open_another() {
    let place = Place::with_ann(0).await;
    place.world.create(&NewAccount { address: "bob@contoso.example".to_owned(), messages: 0, seed: None });
    let token = place.token();

    let answered = place.get("/v1.0/users/bob@contoso.example", &token).await;

    assert_eq!((answered.status, code(&answered).as_str()), (403, "ErrorAccessDenied"));
    assert_eq!(place.get(&format!("/v1.0/users/{ANN}"), &token).await.status, 200);
}
