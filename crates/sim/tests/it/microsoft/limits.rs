//! How much may be asked, and of what goes wrong when it is scripted.

use serde_json::{Value, json};
use sim::microsoft::{CLIENT_ID, CLIENT_SECRET, Fault, Kind, Route};

use super::batch::values;
use super::place::{ANN, Place, code};

#[tokio::test]
async fn the_fifth_request_at_the_same_time_is_throttled() {
    let place = Place::with_ann(1).await;
    place.steer("PUT", "quota", json!({})).await;
    place.world.set_latency_ms(200);
    let token = place.token();

    let answers = futures_util::future::join_all((0..5).map(|_| place.get("/v1.0/me/messages", &token))).await;

    let refused: Vec<_> = answers.iter().filter(|answer| answer.status == 429).collect();
    assert_eq!(refused.len(), 1);
    assert_eq!((code(refused[0]).as_str(), refused[0].header("retry-after")), ("ApplicationThrottled", Some("1")));
    assert_eq!(place.world.most_at_once()[ANN], 5);
    place.assert_no_violations();
}

#[tokio::test]
async fn parts_of_batches_count_and_calls_while_throttled_too() {
    let place = Place::with_ann(4).await;
    place.steer("PUT", "quota", json!({"requests": 3})).await;
    let ids: Vec<String> = place.world.truth(ANN).unwrap().messages.into_keys().collect();
    let token = place.token();

    let answers = place.post("/v1.0/$batch", &token, &values(&ids)).await.json();
    let throttled = answers["responses"].as_array().unwrap().iter().filter(|answer| answer["status"] == 429);
    assert_eq!(throttled.count(), 1);
    let answered = place.get("/v1.0/me/messages", &token).await;
    assert_eq!((answered.status, answered.header("retry-after")), (429, Some("600")));
    place.pass_ms(600_000);
    assert_eq!(place.get("/v1.0/me/messages", &token).await.status, 200);
    place.steer("DELETE", "quota", Value::Null).await;
}

#[tokio::test]
async fn each_refusal_has_its_status_and_code() {
    let place = Place::with_ann(1).await;
    let token = place.token();
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
        place.steer("POST", "faults", once).await;

        let refused = place.get(path, &token).await;

        assert_eq!((refused.status, code(&refused).as_str()), (status, expected), "{fault}");
        assert_eq!(refused.header("location").is_some(), status == 410, "{fault}");
        assert_eq!(place.get(path, &token).await.status, 200, "{fault} comes once");
    }
    place.assert_no_violations();
}

#[tokio::test]
async fn answers_break_off_come_slowly_and_are_no_answers() {
    let place = Place::with_ann(5).await;
    let authorization = format!("Bearer {}", place.token());
    let get = async |kind: Kind| {
        place.world.add_fault(Fault::once(kind));
        let fields = [("Authorization", authorization.as_str()), ("Prefer", super::place::IMMUTABLE)];
        place.send("GET", "/v1.0/me/messages", &fields, b"").await
    };

    let whole = get(Kind::Slow { bytes: 500, ms: 0 }).await.unwrap();
    let truncated = get(Kind::TruncatedJson).await.unwrap();

    assert_eq!(whole.json()["value"].as_array().unwrap().len(), 5);
    assert_eq!((truncated.status, truncated.body.len()), (200, whole.body.len() / 2));
    assert!(get(Kind::Garbage).await.unwrap().text().contains("<html>"));
    assert!(get(Kind::Cut).await.is_none());
    assert!(get(Kind::Reset).await.is_none());
    assert!(get(Kind::CutBody).await.is_none_or(|cut| cut.body.len() < whole.body.len()));
    place.assert_no_violations();
}

#[tokio::test]
async fn a_part_of_a_batch_that_is_no_answer_leaves_the_others_readable() {
    let place = Place::with_ann(3).await;
    let ids: Vec<String> = place.world.truth(ANN).unwrap().messages.into_keys().collect();
    place.world.add_fault(Fault { route: Some(Route::MessagesValue), ..Fault::once(Kind::Garbage) });

    let answers = place.post("/v1.0/$batch", &place.token(), &values(&ids)).await.json();

    let bodies = answers["responses"].as_array().unwrap().iter().filter_map(|answer| answer["body"].as_str());
    assert_eq!(bodies.filter(|body| body.contains("<html>")).count(), 1);
}

#[tokio::test]
async fn the_token_endpoint_fails_in_its_own_words() {
    let place = Place::with_ann(1).await;
    let token = place.world.grant(ANN).unwrap().refresh_token.unwrap();
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
        place.world.clear_faults();
        place.steer("POST", "faults", fault).await;
        let fields = [("grant_type", "refresh_token"), ("refresh_token", token.as_str())];
        let client = [("client_id", CLIENT_ID), ("client_secret", CLIENT_SECRET)];

        let refused = place.form("/common/oauth2/v2.0/token", &[fields, client].concat()).await;

        let body = refused.json();
        assert_eq!((refused.status, &body["error"], &body["error_codes"][0]), (status, &json!(error), &json!(number)));
    }
}
