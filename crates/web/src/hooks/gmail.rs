//! Push endpoint for Gmail: Google Cloud Pub/Sub authenticates with a signed token, which is verified before the body is read.

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use engine::sync::push::PushRefusal;
use serde::Deserialize;
use utoipa::ToSchema;

use super::read_body;
use crate::App;
use crate::api::Problem;

/// Push messages have some hundred bytes.
const MAX_PUSH_BYTES: usize = 64 << 10;

/// Push message of Pub/Sub: a hint that something changed in an account.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = GmailPush, example = json!({"message": {"messageId": "2070443601311540",
    "data": "eyJlbWFpbEFkZHJlc3MiOiJtZUBhY21lLnRlc3QiLCJoaXN0b3J5SWQiOjk4N30="}, "subscription": "projects/p/subscriptions/s"}))]
#[expect(dead_code, reason = "only described")]
struct GmailPush {
    message: GmailPushMessage,
    subscription: Option<String>,
}

#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = GmailPushMessage)]
#[expect(dead_code, reason = "only described")]
struct GmailPushMessage {
    /// The same for repeated deliveries of one message.
    #[serde(rename = "messageId")]
    message_id: String,
    /// Base64 of `{"emailAddress": …, "historyId": …}`.
    data: String,
}

/// Receive a push message of Google Cloud Pub/Sub about a Gmail account.
///
/// Not for API keys: the request carries a token that Google signed for the service account of the subscription. Each
/// mailbox of the account is synced.
#[utoipa::path(post, path = "/v1/hooks/gmail", operation_id = "push_gmail", tag = "hooks", security(("push" = [])),
    request_body = GmailPush, responses(
    (status = 204, description = "The message was recorded, is a duplicate, or is malformed; do not send it again"),
    (status = 401, description = "The token is missing, expired, or not signed by Google"),
    (status = 403, description = "The token is for another audience or of another service account"),
    (status = 404, description = "Gmail push is not configured on this server"),
    (status = 413, description = "The body is larger than a push message can be"),
    (status = 503, description = "The token cannot be verified now, or the database is unavailable; send the message again")))]
pub async fn notify(State(app): State<App>, headers: HeaderMap, body: Body) -> Result<StatusCode, Problem> {
    let Some(pushes) = &app.gmail_pushes else {
        return Err(Problem::new(
            StatusCode::NOT_FOUND,
            "Gmail push is not configured on this server (providers.google.push_service_account)",
        ));
    };
    pushes.verify(bearer(&headers)).await.map_err(push_problem)?;
    let body = read_body(body, MAX_PUSH_BYTES).await?;
    // A malformed message is acknowledged too: sending it again would change nothing.
    pushes.receive(&body).await?;
    Ok(StatusCode::NO_CONTENT)
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(token.trim())
}

fn push_problem(refused: PushRefusal) -> Problem {
    match refused {
        PushRefusal::Unauthorized(reason) => Problem::unauthorized(reason),
        PushRefusal::Forbidden(reason) => Problem::forbidden(reason),
        PushRefusal::NoKeys => Problem::overloaded(refused.reason()),
    }
}
