//! Throttling limits and injected faults.

use serde_json::{Value, json};
use sim::microsoft::{CLIENT_ID, CLIENT_SECRET, MicrosoftFault, MicrosoftFaultKind, MicrosoftRoute};

use super::batch::values;
use super::harness::{ANN, MicrosoftHarness, code};

#[tokio::test]
async fn fifth_concurrent_request_is_throttled() {
    let harness = MicrosoftHarness::with_ann(1).await;
    harness.control_ok("PUT", "quota", json!({})).await;
    harness.world.set_latency_ms(200);
    let token = harness.token();

    let answers = futures_util::future::join_all((0..5).map(|_| harness.get("/v1.0/me/messages", &token))).await;

    let refused: Vec<_> = answers.iter().filter(|answer| answer.status == 429).collect();
    assert_eq!(refused.len(), 1);
    assert_eq!((code(refused[0]).as_str(), refused[0].header("retry-after")), ("ApplicationThrottled", Some("1")));
    assert_eq!(harness.world.most_at_once()[ANN], 5);
    harness.assert_no_violations();
}

#[tokio::test]
async fn batch_parts_and_throttled_requests_count() {
    let harness = MicrosoftHarness::with_ann(4).await;
    harness.control_ok("PUT", "quota", json!({"requests": 3})).await;
    let ids: Vec<String> = harness.world.truth(ANN).unwrap().messages.into_keys().collect();
    let token = harness.token();

    let answers = harness.post("/v1.0/$batch", &token, &values(&ids)).await.json();
    let throttled = answers["responses"].as_array().unwrap().iter().filter(|answer| answer["status"] == 429);
    assert_eq!(throttled.count(), 1);
    let answered = harness.get("/v1.0/me/messages", &token).await;
    assert_eq!((answered.status, answered.header("retry-after")), (429, Some("600")));
    harness.advance_ms(600_000);
    assert_eq!(harness.get("/v1.0/me/messages", &token).await.status, 200);
    harness.control_ok("DELETE", "quota", Value::Null).await;
}

#[tokio::test]
async fn refusals_have_their_status_and_code() {
    let harness = MicrosoftHarness::with_ann(1).await;
    let token = harness.token();
    let path = "/v1.0/me/mailFolders/inbox/messages/delta";
    for (fault, status, expected) in [
        (json!({"kind": "throttled", "retry_after": 9}), 429, "ApplicationThrottled"),
        (json!({"kind": "internal"}), 500, "ErrorInternalServerError"),
        (json!({"kind": "bad_gateway"}), 502, "UnknownError"),
        (json!({"kind": "unavailable"}), 503, "ErrorServerBusy"),
        (json!({"kind": "gateway_timeout"}), 504, "UnknownError"),
        (json!({"kind": "bandwidth_exceeded"}), 509, "ErrorExceededMessageLimit"),
        (json!({"kind": "locked"}), 423, "ErrorMailboxMoveInProgress"),
        (json!({"kind": "hang", "ms": 1}), 503, "ErrorServerBusy"),
        (json!({"kind": "unauthorized"}), 401, "InvalidAuthenticationToken"),
        (json!({"kind": "access_denied"}), 403, "ErrorAccessDenied"),
        (json!({"kind": "not_found"}), 404, "ErrorItemNotFound"),
        (json!({"kind": "mailbox_not_enabled"}), 404, "MailboxNotEnabledForRESTAPI"),
        (json!({"kind": "delta_expired"}), 410, "syncStateNotFound"),
        (json!({"kind": "resync"}), 400, "resyncRequired"),
        (json!({"kind": "resync", "code": "SyncStateInvalid"}), 400, "SyncStateInvalid"),
        (json!({"kind": "delta_quota"}), 507, "ErrorQuotaExceeded"),
    ] {
        let mut once = fault.clone();
        once["count"] = json!(1);
        harness.control_ok("POST", "faults", once).await;

        let refused = harness.get(path, &token).await;

        assert_eq!((refused.status, code(&refused).as_str()), (status, expected), "{fault}");
        assert_eq!(refused.header("location").is_some(), status == 410, "{fault}");
        assert_eq!(harness.get(path, &token).await.status, 200, "{fault} comes once");
    }
    harness.assert_no_violations();
}

