//! Microsoft Graph, which first asks whether we want to be called at all, and then says a secret with everything it tells.

use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use engine::push::NotTaken;
use serde::Deserialize;
use utoipa::IntoParams;

use super::read;
use crate::App;
use crate::api::Problem;

/// Graph puts many notifications into one call, each of some hundred bytes.
const LARGEST: usize = 1 << 20;

/// Theirs have some hundred characters.
const LONGEST_TOKEN: usize = 2048;

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct Handshake {
    /// Given when Graph asks whether it may call: it is the answer.
    #[serde(rename = "validationToken")]
    #[param(min_length = 1, max_length = 2048, pattern = r"^[^<\x00-\x1f\x7f]+$")]
    validation_token: Option<String>,
}

type Asked = Result<Query<Handshake>, QueryRejection>;

/// Microsoft Graph tells that something happened in accounts: `{"value": […]}`, where each item names its subscription and
/// says its `clientState`. Not for holders of keys. Every mailbox of such an account is looked at. Items that make no
/// sense, or do not say what was agreed upon, are let go, and the others count.
#[utoipa::path(post, path = "/v1/hooks/graph", operation_id = "push_graph", tag = "hooks", security(()),
    params(Handshake), request_body(content = serde_json::Value, description = "Notifications; with a `validationToken` it does not matter"),
    responses(
    (status = 200, description = "Graph may call: what it gave, as it is", body = String, content_type = "text/plain"),
    (status = 202, description = "What counts of it is recorded; it need not come again"),
    (status = 400, description = "It is nothing that Graph sends"),
    (status = 404, description = "Notifications of Microsoft Graph are not set up here"),
    (status = 413, description = "It is larger than any push"),
    (status = 503, description = "It could not be recorded in time, and is to come again")))]
pub async fn notify(State(app): State<App>, asked: Asked, body: Body) -> Result<Response, Problem> {
    answer(&app, asked, body).await
}

/// Microsoft Graph tells of a subscription itself: that it ends unless it is renewed, that it has ended, or that something
/// could not be told. As `push_graph` in all else.
#[utoipa::path(post, path = "/v1/hooks/graph/lifecycle", operation_id = "push_graph_lifecycle", tag = "hooks",
    security(()), params(Handshake),
    request_body(content = serde_json::Value, description = "Notifications; with a `validationToken` it does not matter"),
    responses(
    (status = 200, description = "Graph may call: what it gave, as it is", body = String, content_type = "text/plain"),
    (status = 202, description = "What counts of it is recorded; it need not come again"),
    (status = 400, description = "It is nothing that Graph sends"),
    (status = 404, description = "Notifications of Microsoft Graph are not set up here"),
    (status = 413, description = "It is larger than any push"),
    (status = 503, description = "It could not be recorded in time, and is to come again")))]
pub async fn tell_lifecycle(State(app): State<App>, asked: Asked, body: Body) -> Result<Response, Problem> {
    answer(&app, asked, body).await
}

async fn answer(app: &App, asked: Asked, body: Body) -> Result<Response, Problem> {
    let Some(pushes) = &app.graph_pushes else {
        return Err(Problem::new(
            StatusCode::NOT_FOUND,
            "notifications of Microsoft Graph are not set up here (providers.microsoft.client_id, notification_url)",
        ));
    };
    let Query(Handshake { validation_token }) = asked?;
    if let Some(token) = validation_token {
        return shake_hands(token);
    }
    let body = read(body, LARGEST).await?;
    match pushes.take(body).await {
        Ok(_) => Ok(StatusCode::ACCEPTED.into_response()),
        Err(NotTaken::Malformed(why)) => Err(Problem::new(StatusCode::BAD_REQUEST, why)),
        Err(NotTaken::Later(why)) => Err(Problem::overloaded(why)),
        Err(NotTaken::Store(e)) => Err(e.into()),
    }
}

/// Said back exactly. It is a text that anybody can make us say to whoever follows a link, so nothing that a browser could
/// take for a page.
fn shake_hands(token: String) -> Result<Response, Problem> {
    let refused = |why: String| Err(Problem::new(StatusCode::BAD_REQUEST, format!("validationToken: {why}")));
    if token.is_empty() || token.chars().count() > LONGEST_TOKEN {
        return refused(format!("it has 1 to {LONGEST_TOKEN} characters"));
    }
    if token.chars().any(|c| c == '<' || c.is_ascii_control()) {
        return refused("there is something in it that Graph does not send".to_owned());
    }
    let headers = [(header::CONTENT_TYPE, "text/plain"), (header::X_CONTENT_TYPE_OPTIONS, "nosniff")];
    Ok((StatusCode::OK, headers, token).into_response())
}
