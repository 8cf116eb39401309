//! The HTTP endpoints of the simulated JMAP server.

mod events;
mod methods;
mod objects;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Path, Query, State};
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE, LOCATION};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};

use super::account::JmapAccount;
use super::faults::{JmapFaultKind, JmapRoute};
use super::world::{JmapAccountHolder, JmapProvider, JmapWorld};
use crate::control_api::WorldState;
use crate::http::{ConnectionCut, header_text};
use crate::odd_json;
use crate::response::{ResponseBody, SimResponse};

const CORE: &str = "urn:ietf:params:jmap:core";
const MAIL: &str = "urn:ietf:params:jmap:mail";

/// How many calls a request may have.
const MAX_CALLS: usize = 16;

/// The state of every session: it never changes.
const SESSION_STATE: &str = "75128aab4b1b";

pub fn routes() -> Router<Arc<JmapWorld>> {
    Router::new()
        .route("/.well-known/jmap", get(|| async { (StatusCode::FOUND, [(LOCATION, "/jmap/session")]) }))
        .route("/jmap/session", get(session))
        .route("/jmap/api", post(api))
        .route("/jmap/download/{account}/{blob}/{name}", get(download))
        .route("/jmap/events", get(events))
}

/// A request whose login is right, and which no fault has answered.
struct AdmittedRequest {
    mailbox: Arc<JmapAccountHolder>,
    faults: Vec<JmapFaultKind>,
}

/// Applies latency and faults, and finds the account of the login.
async fn admit(world: &JmapWorld, route: JmapRoute, head: &HeaderMap) -> Result<AdmittedRequest, SimResponse> {
    world.wait().await;
    let mailbox = world.log_in(header_text(head, AUTHORIZATION));
    let address = mailbox.as_ref().map(|mailbox| mailbox.address.clone()).unwrap_or_default();
    let faults = world.faults.draw(&address, route);
    let refusal = match (fault_response(&faults).await, &mailbox) {
        (Some(response), _) => Some(response),
        (None, None) => Some(problem(401, "about:blank")),
        (None, Some(_)) => None,
    };
    let status = refusal.as_ref().map_or(200, |refusal| refusal.status);
    let verb = if route == JmapRoute::Api { "POST" } else { "GET" };
    world.requests.add(verb, route, &address, status, false);
    match (refusal, mailbox) {
        (None, Some(mailbox)) => Ok(AdmittedRequest { mailbox, faults }),
        (refusal, _) => Err(refusal.unwrap_or_else(SimResponse::garbage)),
    }
}

async fn fault_response(faults: &[JmapFaultKind]) -> Option<SimResponse> {
    for fault in faults {
        return Some(match fault {
            JmapFaultKind::Throttled { retry_after } => problem(429, "about:blank").retry_after(*retry_after),
            JmapFaultKind::LimitReached { retry_after } => {
                problem(400, "urn:ietf:params:jmap:error:limit").retry_after(*retry_after)
            }
            JmapFaultKind::Unauthorized => problem(401, "about:blank"),
            JmapFaultKind::Internal => problem(500, "about:blank"),
            JmapFaultKind::Unavailable { retry_after } => problem(503, "about:blank").retry_after(*retry_after),
            JmapFaultKind::Hang { ms } => {
                tokio::time::sleep(Duration::from_millis(*ms)).await;
                problem(503, "about:blank")
            }
            JmapFaultKind::Cut => SimResponse::cut(ConnectionCut::Closed),
            JmapFaultKind::Reset => SimResponse::cut(ConnectionCut::Reset),
            JmapFaultKind::Garbage => SimResponse::garbage(),
            JmapFaultKind::NoEvents => SimResponse::new(204, ResponseBody::Empty),
            _ => continue,
        });
    }
    None
}

/// Builds an error response (RFC 7807).
fn problem(status: u16, kind: &str) -> SimResponse {
    SimResponse::new(status, ResponseBody::Json(json!({"type": kind, "status": status, "detail": "Scripted"})))
}

/// Objects whose members are not properties: one more would be one more id.
const MAPS: [&str; 5] = ["accounts", "capabilities", "keywords", "mailboxIds", "primaryAccounts"];

/// Builds a successful response, damaged by the faults that have fired.
fn respond(mut value: Value, faults: &[JmapFaultKind]) -> SimResponse {
    if faults.contains(&JmapFaultKind::UnknownFields) {
        odd_json::add_unknown_fields(&mut value);
        clean_maps(&mut value);
    }
    SimResponse::json(value).damaged_by(faults)
}

