//! Sign-in: codes, refresh tokens, errors.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use sim::microsoft::{AccountSpec, CLIENT_ID, CLIENT_SECRET, CONSUMERS, Consent, MicrosoftClient};

use super::harness::{ANN, MicrosoftHarness, code};
use crate::client::{HttpReply, encoded};
use crate::google::tokens::open;

const VERIFIER: &str = "a-verifier-of-forty-three-letters-or-a-bit-more";
const BACK: &str = "http://127.0.0.1:9/back";
const SCOPE: &str =
    "offline_access openid email https://graph.microsoft.com/User.Read https://graph.microsoft.com/Mail.Read";

fn challenge() -> String {
    URL_SAFE_NO_PAD.encode(ring::digest::digest(&ring::digest::SHA256, VERIFIER.as_bytes()))
}

fn address(tenant: &str, more: &[(&str, &str)]) -> String {
    let challenge = challenge();
    let mut fields = vec![
        ("client_id", CLIENT_ID),
        ("response_type", "code"),
        ("redirect_uri", BACK),
        ("scope", SCOPE),
        ("state", "s&1"),
        ("code_challenge", challenge.as_str()),
        ("code_challenge_method", "S256"),
    ];
    for (name, value) in more {
        fields.retain(|(known, _)| known != name);
        fields.push((name, value));
    }
    let query: Vec<String> = fields.iter().map(|(name, value)| format!("{name}={}", encoded(value))).collect();
    format!("/{tenant}/oauth2/v2.0/authorize?{}", query.join("&"))
}

/// Returns the parameters of the redirect.
async fn authorize(harness: &MicrosoftHarness, tenant: &str, more: &[(&str, &str)]) -> Vec<(String, String)> {
    let answered = harness.send("GET", &address(tenant, more), &[], b"").await.unwrap();
    assert_eq!(answered.status, 302, "{}", answered.text());
    let location = answered.header("location").unwrap();
    let query = location.strip_prefix(&format!("{BACK}?")).unwrap();
    query
        .split('&')
        .map(|part| part.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned())).unwrap())
        .collect()
}

fn told(pairs: &[(String, String)], name: &str) -> Option<String> {
    pairs.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone())
}

async fn redeem(harness: &MicrosoftHarness, tenant: &str, code: &str) -> HttpReply {
    let fields = [
        ("grant_type", "authorization_code"),
        ("code", code),
        ("redirect_uri", BACK),
        ("code_verifier", VERIFIER),
        ("client_id", CLIENT_ID),
        ("client_secret", CLIENT_SECRET),
    ];
    harness.form(&format!("/{tenant}/oauth2/v2.0/token"), &fields).await
}

async fn refresh(harness: &MicrosoftHarness, token: &str) -> HttpReply {
    let fields = [
        ("grant_type", "refresh_token"),
        ("refresh_token", token),
        ("client_id", CLIENT_ID),
        ("client_secret", CLIENT_SECRET),
    ];
    harness.form("/common/oauth2/v2.0/token", &fields).await
}

fn aadsts(answered: &HttpReply) -> (u16, String, u64) {
    let body = answered.json();
    let number = body["error_codes"][0].as_u64().unwrap();
    let described = body["error_description"].as_str().unwrap();
    assert!(described.starts_with(&format!("AADSTS{number}: ")), "{described}");
    for part in ["Trace ID: ", "Correlation ID: ", "Timestamp: "] {
        assert!(described.contains(part), "{described}");
    }
    (answered.status, body["error"].as_str().unwrap().to_owned(), number)
}

async fn consenting(harness: &MicrosoftHarness) {
    harness.control_ok("PUT", "consent", json!({"auto": true})).await;
}

#[tokio::test]
async fn code_is_redeemed_once() {
    let harness = MicrosoftHarness::with_ann(0).await;
    consenting(&harness).await;

    let back = authorize(&harness, "common", &[("nonce", "n-1"), ("prompt", "select_account")]).await;
    assert_eq!(told(&back, "state").as_deref(), Some("s%261"));
    let code = told(&back, "code").unwrap();
    let body = redeem(&harness, "common", &code).await.json();

    assert_eq!((&body["token_type"], &body["expires_in"]), (&json!("Bearer"), &json!(3600)));
    let scope = "openid email https://graph.microsoft.com/User.Read https://graph.microsoft.com/Mail.Read";
    assert_eq!(body["scope"], scope);
    let keys = harness.send("GET", "/common/discovery/v2.0/keys", &[], b"").await.unwrap().json();
    let claims = open(body["id_token"].as_str().unwrap(), &keys).unwrap();
    let directory = harness.world.directory("contoso.example").unwrap().id;
    assert_eq!((&claims["tid"], &claims["email"]), (&json!(directory), &json!(ANN)));
    assert_eq!((&claims["preferred_username"], &claims["nonce"]), (&json!(ANN), &json!("n-1")));
    assert_eq!(claims["iss"], format!("{}/{directory}/v2.0", harness.server.url()));
    let me = harness.get("/v1.0/me", body["access_token"].as_str().unwrap()).await.json();
    assert_eq!((&me["id"], &me["userPrincipalName"]), (&claims["oid"], &json!(ANN)));
    assert_eq!(aadsts(&redeem(&harness, "common", &code).await), (400, "invalid_grant".to_owned(), 54_005));
    harness.assert_no_violations();
}

