//! App-only access: admin consent, client secret, certificate.

use serde_json::{Value, json};
use sim::microsoft::{AccountSpec, CLIENT_ID, CLIENT_SECRET, Consent, sign_as_client};

use super::harness::{ANN, MicrosoftHarness, code};
use crate::client::{HttpReply, encoded};

const TOKEN: &str = "/contoso.example/oauth2/v2.0/token";
const DEFAULT: &str = "https://graph.microsoft.com/.default";

async fn by_secret(harness: &MicrosoftHarness, path: &str) -> HttpReply {
    let fields = [
        ("grant_type", "client_credentials"),
        ("scope", DEFAULT),
        ("client_id", CLIENT_ID),
        ("client_secret", CLIENT_SECRET),
    ];
    harness.form(path, &fields).await
}

async fn by_certificate(harness: &MicrosoftHarness, assertion: &str) -> HttpReply {
    let fields = [
        ("grant_type", "client_credentials"),
        ("scope", DEFAULT),
        ("client_id", CLIENT_ID),
        ("client_assertion_type", "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"),
        ("client_assertion", assertion),
    ];
    harness.form(TOKEN, &fields).await
}

fn claims(harness: &MicrosoftHarness, name: &str) -> Value {
    let now = harness.now_ms() / 1_000;
    json!({
        "aud": format!("{}{TOKEN}", harness.server.url()), "iss": CLIENT_ID, "sub": CLIENT_ID, "jti": name,
        "nbf": now, "iat": now, "exp": now + 600,
    })
}

fn number(answered: &HttpReply) -> u64 {
    answered.json()["error_codes"][0].as_u64().unwrap()
}

#[tokio::test]
async fn app_only_access_needs_admin_consent() {
    let harness = MicrosoftHarness::with_ann(0).await;
    harness.world.create(&AccountSpec { address: "eve@outlook.com".to_owned(), messages: 0, seed: None });
    harness.world.create(&AccountSpec { address: "bob@fabrikam.example".to_owned(), messages: 0, seed: None });
    assert_eq!(number(&by_secret(&harness, TOKEN).await), 700_016);
    assert_eq!(number(&by_secret(&harness, "/common/oauth2/v2.0/token").await), 9_001_023);
    assert_eq!(number(&by_secret(&harness, "/nowhere.test/oauth2/v2.0/token").await), 90_002);

    harness.world.set_consent(Consent { auto: true, ..Consent::default() });
    let back = encoded("http://localhost/done");
    let path =
        format!("/contoso.example/v2.0/adminconsent?client_id={CLIENT_ID}&scope={DEFAULT}&redirect_uri={back}&state=x");
    let answered = harness.send("GET", &path, &[], b"").await.unwrap();
    let location = answered.header("location").unwrap().to_owned();
    let directory = harness.world.directory("contoso.example").unwrap().id;
    for part in ["admin_consent=True", &format!("tenant={directory}"), "state=x"] {
        assert!(location.contains(part), "{location}");
    }

    let token = by_secret(&harness, TOKEN).await.json();
    assert!(token["refresh_token"].is_null());
    let token = token["access_token"].as_str().unwrap();
    assert_eq!(harness.get(&format!("/v1.0/users/{ANN}"), token).await.json()["mail"], ANN);
    assert_eq!(harness.get("/v1.0/me", token).await.status, 400);
    for other in ["eve@outlook.com", "bob@fabrikam.example", "nobody@contoso.example"] {
        let answered = harness.get(&format!("/v1.0/users/{other}"), token).await;
        assert_eq!((answered.status, code(&answered).as_str()), (404, "Request_ResourceNotFound"), "{other}");
    }
    harness.assert_no_violations();
}

#[tokio::test]
async fn declined_admin_consent_grants_nothing() {
    let harness = MicrosoftHarness::with_ann(0).await;
    harness.world.set_consent(Consent { auto: true, denied: true, ..Consent::default() });
    let path = format!("/organizations/adminconsent?client_id={CLIENT_ID}&redirect_uri=http://localhost/done&state=x");

    let answered = harness.send("GET", &path, &[], b"").await.unwrap();

    assert!(answered.header("location").unwrap().contains("error=access_denied"));
    assert_eq!(number(&by_secret(&harness, TOKEN).await), 700_016);
}

#[tokio::test]
async fn assertion_is_accepted_once_in_both_forms() {
    let harness = MicrosoftHarness::with_ann(0).await;
    harness.control_ok("PUT", "directories/contoso.example", json!({"admin_consent": true})).await;

    let assertion = sign_as_client(&claims(&harness, "1"), false);
    assert_eq!(by_certificate(&harness, &assertion).await.status, 200);
    assert_eq!(number(&by_certificate(&harness, &assertion).await), 700_027, "a name comes once");
    assert_eq!(by_certificate(&harness, &sign_as_client(&claims(&harness, "2"), true)).await.status, 200);
}

#[tokio::test]
async fn assertion_of_another_client_or_time_is_refused() {
    let harness = MicrosoftHarness::with_ann(0).await;
    harness.control_ok("PUT", "directories/contoso.example", json!({"admin_consent": true})).await;
    let now = harness.now_ms() / 1_000;
    for (field, doctored, expected) in [
        ("aud", json!("https://login.microsoftonline.com/common/oauth2/v2.0/token"), 700_023),
        ("iss", json!("somebody"), 700_021),
        ("exp", json!(now + 3_600), 700_024),
        ("nbf", json!(now + 590), 700_024),
        ("jti", Value::Null, 700_027),
    ] {
        let mut claims = claims(&harness, "1");
        claims[field] = doctored;

        let answered = by_certificate(&harness, &sign_as_client(&claims, false)).await;

        assert_eq!((answered.status, number(&answered)), (401, expected), "{field}");
    }
    let altered = sign_as_client(&claims(&harness, "1"), false).replace('.', "x.");
    assert_eq!(number(&by_certificate(&harness, &altered).await), 700_027);
}

#[tokio::test]
async fn token_opens_only_its_own_account() {
    let harness = MicrosoftHarness::with_ann(0).await;
    harness.world.create(&AccountSpec { address: "bob@contoso.example".to_owned(), messages: 0, seed: None });
    let token = harness.token();

    let answered = harness.get("/v1.0/users/bob@contoso.example", &token).await;

    assert_eq!((answered.status, code(&answered).as_str()), (403, "ErrorAccessDenied"));
    assert_eq!(harness.get(&format!("/v1.0/users/{ANN}"), &token).await.status, 200);
}
