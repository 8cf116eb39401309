//! Parts of `/openapi.json` that all operations share: authentication, error responses, `X-Request-Id`.

use utoipa::openapi::path::Operation;
use utoipa::openapi::security::{Http, HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{
    Content, Header, OpenApi as Description, Ref, RefOr, Response, ResponseBuilder, SecurityRequirement,
};
use utoipa::{OpenApi, PartialSchema};

use super::problem::Problem;

const PROBLEM_MEDIA_TYPE: &str = "application/problem+json";

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Mailroom",
        description = "Search and read the mail of all mailboxes, follow its events, and manage tenants, mailboxes and jobs."
    ),
    components(schemas(Problem))
)]
struct ApiDoc;

pub fn base_description() -> Description {
    ApiDoc::openapi()
}

/// Error responses of every operation.
const COMMON_RESPONSES: [(&str, &str); 6] = [
    ("401", "The key is missing or not valid"),
    ("403", "The key has no permission for this operation"),
    ("422", "A parameter or field is not valid"),
    ("429", "Too many requests; `Retry-After` says when to try again"),
    ("500", "Internal error"),
    (
        "503",
        "The database or blob store is unavailable, or the server is overloaded; `Retry-After` says when to try again",
    ),
];

/// Error responses of operations with an id in their path.
const PATH_RESPONSES: [(&str, &str); 1] = [("404", "The resource does not exist, or belongs to another tenant")];

/// Error responses of operations that change something.
const CHANGE_RESPONSES: [(&str, &str); 4] = [
    ("404", "The resource does not exist, or belongs to another tenant"),
    ("409", "The change conflicts with the current state, or a request with this idempotency key is in progress"),
    ("412", "The resource was changed since it was read (`If-Match`)"),
    ("413", "The body is too large"),
];

/// Error responses of operations with a request body.
const BODY_RESPONSES: [(&str, &str); 2] =
    [("400", "The body is not valid JSON"), ("415", "The `Content-Type` is not JSON")];

pub fn add_common_responses(description: &mut Description) {
    let bearer = SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer));
    let components = description.components.get_or_insert_default();
    components.add_security_scheme("key", bearer);
    let token = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).bearer_format("JWT");
    let token = token.description(Some("Token signed by the provider, sent with its push messages"));
    components.add_security_scheme("push", SecurityScheme::Http(token.build()));
    description.security = Some(vec![SecurityRequirement::new("key", [""; 0])]);
    for (path, item) in &mut description.paths.paths {
        let changes = [&mut item.post, &mut item.put, &mut item.patch, &mut item.delete];
        for operation in changes.into_iter().flatten() {
            add_problems(operation, &CHANGE_RESPONSES);
            // An operation without parameters accepts a body too.
            add_problems(operation, &BODY_RESPONSES);
            add_common(operation, path);
        }
        if let Some(operation) = &mut item.get {
            add_common(operation, path);
        }
    }
}

fn add_common(operation: &mut Operation, path: &str) {
    add_problems(operation, &COMMON_RESPONSES);
    if path.contains('{') {
        add_problems(operation, &PATH_RESPONSES);
    }
    for answer in operation.responses.responses.values_mut() {
        if let RefOr::T(answer) = answer {
            answer.headers.insert("X-Request-Id".to_owned(), text_header());
        }
    }
}

fn add_problems(operation: &mut Operation, with: &[(&str, &str)]) {
    for (status, why) in with {
        let answers = &mut operation.responses.responses;
        answers.entry((*status).to_owned()).or_insert_with(|| RefOr::T(problem(why)));
    }
}

fn problem(why: &str) -> Response {
    let content = Content::new(Some(Ref::from_schema_name("Problem")));
    ResponseBuilder::new().description(why).content(PROBLEM_MEDIA_TYPE, content).build()
}

fn text_header() -> RefOr<Header> {
    RefOr::T(Header::new(String::schema()))
}
