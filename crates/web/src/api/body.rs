//! What somebody sends as JSON, read so that a mistake is named: which field, and what about it.

use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{FromRequest, Request};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::error::Category;

use super::problem::Problem;

/// As axum's, but what is wrong is told as a problem.
#[derive(Debug, Clone, Copy)]
pub struct Json<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Json<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        if !is_json(request.headers()) {
            let detail = "send JSON, and say so: `Content-Type: application/json`";
            return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, detail));
        }
        let bytes = Bytes::from_request(request, state).await?;
        parse(&bytes).map(Self)
    }
}

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        axum::Json(self.0).into_response()
    }
}

/// `application/json`, or what is built on it, like `application/merge-patch+json`.
fn is_json(headers: &HeaderMap) -> bool {
    let given = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let Some((kind, subtype)) = given.and_then(|text| text.split(';').next()?.trim().split_once('/')) else {
        return false;
    };
    let ends_in_json = subtype.len() > 5 && subtype.as_bytes()[subtype.len() - 5..].eq_ignore_ascii_case(b"+json");
    kind.eq_ignore_ascii_case("application") && (subtype.eq_ignore_ascii_case("json") || ends_in_json)
}

/// 400 for what is no JSON, 422 for JSON that means nothing here.
pub fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let value = serde_path_to_error::deserialize(&mut reader).map_err(|e| {
        let field = e.path().to_string();
        refusal(&field, e.inner())
    })?;
    reader.end().map_err(|e| refusal(WHOLE, &e))?;
    Ok(value)
}

/// How the path to everything is written.
const WHOLE: &str = ".";

fn refusal(field: &str, e: &serde_json::Error) -> Problem {
    if e.classify() != Category::Data {
        return Problem::new(StatusCode::BAD_REQUEST, format!("this is not JSON: {e}"));
    }
    // What follows is where in the text, which says less than the name of the field.
    let told = e.to_string();
    let detail = told.rsplit_once(" at line ").map_or(told.as_str(), |(detail, _)| detail);
    match ["unknown field", "missing field", "duplicate field"].iter().find_map(|what| unquoted(detail, what)) {
        // The path leads to what holds it.
        Some(name) if field == WHOLE || field == name => Problem::invalid(name, detail),
        Some(name) if field.ends_with(&format!(".{name}")) => Problem::invalid(field, detail),
        Some(name) => Problem::invalid(&format!("{field}.{name}"), detail),
        None if field == WHOLE => Problem::invalid("body", detail),
        None => Problem::invalid(field, detail),
    }
}

/// The name in "missing field `name`".
fn unquoted<'a>(detail: &'a str, what: &str) -> Option<&'a str> {
    detail.strip_prefix(what)?.strip_prefix(" `")?.split('`').next()
}

impl From<BytesRejection> for Problem {
    fn from(e: BytesRejection) -> Self {
        match e.status() {
            StatusCode::PAYLOAD_TOO_LARGE => {
                Self::new(StatusCode::PAYLOAD_TOO_LARGE, "the body is larger than this server takes (limits.api_body)")
            }
            _ => Self::new(StatusCode::BAD_REQUEST, "the body broke off before its end"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::{Body, to_bytes};
    use serde::Deserialize;
    use serde_json::Value;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Order {
        name: String,
        #[serde(default)]
        lines: Vec<Line>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Line {
        count: u32,
    }

    async fn told(problem: Problem) -> Value {
        let body = to_bytes(problem.into_response().into_body(), usize::MAX).await.unwrap();
        serde_json::from_slice(&body).unwrap()
    }

    #[tokio::test]
    async fn what_is_wrong_in_json_is_named() {
        for (text, status, field, says) in [
            ("", 400, "", "not JSON"),
            ("{\"name\":", 400, "", "not JSON"),
            ("{\"name\": \"a\"} x", 400, "", "not JSON"),
            ("{name: 1}", 400, "", "not JSON"),
            ("[]", 422, "body", "invalid length"),
            ("7", 422, "body", "invalid type"),
            ("{}", 422, "name", "missing field"),
            ("{\"name\": 7}", 422, "name", "invalid type: integer `7`, expected a string"),
            ("{\"nme\": \"a\"}", 422, "nme", "unknown field `nme`, expected `name` or `lines`"),
            ("{\"name\": \"a\", \"name\": \"b\"}", 422, "name", "duplicate field"),
            ("{\"name\": \"a\", \"lines\": [{\"count\": 1}, {\"count\": -1}]}", 422, "lines[1].count", "invalid value"),
            ("{\"name\": \"a\", \"lines\": [{\"cuont\": 1}]}", 422, "lines[0].cuont", "unknown field"),
            ("{\"name\": \"a\", \"lines\": [{}]}", 422, "lines[0].count", "missing field"),
        ] {
            let told = told(parse::<Order>(text.as_bytes()).map(drop).unwrap_err()).await;

            assert_eq!(told["status"], status, "{text}: {told}");
            assert!(told["detail"].as_str().unwrap().contains(says), "{text}: {told}");
            if !field.is_empty() {
                assert_eq!(told["errors"][0]["field"], field, "{text}: {told}");
            }
        }
        assert_eq!(parse::<Order>(br#"{"name": "a", "lines": [{"count": 3}]}"#).unwrap().lines[0].count, 3);
    }

    #[tokio::test]
    async fn only_what_says_that_it_is_json_is_read() {
        let status = async |content_type: &str| {
            let request = Request::builder().header(header::CONTENT_TYPE, content_type);
            let request = request.body(Body::from("{\"name\": \"a\"}")).unwrap();
            match Json::<Order>::from_request(request, &()).await {
                Ok(Json(order)) => Value::from(order.name),
                Err(problem) => told(problem).await["status"].clone(),
            }
        };
        for good in ["application/json", "Application/JSON; charset=utf-8", "application/merge-patch+json"] {
            assert_eq!(status(good).await, "a", "{good}");
        }
        for bad in ["text/plain", "application/x-www-form-urlencoded", "", "json", "application/+json", "text/json"] {
            assert_eq!(status(bad).await, 415, "{bad}");
        }
    }
}
