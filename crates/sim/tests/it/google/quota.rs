//! What may be asked in a minute.

use serde_json::{Value, json};

use super::place::Place;

#[tokio::test]
async fn whoever_asks_too_much_in_a_minute_is_refused_until_the_next() {
    let place = Place::with_ann(1).await;
    let (token, path) = (place.token(), "/gmail/v1/users/me/messages");
    place.steer("PUT", "quota", json!({"per_user_per_minute": 12})).await;

    let first = [place.get(path, &token).await.status, place.get(path, &token).await.status];
    let refused = place.get(path, &token).await;
    let cheaper = place.get("/gmail/v1/users/me/history?startHistoryId=1", &token).await;
    place.pass_ms(60_000);

    assert_eq!(first, [200, 200]);
    let error = refused.json()["error"].clone();
    assert_eq!((refused.status, &error["code"], &error["status"]), (403, &json!(403), &json!("PERMISSION_DENIED")));
    assert_eq!(
        (&error["errors"][0]["domain"], &error["errors"][0]["reason"]),
        (&json!("usageLimits"), &json!("userRateLimitExceeded"))
    );
    assert_eq!(cheaper.status, 404, "two units are left, and the history id is unknown");
    assert_eq!(place.get(path, &token).await.status, 200);
    place.assert_no_violations();
}

#[tokio::test]
async fn the_project_has_a_limit_too_and_it_may_be_told_with_429_and_a_time() {
    let place = Place::with_ann(1).await;
    let limits = json!({"per_project_per_minute": 1, "status": 429, "retry_after": 30});
    place.steer("PUT", "quota", limits).await;
    let token = place.token();

    let first = place.get("/gmail/v1/users/me/profile", &token).await;
    let refused = place.get("/gmail/v1/users/me/profile", &token).await;
    place.steer("DELETE", "quota", Value::Null).await;

    assert_eq!((first.status, refused.status, refused.header("retry-after")), (200, 429, Some("30")));
    assert_eq!(
        (refused.reason().as_str(), &refused.json()["error"]["status"]),
        ("rateLimitExceeded", &json!("RESOURCE_EXHAUSTED"))
    );
    assert_eq!(place.get("/gmail/v1/users/me/profile", &token).await.status, 200);
}

#[tokio::test]
async fn the_documented_units_hold_unless_others_are_given() {
    let place = Place::with_ann(1).await;

    place.steer("PUT", "quota", json!({})).await;

    let limits = place.steer("GET", "quota", Value::Null).await;
    assert_eq!((&limits["per_user_per_minute"], &limits["per_project_per_minute"]), (&json!(6_000), &json!(1_200_000)));
    assert_eq!((&limits["units"]["messages.get"], &limits["units"]["watch"]), (&json!(20), &json!(100)));
}
