//! JSON batches: each part is a request, each part of the response its response.

use std::collections::HashMap;

use axum::http::header::CONTENT_TYPE;
use bytes::Bytes;
use futures_util::StreamExt;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::super::error::GraphError;
use super::super::faults::MicrosoftFaultKind;
use super::super::spec;
use super::super::world::MicrosoftWorld;
use super::call::{self, GraphRequest};
use crate::form::decode;
use crate::response::{ResponseBody, SimResponse};
use crate::spec::Side;

/// The maximum number of requests in a batch.
const MAX_PARTS: usize = 20;

/// The number of parts that are answered concurrently.
const MAX_CONCURRENT_PARTS: usize = 4;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct GraphBatchPart {
    id: String,
    method: String,
    url: String,
    #[serde(default)]
    headers: HashMap<String, String>,
    #[serde(default)]
    body: Value,
    #[serde(default)]
    depends_on: Vec<String>,
}

impl GraphBatchPart {
    /// Finds a header field, whatever the case of its name.
    fn header(&self, name: &str) -> Option<&str> {
        let mut fields = self.headers.iter();
        fields.find(|(given, _)| given.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }
}

fn has_succeeded(answers: &[(&GraphBatchPart, SimResponse)], id: &str) -> bool {
    answers.iter().any(|(part, answer)| part.id == id && answer.status < 400)
}

#[derive(Debug, Deserialize)]
struct GraphBatch {
    requests: Vec<GraphBatchPart>,
}

pub async fn answer(
    world: &MicrosoftWorld,
    authorization: Option<&str>,
    body: &[u8],
    faults: &[MicrosoftFaultKind],
) -> SimResponse {
    let batch = match read(body) {
        Ok(batch) => batch,
        Err(why) => {
            world.violations.add(Side::Request, "batch", &why);
            return GraphError::bad(why).answer(world);
        }
    };
    let mut answers = if batch.requests.iter().all(|part| part.depends_on.is_empty()) {
        let calls: Vec<_> = batch
            .requests
            .iter()
            .map(|part| async move { (part, answer_batch_part(world, part, authorization).await) })
            .collect();
        // Concurrent, in order of completion.
        futures_util::stream::iter(calls).buffer_unordered(MAX_CONCURRENT_PARTS).collect::<Vec<_>>().await
    } else {
        answer_in_order(world, &batch.requests, authorization).await
    };
    if faults.contains(&MicrosoftFaultKind::MissingPart) {
        answers.pop();
    }
    if faults.contains(&MicrosoftFaultKind::ShuffledParts) {
        answers.reverse();
    }
    write(world, answers)
}

/// Finds the user of the first part that names one.
pub fn first_user(body: &[u8]) -> Option<String> {
    let batch: GraphBatch = serde_json::from_slice(body).ok()?;
    batch.requests.iter().find_map(|part| part.url.strip_prefix("/users/")?.split(['/', '?']).next().map(decode))
}

async fn answer_batch_part(world: &MicrosoftWorld, part: &GraphBatchPart, authorization: Option<&str>) -> SimResponse {
    let body = if part.body.is_null() { String::new() } else { part.body.to_string() };
    let target = format!("/v1.0{}", part.url);
    let request = GraphRequest {
        verb: &part.method,
        target: &target,
        authorization,
        prefer: part.header("prefer").unwrap_or_default().to_owned(),
        is_eventual: super::is_eventual(part.header("consistencylevel")),
        body: body.as_bytes(),
        in_batch: true,
    };
    call::answer_part(world, &request).await
}

/// Answers parts in order. A part fails if one that it depends on has failed.
async fn answer_in_order<'a>(
    world: &MicrosoftWorld,
    parts: &'a [GraphBatchPart],
    authorization: Option<&str>,
) -> Vec<(&'a GraphBatchPart, SimResponse)> {
    let mut answers: Vec<(&GraphBatchPart, SimResponse)> = Vec::new();
    for part in parts {
        let answer = if part.depends_on.iter().all(|id| has_succeeded(&answers, id)) {
            answer_batch_part(world, part, authorization).await
        } else {
            let message = "The request has a dependency on another request that failed.";
            GraphError::new(424, "FailedDependency", message).answer(world)
        };
        answers.push((part, answer));
    }
    answers
}

