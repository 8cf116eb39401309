//! What Microsoft's token endpoint says, and what it means to the engine: never more than it should.

use std::sync::Arc;
use std::time::Duration;

use domain::connector::ConnectorAccount;
use domain::{AuthorizationRequest, Clock, ConnectorError, ConsentFlow, Secret, SystemClock};
use providers::http::{HttpClient, HttpTimeouts};
use providers::outlook::{MicrosoftOAuth, MicrosoftSettings};
use serde_json::{Value, json};
use sim::microsoft::{
    AccountSpec, CLIENT_ID, CLIENT_SECRET, DirectoryChange, MicrosoftClient, MicrosoftServer, MicrosoftWorld,
    certificate_key_pem, certificate_pem,
};

use crate::endpoint::{self, TokenEndpoint, assert_private, id_token};

const ANN: &str = "ann@acme.test";

fn oauth(url: &str, more: MicrosoftSettings) -> MicrosoftOAuth {
    let settings = MicrosoftSettings {
        authority_url: url.to_owned(),
        graph_url: url.to_owned(),
        client_id: Some(CLIENT_ID.to_owned()),
        ..more
    };
    let deadlines = HttpTimeouts { read: Duration::from_secs(5), ..HttpTimeouts::default() };
    MicrosoftOAuth::new(HttpClient::new(deadlines).unwrap(), settings)
}

fn by_secret(secret: &str) -> MicrosoftSettings {
    MicrosoftSettings { client_secret: Some(Secret::new(secret.to_owned())), ..MicrosoftSettings::default() }
}

fn by_certificate(pem: String) -> MicrosoftSettings {
    MicrosoftSettings { certificate: Some(Secret::new(pem)), ..MicrosoftSettings::default() }
}

fn owners(refresh_token: &str) -> ConnectorAccount {
    ConnectorAccount { secret: Some(Secret::new(refresh_token.to_owned())), ..endpoint::account(ANN, &json!({})) }
}

fn app_only(address: &str, directory: Option<&str>) -> ConnectorAccount {
    endpoint::account(address, &json!({"app_only": true, "directory": directory}))
}

/// A simulated Microsoft with Ann in a directory and Zoe, who is in none.
async fn microsoft() -> (Arc<MicrosoftWorld>, MicrosoftServer) {
    let world = Arc::new(MicrosoftWorld::new(7, 20, Arc::new(|| SystemClock.now())));
    for address in [ANN, "zoe@outlook.com"] {
        assert!(world.create(&AccountSpec { address: address.into(), messages: 0, seed: None }));
    }
    let server = MicrosoftServer::start_here(world.clone()).await.unwrap();
    (world, server)
}

fn admit(world: &MicrosoftWorld, is_admitted: bool) {
    world.change_directory("acme.test", &DirectoryChange { admin_consent: Some(is_admitted), ..Default::default() });
}

#[tokio::test]
async fn refresh_token_rotates_with_each_grant() {
    let (world, server) = microsoft().await;
    let oauth = oauth(&server.url(), by_secret(CLIENT_SECRET));
    let mut token = world.grant(ANN).unwrap().refresh_token.unwrap();

    for _ in 0..3 {
        let grant = oauth.obtain_token(&owners(&token)).await.unwrap();
        let next = grant.secret.unwrap().expose().clone();
        assert!(!grant.token.expose().is_empty() && grant.expires_in > Duration::from_secs(1000));
        assert_ne!(next, token);
        token = next;
    }
    let personal = world.grant("zoe@outlook.com").unwrap().refresh_token.unwrap();
    assert!(oauth.obtain_token(&owners(&personal)).await.unwrap().secret.is_some(), "at the same place");
    assert_eq!(world.token_counts()[ANN].refreshed, 3);
    assert_eq!(world.violations(), []);
}

#[tokio::test]
async fn certificate_replaces_a_secret() {
    let (world, server) = microsoft().await;
    admit(&world, true);
    let pem = format!("{}{}", certificate_pem(), certificate_key_pem());
    let oauth = oauth(&server.url(), by_certificate(pem));
    let token = world.grant(ANN).unwrap().refresh_token.unwrap();

    assert!(oauth.obtain_token(&owners(&token)).await.unwrap().secret.is_some());
    for _ in 0..2 {
        let grant = oauth.obtain_token(&app_only(ANN, None)).await.unwrap();
        assert!(grant.secret.is_none(), "there is nothing that lasts: it is asked for again");
    }
    assert_eq!(world.violations(), []);
}

