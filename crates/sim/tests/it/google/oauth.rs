//! Signing in, as a person and as a program.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::digest::{SHA256, digest};
use serde_json::{Value, json};
use sim::google::{CLIENT_ID, CLIENT_SECRET, Client, Consent, READONLY};

use super::place::{ANN, Answered, Place, encoded};
use super::tokens;

const VERIFIER: &str = "a-verifier-of-at-least-forty-three-letters-0123";
const BACK: &str = "http://127.0.0.1:8025/v1/oauth/google/callback";

fn challenge() -> String {
    URL_SAFE_NO_PAD.encode(digest(&SHA256, VERIFIER.as_bytes()))
}

/// What a program sends a person with, and what else it says or says otherwise.
fn asked(other: &[(&str, &str)]) -> Vec<(String, String)> {
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

async fn authorize(place: &Place, other: &[(&str, &str)]) -> Answered {
    place.send("GET", &query(&asked(other)), &[], b"").await.unwrap()
}

/// A parameter that somebody is sent back with.
fn told(answered: &Answered, name: &str) -> Option<String> {
    let location = answered.header("location")?;
    assert!(location.starts_with(&format!("{BACK}?")), "{location}");
    let value = location.split(['?', '&']).find_map(|pair| pair.strip_prefix(&format!("{name}=")))?;
    Some(value.replace("%2F", "/").replace("%26", "&").replace("%20", " ").replace("%3A", ":"))
}

async fn redeem(place: &Place, code: &str, other: &[(&str, &str)]) -> Answered {
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
    place.form("/token", &fields).await
}

async fn refresh(place: &Place, token: &str) -> Answered {
    let client = [("client_id", CLIENT_ID), ("client_secret", CLIENT_SECRET)];
    place.form("/token", &[&[("grant_type", "refresh_token"), ("refresh_token", token)], &client[..]].concat()).await
}

async fn with_consent(consent: Consent) -> Place {
    let place = Place::with_ann(3).await;
    place.world.set_consent(Consent { auto: true, ..consent });
    place
}

async fn code(place: &Place) -> String {
    told(&authorize(place, &[("login_hint", ANN)]).await, "code").unwrap()
}

#[tokio::test]
async fn a_code_becomes_tokens_that_read_mail_and_say_who_somebody_is() {
    let place = with_consent(Consent::default()).await;
    let sent_back = authorize(&place, &[("login_hint", ANN), ("nonce", "n1")]).await;

    let tokens = redeem(&place, &told(&sent_back, "code").unwrap(), &[]).await.json();

    assert_eq!((sent_back.status, told(&sent_back, "state").as_deref()), (302, Some("s&1")));
    assert_eq!((&tokens["token_type"], &tokens["expires_in"]), (&json!("Bearer"), &json!(3599)));
    let email = "https://www.googleapis.com/auth/userinfo.email";
    assert_eq!(tokens["scope"], format!("openid {email} {READONLY}"), "by its long name");
    let access = tokens["access_token"].as_str().unwrap();
    assert_eq!(place.get("/gmail/v1/users/me/profile", access).await.json()["emailAddress"], ANN);
    assert_eq!(place.get("/oauth2/v2/userinfo", access).await.json()["email"], ANN);
    let certs = place.send("GET", "/oauth2/v3/certs", &[], b"").await.unwrap();
    assert!(certs.header("cache-control").unwrap().contains("max-age="));
    let claims = tokens::open(tokens["id_token"].as_str().unwrap(), &certs.json()).unwrap();
    let expected = [("iss", json!("https://accounts.google.com")), ("aud", json!(CLIENT_ID)), ("email", json!(ANN))];
    expected.iter().for_each(|(name, value)| assert_eq!(claims[name], *value));
    assert_eq!((&claims["nonce"], &claims["email_verified"]), (&json!("n1"), &json!(true)));
    place.assert_no_violations();
}

#[tokio::test]
async fn a_refresh_token_gives_access_until_it_is_revoked() {
    let place = with_consent(Consent::default()).await;
    let tokens = redeem(&place, &code(&place).await, &[]).await.json();
    let (access, token) = (tokens["access_token"].as_str().unwrap(), tokens["refresh_token"].as_str().unwrap());

    place.pass_ms(3_600_000);
    let expired = place.get("/gmail/v1/users/me/profile", access).await;
    let refreshed = refresh(&place, token).await.json();

    assert_eq!((expired.status, expired.reason().as_str()), (401, "authError"));
    assert!(refreshed.get("refresh_token").is_none());
    let access = refreshed["access_token"].as_str().unwrap();
    assert_eq!(place.get("/gmail/v1/users/me/profile", access).await.status, 200);
    assert_eq!(place.form("/revoke", &[("token", token)]).await.status, 200);
    assert_eq!(place.get("/gmail/v1/users/me/profile", access).await.status, 401);
    let refused = refresh(&place, token).await;
    assert_eq!((refused.status, &refused.json()["error"]), (400, &json!("invalid_grant")));
    assert_eq!(place.form("/revoke", &[("token", token)]).await.status, 400);
    let counts = &place.world.token_counts()[ANN];
    assert_eq!((counts.granted, counts.refreshed), (1, 1));
    place.assert_no_violations();
}

#[tokio::test]
async fn a_code_is_good_once_in_time_for_its_client_place_and_verifier() {
    let place = with_consent(Consent::default()).await;
    place.world.register_client(Client {
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
        let refused = redeem(&place, &code(&place).await, other).await;
        assert_eq!((refused.status, &refused.json()["error"]), (status, &json!(error)), "{other:?}");
        assert!(refused.json()["error_description"].is_string());
    }

    let (used, late) = (code(&place).await, code(&place).await);
    assert_eq!(redeem(&place, &used, &[]).await.status, 200);
    assert_eq!(redeem(&place, &used, &[]).await.json()["error"], "invalid_grant");
    place.pass_ms(10 * 60_000);
    assert_eq!(redeem(&place, &late, &[]).await.json()["error"], "invalid_grant");
    place.assert_no_violations();
}

#[tokio::test]
async fn nobody_is_sent_to_where_the_client_is_not_registered() {
    let place = with_consent(Consent::default()).await;
    let client = Client {
        id: "web".into(),
        secret: "s".into(),
        redirect_uris: vec!["https://mail.example/cb".into()],
        project: None,
    };
    place.world.register_client(client);

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
        let refused = authorize(&place, other).await;
        assert_eq!((refused.status, refused.header("location")), (status, None), "{other:?}");
        assert!(refused.text().contains(error), "{other:?}");
    }
    assert_eq!(place.world.violations().len(), 8);
    let registered = [("client_id", "web"), ("redirect_uri", "https://mail.example/cb")];
    assert_eq!(authorize(&place, &registered).await.status, 302);
}

#[tokio::test]
async fn people_deny_untick_and_choose_another_account() {
    let denied = with_consent(Consent { denied: true, ..Consent::default() }).await;
    let sent_back = authorize(&denied, &[]).await;
    assert_eq!((told(&sent_back, "error").as_deref(), told(&sent_back, "code")), (Some("access_denied"), None));

    let unticked = vec![READONLY.to_owned()];
    let place =
        with_consent(Consent { unticked, account: Some("user1@sim.example".into()), ..Consent::default() }).await;
    place.world.create_many(1, 0);
    let tokens = redeem(&place, &code(&place).await, &[]).await.json();
    assert_eq!(tokens["scope"], "openid https://www.googleapis.com/auth/userinfo.email");
    let access = tokens["access_token"].as_str().unwrap();
    assert_eq!(place.get("/oauth2/v2/userinfo", access).await.json()["email"], "user1@sim.example");
    assert_eq!(place.get("/gmail/v1/users/me/profile", access).await.reason(), "insufficientPermissions");
}

#[tokio::test]
async fn the_page_shows_who_and_what_and_sends_back_what_was_clicked() {
    let place = Place::with_ann(1).await;
    place.world.create_many(1, 0);
    let fields = asked(&[("login_hint", "user1@sim.example"), ("state", "\"><script>")]);

    let page = place.send("GET", &query(&fields), &[], b"").await.unwrap();
    let mut form: Vec<(&str, &str)> = fields.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    form.extend([("account", ANN), ("granted", READONLY), ("decision", "allow")]);
    let allowed = place.form("/o/oauth2/v2/auth", &form).await;
    *form.last_mut().unwrap() = ("decision", "deny");
    let denied = place.form("/o/oauth2/v2/auth", &form).await;

    let text = page.text();
    assert!(text.contains("value=\"user1@sim.example\"") && text.contains(ANN) && text.contains(READONLY));
    assert!(!text.contains("<script>"));
    let tokens = redeem(&place, &told(&allowed, "code").unwrap(), &[]).await.json();
    assert_eq!(tokens["scope"], READONLY);
    assert!(tokens.get("id_token").is_none());
    assert_eq!(told(&denied, "error").as_deref(), Some("access_denied"));
    place.assert_no_violations();
}

#[tokio::test]
async fn a_second_consent_has_a_refresh_token_only_when_it_is_asked_for() {
    let place = with_consent(Consent::default()).await;
    let has_refresh = async |other: &[(&str, &str)]| {
        let code = told(&authorize(&place, other).await, "code").unwrap();
        redeem(&place, &code, &[]).await.json().get("refresh_token").is_some_and(Value::is_string)
    };

    assert!(!has_refresh(&[("access_type", "online")]).await);
    place.world.revoke_tokens(ANN);
    assert!(has_refresh(&[("prompt", "select_account")]).await);
    assert!(!has_refresh(&[("prompt", "select_account")]).await);
    assert!(has_refresh(&[]).await);
}

#[tokio::test]
async fn a_field_that_the_token_endpoint_does_not_know_is_a_violation() {
    let place = Place::with_ann(0).await;
    let fields = [("grant_type", "refresh_token"), ("refreshtoken", "x"), ("client_id", CLIENT_ID)];

    let refused = place.form("/token", &fields).await;

    assert_eq!((refused.status, &refused.json()["error"]), (400, &json!("invalid_request")));
    assert!(place.world.violations()[0].why.contains("refreshtoken"));
}

#[tokio::test]
async fn a_key_that_was_rotated_and_forgotten_opens_nothing_any_more() {
    let place = with_consent(Consent::default()).await;
    let old = redeem(&place, &code(&place).await, &[]).await.json()["id_token"].as_str().unwrap().to_owned();
    let certs = async || place.send("GET", "/oauth2/v3/certs", &[], b"").await.unwrap().json();

    place.steer("POST", "keys/rotate", json!({})).await;
    let both = certs().await;
    let new = redeem(&place, &code(&place).await, &[]).await.json()["id_token"].as_str().unwrap().to_owned();
    place.steer("POST", "keys/rotate", json!({"forget_old": true})).await;

    assert!(tokens::open(&old, &both).is_some() && tokens::open(&new, &both).is_some());
    assert!(tokens::open(&new, &certs().await).is_none());
}
