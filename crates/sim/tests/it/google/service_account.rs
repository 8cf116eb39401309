//! Domain-wide delegation.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ring::rand::SystemRandom;
use ring::rsa::KeyPair;
use ring::signature::RSA_PKCS1_SHA256;
use serde_json::{Value, json};
use sim::google::READONLY;

use super::harness::{ANN, GoogleHarness};
use crate::client::HttpReply;

const BEARER: &str = "urn:ietf:params:oauth:grant-type:jwt-bearer";

async fn give(harness: &GoogleHarness, assertion: &str) -> HttpReply {
    harness.form("/token", &[("grant_type", BEARER), ("assertion", assertion)]).await
}

fn claims(harness: &GoogleHarness, other: &[(&str, Value)]) -> Value {
    let key = harness.world.service_account_key();
    let now = harness.now_ms() / 1_000;
    let mut claims = json!({
        "iss": key["client_email"], "scope": READONLY, "aud": key["token_uri"], "iat": now, "exp": now + 3_600, "sub": ANN,
    });
    other.iter().for_each(|(name, value)| claims[name] = value.clone());
    claims
}

#[tokio::test]
async fn key_file_signs_for_any_account() {
    let harness = GoogleHarness::with_ann(2).await;
    let key = harness.control_ok("GET", "service-account", Value::Null).await;
    let pem: String = key["private_key"].as_str().unwrap().lines().filter(|line| !line.starts_with('-')).collect();
    let pair = KeyPair::from_pkcs8(&STANDARD.decode(pem).unwrap()).unwrap();
    let header = json!({"alg": "RS256", "typ": "JWT", "kid": key["private_key_id"]});
    let [header, claims] = [header, claims(&harness, &[])].map(|part| URL_SAFE_NO_PAD.encode(part.to_string()));
    let signed = format!("{header}.{claims}");
    let mut signature = vec![0; pair.public().modulus_len()];
    pair.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), signed.as_bytes(), &mut signature).unwrap();

    let answered = give(&harness, &format!("{signed}.{}", URL_SAFE_NO_PAD.encode(&signature))).await;

    assert_eq!(answered.status, 200, "{}", answered.text());
    assert!(answered.json().get("refresh_token").is_none());
    let access = answered.json()["access_token"].as_str().unwrap().to_owned();
    assert_eq!(harness.get("/gmail/v1/users/me/profile", &access).await.json()["messagesTotal"], 2);
    assert_eq!(harness.world.token_counts()[ANN].delegated, 1);
    harness.assert_no_violations();
}

#[tokio::test]
async fn invalid_assertions_are_refused() {
    let harness = GoogleHarness::with_ann(0).await;
    harness.world.set_delegated_scopes(Some(vec![READONLY.to_owned()]));
    let now = harness.now_ms() / 1_000;
    for (other, status, error) in [
        (&[("sub", json!("nobody@sim.example"))][..], 400, "invalid_grant"),
        (&[("aud", json!("https://evil.example/token"))], 400, "invalid_grant"),
        (&[("iss", json!("somebody@else.example"))], 400, "invalid_grant"),
        (&[("exp", json!(now + 3_601))], 400, "invalid_grant"),
        (&[("iat", json!(now - 8_000)), ("exp", json!(now - 4_400))], 400, "invalid_grant"),
        (&[("iat", json!(now + 4_000)), ("exp", json!(now + 7_600))], 400, "invalid_grant"),
        (&[("scope", json!(""))], 400, "invalid_scope"),
        (&[("scope", json!("https://mail.google.com/"))], 401, "unauthorized_client"),
    ] {
        let refused = give(&harness, &harness.world.sign_as_service_account(&claims(&harness, other))).await;
        assert_eq!((refused.status, &refused.json()["error"]), (status, &json!(error)), "{other:?}");
    }
    let mut altered = harness.world.sign_as_service_account(&claims(&harness, &[]));
    assert_eq!(give(&harness, &altered).await.status, 200);
    altered.replace_range(
        altered.len() - 6..altered.len() - 5,
        if altered.as_bytes()[altered.len() - 6] == b'A' { "B" } else { "A" },
    );
    assert_eq!(give(&harness, &altered).await.json()["error"], "invalid_grant");
}
