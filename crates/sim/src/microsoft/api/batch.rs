//! Many calls in one: JSON, each part a request, and each part of the answer an answer.

use std::collections::HashMap;

use axum::http::header::CONTENT_TYPE;
use bytes::Bytes;
use futures_util::StreamExt;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::super::error::Refusal;
use super::super::faults::Kind;
use super::super::spec;
use super::super::world::World;
use super::call::{self, Asked};
use crate::answer::{Answer, Body};
use crate::form::decode;
use crate::spec::Side;

/// More are refused.
const MOST: usize = 20;

/// So many parts of one mailbox are worked on side by side.
const AT_ONCE: usize = 4;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Part {
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

#[derive(Debug, Deserialize)]
struct Batch {
    requests: Vec<Part>,
}

pub async fn answer(world: &World, authorization: Option<&str>, body: &[u8], faults: &[Kind]) -> Answer {
    let batch = match read(body) {
        Ok(batch) => batch,
        Err(why) => {
            world.violations.add(Side::Request, "batch", &why);
            return Refusal::bad(why).answer(world);
        }
    };
    let mut answers = match batch.requests.iter().all(|part| part.depends_on.is_empty()) {
        true => {
            let call = |part| async move { (part, one(world, part, authorization).await) };
            let calls: Vec<_> = batch.requests.iter().map(call).collect();
            // Side by side, and in the order in which they are done.
            futures_util::stream::iter(calls).buffer_unordered(AT_ONCE).collect::<Vec<_>>().await
        }
        false => one_after_the_other(world, &batch.requests, authorization).await,
    };
    if faults.contains(&Kind::MissingPart) {
        answers.pop();
    }
    if faults.contains(&Kind::ShuffledParts) {
        answers.reverse();
    }
    write(world, answers)
}

/// Whose mailbox a program asks about, by its first call that says so.
pub fn first_user(body: &[u8]) -> Option<String> {
    let batch: Batch = serde_json::from_slice(body).ok()?;
    batch.requests.iter().find_map(|part| part.url.strip_prefix("/users/")?.split(['/', '?']).next().map(decode))
}

async fn one(world: &World, part: &Part, authorization: Option<&str>) -> Answer {
    let body = if part.body.is_null() { String::new() } else { part.body.to_string() };
    let target = format!("/v1.0{}", part.url);
    let field = |wanted: &str| part.headers.iter().find(|(name, _)| name.eq_ignore_ascii_case(wanted));
    let asked = Asked {
        verb: &part.method,
        target: &target,
        authorization,
        prefer: field("prefer").map(|(_, value)| value.clone()).unwrap_or_default(),
        is_eventual: super::is_eventual(field("consistencylevel").map(|(_, value)| value.as_str())),
        body: body.as_bytes(),
        in_batch: true,
    };
    call::part(world, &asked).await
}

/// Those that wait for others come after them; if one fails, so do they.
async fn one_after_the_other<'a>(
    world: &World,
    parts: &'a [Part],
    authorization: Option<&str>,
) -> Vec<(&'a Part, Answer)> {
    let mut answers: Vec<(&Part, Answer)> = Vec::new();
    for part in parts {
        let is_good = |id: &String| answers.iter().any(|(before, answer)| before.id == *id && answer.status < 400);
        let answer = match part.depends_on.iter().all(is_good) {
            true => one(world, part, authorization).await,
            false => {
                let message = "The request has a dependency on another request that failed.";
                Refusal::new(424, "FailedDependency", message).answer(world)
            }
        };
        answers.push((part, answer));
    }
    answers
}

fn read(body: &[u8]) -> Result<Batch, String> {
    let value: Value = serde_json::from_slice(body).map_err(|_| "the body is no JSON".to_owned())?;
    spec::undocumented().check("BatchRequest", &value)?;
    let batch: Batch = serde_json::from_value(value).map_err(|e| e.to_string())?;
    if batch.requests.len() > MOST || batch.requests.is_empty() {
        return Err(format!("a batch has between 1 and {MOST} requests"));
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

/// As in `Retry-After`: in JSON the case of a header's name is what somebody wrote.
fn written(name: &str) -> String {
    let word = |word: &str| word[..1].to_uppercase() + &word[1..];
    name.split('-').map(word).collect::<Vec<_>>().join("-")
}

fn write(world: &World, answers: Vec<(&Part, Answer)>) -> Answer {
    let mut pieces: Vec<Bytes> = vec![Bytes::from_static(b"{\"responses\":[")];
    let (mut cut, mut spoilt) = (None, crate::spoilt::Spoilt::default());
    for (at, (part, answer)) in answers.into_iter().enumerate() {
        cut = cut.or(answer.cut);
        spoilt.is_cut |= answer.spoilt.is_cut;
        spoilt.slow = spoilt.slow.or(answer.spoilt.slow);
        let mut headers = Map::new();
        for (name, value) in &answer.headers {
            headers.insert(written(name.as_str()), json!(value.to_str().unwrap_or_default()));
        }
        let head = json!({"id": part.id, "status": answer.status, "headers": headers});
        if let Err(why) = spec::undocumented().check("BatchAnswer", &head) {
            world.violations.add(Side::Response, "batch", &why);
        }
        let mut head = head.to_string();
        head.pop();
        let comma = if at == 0 { "" } else { "," };
        // What is not JSON has been encoded already, but for what is no answer at all.
        let is_text = matches!(answer.body, Body::Other { .. });
        let is_foreign = answer.headers.iter().any(|(name, value)| name == CONTENT_TYPE && value == "text/html");
        let quote = if is_text && !is_foreign { "\"" } else { "" };
        let body = match answer.body {
            Body::Empty => vec![Bytes::from_static(b"null")],
            Body::Other { pieces } if is_foreign => {
                vec![Bytes::from(json!(String::from_utf8_lossy(&pieces.concat())).to_string())]
            }
            _ => answer.into_pieces(),
        };
        pieces.push(Bytes::from(format!("{comma}{head},\"body\":{quote}")));
        pieces.extend(body);
        pieces.push(Bytes::from(format!("{quote}}}")));
    }
    pieces.push(Bytes::from_static(b"]}"));
    let mut answer = Answer::new(200, Body::Other { pieces });
    (answer.cut, answer.spoilt) = (cut, spoilt);
    answer.with(CONTENT_TYPE, "application/json")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(parts: Value) -> Result<Batch, String> {
        read(json!({"requests": parts}).to_string().as_bytes())
    }

    #[test]
    fn what_is_no_batch_is_refused() {
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