#[tokio::test]
async fn responses_are_cut_slowed_and_garbled() {
    let harness = MicrosoftHarness::with_ann(5).await;
    let authorization = format!("Bearer {}", harness.token());
    let get = async |kind: MicrosoftFaultKind| {
        harness.world.add_fault(MicrosoftFault::once(kind));
        let fields = [("Authorization", authorization.as_str()), ("Prefer", super::harness::IMMUTABLE)];
        harness.send("GET", "/v1.0/me/messages", &fields, b"").await
    };

    let whole = get(MicrosoftFaultKind::Slow { bytes: 500, ms: 0 }).await.unwrap();
    let truncated = get(MicrosoftFaultKind::TruncatedJson).await.unwrap();

    assert_eq!(whole.json()["value"].as_array().unwrap().len(), 5);
    assert_eq!((truncated.status, truncated.body.len()), (200, whole.body.len() / 2));
    assert!(get(MicrosoftFaultKind::Garbage).await.unwrap().text().contains("<html>"));
    assert!(get(MicrosoftFaultKind::Cut).await.is_none());
    assert!(get(MicrosoftFaultKind::Reset).await.is_none());
    assert!(get(MicrosoftFaultKind::CutBody).await.is_none_or(|cut| cut.body.len() < whole.body.len()));
    harness.assert_no_violations();
}

#[tokio::test]
async fn garbled_part_leaves_other_parts_readable() {
    let harness = MicrosoftHarness::with_ann(3).await;
    let ids: Vec<String> = harness.world.truth(ANN).unwrap().messages.into_keys().collect();
    harness.world.add_fault(MicrosoftFault {
        route: Some(MicrosoftRoute::MessagesValue),
        ..MicrosoftFault::once(MicrosoftFaultKind::Garbage)
    });

    let answers = harness.post("/v1.0/$batch", &harness.token(), &values(&ids)).await.json();

    let bodies = answers["responses"].as_array().unwrap().iter().filter_map(|answer| answer["body"].as_str());
    assert_eq!(bodies.filter(|body| body.contains("<html>")).count(), 1);
}

#[tokio::test]
async fn token_endpoint_fails_with_oauth_errors() {
    let harness = MicrosoftHarness::with_ann(1).await;
    let token = harness.world.grant(ANN).unwrap().refresh_token.unwrap();
    for (fault, status, error, number) in [
        (
            json!({"kind": "oauth", "error": "invalid_grant", "code": 50076, "account": ANN}),
            400,
            "invalid_grant",
            50_076,
        ),
        (
            json!({"kind": "oauth", "error": "invalid_client", "status": 401, "code": 7000222}),
            401,
            "invalid_client",
            7_000_222,
        ),
        (json!({"kind": "internal"}), 500, "server_error", 90_024),
        (json!({"kind": "unavailable", "retry_after": 3}), 503, "temporarily_unavailable", 90_033),
        (json!({"kind": "throttled"}), 429, "temporarily_unavailable", 90_055),
    ] {
        harness.world.clear_faults();
        harness.control_ok("POST", "faults", fault).await;
        let fields = [("grant_type", "refresh_token"), ("refresh_token", token.as_str())];
        let client = [("client_id", CLIENT_ID), ("client_secret", CLIENT_SECRET)];

        let refused = harness.form("/common/oauth2/v2.0/token", &[fields, client].concat()).await;

        let body = refused.json();
        assert_eq!((refused.status, &body["error"], &body["error_codes"][0]), (status, &json!(error), &json!(number)));
    }
}
