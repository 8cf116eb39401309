//! The provider's API, as a connector speaks to it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::extract::{Path, RawQuery, State};
use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use bytes::Bytes;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::json;

use super::super::account::{Account, MessageId};
use super::super::faults::{Kind, Route};
use super::super::pages::{BadCursor, Listing, Page};
use super::body;
use super::world::{InFlight, Mailbox, World};

/// A page unless asked otherwise, and the most that is given.
const LIMIT: usize = 100;
const MOST: usize = 1_000;

pub fn routes() -> Router<Arc<World>> {
    Router::new()
        .route("/scripted/{address}/changes", get(changes))
        .route("/scripted/{address}/history", get(history))
        .route("/scripted/{address}/list", get(list))
        .route("/scripted/{address}/fetch", post(fetch))
        .route("/scripted/{address}/check", get(check))
}

type Call = (State<Arc<World>>, Path<String>, RawQuery, HeaderMap);

async fn changes(State(world): State<Arc<World>>, path: Path<String>, query: RawQuery, head: HeaderMap) -> Response {
    page((State(world), path, query, head), Route::Changes, |account, listing, _| account.changes(listing)).await
}

async fn history(State(world): State<Arc<World>>, path: Path<String>, query: RawQuery, head: HeaderMap) -> Response {
    page((State(world), path, query, head), Route::History, Account::history).await
}

async fn list(State(world): State<Arc<World>>, path: Path<String>, query: RawQuery, head: HeaderMap) -> Response {
    page((State(world), path, query, head), Route::List, |account, listing, _| account.list(listing)).await
}

async fn check(State(world): State<Arc<World>>, Path(address): Path<String>, head: HeaderMap) -> Response {
    match enter(&world, &address, &head, Route::Check).await {
        Ok(_) => Json(json!({})).into_response(),
        Err(response) => *response,
    }
}

#[derive(Debug, Deserialize)]
struct Wanted {
    ids: Vec<String>,
}

async fn fetch(
    State(world): State<Arc<World>>,
    Path(address): Path<String>,
    head: HeaderMap,
    Json(wanted): Json<Wanted>,
) -> Response {
    match enter(&world, &address, &head, Route::Fetch).await {
        Ok(entered) => {
            let pieces = frames(&entered.mailbox.account(), &wanted.ids, &entered.faults);
            body::respond(pieces, &entered.faults)
        }
        Err(response) => *response,
    }
}

/// A request that came so far that its answer can be made.
struct Entered {
    mailbox: Arc<Mailbox>,
    faults: Vec<Kind>,
    _in_flight: InFlight,
}

/// Counts, waits and lets in, or says why not. A mailbox that is not there and a wrong token look the same.
async fn enter(world: &World, address: &str, head: &HeaderMap, route: Route) -> Result<Entered, Box<Response>> {
    world.counts.count(route);
    let refused = || Box::new(StatusCode::UNAUTHORIZED.into_response());
    let mailbox = world.find(address).ok_or_else(refused)?;
    mailbox.counts.count(route);
    let in_flight = mailbox.enter();
    let latency = world.latency_ms.load(Ordering::Relaxed);
    if latency > 0 {
        tokio::time::sleep(Duration::from_millis(latency)).await;
    }
    let faults = world.faults.draw(&mailbox.address, route);
    for fault in &faults {
        if let Some(response) = body::instead(fault).await {
            return Err(Box::new(response));
        }
    }
    let given = head.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    if !mailbox.lets_in(given.and_then(|value| value.strip_prefix("Bearer "))) {
        return Err(refused());
    }
    Ok(Entered { mailbox, faults, _in_flight: in_flight })
}

async fn page(
    (State(world), Path(address), RawQuery(query), head): Call,
    route: Route,
    make: impl for<'a> FnOnce(&'a Account, Listing<'_>, Option<Timestamp>) -> Result<Page<'a>, BadCursor>,
) -> Response {
    let query = query.unwrap_or_default();
    let cursor = parameter(&query, "cursor").filter(|cursor| !cursor.is_empty());
    let limit = parameter(&query, "limit").map_or(Some(LIMIT), |limit| limit.parse().ok());
    let since = parameter(&query, "since").map(|since| since.parse().ok().and_then(|s| Timestamp::from_second(s).ok()));
    let (Some(limit), None | Some(Some(_))) = (limit, since) else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    let limit = limit.clamp(1, MOST);
    let entered = match enter(&world, &address, &head, route).await {
        Ok(entered) => entered,
        Err(response) => return *response,
    };
    let overlap = if entered.faults.contains(&Kind::RepeatPage) { limit } else { 0 };
    let made = {
        let account = entered.mailbox.account();
        let page = make(&account, Listing { cursor, limit, overlap }, since.flatten());
        page.map(|page| serde_json::to_vec(&page).expect("a page has only what JSON has"))
    };
    match made {
        Ok(bytes) => body::json(bytes, &entered.faults),
        Err(BadCursor::Expired) => StatusCode::GONE.into_response(),
        Err(BadCursor::Nonsense) => StatusCode::BAD_REQUEST.into_response(),
    }
}

/// As it is written: nothing that we give out needs to be quoted in an address.
fn parameter<'a>(query: &'a str, name: &str) -> Option<&'a str> {
    query.split('&').filter_map(|pair| pair.split_once('=')).find(|(key, _)| *key == name).map(|(_, value)| value)
}

/// For each message a line of JSON, its bytes, and a line that names it again, so that a message that is shorter than
/// announced is noticed; last, a line that says that this was all.
fn frames(account: &Account, ids: &[String], faults: &[Kind]) -> Vec<Bytes> {
    let mut pieces = Vec::with_capacity(ids.len() * 5 + 1);
    let mut is_gone = faults.contains(&Kind::Gone);
    let mut short = faults.iter().find_map(|fault| match fault {
        Kind::ShortMessage { goes_on } => Some(*goes_on),
        _ => None,
    });
    for id in ids {
        let failing = faults.iter().find_map(|fault| match fault {
            Kind::FailingMessage { message, status } if MessageId::parse(id) == Some(*message) => Some(*status),
            _ => None,
        });
        let found = MessageId::parse(id).and_then(|id| account.raw(id)).filter(|_| !std::mem::take(&mut is_gone));
        let (raw, received_at, revision) = match (failing, found) {
            (None, Some(found)) => found,
            (failing, _) => {
                pieces.push(line(&json!({"message": id, "status": failing.unwrap_or(404)})));
                continue;
            }
        };
        let revision = revision.map(|revision| revision.to_string());
        pieces.push(line(&json!({
            "message": id, "status": 200, "length": raw.size(), "received_at": received_at, "revision": revision
        })));
        if let Some(goes_on) = short.take() {
            pieces.push(raw.pieces()[0].clone());
            pieces.push(raw.pieces()[1].slice(..raw.pieces()[1].len() / 2));
            if !goes_on {
                return pieces;
            }
        } else {
            pieces.extend_from_slice(raw.pieces());
        }
        pieces.push(Bytes::from_static(b"\n"));
        pieces.push(line(&json!({"end": id})));
    }
    pieces.push(line(&json!({"done": true})));
    pieces
}

fn line(value: &serde_json::Value) -> Bytes {
    Bytes::from(format!("{value}\n"))
}
