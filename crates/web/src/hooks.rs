//! The endpoint that providers push to. It has no API key: each provider authenticates its calls in its own way, and
//! declares further paths of the same endpoint.

use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Query as AxumQuery, Request, State};
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use domain::{ProviderDeclaration, PushDeclaration, PushEndpoint, PushRefusal};
use engine::sync::push::PushError;
use utoipa::openapi::OpenApi as Description;

use crate::App;
use crate::parameters::Path;
use crate::problem::Problem;

/// Validation tokens have some hundred characters.
const MAX_VALIDATION_TOKEN_CHARS: usize = 2048;

/// Receive a push of a provider: a hint that something changed in an account.
///
/// Not for API keys: providers authenticate their calls by a token that they sign, or by a secret agreed on with the
/// subscription. Each mailbox of the account is synced.
#[utoipa::path(post, path = "/v1/hooks/{provider}", operation_id = "push", tag = "hooks", security(("push" = []), ()),
    params(("provider" = String, Path, description = "Provider that pushes")),
    request_body(content = serde_json::Value, description = "Push as the provider sends it"), responses(
    (status = 200, description = "The provider validates this URL: the token that it sent", content_type = "text/plain", body = String),
    (status = 202, description = "The push was recorded; do not send it again"),
    (status = 204, description = "The push was recorded; do not send it again"),
    (status = 400, description = "The push is malformed"),
    (status = 401, description = "The token is missing, expired, or not signed by the provider"),
    (status = 403, description = "The token is for another audience or of another account"),
    (status = 404, description = "There is no such provider, or its pushes are not configured on this server"),
    (status = 413, description = "The body is larger than a push can be"),
    (status = 503, description = "The push cannot be verified or recorded now; send it again")))]
pub async fn notify(State(app): State<App>, Path(name): Path<String>, request: Request) -> Result<Response, Problem> {
    let declaration = app.providers.find_by_name(&name).ok_or_else(Problem::no_such_route)?;
    receive(&app, declaration, request).await
}

/// Adds the further paths that providers declare for their pushes, with their descriptions.
pub fn add_declared_routes(app: &App, mut routes: Router<App>, description: &mut Description) -> Router<App> {
    for declaration in app.providers.iter() {
        let Some(push) = &declaration.push else { continue };
        let declared = declared_routes(push);
        for path in declared.paths.paths.keys() {
            let handler = post(move |State(app): State<App>, request: Request| async move {
                receive(&app, declaration, request).await
            });
            routes = routes.route(path, handler);
        }
        description.merge(declared);
    }
    routes
}

fn declared_routes(push: &PushDeclaration) -> Description {
    serde_json::from_str(push.routes).expect("a test reads the document of each provider")
}

async fn receive(app: &App, declaration: &ProviderDeclaration, request: Request) -> Result<Response, Problem> {
    let Some(push) = &declaration.push else { return Err(Problem::no_such_route()) };
    let Some(pushes) = app.pushes.get(&declaration.provider) else {
        return Err(Problem::new(StatusCode::NOT_FOUND, push.not_configured));
    };
    let (parts, body) = request.into_parts();
    let endpoint = pushes.endpoint();
    if let Some((parameter, token)) = validation_token(endpoint, &parts.uri)? {
        return echo_validation_token(parameter, token);
    }
    pushes.verify(bearer(&parts.headers)).await.map_err(push_problem)?;
    let body = read_body(body, endpoint.max_body_bytes).await?;
    match pushes.receive(body).await {
        Ok(_) => recorded(endpoint),
        Err(PushError::Malformed(_)) if endpoint.accepts_malformed => recorded(endpoint),
        Err(PushError::Malformed(why)) => Err(Problem::new(StatusCode::BAD_REQUEST, why)),
        Err(PushError::RetryLater(why)) => Err(Problem::overloaded(why)),
        Err(PushError::Store(e)) => Err(e.into()),
    }
}

fn recorded(endpoint: &PushEndpoint) -> Result<Response, Problem> {
    let status = StatusCode::from_u16(endpoint.recorded_status).map_err(|_| Problem::internal())?;
    Ok(status.into_response())
}

/// Returns the parameter by which the provider validates this URL, and its value.
fn validation_token(endpoint: &PushEndpoint, uri: &Uri) -> Result<Option<(&'static str, String)>, Problem> {
    let Some(parameter) = endpoint.validation_parameter else { return Ok(None) };
    let AxumQuery(query) = AxumQuery::<Vec<(String, String)>>::try_from_uri(uri)?;
    Ok(query.into_iter().find(|(name, _)| name == parameter).map(|(_, token)| (parameter, token)))
}

/// Repeats the validation token exactly. Anybody can make us send any token to a person who follows a link, so nothing
/// that a browser could render as a page is accepted.
fn echo_validation_token(parameter: &str, token: String) -> Result<Response, Problem> {
    if token.is_empty() || token.chars().count() > MAX_VALIDATION_TOKEN_CHARS {
        let detail = format!("{parameter}: must have 1 to {MAX_VALIDATION_TOKEN_CHARS} characters");
        return Err(Problem::new(StatusCode::BAD_REQUEST, detail));
    }
    if token.chars().any(|c| c == '<' || c.is_ascii_control()) {
        let detail = format!("{parameter}: must not contain `<` or control characters");
        return Err(Problem::new(StatusCode::BAD_REQUEST, detail));
    }
    let headers = [(header::CONTENT_TYPE, "text/plain"), (header::X_CONTENT_TYPE_OPTIONS, "nosniff")];
    Ok((StatusCode::OK, headers, token).into_response())
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(token.trim())
}

fn push_problem(refused: PushRefusal) -> Problem {
    match refused {
        PushRefusal::Unauthorized(reason) => Problem::unauthorized(reason),
        PushRefusal::Forbidden(reason) => Problem::forbidden(reason),
        PushRefusal::NoKeys(reason) => Problem::overloaded(reason),
    }
}

/// Reads a request body of at most `max_bytes`.
async fn read_body(body: Body, max_bytes: usize) -> Result<Bytes, Problem> {
    to_bytes(body, max_bytes).await.map_err(|e| {
        if crate::edge::is_body_timeout(&e) {
            Problem::new(StatusCode::REQUEST_TIMEOUT, "the body did not arrive in time")
        } else {
            Problem::new(StatusCode::PAYLOAD_TOO_LARGE, format!("the body is larger than {max_bytes} bytes"))
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn declared_documents_describe_hooks_alone() {
        for declaration in providers::registry::DECLARATIONS.iter() {
            let Some(push) = &declaration.push else { continue };

            let declared = declared_routes(push);

            assert!(!declared.paths.paths.is_empty(), "{declaration:?}");
            for (path, item) in &declared.paths.paths {
                assert!(path.starts_with("/v1/hooks/") && item.post.is_some(), "{path}");
            }
        }
    }
}
