//! Push endpoint for Microsoft Graph: it validates the URL once, then sends notifications with an agreed `clientState`.

use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use engine::sync::push::GraphPushError;
use serde::Deserialize;
use utoipa::{IntoParams, IntoResponses};

use super::read_body;
use crate::App;
use crate::api::Problem;

/// Graph sends many notifications in one request, each of some hundred bytes.
const MAX_NOTIFICATION_BYTES: usize = 1 << 20;

/// Validation tokens of Graph have some hundred characters.
const MAX_VALIDATION_TOKEN_CHARS: usize = 2048;

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct GraphValidation {
    /// Sent when Graph validates this URL; the response repeats it.
    #[serde(rename = "validationToken")]
    #[param(min_length = 1, max_length = 2048, pattern = r"^[^<\x00-\x1f\x7f]+$")]
    validation_token: Option<String>,
}

#[derive(IntoResponses)]
#[expect(dead_code, reason = "for the OpenAPI description only")]
enum GraphPushResponses {
    #[response(status = 200, description = "Validation: the token, unchanged", content_type = "text/plain")]
    Validated(String),
    #[response(status = 202, description = "The valid notifications were recorded; do not send them again")]
    Recorded,
    #[response(status = 400, description = "The body or the validation token is not in the format of Microsoft Graph")]
    Malformed,
    #[response(status = 404, description = "Microsoft Graph notifications are not configured on this server")]
    NotConfigured,
    #[response(status = 413, description = "The body is larger than a notification can be")]
    TooLarge,
    #[response(status = 503, description = "The notifications could not be recorded in time; send them again")]
    NotRecorded,
}

type ValidationQuery = Result<Query<GraphValidation>, QueryRejection>;

/// Receive change notifications of Microsoft Graph about accounts.
///
/// The body is `{"value": […]}`; each item names its subscription and carries its `clientState`. Not for API keys. Each
/// mailbox of the account is synced. Items that are malformed or have another `clientState` are dropped.
#[utoipa::path(post, path = "/v1/hooks/graph", operation_id = "push_graph", tag = "hooks", security(()),
    params(GraphValidation), request_body(content = serde_json::Value, description = "Notifications; ignored with a `validationToken`"),
    responses(GraphPushResponses))]
pub async fn notify(State(app): State<App>, query: ValidationQuery, body: Body) -> Result<Response, Problem> {
    answer(&app, query, body).await
}

/// Receive lifecycle notifications of Microsoft Graph about subscriptions.
///
/// They say that a subscription must be renewed, was removed, or missed notifications. Otherwise as `push_graph`.
#[utoipa::path(post, path = "/v1/hooks/graph/lifecycle", operation_id = "push_graph_lifecycle", tag = "hooks",
    security(()), params(GraphValidation),
    request_body(content = serde_json::Value, description = "Notifications; ignored with a `validationToken`"),
    responses(GraphPushResponses))]
pub async fn notify_lifecycle(State(app): State<App>, query: ValidationQuery, body: Body) -> Result<Response, Problem> {
    answer(&app, query, body).await
}

async fn answer(app: &App, query: ValidationQuery, body: Body) -> Result<Response, Problem> {
    let Some(pushes) = &app.graph_pushes else {
        return Err(Problem::new(
            StatusCode::NOT_FOUND,
            "Microsoft Graph notifications are not configured on this server (providers.microsoft.client_id, notification_url)",
        ));
    };
    let Query(GraphValidation { validation_token }) = query?;
    if let Some(token) = validation_token {
        return echo_validation_token(token);
    }
    let body = read_body(body, MAX_NOTIFICATION_BYTES).await?;
    match pushes.receive(body).await {
        Ok(_) => Ok(StatusCode::ACCEPTED.into_response()),
        Err(GraphPushError::Malformed(why)) => Err(Problem::new(StatusCode::BAD_REQUEST, why)),
        Err(GraphPushError::RetryLater(why)) => Err(Problem::overloaded(why)),
        Err(GraphPushError::Store(e)) => Err(e.into()),
    }
}

/// Repeats the validation token exactly. Anybody can make us send any token to a person who follows a link, so nothing
/// that a browser could render as a page is accepted.
fn echo_validation_token(token: String) -> Result<Response, Problem> {
    if token.is_empty() || token.chars().count() > MAX_VALIDATION_TOKEN_CHARS {
        let detail = format!("validationToken: must have 1 to {MAX_VALIDATION_TOKEN_CHARS} characters");
        return Err(Problem::new(StatusCode::BAD_REQUEST, detail));
    }
    if token.chars().any(|c| c == '<' || c.is_ascii_control()) {
        let detail = "validationToken: must not contain `<` or control characters";
        return Err(Problem::new(StatusCode::BAD_REQUEST, detail));
    }
    let headers = [(header::CONTENT_TYPE, "text/plain"), (header::X_CONTENT_TYPE_OPTIONS, "nosniff")];
    Ok((StatusCode::OK, headers, token).into_response())
}