#[tokio::test]
async fn app_only_directory_is_named_or_of_the_address() {
    let (world, server) = microsoft().await;
    let oauth = oauth(&server.url(), by_secret(CLIENT_SECRET));
    let id = world.directory("acme.test").unwrap().id;
    let unauthorized = async |account: &ConnectorAccount, why: &str| {
        let e = oauth.obtain_token(account).await.unwrap_err();
        assert_private(&e);
        assert!(matches!(&e, ConnectorError::Unauthorized(said) if said.contains(why)), "{e:?}");
    };

    unauthorized(&app_only(ANN, None), "mailbox authorize outlook").await;
    admit(&world, true);
    oauth.obtain_token(&app_only(ANN, None)).await.unwrap();
    oauth.obtain_token(&app_only("ann@elsewhere.test", Some(&id))).await.unwrap();
    oauth.obtain_token(&app_only("ann@elsewhere.test", Some("acme.test"))).await.unwrap();
    // What goes wrong in one directory is told of its mailboxes only.
    unauthorized(&app_only("ann@nowhere.test", None), "--directory").await;
    unauthorized(&app_only(ANN, Some("common")), "--directory").await;
    unauthorized(&app_only(ANN, Some("acme.test/../x")), "--directory").await;
    admit(&world, false);
    unauthorized(&app_only(ANN, None), "mailbox authorize outlook").await;
}

#[tokio::test]
async fn app_errors_concern_the_operator() {
    let (world, server) = microsoft().await;
    admit(&world, true);
    let token = world.grant(ANN).unwrap().refresh_token.unwrap();
    let operator = async |settings: MicrosoftSettings, why: &str| {
        for account in [owners(&token), app_only(ANN, None)] {
            let e = oauth(&server.url(), settings.clone()).obtain_token(&account).await.unwrap_err();
            assert_private(&e);
            assert!(matches!(&e, ConnectorError::AppRejected(said) if said.contains(why)), "{why}: {e:?}");
        }
    };

    operator(by_secret("hunter2"), "AADSTS7000215").await;
    operator(MicrosoftSettings::default(), "client_secret_file or certificate_file is not set").await;
    operator(by_certificate("hunter2".to_owned()), "certificate_file has no certificate").await;
    world.register_client(MicrosoftClient { secret_expired: true, ..MicrosoftClient::for_tests() });
    operator(by_secret(CLIENT_SECRET), "has expired").await;
    world.register_client(MicrosoftClient { certificate: None, ..MicrosoftClient::for_tests() });
    let pem = format!("{}{}", certificate_pem(), certificate_key_pem());
    operator(by_certificate(pem), "certificate").await;
    let nobody = MicrosoftOAuth::new(HttpClient::new(HttpTimeouts::default()).unwrap(), MicrosoftSettings::default());
    let e = nobody.obtain_token(&owners(&token)).await.unwrap_err();
    assert!(matches!(&e, ConnectorError::AppRejected(said) if said.contains("client_id is not set")), "{e:?}");
    assert_eq!(world.token_counts().get(ANN).map_or(0, |counts| counts.refreshed), 0);
}

#[tokio::test]
async fn ended_consent_is_unauthorized() {
    let (world, server) = microsoft().await;
    let oauth = oauth(&server.url(), by_secret(CLIENT_SECRET));
    let token = world.grant(ANN).unwrap().refresh_token.unwrap();

    world.revoke_tokens(ANN);
    for account in [owners(&token), owners("made-up"), ConnectorAccount { secret: None, ..owners("") }] {
        let e = oauth.obtain_token(&account).await.unwrap_err();
        assert_private(&e);
        assert!(matches!(&e, ConnectorError::Unauthorized(said) if said.contains("connect it again")), "{e:?}");
    }
}

/// Who is concerned by a refusal.
#[derive(Debug, PartialEq)]
enum RefusalScope {
    Mailbox,
    Operator,
    Nobody,
    RequestItself,
}

fn scope_of(e: &ConnectorError) -> RefusalScope {
    match e {
        ConnectorError::Unauthorized(_) => RefusalScope::Mailbox,
        ConnectorError::AppRejected(_) => RefusalScope::Operator,
        ConnectorError::Throttled { .. } | ConnectorError::Unavailable(_) => RefusalScope::Nobody,
        ConnectorError::Protocol(_) => RefusalScope::RequestItself,
        other => panic!("{other:?}"),
    }
}

/// As Microsoft writes it.
fn error(code: &str, number: u64) -> Value {
    json!({"error": code, "error_codes": [number], "trace_id": "t", "correlation_id": "c", "timestamp": "2026-02-01 12:00:00Z",
        "error_description": format!("AADSTS{number}: secret detail of {ANN}. Trace ID: t")})
}

async fn refused(endpoint: &TokenEndpoint, account: &ConnectorAccount) -> ConnectorError {
    let e = oauth(&endpoint.url, by_secret("hunter2")).obtain_token(account).await.unwrap_err();
    assert_private(&e);
    e
}

