//! OAuth sign-in.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::digest::{SHA256, digest};
use serde_json::{Value, json};
use sim::google::{CLIENT_ID, CLIENT_SECRET, Consent, GoogleClient, READONLY};

use super::harness::{ANN, GoogleHarness};
use super::tokens;
use crate::client::{HttpReply, encoded};

const VERIFIER: &str = "a-verifier-of-at-least-forty-three-letters-0123";
const BACK: &str = "http://127.0.0.1:8025/v1/oauth/google/callback";

fn challenge() -> String {
    URL_SAFE_NO_PAD.encode(digest(&SHA256, VERIFIER.as_bytes()))
}

/// Returns the parameters of an authorization request, with overrides.
fn authorization_parameters(other: &[(&str, &str)]) -> Vec<(String, String)> {
    let scope = format!("openid email {READONLY}");
    let challenge = challenge();
    let usual = [
        ("client_id", CLIENT_ID),
        ("redirect_uri", BACK),
        ("response_type", "code"),
        ("scope", &scope),
        ("state", "s&1"),
        ("code_challenge", &challenge),
        ("code_challenge_method", "S256"),
        ("access_type", "offline"),
        ("prompt", "consent"),
    ];
    let mut all: Vec<(String, String)> = usual.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    for (name, value) in other {
        all.retain(|(given, _)| given != name);
        all.push(((*name).to_owned(), (*value).to_owned()));
    }
    all
}

fn query(pairs: &[(String, String)]) -> String {
    let pairs: Vec<String> = pairs.iter().map(|(name, value)| format!("{name}={}", encoded(value))).collect();
    format!("/o/oauth2/v2/auth?{}", pairs.join("&"))
}

async fn authorize(harness: &GoogleHarness, other: &[(&str, &str)]) -> HttpReply {
    harness.send("GET", &query(&authorization_parameters(other)), &[], b"").await.unwrap()
}

/// Returns a parameter of the redirect.
fn redirect_parameter(answered: &HttpReply, name: &str) -> Option<String> {
    let location = answered.header("location")?;
    assert!(location.starts_with(&format!("{BACK}?")), "{location}");
    let value = location.split(['?', '&']).find_map(|pair| pair.strip_prefix(&format!("{name}=")))?;
    Some(value.replace("%2F", "/").replace("%26", "&").replace("%20", " ").replace("%3A", ":"))
}

async fn redeem(harness: &GoogleHarness, code: &str, other: &[(&str, &str)]) -> HttpReply {
    let usual = [
        ("grant_type", "authorization_code"),
        ("code", code),
        ("client_id", CLIENT_ID),
        ("client_secret", CLIENT_SECRET),
        ("redirect_uri", BACK),
        ("code_verifier", VERIFIER),
    ];
    let said = |name: &str| other.iter().find(|(given, _)| *given == name).map(|(_, value)| *value);
    let fields: Vec<(&str, &str)> = usual
        .iter()
        .map(|(name, value)| (*name, said(name).unwrap_or(value)))
        .filter(|(_, value)| !value.is_empty())
        .collect();
    harness.form("/token", &fields).await
}

async fn refresh(harness: &GoogleHarness, token: &str) -> HttpReply {
    let client = [("client_id", CLIENT_ID), ("client_secret", CLIENT_SECRET)];
    harness.form("/token", &[&[("grant_type", "refresh_token"), ("refresh_token", token)], &client[..]].concat()).await
}

async fn with_consent(consent: Consent) -> GoogleHarness {
    let harness = GoogleHarness::with_ann(3).await;
    harness.world.set_consent(Consent { auto: true, ..consent });
    harness
}

async fn code(harness: &GoogleHarness) -> String {
    redirect_parameter(&authorize(harness, &[("login_hint", ANN)]).await, "code").unwrap()
}

#[tokio::test]
async fn code_is_exchanged_for_tokens() {
    let harness = with_consent(Consent::default()).await;
    let sent_back = authorize(&harness, &[("login_hint", ANN), ("nonce", "n1")]).await;

    let tokens = redeem(&harness, &redirect_parameter(&sent_back, "code").unwrap(), &[]).await.json();

    assert_eq!((sent_back.status, redirect_parameter(&sent_back, "state").as_deref()), (302, Some("s&1")));
    assert_eq!((&tokens["token_type"], &tokens["expires_in"]), (&json!("Bearer"), &json!(3599)));
    let email = "https://www.googleapis.com/auth/userinfo.email";
    assert_eq!(tokens["scope"], format!("openid {email} {READONLY}"), "by its long name");
    let access = tokens["access_token"].as_str().unwrap();
    assert_eq!(harness.get("/gmail/v1/users/me/profile", access).await.json()["emailAddress"], ANN);
    assert_eq!(harness.get("/oauth2/v2/userinfo", access).await.json()["email"], ANN);
    let certs = harness.send("GET", "/oauth2/v3/certs", &[], b"").await.unwrap();
    assert!(certs.header("cache-control").unwrap().contains("max-age="));
    let claims = tokens::open(tokens["id_token"].as_str().unwrap(), &certs.json()).unwrap();
    let expected = [("iss", json!("https://accounts.google.com")), ("aud", json!(CLIENT_ID)), ("email", json!(ANN))];
    expected.iter().for_each(|(name, value)| assert_eq!(claims[name], *value));
    assert_eq!((&claims["nonce"], &claims["email_verified"]), (&json!("n1"), &json!(true)));
    harness.assert_no_violations();
}

