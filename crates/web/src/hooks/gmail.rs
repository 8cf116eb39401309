//! Google Cloud Pub/Sub for Gmail. Who calls is in a token, and nothing that somebody else sends is even read.

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use engine::push::Refused;
use serde::Deserialize;
use utoipa::ToSchema;

use super::read;
use crate::App;
use crate::api::Problem;

/// A push is some hundred bytes.
const LARGEST: usize = 64 << 10;

/// What Pub/Sub delivers: a hint that something happened in an account.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = GmailPush, example = json!({"message": {"messageId": "2070443601311540",
    "data": "eyJlbWFpbEFkZHJlc3MiOiJtZUBhY21lLnRlc3QiLCJoaXN0b3J5SWQiOjk4N30="}, "subscription": "projects/p/subscriptions/s"}))]
#[expect(dead_code, reason = "only described")]
struct Pushed {
    message: PushedMessage,
    subscription: Option<String>,
}

#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = GmailPushMessage)]
#[expect(dead_code, reason = "only described")]
struct PushedMessage {
    /// What is delivered more than once is the same by this.
    #[serde(rename = "messageId")]
    message_id: String,
    /// Base64 of `{"emailAddress": …, "historyId": …}`.
    data: String,
}

/// Google Cloud Pub/Sub tells that something happened in a Gmail account. Not for holders of keys: it takes a token that
/// Google signed for the service account of the subscription. Every mailbox of that account is looked at.
#[utoipa::path(post, path = "/v1/hooks/gmail", operation_id = "push_gmail", tag = "hooks", security(("push" = [])),
    request_body = Pushed, responses(
    (status = 204, description = "It is recorded, has come before, or makes no sense; it need not come again"),
    (status = 401, description = "No token, or none that Google signed or that is valid now"),
    (status = 403, description = "A token for another audience or of another service account"),
    (status = 404, description = "Pushes of Gmail are not set up here"),
    (status = 413, description = "It is larger than any push"),
    (status = 503, description = "Whether the token is good cannot be said now, or what is stored cannot be reached")))]
pub async fn notify(State(app): State<App>, headers: HeaderMap, body: Body) -> Result<StatusCode, Problem> {
    let Some(pushes) = &app.gmail_pushes else {
        return Err(Problem::new(
            StatusCode::NOT_FOUND,
            "pushes of Gmail are not set up here (providers.google.push_service_account)",
        ));
    };
    pushes.verify(bearer(&headers)).await.map_err(refusal)?;
    let body = read(body, LARGEST).await?;
    // Whatever became of it: to send it once more would change nothing.
    pushes.take(&body).await?;
    Ok(StatusCode::NO_CONTENT)
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(token.trim())
}

fn refusal(refused: Refused) -> Problem {
    match refused {
        Refused::Unauthorized(reason) => Problem::unauthorized(reason),
        Refused::Forbidden(reason) => Problem::forbidden(reason),
        Refused::NoKeys => Problem::overloaded(refused.reason()),
    }
}