#[tokio::test]
async fn each_token_error_has_its_scope_and_number() {
    use RefusalScope::{Mailbox, Nobody, Operator, RequestItself};
    let codes: &[(&str, &[u64], RefusalScope, RefusalScope)] = &[
        ("invalid_grant", &[70_008, 700_082, 700_084, 50_173, 70_043, 70_000, 65_001, 54_005, 1], Mailbox, Mailbox),
        ("invalid_grant", &[50_057, 50_034, 50_105, 50_055, 50_144], Mailbox, Mailbox),
        ("interaction_required", &[50_072, 50_074, 50_076, 50_078, 50_079, 50_158, 16_000], Mailbox, Mailbox),
        ("interaction_required", &[53_000, 53_001, 53_002, 53_003, 53_004, 530_032], Mailbox, Mailbox),
        ("login_required", &[50_058], Mailbox, Mailbox),
        ("consent_required", &[65_001], Mailbox, Mailbox),
        ("unauthorized_client", &[700_016, 1], Mailbox, Mailbox),
        ("access_denied", &[90_094, 65_004], Mailbox, Mailbox),
        ("invalid_client", &[650_052, 7_000_229], Mailbox, Mailbox),
        ("invalid_client", &[7_000_215, 7_000_222, 700_027, 1], Operator, Operator),
        ("invalid_request", &[90_002, 900_023], Mailbox, Mailbox),
        ("invalid_request", &[900_144, 1], RequestItself, RequestItself),
        ("invalid_scope", &[70_011], RequestItself, RequestItself),
        ("invalid_resource", &[500_011], RequestItself, RequestItself),
        ("temporarily_unavailable", &[1], Nobody, Nobody),
        ("server_error", &[50_033, 50_087], Nobody, Nobody),
        ("invalid_grant", &[50_033, 50_087, 90_006, 90_024, 90_033, 90_055, 50_196], Nobody, Nobody),
        ("invalid_request", &[90_055, 50_196], Nobody, Nobody),
        ("something_new", &[1], Nobody, Nobody),
    ];
    for (code, numbers, of_owner, of_app) in codes {
        for number in *numbers {
            for (account, wanted) in [(owners("1//refresh"), of_owner), (app_only(ANN, None), of_app)] {
                let e = refused(&TokenEndpoint::json("400 Bad Request", &error(code, *number)), &account).await;
                assert_eq!(scope_of(&e), *wanted, "{code} {number}: {e:?}");
                if [Mailbox, Operator, RequestItself].contains(wanted) {
                    assert!(e.to_string().contains(&format!("AADSTS{number}")), "{e}");
                }
            }
        }
    }
}

#[tokio::test]
async fn unknown_authority_concerns_the_operator() {
    for (authority, wanted) in [
        ("common", RefusalScope::Mailbox),
        ("organizations", RefusalScope::Mailbox),
        ("acme.test", RefusalScope::Operator),
        ("9188040d-6c67-4c5b-b112-36a304b66dad", RefusalScope::Operator),
    ] {
        let endpoint = TokenEndpoint::json("400 Bad Request", &error("invalid_request", 90_002));
        let settings = MicrosoftSettings { authority: authority.to_owned(), ..by_secret("hunter2") };
        let e = oauth(&endpoint.url, settings).obtain_token(&owners("1//refresh")).await.unwrap_err();
        assert_eq!(scope_of(&e), wanted, "{authority}: {e}");
    }
}

#[tokio::test]
async fn detected_loop_is_throttled_for_minutes() {
    let told = error("invalid_request", 50_196);
    let five_minutes = ConnectorError::Throttled { retry_after: Some(Duration::from_secs(300)) };
    for status in ["400 Bad Request", "429 Too Many Requests"] {
        let endpoint = TokenEndpoint::with(status, "Retry-After: 3\r\n", &told.to_string());
        assert_eq!(refused(&endpoint, &owners("1//refresh")).await, five_minutes, "{status}");
    }
    let longer = TokenEndpoint::with("400 Bad Request", "Retry-After: 900\r\n", &told.to_string());
    let e = refused(&longer, &owners("1//refresh")).await;
    assert_eq!(e, ConnectorError::Throttled { retry_after: Some(Duration::from_secs(900)) });
}