fn clean_maps(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(clean_maps),
        Value::Object(members) => {
            for (name, member) in members {
                clean_maps(member);
                if let Some(map) = member.as_object_mut().filter(|_| MAPS.contains(&name.as_str())) {
                    map.remove(odd_json::UNKNOWN_FIELD);
                }
            }
        }
        _ => {}
    }
}

async fn session(State(world): WorldState<JmapProvider>, head: HeaderMap) -> SimResponse {
    match admit(&world, JmapRoute::Session, &head).await {
        Ok(admitted) => respond(describe_session(&world, &admitted.mailbox), &admitted.faults),
        Err(refusal) => refusal,
    }
}

fn describe_session(world: &JmapWorld, mailbox: &JmapAccountHolder) -> Value {
    json!({
        "capabilities": {
            CORE: {
                "maxSizeUpload": 50_000_000, "maxConcurrentUpload": 4, "maxSizeRequest": 10_000_000,
                "maxConcurrentRequests": 10, "maxCallsInRequest": MAX_CALLS, "maxObjectsInGet": world.max_objects(),
                "maxObjectsInSet": 100, "collationAlgorithms": ["i;ascii-casemap"],
            },
            MAIL: {},
        },
        "accounts": {
            &mailbox.id: {
                "name": mailbox.address, "isPersonal": true, "isReadOnly": false,
                "accountCapabilities": {CORE: {}, MAIL: {"maxMailboxesPerEmail": null, "maxMailboxDepth": null}},
            },
        },
        "primaryAccounts": {MAIL: mailbox.id, CORE: mailbox.id},
        "username": mailbox.address,
        "apiUrl": "/jmap/api",
        "downloadUrl": format!("{}/jmap/download/{{accountId}}/{{blobId}}/{{name}}?type={{type}}", world.url()),
        "uploadUrl": format!("{}/jmap/upload/{{accountId}}/", world.url()),
        "eventSourceUrl": format!("{}/jmap/events?types={{types}}&closeafter={{closeafter}}&ping={{ping}}", world.url()),
        "state": SESSION_STATE,
    })
}

async fn api(State(world): WorldState<JmapProvider>, head: HeaderMap, body: Bytes) -> SimResponse {
    let admitted = match admit(&world, JmapRoute::Api, &head).await {
        Ok(admitted) => admitted,
        Err(refusal) => return refusal,
    };
    let is_json = header_text(&head, CONTENT_TYPE).is_some_and(|kind| kind.starts_with("application/json"));
    match methods::answer(&world, &admitted.mailbox, &body, &admitted.faults) {
        Ok(responses) if is_json => {
            respond(json!({"methodResponses": responses, "sessionState": SESSION_STATE}), &admitted.faults)
        }
        Ok(_) => problem(400, "urn:ietf:params:jmap:error:notJSON"),
        Err(kind) => problem(400, &format!("urn:ietf:params:jmap:error:{kind}")),
    }
}

async fn download(
    State(world): WorldState<JmapProvider>,
    Path((account, blob, _name)): Path<(String, String, String)>,
    head: HeaderMap,
) -> SimResponse {
    let admitted = match admit(&world, JmapRoute::Download, &head).await {
        Ok(admitted) => admitted,
        Err(refusal) => return refusal,
    };
    let pieces = admitted_blob(&world, &admitted.mailbox.account(), &blob);
    match pieces.filter(|_| account == admitted.mailbox.id) {
        Some(pieces) => SimResponse::new(200, ResponseBody::Other { pieces })
            .with(CONTENT_TYPE, "message/rfc822")
            .damaged_by(&admitted.faults),
        None => problem(404, "about:blank"),
    }
}

fn admitted_blob(world: &JmapWorld, account: &JmapAccount, blob: &str) -> Option<Vec<Bytes>> {
    let message = account.messages.get(&objects::blob_number(blob)?)?;
    Some(world.letters.pieces(&message.content))
}

/// The query of an event source (RFC 8620, section 7.3).
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct EventsQuery {
    types: String,
    closeafter: String,
    ping: u64,
}

async fn events(State(world): WorldState<JmapProvider>, Query(query): Query<EventsQuery>, head: HeaderMap) -> Response {
    match admit(&world, JmapRoute::Events, &head).await {
        Ok(admitted) => {
            let sends = !admitted.faults.contains(&JmapFaultKind::Lost);
            let types = query.types.split(',').map(str::to_owned).collect();
            let source = events::EventSource::new(admitted.mailbox, types, query.ping, sends);
            source.into_response(query.closeafter == "state")
        }
        Err(refusal) => refusal.into_response(),
    }
}
