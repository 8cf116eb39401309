//! What Google's token endpoint says, and what it means to the engine: never more than it should.

use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use domain::connector::ConnectorAccount;
use domain::{AuthorizationRequest, ConnectorError, ConsentFlow, Secret};
use providers::gmail::{GoogleOAuth, GoogleSettings};
use providers::http::{HttpClient, HttpTimeouts};
use serde_json::{Value, json};
use sim::google::{CLIENT_ID, ServiceAccount};

use crate::endpoint::{self, TokenEndpoint, assert_private, id_token};

fn oauth(endpoint: &TokenEndpoint) -> GoogleOAuth {
    let url = &endpoint.url;
    let settings = GoogleSettings {
        auth_url: format!("{url}/auth"),
        token_url: format!("{url}/token"),
        api_url: url.clone(),
        client_id: Some(CLIENT_ID.to_owned()),
        client_secret: Some(Secret::new("hunter2".to_owned())),
        service_account: Some(Secret::new(ServiceAccount::key_file(url).to_string())),
        ..GoogleSettings::default()
    };
    let deadlines = HttpTimeouts { read: Duration::from_secs(5), ..HttpTimeouts::default() };
    GoogleOAuth::new(HttpClient::new(deadlines).unwrap(), settings)
}

fn account(app_only: bool) -> ConnectorAccount {
    endpoint::account("ann@gmail.test", &json!({"app_only": app_only}))
}

async fn refused(endpoint: &TokenEndpoint, app_only: bool) -> ConnectorError {
    let e = oauth(endpoint).obtain_token(&account(app_only)).await.unwrap_err();
    assert_private(&e);
    e
}

fn error(code: &str) -> Value {
    json!({"error": code, "error_description": "secret detail of ann@gmail.test"})
}

fn rotated_response(token: &str) -> Value {
    json!({"access_token": "ya29.x", "expires_in": "60", "refresh_token": token})
}

#[tokio::test]
async fn refresh_token_grants_a_token_and_may_rotate() {
    let answer = json!({"access_token": "ya29.x", "expires_in": 3599, "scope": "s", "token_type": "Bearer"});
    let endpoint = TokenEndpoint::json("200 OK", &answer);
    let grant = oauth(&endpoint).obtain_token(&account(false)).await.unwrap();
    assert_eq!(
        (&**grant.token.expose(), grant.expires_in, grant.secret.is_none()),
        ("ya29.x", Duration::from_secs(3599), true)
    );
    let asked = endpoint.asked();
    for part in ["POST /token ", "grant_type=refresh_token", "refresh_token=1%2F%2Frefresh", "client_secret=hunter2"] {
        assert!(asked.contains(part), "{asked}");
    }

    let grant = oauth(&TokenEndpoint::json("200 OK", &rotated_response("1//other")))
        .obtain_token(&account(false))
        .await
        .unwrap();
    assert_eq!(grant.expires_in, Duration::from_secs(60));
    assert_eq!(grant.secret.unwrap().expose(), "1//other");
    let same = oauth(&TokenEndpoint::json("200 OK", &rotated_response("1//refresh")))
        .obtain_token(&account(false))
        .await
        .unwrap();
    assert!(same.secret.is_none(), "that is no news");
}

#[tokio::test]
async fn only_an_ended_consent_is_unauthorized() {
    for code in ["invalid_grant", "admin_policy_enforced"] {
        let e = refused(&TokenEndpoint::json("400 Bad Request", &error(code)), false).await;
        assert!(matches!(&e, ConnectorError::Unauthorized(why) if why.contains(code)), "{code}: {e:?}");
    }
    for (status, code) in [
        ("401 Unauthorized", "invalid_client"),
        ("401 Unauthorized", "deleted_client"),
        ("400 Bad Request", "unauthorized_client"),
        ("403 Forbidden", "disabled_client"),
    ] {
        let e = refused(&TokenEndpoint::json(status, &error(code)), false).await;
        assert!(matches!(e, ConnectorError::AppRejected(_)), "{code}: {e:?}");
    }
    let mut passing = vec![
        TokenEndpoint::json("400 Bad Request", &error("something_new")),
        TokenEndpoint::json("500 Internal Server Error", &error("invalid_grant")),
        TokenEndpoint::json("503 Service Unavailable", &json!({})),
        TokenEndpoint::with("400 Bad Request", "", "<html>invalid_grant</html>"),
        TokenEndpoint::json("401 Unauthorized", &json!({"error": {"code": 401}})),
        TokenEndpoint::with("200 OK", "", "hello"),
        TokenEndpoint::json("200 OK", &json!({"access_token": ""})),
        TokenEndpoint::json("200 OK", &json!({"expires_in": 5})),
        TokenEndpoint::with("302 Found", "Location: http://127.0.0.1:1/\r\n", ""),
        TokenEndpoint::responding("HTTP/1.1 400 Bad Request\r\nContent-Length: 500\r\n\r\n{\"error\":"),
        TokenEndpoint::responding(""),
    ];
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    passing.push(TokenEndpoint { url: format!("http://{nobody}"), asked: Arc::default() });
    for (number, endpoint) in passing.iter().enumerate() {
        let e = refused(endpoint, false).await;
        assert!(matches!(e, ConnectorError::Unavailable(_)), "{number}: {e:?}");
    }
    let e = refused(&TokenEndpoint::with("429 Too Many Requests", "Retry-After: 17\r\n", "{}"), false).await;
    assert_eq!(e, ConnectorError::Throttled { retry_after: Some(Duration::from_secs(17)) });
}

