//! Quota.

use serde_json::{Value, json};

use super::harness::GoogleHarness;

#[tokio::test]
async fn user_over_quota_is_refused_for_the_minute() {
    let harness = GoogleHarness::with_ann(1).await;
    let (token, path) = (harness.token(), "/gmail/v1/users/me/messages");
    harness.control_ok("PUT", "quota", json!({"per_user_per_minute": 12})).await;

    let first = [harness.get(path, &token).await.status, harness.get(path, &token).await.status];
    let refused = harness.get(path, &token).await;
    let cheaper = harness.get("/gmail/v1/users/me/history?startHistoryId=1", &token).await;
    harness.advance_ms(60_000);

    assert_eq!(first, [200, 200]);
    let error = refused.json()["error"].clone();
    assert_eq!((refused.status, &error["code"], &error["status"]), (403, &json!(403), &json!("PERMISSION_DENIED")));
    assert_eq!(
        (&error["errors"][0]["domain"], &error["errors"][0]["reason"]),
        (&json!("usageLimits"), &json!("userRateLimitExceeded"))
    );
    assert_eq!(cheaper.status, 404, "two units are left, and the history id is unknown");
    assert_eq!(harness.get(path, &token).await.status, 200);
    harness.assert_no_violations();
}

#[tokio::test]
async fn project_quota_can_be_429_with_retry_after() {
    let harness = GoogleHarness::with_ann(1).await;
    let limits = json!({"per_project_per_minute": 1, "status": 429, "retry_after": 30});
    harness.control_ok("PUT", "quota", limits).await;
    let token = harness.token();

    let first = harness.get("/gmail/v1/users/me/profile", &token).await;
    let refused = harness.get("/gmail/v1/users/me/profile", &token).await;
    harness.control_ok("DELETE", "quota", Value::Null).await;

    assert_eq!((first.status, refused.status, refused.header("retry-after")), (200, 429, Some("30")));
    assert_eq!(
        (refused.reason().as_str(), &refused.json()["error"]["status"]),
        ("rateLimitExceeded", &json!("RESOURCE_EXHAUSTED"))
    );
    assert_eq!(harness.get("/gmail/v1/users/me/profile", &token).await.status, 200);
}

#[tokio::test]
async fn documented_quota_units_are_the_default() {
    let harness = GoogleHarness::with_ann(1).await;

    harness.control_ok("PUT", "quota", json!({})).await;

    let limits = harness.control_ok("GET", "quota", Value::Null).await;
    assert_eq!((&limits["per_user_per_minute"], &limits["per_project_per_minute"]), (&json!(6_000), &json!(1_200_000)));
    assert_eq!((&limits["units"]["messages.get"], &limits["units"]["watch"]), (&json!(20), &json!(100)));
}
