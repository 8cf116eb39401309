//! Requests that change something: authentication, body, idempotency key, conditions and reply.
//!
//! The change itself is an operation of the engine, which commits it together with its audit entry and the reply under its
//! idempotency key: a repeated request gets the same reply and changes nothing again.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use axum::body::Bytes;
use axum::extract::{FromRequest, Request};
use axum::http::request::Parts;
use axum::http::uri::PathAndQuery;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use domain::{Sha256, TenantId};
use engine::operations::{self, IdempotencyKey, Invocation, Origin};
use jiff::Timestamp;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::auth::ChangeActor;
use super::body::{self, EmptyBody};
use super::problem::Problem;
use crate::App;
use crate::edge::{ClientAddress, RequestId};

const IDEMPOTENCY_KEY: &str = "idempotency-key";
const MAX_IDEMPOTENCY_KEY_CHARS: usize = 255;

/// Idempotency keys of the requests in flight in this process.
#[derive(Debug, Clone, Default)]
pub struct InFlightKeys(Arc<Mutex<HashSet<(TenantId, Sha256)>>>);

/// An authenticated request with its parsed body.
#[derive(Debug)]
pub struct ChangeRequest<P, T = EmptyBody> {
    pub by: P,
    pub body: T,
    /// Time of the request by the database's clock.
    pub now: Timestamp,
    /// The versions that `If-Match` names; `None`: any.
    versions: Option<Vec<u64>>,
    key: Option<HeldIdempotencyKey>,
    origin: Origin,
}

/// Idempotency key that no other request of this process can use until this is dropped.
#[derive(Debug)]
struct HeldIdempotencyKey {
    key: IdempotencyKey,
    in_flight_keys: InFlightKeys,
}

impl Drop for HeldIdempotencyKey {
    fn drop(&mut self) {
        self.in_flight_keys.keys().remove(&(self.key.tenant, self.key.hash));
    }
}

impl InFlightKeys {
    fn keys(&self) -> std::sync::MutexGuard<'_, HashSet<(TenantId, Sha256)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reply to a change, sent and stored once the change is committed.
#[derive(Debug, Clone)]
pub struct Reply {
    status: StatusCode,
    headers: Vec<(HeaderName, String)>,
    body: String,
    shows_secret: bool,
}

impl Reply {
    pub fn created(location: String, body: &impl Serialize) -> anyhow::Result<Self> {
        Ok(Self::json(StatusCode::CREATED, body)?.with_location(location))
    }

    pub fn json(status: StatusCode, body: &impl Serialize) -> anyhow::Result<Self> {
        let body = serde_json::to_string(body)?;
        Ok(Self { status, headers: Vec::new(), body, shows_secret: false })
    }

    pub fn no_content() -> Self {
        Self::empty(StatusCode::NO_CONTENT)
    }

    pub fn empty(status: StatusCode) -> Self {
        Self { status, headers: Vec::new(), body: String::new(), shows_secret: false }
    }

    pub fn with_location(mut self, path: String) -> Self {
        self.headers.push((header::LOCATION, path));
        self
    }

    pub fn with_etag(mut self, version: u64) -> Self {
        self.headers.push((header::ETAG, etag(version)));
        self
    }

    fn to_kept(&self) -> operations::KeptReply {
        let headers = self.headers.iter().map(|(name, value)| (name.to_string(), value.clone())).collect();
        let Self { status, body, shows_secret, .. } = self;
        operations::KeptReply { status: status.as_u16(), headers, body: body.clone(), shows_secret: *shows_secret }
    }

    /// Marks the body as secret: it is stored encrypted and must not be cached.
    pub fn with_secret(self) -> Self {
        Self { shows_secret: true, ..self }
    }
}

pub fn etag(version: u64) -> String {
    format!("\"{version}\"")
}

impl IntoResponse for Reply {
    fn into_response(self) -> Response {
        let is_empty = self.body.is_empty();
        let mut response = (self.status, self.body).into_response();
        let headers = response.headers_mut();
        if is_empty {
            headers.remove(header::CONTENT_TYPE);
        } else {
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        if self.shows_secret {
            headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        }
        for (name, value) in self.headers {
            // All values are ids and numbers of ours, hence valid.
            if let Ok(value) = HeaderValue::from_str(&value) {
                headers.insert(name, value);
            }
        }
        response
    }
}

impl<P: ChangeActor, T: DeserializeOwned + 'static> FromRequest<App> for ChangeRequest<P, T> {
    /// A problem, or the stored reply to the same request.
    type Rejection = Response;