#[tokio::test]
async fn refresh_token_works_until_revoked() {
    let harness = with_consent(Consent::default()).await;
    let tokens = redeem(&harness, &code(&harness).await, &[]).await.json();
    let (access, token) = (tokens["access_token"].as_str().unwrap(), tokens["refresh_token"].as_str().unwrap());

    harness.advance_ms(3_600_000);
    let expired = harness.get("/gmail/v1/users/me/profile", access).await;
    let refreshed = refresh(&harness, token).await.json();

    assert_eq!((expired.status, expired.reason().as_str()), (401, "authError"));
    assert!(refreshed.get("refresh_token").is_none());
    let access = refreshed["access_token"].as_str().unwrap();
    assert_eq!(harness.get("/gmail/v1/users/me/profile", access).await.status, 200);
    assert_eq!(harness.form("/revoke", &[("token", token)]).await.status, 200);
    assert_eq!(harness.get("/gmail/v1/users/me/profile", access).await.status, 401);
    let refused = refresh(&harness, token).await;
    assert_eq!((refused.status, &refused.json()["error"]), (400, &json!("invalid_grant")));
    assert_eq!(harness.form("/revoke", &[("token", token)]).await.status, 400);
    let counts = &harness.world.token_counts()[ANN];
    assert_eq!((counts.granted, counts.refreshed), (1, 1));
    harness.assert_no_violations();
}

#[tokio::test]
async fn code_is_bound_to_client_redirect_and_verifier() {
    let harness = with_consent(Consent::default()).await;
    harness.world.register_client(GoogleClient {
        id: "other".into(),
        secret: "s".into(),
        redirect_uris: Vec::new(),
        project: None,
    });
    let other_verifier = "another-verifier-of-at-least-forty-three-letters";
    for (other, status, error) in [
        (&[("code_verifier", other_verifier)][..], 400, "invalid_grant"),
        (&[("code_verifier", "")], 400, "invalid_grant"),
        (&[("redirect_uri", "http://127.0.0.1:8025/other")], 400, "redirect_uri_mismatch"),
        (&[("client_secret", "wrong")], 401, "invalid_client"),
        (&[("client_id", "nobody")], 401, "invalid_client"),
        (&[("client_id", "other"), ("client_secret", "s")], 400, "invalid_grant"),
        (&[("code", "4/nonsense")], 400, "invalid_grant"),
        (&[("grant_type", "password")], 400, "unsupported_grant_type"),
    ] {
        let refused = redeem(&harness, &code(&harness).await, other).await;
        assert_eq!((refused.status, &refused.json()["error"]), (status, &json!(error)), "{other:?}");
        assert!(refused.json()["error_description"].is_string());
    }

    let (used, late) = (code(&harness).await, code(&harness).await);
    assert_eq!(redeem(&harness, &used, &[]).await.status, 200);
    assert_eq!(redeem(&harness, &used, &[]).await.json()["error"], "invalid_grant");
    harness.advance_ms(10 * 60_000);
    assert_eq!(redeem(&harness, &late, &[]).await.json()["error"], "invalid_grant");
    harness.assert_no_violations();
}

#[tokio::test]
async fn unregistered_redirect_uri_is_refused() {
    let harness = with_consent(Consent::default()).await;
    let client = GoogleClient {
        id: "web".into(),
        secret: "s".into(),
        redirect_uris: vec!["https://mail.example/cb".into()],
        project: None,
    };
    harness.world.register_client(client);

    for (other, status, error) in [
        (&[("client_id", "nobody")][..], 401, "invalid_client"),
        (&[("redirect_uri", "https://evil.example/cb")], 400, "redirect_uri_mismatch"),
        (&[("client_id", "web"), ("redirect_uri", "https://mail.example/cb/")], 400, "redirect_uri_mismatch"),
        (&[("response_type", "token")], 400, "invalid_request"),
        (&[("code_challenge_method", "plain")], 400, "invalid_request"),
        (&[("code_challenge", "short")], 400, "invalid_request"),
        (&[("scope", "")], 400, "invalid_request"),
        (&[("acces_type", "offline")], 400, "invalid_request"),
    ] {
        let refused = authorize(&harness, other).await;
        assert_eq!((refused.status, refused.header("location")), (status, None), "{other:?}");
        assert!(refused.text().contains(error), "{other:?}");
    }
    assert_eq!(harness.world.violations().len(), 8);
    let registered = [("client_id", "web"), ("redirect_uri", "https://mail.example/cb")];
    assert_eq!(authorize(&harness, &registered).await.status, 302);
}

