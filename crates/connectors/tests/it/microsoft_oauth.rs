//! What Microsoft's token endpoint says, and what it means to the engine: never more than it should.

use std::sync::Arc;
use std::time::Duration;

use connectors::http::{Deadlines, Http};
use connectors::microsoft::{MicrosoftOAuth, MicrosoftSettings};
use domain::connector::Account;
use domain::{Clock, ConnectorError, Consent, Question, Secret, SystemClock};
use serde_json::{Value, json};
use sim::microsoft::{
    CLIENT_ID, CLIENT_SECRET, Client, DirectoryChange, NewAccount, Server, World, certificate_key_pem, certificate_pem,
};

use crate::endpoint::{self, Endpoint, id_token, tells_nothing_private};

const ANN: &str = "ann@acme.test";

fn oauth(url: &str, more: MicrosoftSettings) -> MicrosoftOAuth {
    let settings = MicrosoftSettings {
        authority_url: url.to_owned(),
        graph_url: url.to_owned(),
        client_id: Some(CLIENT_ID.to_owned()),
        ..more
    };
    let deadlines = Deadlines { silence: Duration::from_secs(5), ..Deadlines::default() };
    MicrosoftOAuth::new(Http::new(deadlines).unwrap(), settings)
}

fn by_secret(secret: &str) -> MicrosoftSettings {
    MicrosoftSettings { client_secret: Some(Secret::new(secret.to_owned())), ..MicrosoftSettings::default() }
}

fn by_certificate(pem: String) -> MicrosoftSettings {
    MicrosoftSettings { certificate: Some(Secret::new(pem)), ..MicrosoftSettings::default() }
}

fn owners(refresh_token: &str) -> Account {
    Account { secret: Some(Secret::new(refresh_token.to_owned())), ..endpoint::account(ANN, &json!({})) }
}

fn app_only(address: &str, directory: Option<&str>) -> Account {
    endpoint::account(address, &json!({"app_only": true, "directory": directory}))
}

/// A simulated Microsoft with Ann in a directory and Zoe, who is in none.
async fn microsoft() -> (Arc<World>, Server) {
    let world = Arc::new(World::new(7, 20, Arc::new(|| SystemClock.now())));
    for address in [ANN, "zoe@outlook.com"] {
        assert!(world.create(&NewAccount { address: address.into(), messages: 0, seed: None }));
    }
    let server = Server::start_here(world.clone()).await.unwrap();
    (world, server)
}

fn admit(world: &World, is_admitted: bool) {
    world.change_directory("acme.test", &DirectoryChange { admin_consent: Some(is_admitted), ..Default::default() });
}

#[tokio::test]
async fn a_refresh_token_gives_a_token_and_another_in_its_place_each_time() {
    let (world, server) = microsoft().await;
    let oauth = oauth(&server.url(), by_secret(CLIENT_SECRET));
    let mut token = world.grant(ANN).unwrap().refresh_token.unwrap();

    for _ in 0..3 {
        let grant = oauth.grant(&owners(&token)).await.unwrap();
        let next = grant.secret.unwrap().expose().clone();
        assert!(!grant.token.expose().is_empty() && grant.expires_in > Duration::from_secs(1000));
        assert_ne!(next, token);
        token = next;
    }
    let personal = world.grant("zoe@outlook.com").unwrap().refresh_token.unwrap();
    assert!(oauth.grant(&owners(&personal)).await.unwrap().secret.is_some(), "at the same place");
    assert_eq!(world.token_counts()[ANN].refreshed, 3);
    assert_eq!(world.violations(), []);
}

#[tokio::test]
async fn a_certificate_does_what_a_secret_does() {
    let (world, server) = microsoft().await;
    admit(&world, true);
    let pem = format!("{}{}", certificate_pem(), certificate_key_pem());
    let oauth = oauth(&server.url(), by_certificate(pem));
    let token = world.grant(ANN).unwrap().refresh_token.unwrap();

    assert!(oauth.grant(&owners(&token)).await.unwrap().secret.is_some());
    for _ in 0..2 {
        let grant = oauth.grant(&app_only(ANN, None)).await.unwrap();
        assert!(grant.secret.is_none(), "there is nothing that lasts: it is asked for again");
    }
    assert_eq!(world.violations(), []);
}

#[tokio::test]
async fn the_app_asks_for_itself_in_the_directory_that_is_named_or_that_of_the_address() {
    let (world, server) = microsoft().await;
    let oauth = oauth(&server.url(), by_secret(CLIENT_SECRET));
    let id = world.directory("acme.test").unwrap().id;
    let unauthorized = async |account: &Account, why: &str| {
        let e = oauth.grant(account).await.unwrap_err();
        tells_nothing_private(&e);
        assert!(matches!(&e, ConnectorError::Unauthorized(said) if said.contains(why)), "{e:?}");
    };

    unauthorized(&app_only(ANN, None), "mailbox authorize outlook").await;
    admit(&world, true);
    oauth.grant(&app_only(ANN, None)).await.unwrap();
    oauth.grant(&app_only("ann@elsewhere.test", Some(&id))).await.unwrap();
    oauth.grant(&app_only("ann@elsewhere.test", Some("acme.test"))).await.unwrap();
    // What goes wrong in one directory is told of its mailboxes only.
    unauthorized(&app_only("ann@nowhere.test", None), "--directory").await;
    unauthorized(&app_only(ANN, Some("common")), "--directory").await;
    unauthorized(&app_only(ANN, Some("acme.test/../x")), "--directory").await;
    admit(&world, false);
    unauthorized(&app_only(ANN, None), "mailbox authorize outlook").await;
}

