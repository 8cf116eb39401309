//! What `/openapi.json` says of all operations alike: keys, and what may be answered instead of what was asked for.

use utoipa::openapi::path::Operation;
use utoipa::openapi::security::{Http, HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{
    Content, Header, OpenApi as Description, Ref, RefOr, Response, ResponseBuilder, SecurityRequirement,
};
use utoipa::{OpenApi, PartialSchema};

use super::problem::Problem;

const PROBLEM: &str = "application/problem+json";

#[derive(OpenApi)]
#[openapi(
    info(title = "Mailroom", description = "Mail of many mailboxes, found, read and followed."),
    components(schemas(Problem))
)]
struct Api;

pub fn begin() -> Description {
    Api::openapi()
}

/// What any operation may answer.
const ALWAYS: [(&str, &str); 6] = [
    ("401", "No key, or one that is not valid"),
    ("403", "This key may not do that"),
    ("422", "Something about the request is wrong"),
    ("429", "Too many requests; `Retry-After` says when to come again"),
    ("500", "Something went wrong here"),
    ("503", "What is stored cannot be reached, or too much is going on"),
];

/// What an operation may answer that names something in its address.
const OF_SOMETHING: [(&str, &str); 1] = [("404", "It is not there, or another tenant's")];

/// What an operation may answer that changes something.
const OF_CHANGES: [(&str, &str); 4] = [
    ("404", "It is not there, or another tenant's"),
    ("409", "It does not go together with what is there, or a request with this key is being answered"),
    ("412", "It was changed since it was read"),
    ("413", "The body is too large"),
];

/// What an operation may answer that takes a body.
const OF_BODIES: [(&str, &str); 2] = [("400", "The body is no JSON"), ("415", "The body does not say that it is JSON")];

pub fn complete(description: &mut Description) {
    let bearer = SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer));
    let components = description.components.get_or_insert_default();
    components.add_security_scheme("key", bearer);
    let token = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).bearer_format("JWT");
    let token = token.description(Some("A token that the provider has signed, with which its pushes come"));
    components.add_security_scheme("push", SecurityScheme::Http(token.build()));
    description.security = Some(vec![SecurityRequirement::new("key", [""; 0])]);
    for (path, item) in &mut description.paths.paths {
        let changes = [&mut item.post, &mut item.put, &mut item.patch, &mut item.delete];
        for operation in changes.into_iter().flatten() {
            refuse(operation, &OF_CHANGES);
            // Also where nothing has to be said something may be.
            refuse(operation, &OF_BODIES);
            finish(operation, path);
        }
        if let Some(operation) = &mut item.get {
            finish(operation, path);
        }
    }
}

fn finish(operation: &mut Operation, path: &str) {
    refuse(operation, &ALWAYS);
    if path.contains('{') {
        refuse(operation, &OF_SOMETHING);
    }
    for answer in operation.responses.responses.values_mut() {
        if let RefOr::T(answer) = answer {
            answer.headers.insert("X-Request-Id".to_owned(), text_header());
        }
    }
}

fn refuse(operation: &mut Operation, with: &[(&str, &str)]) {
    for (status, why) in with {
        let answers = &mut operation.responses.responses;
        answers.entry((*status).to_owned()).or_insert_with(|| RefOr::T(problem(why)));
    }
}

fn problem(why: &str) -> Response {
    let content = Content::new(Some(Ref::from_schema_name("Problem")));
    ResponseBuilder::new().description(why).content(PROBLEM, content).build()
}

fn text_header() -> RefOr<Header> {
    RefOr::T(Header::new(String::schema()))
}