#[tokio::test]
async fn malformed_token_response_is_unavailable() {
    for endpoint in [
        TokenEndpoint::json("503 Service Unavailable", &error("invalid_grant", 70_008)),
        TokenEndpoint::json("400 Bad Request", &json!({"error": {"code": "x"}})),
        TokenEndpoint::json("400 Bad Request", &json!([])),
        TokenEndpoint::with("200 OK", "", "<html>"),
        TokenEndpoint::json("200 OK", &json!({"access_token": ""})),
        TokenEndpoint::with("302 Found", "Location: http://127.0.0.1:1/\r\n", ""),
        TokenEndpoint::responding(""),
    ] {
        let e = refused(&endpoint, &owners("1//refresh")).await;
        assert!(matches!(e, ConnectorError::Unavailable(_)), "{e:?}");
    }
    let busy = TokenEndpoint::with("429 Too Many Requests", "Retry-After: 17\r\n", "{}");
    let e = refused(&busy, &owners("1//refresh")).await;
    assert_eq!(e, ConnectorError::Throttled { retry_after: Some(Duration::from_secs(17)) });
}

#[tokio::test]
async fn wrong_clock_is_not_a_wrong_certificate() {
    let pem = format!("{}{}", certificate_pem(), certificate_key_pem());
    let said = error("invalid_client", 700_024).to_string();
    for (headers, why) in [("", "certificate_file"), ("Date: Sun, 01 Feb 2015 12:00:00 GMT\r\n", "clock")] {
        let endpoint = TokenEndpoint::with("401 Unauthorized", headers, &said);
        let e = oauth(&endpoint.url, by_certificate(pem.clone())).obtain_token(&app_only(ANN, None)).await.unwrap_err();
        assert!(matches!(&e, ConnectorError::AppRejected(said) if said.contains(why)), "{e:?}");
    }
}

#[tokio::test]
async fn consent_returns_owner_and_missing_scopes() {
    let exchanged = async |claims: Value, scope: Option<&str>| {
        let answer = json!({"access_token": "a", "refresh_token": "r", "id_token": id_token(&claims), "scope": scope});
        let endpoint = TokenEndpoint::json("200 OK", &answer);
        let (code, verifier) = (Secret::new("code".to_owned()), Secret::new("v".repeat(43)));
        let oauth = oauth(&endpoint.url, by_secret("hunter2"));
        let consented = oauth.exchange(&code, &verifier, "http://here/callback").await.unwrap();
        let asked = endpoint.asked();
        for part in ["POST /common/oauth2/v2.0/token ", "grant_type=authorization_code", "code_verifier=vvv"] {
            assert!(asked.contains(part), "{asked}");
        }
        consented
    };
    let good = json!({"aud": CLIENT_ID, "tid": "t", "email": ANN, "preferred_username": ANN});
    let all = Some("openid email https://graph.microsoft.com/Mail.Read");

    let consented = exchanged(good.clone(), all).await;
    assert_eq!((consented.address.as_deref(), consented.missing.len()), (Some(ANN), 0));
    assert_eq!(consented.secret.unwrap().expose(), "r");
    assert_eq!(exchanged(good.clone(), Some("openid email")).await.missing, ["to read your email"]);
    let others = json!({"aud": "another", "tid": "t", "email": ANN, "preferred_username": ANN});
    assert_eq!(exchanged(others, all).await.address, None, "it was said to somebody else");
    let made_up = json!({"aud": CLIENT_ID, "tid": "t", "email": ANN, "preferred_username": "eve@evil.test"});
    assert_eq!(exchanged(made_up, all).await.address.as_deref(), Some("eve@evil.test"));
}

#[test]
fn consent_url_requests_only_needed_scopes() {
    let settings = MicrosoftSettings { authority: "organizations".to_owned(), ..by_secret("hunter2") };
    let oauth = oauth("https://login.example", settings);
    let question = AuthorizationRequest {
        redirect_uri: "https://m.test/cb?x=1",
        state: "a b&c",
        challenge: "h",
        address: Some("a+b@c.test"),
    };
    let url = oauth.authorization_url(&question);

    assert!(url.starts_with("https://login.example/organizations/oauth2/v2.0/authorize?"), "{url}");
    for part in [
        "redirect_uri=https%3A%2F%2Fm.test%2Fcb%3Fx%3D1",
        "state=a+b%26c",
        "scope=offline_access+openid+email+https%3A%2F%2Fgraph.microsoft.com%2FUser.Read+https%3A%2F%2Fgraph.microsoft.com%2FMail.Read&",
        "prompt=select_account",
        "response_mode=query",
        "code_challenge_method=S256",
        "login_hint=a%2Bb%40c.test",
    ] {
        assert!(url.contains(part), "{part} in {url}");
    }
    assert!(!url.contains("hunter2"));
    let url = oauth.admin_consent_url("acme.test", "https://m.test/cb", "s").unwrap();
    assert!(url.starts_with("https://login.example/acme.test/adminconsent?client_id="), "{url}");
}