#[tokio::test]
async fn code_needs_its_verifier_within_ten_minutes() {
    let harness = MicrosoftHarness::with_ann(0).await;
    consenting(&harness).await;
    let code = told(&authorize(&harness, "organizations", &[]).await, "code").unwrap();

    let fields = [
        ("grant_type", "authorization_code"),
        ("code", code.as_str()),
        ("redirect_uri", BACK),
        ("code_verifier", "another-verifier-of-forty-three-letters-or-more"),
        ("client_id", CLIENT_ID),
        ("client_secret", CLIENT_SECRET),
    ];
    let answered = harness.form("/organizations/oauth2/v2.0/token", &fields).await;
    assert_eq!(aadsts(&answered), (400, "invalid_grant".to_owned(), 501_481));

    let code = told(&authorize(&harness, "organizations", &[]).await, "code").unwrap();
    harness.advance_ms(600_000);
    assert_eq!(aadsts(&redeem(&harness, "organizations", &code).await), (400, "invalid_grant".to_owned(), 70_008));
}

#[tokio::test]
async fn refresh_token_needs_offline_access() {
    let harness = MicrosoftHarness::with_ann(0).await;
    consenting(&harness).await;

    let code = told(&authorize(&harness, "common", &[("scope", "openid Mail.Read")]).await, "code").unwrap();

    assert!(redeem(&harness, "common", &code).await.json()["refresh_token"].is_null());
}

#[tokio::test]
async fn refresh_rotates_the_refresh_token() {
    let harness = MicrosoftHarness::with_ann(0).await;
    let first = harness.world.grant(ANN).unwrap().refresh_token.unwrap();

    let answered = refresh(&harness, &first).await.json();
    let second = answered["refresh_token"].as_str().unwrap().to_owned();
    assert_ne!(first, second);
    assert_eq!(refresh(&harness, &first).await.status, 200);

    harness.control_ok("PUT", "tokens", json!({"strict": true})).await;
    assert_eq!(refresh(&harness, &second).await.status, 200);
    assert_eq!(aadsts(&refresh(&harness, &second).await), (400, "invalid_grant".to_owned(), 70_000));
    assert_eq!(aadsts(&refresh(&harness, &first).await), (400, "invalid_grant".to_owned(), 50_173));
    let counts = harness.control_ok("GET", "tokens", Value::Null).await;
    assert_eq!((&counts[ANN]["families_revoked"], &counts[ANN]["refreshed"]), (&json!(1), &json!(3)));
}

#[tokio::test]
async fn overlapping_refreshes_are_counted() {
    let harness = MicrosoftHarness::with_ann(0).await;
    let token = harness.world.grant(ANN).unwrap().refresh_token.unwrap();
    harness.world.set_latency_ms(50);

    tokio::join!(refresh(&harness, &token), refresh(&harness, &token));
    refresh(&harness, &token).await;

    assert_eq!(harness.world.token_counts()[ANN].overlapping, 1);
}

#[tokio::test]
async fn denied_consent_redirects_with_an_error() {
    let harness = MicrosoftHarness::with_ann(0).await;
    harness.world.set_consent(Consent { auto: true, denied: true, ..Consent::default() });
    let back = authorize(&harness, "common", &[]).await;
    assert_eq!(told(&back, "error").as_deref(), Some("access_denied"));
    assert!(told(&back, "error_description").unwrap().starts_with("AADSTS65004"));

    consenting(&harness).await;
    let back = authorize(&harness, "common", &[("prompt", "none")]).await;
    assert_eq!(told(&back, "error").as_deref(), Some("consent_required"));
    harness.control_ok("PUT", "directories/contoso.example", json!({"user_consent": false})).await;
    let back = authorize(&harness, "common", &[]).await;
    assert!(told(&back, "error_description").unwrap().starts_with("AADSTS90094"));
    harness.assert_no_violations();
}

#[tokio::test]
async fn personal_accounts_sign_in_as_consumers() {
    let harness = MicrosoftHarness::with_ann(0).await;
    let address_of = "eve@outlook.com";
    harness.world.create(&AccountSpec { address: address_of.to_owned(), messages: 0, seed: None });
    consenting(&harness).await;

    let code = told(&authorize(&harness, "consumers", &[]).await, "code").unwrap();
    let body = redeem(&harness, "consumers", &code).await.json();
    let keys = harness.send("GET", "/consumers/discovery/v2.0/keys", &[], b"").await.unwrap().json();
    let claims = open(body["id_token"].as_str().unwrap(), &keys).unwrap();
    assert_eq!((&claims["tid"], &claims["email"]), (&json!(CONSUMERS), &json!(address_of)));

    let hinted = address("organizations", &[("login_hint", address_of)]);
    let answered = harness.send("GET", &hinted, &[], b"").await.unwrap();
    assert_eq!(answered.status, 400);
    assert!(answered.text().contains("AADSTS50020"));
}

