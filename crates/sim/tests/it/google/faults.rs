//! Injected faults.

use serde_json::{Value, json};
use sim::google::{CLIENT_ID, CLIENT_SECRET, GoogleFault, GoogleFaultKind, GoogleRoute};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::harness::{ANN, GoogleHarness};

const PROFILE: &str = "/gmail/v1/users/me/profile";

#[tokio::test]
async fn refusals_have_googles_status_and_reason() {
    let harness = GoogleHarness::with_ann(1).await;
    let token = harness.token();
    for (kind, status, reason) in [
        (json!({"kind": "throttled"}), 429, "rateLimitExceeded"),
        (json!({"kind": "user_rate_limited"}), 403, "userRateLimitExceeded"),
        (json!({"kind": "rate_limited"}), 403, "rateLimitExceeded"),
        (json!({"kind": "daily_limit"}), 403, "dailyLimitExceeded"),
        (json!({"kind": "domain_policy"}), 403, "domainPolicy"),
        (json!({"kind": "insufficient_permissions"}), 403, "insufficientPermissions"),
        (json!({"kind": "access_not_configured"}), 403, "accessNotConfigured"),
        (json!({"kind": "failed_precondition"}), 400, "failedPrecondition"),
        (json!({"kind": "unauthorized"}), 401, "authError"),
        (json!({"kind": "not_found"}), 404, "notFound"),
        (json!({"kind": "internal"}), 500, "backendError"),
        (json!({"kind": "unavailable"}), 503, "backendError"),
        (json!({"kind": "hang", "ms": 1}), 503, "backendError"),
    ] {
        let mut fault = kind.clone();
        fault["count"] = json!(1);
        harness.control_ok("POST", "faults", fault).await;

        let refused = harness.get(PROFILE, &token).await;

        assert_eq!((refused.status, refused.reason().as_str()), (status, reason), "{kind}");
        assert_eq!(harness.get(PROFILE, &token).await.status, 200, "{kind} comes once");
    }
    harness.assert_no_violations();
}

#[tokio::test]
async fn fault_fires_only_for_its_route_and_account() {
    let harness = GoogleHarness::with_ann(1).await;
    harness.world.create_many(1, 1);
    let other = harness.world.grant("user1@sim.example").unwrap().access_token;
    let kind = GoogleFaultKind::UserRateLimited { retry_after: Some(9) };
    let (route, account) = (Some(GoogleRoute::LabelsList), Some(ANN.to_owned()));
    harness.world.add_fault(GoogleFault { route, account, ..GoogleFault::always(kind) });
    let labels = "/gmail/v1/users/me/labels";

    let refused = harness.get(labels, &harness.token()).await;

    assert_eq!((refused.status, refused.header("retry-after")), (403, Some("9")));
    assert_eq!(harness.get(labels, &other).await.status, 200);
    assert_eq!(harness.get(PROFILE, &harness.token()).await.status, 200);
    assert_eq!(harness.control_ok("GET", "faults", Value::Null).await["items"][0]["fired"], 1);
    harness.control_ok("DELETE", "faults", Value::Null).await;
    assert_eq!(harness.get(labels, &harness.token()).await.status, 200);
}

#[tokio::test]
async fn responses_are_cut_slowed_and_garbled() {
    let harness = GoogleHarness::with_ann(5).await;
    let id = harness.world.truth(ANN).unwrap().messages.into_keys().next().unwrap();
    let authorization = format!("Bearer {}", harness.token());
    let get = async |kind: GoogleFaultKind| {
        harness.world.add_fault(GoogleFault::once(kind));
        let path = format!("/gmail/v1/users/me/messages/{id}?format=raw");
        harness.send("GET", &path, &[("Authorization", &authorization)], b"").await
    };

    let whole = get(GoogleFaultKind::Slow { bytes: 5_000, ms: 0 }).await.unwrap();
    let truncated = get(GoogleFaultKind::TruncatedJson).await.unwrap();

    assert_eq!(whole.json()["id"], *id);
    assert_eq!((truncated.status, truncated.body.len()), (200, whole.body.len() / 2));
    assert!(get(GoogleFaultKind::Garbage).await.unwrap().text().contains("<html>"));
    assert!(get(GoogleFaultKind::Cut).await.is_none());
    assert!(get(GoogleFaultKind::Reset).await.is_none());
    let cut = get(GoogleFaultKind::CutBody).await;
    assert!(cut.is_none_or(|cut| cut.body.len() < whole.body.len()));
    harness.assert_no_violations();
}