fn read(body: &[u8]) -> Result<GraphBatch, String> {
    let value: Value = serde_json::from_slice(body).map_err(|_| "the body is no JSON".to_owned())?;
    spec::undocumented().check("BatchRequest", &value)?;
    let batch: GraphBatch = serde_json::from_value(value).map_err(|e| e.to_string())?;
    if batch.requests.len() > MAX_PARTS || batch.requests.is_empty() {
        return Err(format!("a batch has between 1 and {MAX_PARTS} requests"));
    }
    for (at, part) in batch.requests.iter().enumerate() {
        if batch.requests[..at].iter().any(|before| before.id == part.id) {
            return Err(format!("the id {:?} comes twice", part.id));
        }
        if !part.url.starts_with('/') || part.url.starts_with("/v1.0/") {
            return Err(format!("{:?} is not relative to the version", part.url));
        }
        if !part.body.is_null() && !part.headers.keys().any(|name| name.eq_ignore_ascii_case("content-type")) {
            return Err("a body needs a Content-Type".to_owned());
        }
    }
    Ok(batch)
}

/// Capitalizes a header name, as in `Retry-After`: JSON keeps the case.
fn header_case(name: &str) -> String {
    name.split('-').map(|word| word[..1].to_uppercase() + &word[1..]).collect::<Vec<_>>().join("-")
}

fn write(world: &MicrosoftWorld, answers: Vec<(&GraphBatchPart, SimResponse)>) -> SimResponse {
    let mut pieces: Vec<Bytes> = vec![Bytes::from_static(b"{\"responses\":[")];
    let (mut cut, mut damage) = (None, crate::body_damage::BodyDamage::default());
    for (at, (part, answer)) in answers.into_iter().enumerate() {
        cut = cut.or(answer.cut);
        damage.is_cut |= answer.damage.is_cut;
        damage.slow = damage.slow.or(answer.damage.slow);
        let mut headers = Map::new();
        for (name, value) in &answer.headers {
            headers.insert(header_case(name.as_str()), json!(value.to_str().unwrap_or_default()));
        }
        let head = json!({"id": part.id, "status": answer.status, "headers": headers});
        if let Err(why) = spec::undocumented().check("BatchAnswer", &head) {
            world.violations.add(Side::Response, "batch", &why);
        }
        let mut head = head.to_string();
        head.pop();
        let comma = if at == 0 { "" } else { "," };
        // Other bodies are base64 already, except an injected HTML page.
        let is_text = matches!(answer.body, ResponseBody::Other { .. });
        let is_foreign = answer.headers.iter().any(|(name, value)| name == CONTENT_TYPE && value == "text/html");
        let quote = if is_text && !is_foreign { "\"" } else { "" };
        let body = match answer.body {
            ResponseBody::Empty => vec![Bytes::from_static(b"null")],
            ResponseBody::Other { pieces } if is_foreign => {
                vec![Bytes::from(json!(String::from_utf8_lossy(&pieces.concat())).to_string())]
            }
            _ => answer.into_pieces(),
        };
        pieces.push(Bytes::from(format!("{comma}{head},\"body\":{quote}")));
        pieces.extend(body);
        pieces.push(Bytes::from(format!("{quote}}}")));
    }
    pieces.push(Bytes::from_static(b"]}"));
    let mut answer = SimResponse::new(200, ResponseBody::Other { pieces });
    (answer.cut, answer.damage) = (cut, damage);
    answer.with(CONTENT_TYPE, "application/json")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(parts: Value) -> Result<GraphBatch, String> {
        read(json!({"requests": parts}).to_string().as_bytes())
    }

    #[test]
    fn malformed_batch_is_refused() {
        let good = json!({"id": "1", "method": "GET", "url": "/me/messages"});
        assert_eq!(batch(json!([good])).unwrap().requests.len(), 1);
        let with = |name: &str, value: Value| {
            let mut part = good.clone();
            part[name] = value;
            batch(json!([part]))
        };

        assert!(batch(json!([])).is_err());
        assert!(batch(json!([good, good])).is_err(), "an id comes once");
        assert!(with("url", json!("https://graph.microsoft.com/v1.0/me")).is_err());
        assert!(with("url", json!("/v1.0/me")).is_err());
        assert!(with("method", json!("get")).is_err());
        assert!(with("body", json!({})).is_err(), "a body needs a content type");
        assert!(with("header", json!({})).is_err());
        let many: Vec<Value> = (0..21).map(|id| json!({"id": id.to_string(), "method": "GET", "url": "/me"})).collect();
        assert!(batch(json!(many)).is_err());
    }
}