#[tokio::test]
async fn consent_can_be_denied_or_reduced() {
    let denied = with_consent(Consent { denied: true, ..Consent::default() }).await;
    let sent_back = authorize(&denied, &[]).await;
    assert_eq!(
        (redirect_parameter(&sent_back, "error").as_deref(), redirect_parameter(&sent_back, "code")),
        (Some("access_denied"), None)
    );

    let unticked = vec![READONLY.to_owned()];
    let harness =
        with_consent(Consent { unticked, account: Some("user1@sim.example".into()), ..Consent::default() }).await;
    harness.world.create_many(1, 0);
    let tokens = redeem(&harness, &code(&harness).await, &[]).await.json();
    assert_eq!(tokens["scope"], "openid https://www.googleapis.com/auth/userinfo.email");
    let access = tokens["access_token"].as_str().unwrap();
    assert_eq!(harness.get("/oauth2/v2/userinfo", access).await.json()["email"], "user1@sim.example");
    assert_eq!(harness.get("/gmail/v1/users/me/profile", access).await.reason(), "insufficientPermissions");
}

#[tokio::test]
async fn consent_page_posts_the_decision() {
    let harness = GoogleHarness::with_ann(1).await;
    harness.world.create_many(1, 0);
    let fields = authorization_parameters(&[("login_hint", "user1@sim.example"), ("state", "\"><script>")]);

    let page = harness.send("GET", &query(&fields), &[], b"").await.unwrap();
    let mut form: Vec<(&str, &str)> = fields.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    form.extend([("account", ANN), ("granted", READONLY), ("decision", "allow")]);
    let allowed = harness.form("/o/oauth2/v2/auth", &form).await;
    *form.last_mut().unwrap() = ("decision", "deny");
    let denied = harness.form("/o/oauth2/v2/auth", &form).await;

    let text = page.text();
    assert!(text.contains("value=\"user1@sim.example\"") && text.contains(ANN) && text.contains(READONLY));
    assert!(!text.contains("<script>"));
    let tokens = redeem(&harness, &redirect_parameter(&allowed, "code").unwrap(), &[]).await.json();
    assert_eq!(tokens["scope"], READONLY);
    assert!(tokens.get("id_token").is_none());
    assert_eq!(redirect_parameter(&denied, "error").as_deref(), Some("access_denied"));
    harness.assert_no_violations();
}

#[tokio::test]
async fn second_consent_needs_prompt_for_refresh_token() {
    let harness = with_consent(Consent::default()).await;
    let has_refresh = async |other: &[(&str, &str)]| {
        let code = redirect_parameter(&authorize(&harness, other).await, "code").unwrap();
        redeem(&harness, &code, &[]).await.json().get("refresh_token").is_some_and(Value::is_string)
    };

    assert!(!has_refresh(&[("access_type", "online")]).await);
    harness.world.revoke_tokens(ANN);
    assert!(has_refresh(&[("prompt", "select_account")]).await);
    assert!(!has_refresh(&[("prompt", "select_account")]).await);
    assert!(has_refresh(&[]).await);
}

#[tokio::test]
async fn unknown_token_field_is_a_violation() {
    let harness = GoogleHarness::with_ann(0).await;
    let fields = [("grant_type", "refresh_token"), ("refreshtoken", "x"), ("client_id", CLIENT_ID)];

    let refused = harness.form("/token", &fields).await;

    assert_eq!((refused.status, &refused.json()["error"]), (400, &json!("invalid_request")));
    assert!(harness.world.violations()[0].why.contains("refreshtoken"));
}

#[tokio::test]
async fn forgotten_key_verifies_nothing() {
    let harness = with_consent(Consent::default()).await;
    let old = redeem(&harness, &code(&harness).await, &[]).await.json()["id_token"].as_str().unwrap().to_owned();
    let certs = async || harness.send("GET", "/oauth2/v3/certs", &[], b"").await.unwrap().json();

    harness.control_ok("POST", "keys/rotate", json!({})).await;
    let both = certs().await;
    let new = redeem(&harness, &code(&harness).await, &[]).await.json()["id_token"].as_str().unwrap().to_owned();
    harness.control_ok("POST", "keys/rotate", json!({"forget_old": true})).await;

    assert!(tokens::open(&old, &both).is_some() && tokens::open(&new, &both).is_some());
    assert!(tokens::open(&new, &certs().await).is_none());
}