#[tokio::test]
async fn rejected_service_account_names_who_can_fix_it() {
    for code in ["unauthorized_client", "access_denied", "invalid_scope"] {
        let e = refused(&TokenEndpoint::json("401 Unauthorized", &error(code)), true).await;
        assert!(matches!(&e, ConnectorError::Unauthorized(why) if why.contains("administrator")), "{code}: {e:?}");
    }
    let e = refused(&TokenEndpoint::json("400 Bad Request", &error("invalid_grant")), true).await;
    assert!(matches!(&e, ConnectorError::Unauthorized(why) if why.contains("suspended")), "{e:?}");
    let e = refused(&TokenEndpoint::json("401 Unauthorized", &error("invalid_client")), true).await;
    assert!(matches!(e, ConnectorError::AppRejected(_)), "{e:?}");
    let long_ago = "Date: Sun, 01 Feb 2015 12:00:00 GMT\r\n";
    let e = refused(&TokenEndpoint::with("400 Bad Request", long_ago, &error("invalid_grant").to_string()), true).await;
    assert!(matches!(&e, ConnectorError::AppRejected(why) if why.contains("clock")), "{e:?}");
}

#[tokio::test]
async fn missing_credentials_make_no_calls() {
    let nobody = GoogleOAuth::new(HttpClient::new(HttpTimeouts::default()).unwrap(), GoogleSettings::default());
    for app_only in [false, true] {
        let e = nobody.obtain_token(&account(app_only)).await.unwrap_err();
        assert!(matches!(&e, ConnectorError::AppRejected(why) if why.contains("not set")), "{e:?}");
    }
    let damaged = GoogleSettings { service_account: Some(Secret::new("{}".to_owned())), ..GoogleSettings::default() };
    let damaged = GoogleOAuth::new(HttpClient::new(HttpTimeouts::default()).unwrap(), damaged);
    let e = damaged.obtain_token(&account(true)).await.unwrap_err();
    assert!(matches!(&e, ConnectorError::AppRejected(why) if why.contains("service_account")), "{e:?}");
    let without = ConnectorAccount { secret: None, ..account(false) };
    let e = oauth(&TokenEndpoint::json("200 OK", &json!({}))).obtain_token(&without).await.unwrap_err();
    assert!(matches!(e, ConnectorError::Unauthorized(_)), "{e:?}");
}

#[tokio::test]
async fn unknown_token_counts_as_revoked() {
    let revoke = async |status: &str| {
        let endpoint = TokenEndpoint::json(status, &error("invalid_token"));
        let outcome = oauth(&endpoint).revoke(&Secret::new("1//refresh".to_owned())).await;
        assert!(endpoint.asked().contains("POST /revoke ") && endpoint.asked().contains("token=1%2F%2Frefresh"));
        outcome
    };
    assert_eq!(revoke("200 OK").await, Ok(()));
    assert_eq!(revoke("400 Bad Request").await, Ok(()));
    assert!(matches!(revoke("503 Service Unavailable").await, Err(ConnectorError::Unavailable(_))));
    assert!(matches!(revoke("429 Too Many Requests").await, Err(ConnectorError::Throttled { .. })));
}

#[tokio::test]
async fn only_a_verified_address_of_ours_counts() {
    let exchanged = async |claims: Value, scope: Option<&str>| {
        let id_token = id_token(&claims);
        // The same answer serves as the profile.
        let answer = json!({"access_token": "a", "refresh_token": "r", "id_token": id_token, "scope": scope,
            "emailAddress": "profile@gmail.test"});
        let endpoint = TokenEndpoint::json("200 OK", &answer);
        let (code, verifier) = (Secret::new("code".to_owned()), Secret::new("v".repeat(43)));
        oauth(&endpoint).exchange(&code, &verifier, "http://here/callback").await.unwrap()
    };
    let all = Some("openid email https://www.googleapis.com/auth/gmail.readonly");
    let good = json!({"aud": CLIENT_ID, "email": "ann@gmail.test", "email_verified": true});
    let consented = exchanged(good.clone(), all).await;
    assert_eq!((consented.address.as_deref(), consented.missing.len()), (Some("ann@gmail.test"), 0));
    assert_eq!(exchanged(good.clone(), None).await.missing.len(), 0, "as asked");
    for (claim, value) in [("aud", json!("another")), ("email_verified", json!(false)), ("email", Value::Null)] {
        let mut claims = good.clone();
        claims[claim] = value;
        let consented = exchanged(claims.clone(), all).await;
        assert_eq!(consented.address.as_deref(), Some("profile@gmail.test"), "{claim}: the mailbox itself is asked");
        assert_eq!(exchanged(claims, Some("openid email")).await.address, None);
    }
    let unticked = exchanged(good, Some("openid email")).await;
    assert_eq!(unticked.missing, ["to read your email"]);
}

#[test]
fn consent_url_requests_only_needed_scopes() {
    let endpoint = TokenEndpoint { url: "https://accounts.example".to_owned(), asked: Arc::default() };
    let question = AuthorizationRequest {
        redirect_uri: "https://m.test/v1/cb?x=1",
        state: "a b&c",
        challenge: "h",
        address: Some("a+b@c.test"),
    };
    let url = oauth(&endpoint).authorization_url(&question);

    assert!(url.starts_with("https://accounts.example/auth?"), "{url}");
    for part in [
        "redirect_uri=https%3A%2F%2Fm.test%2Fv1%2Fcb%3Fx%3D1",
        "state=a+b%26c",
        "scope=openid+email+https%3A%2F%2Fwww.googleapis.com%2Fauth%2Fgmail.readonly&",
        "login_hint=a%2Bb%40c.test",
    ] {
        assert!(url.contains(part), "{part} in {url}");
    }
    assert!(!url.contains("hunter2"));
}