#[tokio::test]
async fn history_expires_for_one_call() {
    let harness = GoogleHarness::with_ann(1).await;
    let path = format!("/gmail/v1/users/me/history?startHistoryId={}", harness.world.truth(ANN).unwrap().history_id);
    harness.world.add_fault(GoogleFault::once(GoogleFaultKind::HistoryExpired));
    let token = harness.token();

    assert_eq!(harness.get(PROFILE, &token).await.status, 200);
    assert_eq!(harness.get(&path, &token).await.status, 404);
    assert_eq!(harness.get(&path, &token).await.status, 200);
}

#[tokio::test]
async fn token_endpoint_fails_with_oauth_errors() {
    let harness = GoogleHarness::with_ann(1).await;
    let token = harness.world.grant(ANN).unwrap().refresh_token.unwrap();
    for (fault, status, error) in [
        (json!({"kind": "oauth", "error": "invalid_grant", "account": ANN}), 400, "invalid_grant"),
        (json!({"kind": "oauth", "error": "invalid_client", "status": 401}), 401, "invalid_client"),
        (json!({"kind": "internal"}), 500, "internal_failure"),
        (json!({"kind": "unavailable"}), 503, "backend_error"),
    ] {
        harness.world.clear_faults();
        harness.control_ok("POST", "faults", fault).await;
        let fields = [("grant_type", "refresh_token"), ("refresh_token", token.as_str())];
        let client = [("client_id", CLIENT_ID), ("client_secret", CLIENT_SECRET)];

        let refused = harness.form("/token", &[fields, client].concat()).await;

        assert_eq!((refused.status, &refused.json()["error"]), (status, &json!(error)));
    }
}

#[tokio::test]
async fn connection_is_closed_or_reset() {
    let harness = GoogleHarness::with_ann(0).await;
    let ended = async |kind: GoogleFaultKind| {
        harness.world.add_fault(GoogleFault::once(kind));
        let mut stream = TcpStream::connect(harness.server.address()).await.unwrap();
        stream.write_all(b"GET /oauth2/v3/certs HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
        stream.read(&mut [0; 100]).await.map_err(|e| e.kind())
    };

    assert_eq!(ended(GoogleFaultKind::Cut).await, Ok(0));
    assert_eq!(ended(GoogleFaultKind::Reset).await, Err(std::io::ErrorKind::ConnectionReset));
}

#[tokio::test]
async fn token_fault_concerns_only_its_account() {
    let harness = GoogleHarness::with_ann(0).await;
    harness.world.create_many(1, 0);
    let kind = GoogleFaultKind::Oauth { error: "invalid_grant".to_owned(), status: 400 };
    harness.world.add_fault(GoogleFault { account: Some(ANN.to_owned()), ..GoogleFault::always(kind) });
    let status = async |address: &str| {
        let token = harness.world.grant(address).unwrap().refresh_token.unwrap();
        let fields = [("grant_type", "refresh_token"), ("refresh_token", token.as_str())];
        let client = [("client_id", CLIENT_ID), ("client_secret", CLIENT_SECRET)];
        harness.form("/token", &[fields, client].concat()).await.status
    };

    assert_eq!((status(ANN).await, status("user1@sim.example").await), (400, 200));
}
