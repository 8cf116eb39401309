//! What goes wrong when it is scripted.

use serde_json::{Value, json};
use sim::google::{CLIENT_ID, CLIENT_SECRET, Fault, Kind, Route};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::place::{ANN, Place};

const PROFILE: &str = "/gmail/v1/users/me/profile";

#[tokio::test]
async fn each_refusal_has_googles_status_and_reason() {
    let place = Place::with_ann(1).await;
    let token = place.token();
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
        place.steer("POST", "faults", fault).await;

        let refused = place.get(PROFILE, &token).await;

        assert_eq!((refused.status, refused.reason().as_str()), (status, reason), "{kind}");
        assert_eq!(place.get(PROFILE, &token).await.status, 200, "{kind} comes once");
    }
    place.assert_no_violations();
}

#[tokio::test]
async fn a_fault_comes_for_its_route_and_account_only() {
    let place = Place::with_ann(1).await;
    place.world.create_many(1, 1);
    let other = place.world.grant("user1@sim.example").unwrap().access_token;
    let kind = Kind::UserRateLimited { retry_after: Some(9) };
    let (route, account) = (Some(Route::LabelsList), Some(ANN.to_owned()));
    place.world.add_fault(Fault { route, account, ..Fault::always(kind) });
    let labels = "/gmail/v1/users/me/labels";

    let refused = place.get(labels, &place.token()).await;

    assert_eq!((refused.status, refused.header("retry-after")), (403, Some("9")));
    assert_eq!(place.get(labels, &other).await.status, 200);
    assert_eq!(place.get(PROFILE, &place.token()).await.status, 200);
    assert_eq!(place.steer("GET", "faults", Value::Null).await["items"][0]["fired"], 1);
    place.steer("DELETE", "faults", Value::Null).await;
    assert_eq!(place.get(labels, &place.token()).await.status, 200);
}

#[tokio::test]
async fn answers_break_off_come_slowly_and_are_no_answers() {
    let place = Place::with_ann(5).await;
    let id = place.world.truth(ANN).unwrap().messages.into_keys().next().unwrap();
    let authorization = format!("Bearer {}", place.token());
    let get = async |kind: Kind| {
        place.world.add_fault(Fault::once(kind));
        let path = format!("/gmail/v1/users/me/messages/{id}?format=raw");
        place.send("GET", &path, &[("Authorization", &authorization)], b"").await
    };

    let whole = get(Kind::Slow { bytes: 5_000, ms: 0 }).await.unwrap();
    let truncated = get(Kind::TruncatedJson).await.unwrap();

    assert_eq!(whole.json()["id"], *id);
    assert_eq!((truncated.status, truncated.body.len()), (200, whole.body.len() / 2));
    assert!(get(Kind::Garbage).await.unwrap().text().contains("<html>"));
    assert!(get(Kind::Cut).await.is_none());
    assert!(get(Kind::Reset).await.is_none());
    let cut = get(Kind::CutBody).await;
    assert!(cut.is_none_or(|cut| cut.body.len() < whole.body.len()));
    place.assert_no_violations();
}

#[tokio::test]
async fn the_history_expires_for_one_call() {
    let place = Place::with_ann(1).await;
    let path = format!("/gmail/v1/users/me/history?startHistoryId={}", place.world.truth(ANN).unwrap().history_id);
    place.world.add_fault(Fault::once(Kind::HistoryExpired));
    let token = place.token();

    assert_eq!(place.get(PROFILE, &token).await.status, 200);
    assert_eq!(place.get(&path, &token).await.status, 404);
    assert_eq!(place.get(&path, &token).await.status, 200);
}

#[tokio::test]
async fn the_token_endpoint_fails_in_its_own_words() {
    let place = Place::with_ann(1).await;
    let token = place.world.grant(ANN).unwrap().refresh_token.unwrap();
    for (fault, status, error) in [
        (json!({"kind": "oauth", "error": "invalid_grant", "account": ANN}), 400, "invalid_grant"),
        (json!({"kind": "oauth", "error": "invalid_client", "status": 401}), 401, "invalid_client"),
        (json!({"kind": "internal"}), 500, "internal_failure"),
        (json!({"kind": "unavailable"}), 503, "backend_error"),
    ] {
        place.world.clear_faults();
        place.steer("POST", "faults", fault).await;
        let fields = [("grant_type", "refresh_token"), ("refresh_token", token.as_str())];
        let client = [("client_id", CLIENT_ID), ("client_secret", CLIENT_SECRET)];

        let refused = place.form("/token", &[fields, client].concat()).await;

        assert_eq!((refused.status, &refused.json()["error"]), (status, &json!(error)));
    }
}

#[tokio::test]
async fn a_connection_is_closed_or_reset() {
    let place = Place::with_ann(0).await;
    let ended = async |kind: Kind| {
        place.world.add_fault(Fault::once(kind));
        let mut stream = TcpStream::connect(place.server.address()).await.unwrap();
        stream.write_all(b"GET /oauth2/v3/certs HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
        stream.read(&mut [0; 100]).await.map_err(|e| e.kind())
    };

    assert_eq!(ended(Kind::Cut).await, Ok(0));
    assert_eq!(ended(Kind::Reset).await, Err(std::io::ErrorKind::ConnectionReset));
}

#[tokio::test]
async fn the_tokens_of_one_account_are_refused_and_others_are_not() {
    let place = Place::with_ann(0).await;
    place.world.create_many(1, 0);
    let kind = Kind::Oauth { error: "invalid_grant".to_owned(), status: 400 };
    place.world.add_fault(Fault { account: Some(ANN.to_owned()), ..Fault::always(kind) });
    let status = async |address: &str| {
        let token = place.world.grant(address).unwrap().refresh_token.unwrap();
        let fields = [("grant_type", "refresh_token"), ("refresh_token", token.as_str())];
        let client = [("client_id", CLIENT_ID), ("client_secret", CLIENT_SECRET)];
        place.form("/token", &[fields, client].concat()).await.status
    };

    assert_eq!((status(ANN).await, status("user1@sim.example").await), (400, 200));
}