#[tokio::test]
async fn what_is_wrong_with_the_app_is_the_operators() {
    let (world, server) = microsoft().await;
    admit(&world, true);
    let token = world.grant(ANN).unwrap().refresh_token.unwrap();
    let operator = async |settings: MicrosoftSettings, why: &str| {
        for account in [owners(&token), app_only(ANN, None)] {
            let e = oauth(&server.url(), settings.clone()).grant(&account).await.unwrap_err();
            tells_nothing_private(&e);
            assert!(matches!(&e, ConnectorError::Operator(said) if said.contains(why)), "{why}: {e:?}");
        }
    };

    operator(by_secret("hunter2"), "AADSTS7000215").await;
    operator(MicrosoftSettings::default(), "client_secret_file or certificate_file is not set").await;
    operator(by_certificate("hunter2".to_owned()), "certificate_file has no certificate").await;
    world.register_client(Client { secret_expired: true, ..Client::for_tests() });
    operator(by_secret(CLIENT_SECRET), "has expired").await;
    world.register_client(Client { certificate: None, ..Client::for_tests() });
    let pem = format!("{}{}", certificate_pem(), certificate_key_pem());
    operator(by_certificate(pem), "certificate").await;
    let nobody = MicrosoftOAuth::new(Http::new(Deadlines::default()).unwrap(), MicrosoftSettings::default());
    let e = nobody.grant(&owners(&token)).await.unwrap_err();
    assert!(matches!(&e, ConnectorError::Operator(said) if said.contains("client_id is not set")), "{e:?}");
    assert_eq!(world.token_counts().get(ANN).map_or(0, |counts| counts.refreshed), 0);
}

#[tokio::test]
async fn a_consent_that_has_ended_asks_its_owner() {
    let (world, server) = microsoft().await;
    let oauth = oauth(&server.url(), by_secret(CLIENT_SECRET));
    let token = world.grant(ANN).unwrap().refresh_token.unwrap();

    world.revoke_tokens(ANN);
    for account in [owners(&token), owners("made-up"), Account { secret: None, ..owners("") }] {
        let e = oauth.grant(&account).await.unwrap_err();
        tells_nothing_private(&e);
        assert!(matches!(&e, ConnectorError::Unauthorized(said) if said.contains("connect it again")), "{e:?}");
    }
}

/// Who is concerned by a refusal.
#[derive(Debug, PartialEq)]
enum Concerned {
    Mailbox,
    Operator,
    Nobody,
    Call,
}

fn concerned(e: &ConnectorError) -> Concerned {
    match e {
        ConnectorError::Unauthorized(_) => Concerned::Mailbox,
        ConnectorError::Operator(_) => Concerned::Operator,
        ConnectorError::Throttled { .. } | ConnectorError::Unavailable(_) => Concerned::Nobody,
        ConnectorError::Protocol(_) => Concerned::Call,
        other => panic!("{other:?}"),
    }
}

/// As Microsoft writes it.
fn error(code: &str, number: u64) -> Value {
    json!({"error": code, "error_codes": [number], "trace_id": "t", "correlation_id": "c", "timestamp": "2026-02-01 12:00:00Z",
        "error_description": format!("AADSTS{number}: secret detail of {ANN}. Trace ID: t")})
}

async fn refused(endpoint: &Endpoint, account: &Account) -> ConnectorError {
    let e = oauth(&endpoint.url, by_secret("hunter2")).grant(account).await.unwrap_err();
    tells_nothing_private(&e);
    e
}

#[tokio::test]
async fn each_refusal_concerns_whom_it_should_and_says_its_number() {
    use Concerned::{Call, Mailbox, Nobody, Operator};
    let codes: &[(&str, &[u64], Concerned, Concerned)] = &[
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
        ("invalid_request", &[900_144, 1], Call, Call),
        ("invalid_scope", &[70_011], Call, Call),
        ("invalid_resource", &[500_011], Call, Call),
        ("temporarily_unavailable", &[1], Nobody, Nobody),
        ("server_error", &[50_033, 50_087], Nobody, Nobody),
        ("invalid_grant", &[50_033, 50_087, 90_006, 90_024, 90_033, 90_055, 50_196], Nobody, Nobody),
        ("invalid_request", &[90_055, 50_196], Nobody, Nobody),
        ("something_new", &[1], Nobody, Nobody),
    ];
    for (code, numbers, of_owner, of_app) in codes {
        for number in *numbers {
            for (account, wanted) in [(owners("1//refresh"), of_owner), (app_only(ANN, None), of_app)] {
                let e = refused(&Endpoint::json("400 Bad Request", &error(code, *number)), &account).await;
                assert_eq!(concerned(&e), *wanted, "{code} {number}: {e:?}");
                if [Mailbox, Operator, Call].contains(wanted) {
                    assert!(e.to_string().contains(&format!("AADSTS{number}")), "{e}");
                }
            }
        }
    }
}