    async fn from_request(request: Request, app: &App) -> Result<Self, Response> {
        match Self::read(request, app).await {
            Ok(ParsedChange::New(change)) => Ok(*change),
            Ok(ParsedChange::Replayed(answer)) => Err(answer),
            Err(problem) => Err(problem.into_response()),
        }
    }
}

enum ParsedChange<P, T> {
    New(Box<ChangeRequest<P, T>>),
    Replayed(Response),
}

impl<P: ChangeActor, T: DeserializeOwned + 'static> ChangeRequest<P, T> {
    async fn read(request: Request, app: &App) -> Result<ParsedChange<P, T>, Problem> {
        let (mut parts, body) = request.into_parts();
        let by = P::from_request_parts(&mut parts, app).await?;
        let bytes = Bytes::from_request(Request::from_parts(parts.clone(), body), app).await?;
        let key = match idempotency_key(&parts.headers)? {
            Some(key) => Some(hold_idempotency_key(app, by.tenant(), key, &parts, &bytes)?),
            None => None,
        };
        if let Some(HeldIdempotencyKey { key, .. }) = &key
            && let Some((request, reply)) = operations::find_reply(&app.engine, key.tenant, key.hash).await?
        {
            if request != key.request {
                return Err(Problem::invalid("Idempotency-Key", "was used for a different request"));
            }
            return Ok(ParsedChange::Replayed(replay(reply)));
        }
        let origin = Origin {
            actor: by.actor(),
            address: parts.extensions.get::<ClientAddress>().map(|address| address.0.to_string()),
            request_id: parts.extensions.get::<RequestId>().map(ToString::to_string),
        };
        let now = operations::database_now(&app.engine).await?;
        Ok(ParsedChange::New(Box::new(Self {
            by,
            body: body::parse_body(&parts.headers, &bytes)?,
            now,
            versions: parts.headers.get(header::IF_MATCH).and_then(|tags| tags.to_str().ok()).and_then(versions),
            key,
            origin,
        })))
    }
}

impl<P, T> ChangeRequest<P, T> {
    /// Calls an operation for this request. Its outcome is shown by `show`, and the reply is kept under the idempotency key.
    pub fn invocation<'a, O>(
        &'a self,
        app: &'a App,
        show: impl Fn(&O) -> anyhow::Result<Reply> + Send + Sync + 'a,
    ) -> Invocation<'a, O> {
        Invocation::at(&app.engine, &self.origin, self.now)
            .expecting(self.versions.as_deref())
            .replying(self.key.as_ref().map(|held| held.key), move |outcome| Ok(show(outcome)?.to_kept()))
    }
}

/// Sends a kept reply again.
fn replay(kept: operations::KeptReply) -> Response {
    let reply = Reply {
        status: StatusCode::from_u16(kept.status).unwrap_or(StatusCode::OK),
        headers: kept.headers.into_iter().filter_map(|(name, value)| Some((name.parse().ok()?, value))).collect(),
        body: kept.body,
        shows_secret: kept.shows_secret,
    };
    let mut response = reply.into_response();
    response.headers_mut().insert("idempotency-replayed", HeaderValue::from_static("true"));
    response
}

/// Returns the versions that `If-Match` names, or `None` for any. A tag that is not one of ours matches nothing.
fn versions(tags: &str) -> Option<Vec<u64>> {
    if tags.trim() == "*" {
        return None;
    }
    Some(tags.split(',').filter_map(|tag| tag.trim().strip_prefix('"')?.strip_suffix('"')?.parse().ok()).collect())
}

fn idempotency_key(headers: &HeaderMap) -> Result<Option<&str>, Problem> {
    let Some(key) = headers.get(IDEMPOTENCY_KEY) else { return Ok(None) };
    let key = key.to_str().ok().filter(|key| !key.is_empty() && key.len() <= MAX_IDEMPOTENCY_KEY_CHARS);
    key.map(Some).ok_or_else(|| {
        let detail = format!("must have 1 to {MAX_IDEMPOTENCY_KEY_CHARS} visible characters");
        Problem::invalid("Idempotency-Key", detail)
    })
}

fn hold_idempotency_key(
    app: &App,
    tenant: TenantId,
    key: &str,
    parts: &Parts,
    body: &[u8],
) -> Result<HeldIdempotencyKey, Problem> {
    let hash = Sha256::of(key.as_bytes());
    // Without the host: the same request may arrive by another protocol or under another host name.
    let address = parts.uri.path_and_query().map_or("/", PathAndQuery::as_str);
    let mut request = format!("{} {address}\n", parts.method).into_bytes();
    request.extend_from_slice(body);
    if !app.in_flight_keys.keys().insert((tenant, hash)) {
        return Err(Problem::conflict("a request with this Idempotency-Key is in progress; try again in a moment"));
    }
    let key = IdempotencyKey { tenant, hash, request: Sha256::of(&request) };
    Ok(HeldIdempotencyKey { key, in_flight_keys: app.in_flight_keys.clone() })
}
