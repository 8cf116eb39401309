//! What somebody sends as JSON, read so that a mistake is named: which field, and what about it.

use std::any::TypeId;

use axum::extract::rejection::BytesRejection;
use axum::http::{HeaderMap, StatusCode, header};
use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Deserializer};
use serde_json::error::Category;

use super::problem::Problem;
use crate::edge::was_too_slow;

/// What a request says that has nothing to say.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nothing {}

/// Only a request that has nothing to say may come without a body.
pub fn parse_sent<T: DeserializeOwned + 'static>(headers: &HeaderMap, bytes: &[u8]) -> Result<T, Problem> {
    if bytes.is_empty() {
        return match TypeId::of::<T>() == TypeId::of::<Nothing>() {
            true => parse(b"{}"),
            false => Err(Problem::invalid("body", "there has to be one, of JSON")),
        };
    }
    if !is_json(headers) {
        let detail = "send JSON, and say so: `Content-Type: application/json`";
        return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, detail));
    }
    parse(bytes)
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

/// A field that may be left out but is not null.
pub fn given<'de, D: Deserializer<'de>, T: Deserialize<'de>>(field: D) -> Result<Option<T>, D::Error> {
    T::deserialize(field).map(Some)
}

/// A field that may be left out, and for which null means something.
pub fn given_or_null<'de, D: Deserializer<'de>, T: Deserialize<'de>>(field: D) -> Result<Option<Option<T>>, D::Error> {
    Option::deserialize(field).map(Some)
}

/// 400 for what is no JSON, 422 for JSON that means nothing here.
pub fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    // A list would do for a struct, its items in the order of the fields: nobody means that.
    if bytes.iter().find(|byte| !byte.is_ascii_whitespace()).is_some_and(|first| *first != b'{') {
        return Err(match serde_json::from_slice::<IgnoredAny>(bytes) {
            Ok(_) => Problem::invalid("body", "it is an object, with names and values"),
            Err(e) => refusal(WHOLE, &e),
        });
    }
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
            StatusCode::PAYLOAD_TOO_LARGE => Self::too_large(),
            _ if was_too_slow(&e) => Self::new(StatusCode::REQUEST_TIMEOUT, "the body did not arrive in time"),
            _ => Self::new(StatusCode::BAD_REQUEST, "the body broke off before its end"),
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
            ("[\"a\"]", 422, "body", "object"),
            ("7", 422, "body", "object"),
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
            let headers = HeaderMap::from_iter([(header::CONTENT_TYPE, content_type.parse().unwrap())]);
            match parse_sent::<Order>(&headers, b"{\"name\": \"a\"}") {
                Ok(order) => Value::from(order.name),
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