#[tokio::test]
async fn a_directory_that_is_not_there_is_the_operators_only_where_they_named_it() {
    for (authority, wanted) in [
        ("common", Concerned::Mailbox),
        ("organizations", Concerned::Mailbox),
        ("acme.test", Concerned::Operator),
        ("9188040d-6c67-4c5b-b112-36a304b66dad", Concerned::Operator),
    ] {
        let endpoint = Endpoint::json("400 Bad Request", &error("invalid_request", 90_002));
        let settings = MicrosoftSettings { authority: authority.to_owned(), ..by_secret("hunter2") };
        let e = oauth(&endpoint.url, settings).grant(&owners("1//refresh")).await.unwrap_err();
        assert_eq!(concerned(&e), wanted, "{authority}: {e}");
    }
}

#[tokio::test]
async fn whoever_is_told_of_a_loop_leaves_it_alone_for_minutes() {
    let told = error("invalid_request", 50_196);
    let five_minutes = ConnectorError::Throttled { retry_after: Some(Duration::from_secs(300)) };
    for status in ["400 Bad Request", "429 Too Many Requests"] {
        let endpoint = Endpoint::with(status, "Retry-After: 3\r\n", &told.to_string());
        assert_eq!(refused(&endpoint, &owners("1//refresh")).await, five_minutes, "{status}");
    }
    let longer = Endpoint::with("400 Bad Request", "Retry-After: 900\r\n", &told.to_string());
    let e = refused(&longer, &owners("1//refresh")).await;
    assert_eq!(e, ConnectorError::Throttled { retry_after: Some(Duration::from_secs(900)) });
}

#[tokio::test]
async fn what_makes_no_sense_passes_and_a_wait_is_as_long_as_it_says() {
    for endpoint in [
        Endpoint::json("503 Service Unavailable", &error("invalid_grant", 70_008)),
        Endpoint::json("400 Bad Request", &json!({"error": {"code": "x"}})),
        Endpoint::json("400 Bad Request", &json!([])),
        Endpoint::with("200 OK", "", "<html>"),
        Endpoint::json("200 OK", &json!({"access_token": ""})),
        Endpoint::with("302 Found", "Location: http://127.0.0.1:1/\r\n", ""),
        Endpoint::saying(""),
    ] {
        let e = refused(&endpoint, &owners("1//refresh")).await;
        assert!(matches!(e, ConnectorError::Unavailable(_)), "{e:?}");
    }
    let busy = Endpoint::with("429 Too Many Requests", "Retry-After: 17\r\n", "{}");
    let e = refused(&busy, &owners("1//refresh")).await;
    assert_eq!(e, ConnectorError::Throttled { retry_after: Some(Duration::from_secs(17)) });
}

#[tokio::test]
async fn a_clock_that_is_wrong_is_not_taken_for_a_wrong_certificate() {
    let pem = format!("{}{}", certificate_pem(), certificate_key_pem());
    let said = error("invalid_client", 700_024).to_string();
    for (headers, why) in [("", "certificate_file"), ("Date: Sun, 01 Feb 2015 12:00:00 GMT\r\n", "clock")] {
        let endpoint = Endpoint::with("401 Unauthorized", headers, &said);
        let e = oauth(&endpoint.url, by_certificate(pem.clone())).grant(&app_only(ANN, None)).await.unwrap_err();
        assert!(matches!(&e, ConnectorError::Operator(said) if said.contains(why)), "{e:?}");
    }
}

#[tokio::test]
async fn what_a_consent_gives_is_whose_it_is_and_what_is_missing() {
    let exchanged = async |claims: Value, scope: Option<&str>| {
        let answer = json!({"access_token": "a", "refresh_token": "r", "id_token": id_token(&claims), "scope": scope});
        let endpoint = Endpoint::json("200 OK", &answer);
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
fn whoever_is_sent_to_microsoft_asks_for_what_we_need_and_no_more() {
    let settings = MicrosoftSettings { authority: "organizations".to_owned(), ..by_secret("hunter2") };
    let oauth = oauth("https://login.example", settings);
    let question =
        Question { redirect_uri: "https://m.test/cb?x=1", state: "a b&c", challenge: "h", address: Some("a+b@c.test") };
    let url = oauth.ask(&question);

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
    let url = oauth.admin_consent("acme.test", "https://m.test/cb", "s");
    assert!(url.starts_with("https://login.example/acme.test/adminconsent?client_id="), "{url}");
}
