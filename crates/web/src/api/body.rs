//! Parses JSON request bodies into types, with errors that name the field.

use std::any::TypeId;

use axum::extract::rejection::BytesRejection;
use axum::http::{HeaderMap, StatusCode, header};
use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Deserializer};
use serde_json::error::Category;

use super::problem::{Problem, ROOT_PATH, RequestPart, invalid_field};
use crate::edge::is_body_timeout;

/// Body of a request without parameters: absent or `{}`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EmptyBody {}

/// Parses a request body. Only [`EmptyBody`] may be absent.
pub fn parse_body<T: DeserializeOwned + 'static>(headers: &HeaderMap, bytes: &[u8]) -> Result<T, Problem> {
    if bytes.is_empty() {
        if TypeId::of::<T>() == TypeId::of::<EmptyBody>() {
            return parse(b"{}");
        }
        return Err(Problem::invalid("body", "must be a JSON object"));
    }
    if !is_json(headers) {
        let detail = "the body must be JSON; send `Content-Type: application/json`";
        return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, detail));
    }
    parse(bytes)
}

/// Accepts `application/json` and types with the suffix `+json`, such as `application/merge-patch+json`.
fn is_json(headers: &HeaderMap) -> bool {
    let non_null = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let Some((kind, subtype)) = non_null.and_then(|text| text.split(';').next()?.trim().split_once('/')) else {
        return false;
    };
    let ends_in_json = subtype.len() > 5 && subtype.as_bytes()[subtype.len() - 5..].eq_ignore_ascii_case(b"+json");
    kind.eq_ignore_ascii_case("application") && (subtype.eq_ignore_ascii_case("json") || ends_in_json)
}

/// Deserialises a field that may be absent but not null.
pub fn non_null<'de, D: Deserializer<'de>, T: Deserialize<'de>>(field: D) -> Result<Option<T>, D::Error> {
    T::deserialize(field).map(Some)
}

/// Deserialises a field for which null means something else than its absence.
pub fn nullable<'de, D: Deserializer<'de>, T: Deserialize<'de>>(field: D) -> Result<Option<Option<T>>, D::Error> {
    Option::deserialize(field).map(Some)
}

/// Parses a JSON object. Invalid JSON is a 400, an invalid value a 422.
pub fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    // Serde would accept an array for a struct, with its items in the order of the fields.
    if bytes.iter().find(|byte| !byte.is_ascii_whitespace()).is_some_and(|first| *first != b'{') {
        return Err(match serde_json::from_slice::<IgnoredAny>(bytes) {
            Ok(_) => Problem::invalid("body", "must be a JSON object"),
            Err(e) => json_problem(ROOT_PATH, &e),
        });
    }
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let value = serde_path_to_error::deserialize(&mut reader).map_err(|e| {
        let field = e.path().to_string();
        json_problem(&field, e.inner())
    })?;
    reader.end().map_err(|e| json_problem(ROOT_PATH, &e))?;
    Ok(value)
}

fn json_problem(field: &str, e: &serde_json::Error) -> Problem {
    if e.classify() != Category::Data {
        return Problem::new(StatusCode::BAD_REQUEST, format!("the body is not valid JSON: {e}"));
    }
    // The position at the end says less than the name of the field.
    let message = e.to_string();
    let detail = message.rsplit_once(" at line ").map_or(message.as_str(), |(detail, _)| detail);
    invalid_field(RequestPart::Body, field, detail)
}

impl From<BytesRejection> for Problem {
    fn from(e: BytesRejection) -> Self {
        match e.status() {
            StatusCode::PAYLOAD_TOO_LARGE => Self::payload_too_large(),
            _ if is_body_timeout(&e) => Self::new(StatusCode::REQUEST_TIMEOUT, "the body did not arrive in time"),
            _ => Self::new(StatusCode::BAD_REQUEST, "the body ended early"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::to_bytes;
    use axum::response::IntoResponse;
    use serde_json::Value;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct TestOrder {
        name: String,
        #[serde(default)]
        lines: Vec<TestLine>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct TestLine {
        count: u32,
    }

    async fn problem_json(problem: Problem) -> Value {
        let body = to_bytes(problem.into_response().into_body(), usize::MAX).await.unwrap();
        serde_json::from_slice(&body).unwrap()
    }

    #[tokio::test]
    async fn errors_name_the_field() {
        for (text, status, field, says) in [
            ("", 400, "", "not valid JSON"),
            ("{\"name\":", 400, "", "not valid JSON"),
            ("{\"name\": \"a\"} x", 400, "", "not valid JSON"),
            ("{name: 1}", 400, "", "not valid JSON"),
            ("[\"a\"]", 422, "body", "object"),
            ("7", 422, "body", "object"),
            ("{}", 422, "name", "is required"),
            ("{\"name\": 7}", 422, "name", "must be a text, not 7"),
            ("{\"nme\": \"a\"}", 422, "nme", "is not a field of this request"),
            ("{\"name\": \"a\", \"name\": \"b\"}", 422, "name", "is given twice"),
            ("{\"name\": \"a\", \"lines\": [{\"count\": 1}, {\"count\": -1}]}", 422, "lines[1].count", "not -1"),
            ("{\"name\": \"a\", \"lines\": [{\"cuont\": 1}]}", 422, "lines[0].cuont", "is not a field"),
            ("{\"name\": \"a\", \"lines\": [{}]}", 422, "lines[0].count", "is required"),
        ] {
            let message = problem_json(parse::<TestOrder>(text.as_bytes()).map(drop).unwrap_err()).await;

            assert_eq!(message["status"], status, "{text}: {message}");
            assert!(message["detail"].as_str().unwrap().contains(says), "{text}: {message}");
            if !field.is_empty() {
                assert_eq!(message["errors"][0]["field"], field, "{text}: {message}");
            }
        }
        assert_eq!(parse::<TestOrder>(br#"{"name": "a", "lines": [{"count": 3}]}"#).unwrap().lines[0].count, 3);
    }

    /// Returns the parsed name, or the status of the problem.
    async fn parse_as(content_type: &str) -> Value {
        let headers = HeaderMap::from_iter([(header::CONTENT_TYPE, content_type.parse().unwrap())]);
        match parse_body::<TestOrder>(&headers, b"{\"name\": \"a\"}") {
            Ok(order) => Value::from(order.name),
            Err(problem) => problem_json(problem).await["status"].clone(),
        }
    }

    #[tokio::test]
    async fn other_content_types_are_refused() {
        for good in ["application/json", "Application/JSON; charset=utf-8", "application/merge-patch+json"] {
            assert_eq!(parse_as(good).await, "a", "{good}");
        }
        for bad in ["text/plain", "application/x-www-form-urlencoded", "", "json", "application/+json", "text/json"] {
            assert_eq!(parse_as(bad).await, 415, "{bad}");
        }
    }
}