#[tokio::test]
async fn consent_page_posts_the_decision() {
    let harness = MicrosoftHarness::with_ann(0).await;

    let page = harness.send("GET", &address("common", &[]), &[], b"").await.unwrap();
    assert_eq!(page.status, 200);
    assert!(page.text().contains("action=\"/common/oauth2/v2.0/authorize\"") && page.text().contains(ANN));
    let challenge = challenge();
    let clicked = [
        ("client_id", CLIENT_ID),
        ("response_type", "code"),
        ("response_mode", "form_post"),
        ("redirect_uri", BACK),
        ("scope", SCOPE),
        ("code_challenge", challenge.as_str()),
        ("code_challenge_method", "S256"),
        ("account", ANN),
        ("granted", "openid"),
        ("decision", "allow"),
    ];
    let back = harness.form("/common/oauth2/v2.0/authorize", &clicked).await;

    assert_eq!(back.status, 200);
    assert!(back.text().contains("name=\"code\""), "{}", back.text());
}

#[tokio::test]
async fn client_errors_have_their_aadsts_number() {
    let harness = MicrosoftHarness::with_ann(0).await;
    let token = harness.world.grant(ANN).unwrap().refresh_token.unwrap();
    let send = |id: &'static str, secret: &'static str| {
        let fields = [
            ("grant_type", "refresh_token"),
            ("refresh_token", token.as_str()),
            ("client_id", id),
            ("client_secret", secret),
        ];
        let (harness, fields) = (&harness, fields.map(|(name, value)| (name, value.to_owned())));
        async move {
            let fields: Vec<(&str, &str)> = fields.iter().map(|(name, value)| (*name, value.as_str())).collect();
            aadsts(&harness.form("/common/oauth2/v2.0/token", &fields).await)
        }
    };

    assert_eq!(send(CLIENT_ID, "wrong").await, (401, "invalid_client".to_owned(), 7_000_215));
    assert_eq!(send("nobody", "x").await, (400, "unauthorized_client".to_owned(), 700_016));
    harness.world.register_client(MicrosoftClient {
        secret_expired: true,
        ..serde_json::from_value(json!({"id": CLIENT_ID, "secret": CLIENT_SECRET})).unwrap()
    });
    assert_eq!(send(CLIENT_ID, CLIENT_SECRET).await, (401, "invalid_client".to_owned(), 7_000_222));
    harness.assert_no_violations();
}

#[tokio::test]
async fn undocumented_parameter_is_a_violation() {
    let harness = MicrosoftHarness::with_ann(0).await;
    consenting(&harness).await;
    for (more, status) in [
        ([("access_type", "offline")], 400),
        ([("redirect_uri", "https://evil.test/")], 400),
        ([("code_challenge_method", "plain")], 302),
        ([("scope", "https://www.googleapis.com/auth/gmail.readonly")], 302),
    ] {
        harness.world.clear_violations();

        let answered = harness.send("GET", &address("common", &more), &[], b"").await.unwrap();

        assert_eq!(answered.status, status, "{more:?}");
        assert_eq!(harness.world.violations().len(), 1, "{more:?}");
    }
    assert_eq!(harness.send("GET", &address("nowhere.test", &[]), &[], b"").await.unwrap().status, 400);
}

#[tokio::test]
async fn tokens_expire_and_are_revoked() {
    let harness = MicrosoftHarness::with_ann(0).await;
    let granted = harness.world.grant(ANN).unwrap();
    assert_eq!(harness.get("/v1.0/me", &granted.access_token).await.status, 200);

    harness.advance_ms(3_600_000);
    let answered = harness.get("/v1.0/me", &granted.access_token).await;
    assert_eq!((answered.status, code(&answered).as_str()), (401, "InvalidAuthenticationToken"));
    assert!(answered.header("www-authenticate").unwrap().starts_with("Bearer"));
    let again = refresh(&harness, granted.refresh_token.as_ref().unwrap()).await.json();
    harness.control_ok("POST", &format!("accounts/{ANN}/revoke-tokens"), Value::Null).await;
    assert_eq!(harness.get("/v1.0/me", again["access_token"].as_str().unwrap()).await.status, 401);
    let answered = refresh(&harness, granted.refresh_token.as_ref().unwrap()).await;
    assert_eq!(aadsts(&answered), (400, "invalid_grant".to_owned(), 50_173));
}

#[tokio::test]
async fn openid_configuration_lists_endpoints() {
    let harness = MicrosoftHarness::with_ann(0).await;

    let told = harness.send("GET", "/common/v2.0/.well-known/openid-configuration", &[], b"").await.unwrap().json();

    let url = harness.server.url();
    assert_eq!(told["issuer"], format!("{url}/{{tenantid}}/v2.0"));
    assert_eq!(told["token_endpoint"], format!("{url}/common/oauth2/v2.0/token"));
    assert_eq!(told["jwks_uri"], format!("{url}/common/discovery/v2.0/keys"));
}
