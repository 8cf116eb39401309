//! Requests that change something: authentication, body, idempotency key, audit entry and reply.
//!
//! The change, its audit entry and the reply stored under its idempotency key are one commit: a repeated request gets the
//! same reply and changes nothing again.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use axum::body::Bytes;
use axum::extract::{FromRequest, Request};
use axum::http::request::Parts;
use axum::http::uri::PathAndQuery;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use domain::{Secret, SecretId, SecretKind, Sha256, TenantId};
use engine::Engine;
use engine::accounts::audit::AuditRecord;
use jiff::Timestamp;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use store::change_record::ChangeRecord;
use store::sql::idempotency::{ReplyBody as StoredBody, StoredReply};

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
    if_match: Option<String>,
    key: Option<HeldIdempotencyKey>,
    origin: RequestOrigin,
}

/// Actor, address and id of a request, for the audit log.
#[derive(Debug, Clone)]
struct RequestOrigin {
    actor: String,
    address: Option<String>,
    request_id: Option<String>,
}

/// Idempotency key that no other request of this process can use until this is dropped.
#[derive(Debug)]
struct HeldIdempotencyKey {
    tenant: TenantId,
    hash: Sha256,
    request: Sha256,
    in_flight_keys: InFlightKeys,
}

impl Drop for HeldIdempotencyKey {
    fn drop(&mut self) {
        self.in_flight_keys.keys().remove(&(self.tenant, self.hash));
    }
}

impl InFlightKeys {
    fn keys(&self) -> std::sync::MutexGuard<'_, HashSet<(TenantId, Sha256)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Description of a change for the audit log. Must not contain secrets.
#[derive(Debug)]
pub struct AuditAction {
    /// Tenant whose audit log gets the entry.
    pub tenant: TenantId,
    /// Name of the action, such as `tenant.create`.
    pub action: &'static str,
    /// Id or name of the changed resource.
    pub target: String,
    pub before: Option<Value>,
    pub after: Option<Value>,
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
    pub fn created(location: String, body: &impl Serialize) -> Result<Self, Problem> {
        let headers = vec![(header::LOCATION, location)];
        Ok(Self { headers, ..Self::json(StatusCode::CREATED, body)? })
    }

    pub fn json(status: StatusCode, body: &impl Serialize) -> Result<Self, Problem> {
        let body = serde_json::to_string(body).map_err(|e| anyhow::anyhow!(e))?;
        Ok(Self { status, headers: Vec::new(), body, shows_secret: false })
    }

    pub fn no_content() -> Self {
        Self::empty(StatusCode::NO_CONTENT)
    }

    pub fn empty(status: StatusCode) -> Self {
        Self { status, headers: Vec::new(), body: String::new(), shows_secret: false }
    }

    pub fn with_etag(mut self, version: u64) -> Self {
        self.headers.push((header::ETAG, etag(version)));
        self
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
        if let Some(key) = &key
            && let Some(stored) = app.engine.store.system().find_reply(key.tenant, key.hash).await?
        {
            if stored.request_hash != key.request {
                return Err(Problem::invalid("Idempotency-Key", "was used for a different request"));
            }
            return Ok(ParsedChange::Replayed(replay(app, stored).await?));
        }
        let origin = RequestOrigin {
            actor: by.actor(),
            address: parts.extensions.get::<ClientAddress>().map(|address| address.0.to_string()),
            request_id: parts.extensions.get::<RequestId>().map(ToString::to_string),
        };
        let now = app.engine.store.system().now().await?;
        // Rounded as it is stored.
        let now = Timestamp::from_millisecond(now.as_millisecond()).unwrap_or(now);
        Ok(ParsedChange::New(Box::new(Self {
            by,
            body: body::parse_body(&parts.headers, &bytes)?,
            now,
            if_match: parts.headers.get(header::IF_MATCH).and_then(|tags| tags.to_str().ok()).map(str::to_owned),
            key,
            origin,
        })))
    }
}

impl<P, T> ChangeRequest<P, T> {
    /// Fails with 412 unless `If-Match` is absent or matches this version.
    pub fn expect_version(&self, version: u64) -> Result<(), Problem> {
        let Some(tags) = &self.if_match else { return Ok(()) };
        if tags.trim() == "*" || tags.split(',').any(|tag| tag.trim() == etag(version)) {
            return Ok(());
        }
        Err(Problem::new(StatusCode::PRECONDITION_FAILED, "the resource was changed since it was read; read it again"))
    }

    /// Prepares an engine whose next commit writes audit entry and reply together with the change.
    pub async fn record(&self, app: &App, action: AuditAction, reply: Reply) -> Result<RecordedChange, Problem> {
        let entry = Some(self.origin.entry(self.now, &action));
        let record =
            ChangeRecord { tenant: action.tenant, at: self.now, entry, reply: self.answer(app, &reply).await? };
        Ok(RecordedChange { engine: app.engine.with_record(record), action, reply })
    }

    /// Writes the audit entry before a change of more than one commit.
    pub async fn record_intent(&self, app: &App, action: &AuditAction) -> Result<(), Problem> {
        let entry = Some(self.origin.entry(self.now, action));
        let record = ChangeRecord { tenant: action.tenant, at: self.now, entry, reply: None };
        Ok(app.engine.store.recording(record).record_now().await?)
    }

    /// Stores the reply after a change of more than one commit.
    pub async fn record_reply(&self, app: &App, action: AuditAction, reply: Reply) -> Result<Response, Problem> {
        let record =
            ChangeRecord { tenant: action.tenant, at: self.now, entry: None, reply: self.answer(app, &reply).await? };
        let engine = app.engine.with_record(record);
        RecordedChange { engine, action, reply }.finish().await
    }

    async fn answer(&self, app: &App, reply: &Reply) -> Result<Option<StoredReply>, Problem> {
        match &self.key {
            Some(key) => Ok(Some(key.seal_reply(app, reply).await?)),
            None => Ok(None),
        }
    }
}

/// A change that is about to be committed, with its reply.
#[derive(Debug)]
pub struct RecordedChange {
    pub engine: Engine,
    action: AuditAction,
    reply: Reply,
}

impl RecordedChange {
    /// Commits the record if the change itself did not, and returns the reply.
    pub async fn finish(self) -> Result<Response, Problem> {
        self.engine.store.record_now().await?;
        let AuditAction { tenant, action, target, .. } = self.action;
        tracing::info!(tenant.id = %tenant, action, target, "change committed");
        Ok(self.reply.into_response())
    }
}

impl RequestOrigin {
    fn entry(&self, at: Timestamp, action: &AuditAction) -> String {
        let entry = AuditRecord {
            at,
            actor: self.actor.clone(),
            action: action.action,
            target: action.target.clone(),
            address: self.address.clone(),
            request_id: self.request_id.clone(),
            before: action.before.clone(),
            after: action.after.clone(),
        };
        entry.text()
    }
}

impl HeldIdempotencyKey {
    async fn seal_reply(&self, app: &App, reply: &Reply) -> Result<StoredReply, Problem> {
        let body = if reply.shows_secret {
            let id = SecretId::new(app.engine.store.clock());
            let text = Secret::new(reply.body.clone());
            let sealed = app.engine.vault.seal(self.tenant, id, SecretKind::StoredReply, &text).await;
            StoredBody::Sealed(sealed.map_err(anyhow::Error::from)?)
        } else {
            StoredBody::Plain(reply.body.clone())
        };
        let headers = reply.headers.iter().map(|(name, value)| (name.to_string(), value.clone())).collect();
        Ok(StoredReply {
            tenant: self.tenant,
            key_hash: self.hash,
            request_hash: self.request,
            status: reply.status.as_u16(),
            headers,
            body,
        })
    }
}

async fn replay(app: &App, stored: StoredReply) -> Result<Response, Problem> {
    let (body, shows_secret) = match stored.body {
        StoredBody::Plain(body) => (body, false),
        StoredBody::Sealed(sealed) => {
            let opened = app.engine.vault.open_sealed(stored.tenant, SecretKind::StoredReply, &sealed).await;
            let bytes = opened.map_err(anyhow::Error::from)?;
            (String::from_utf8_lossy(bytes.expose()).into_owned(), true)
        }
    };
    let reply = Reply {
        status: StatusCode::from_u16(stored.status).unwrap_or(StatusCode::OK),
        headers: stored.headers.into_iter().filter_map(|(name, value)| Some((name.parse().ok()?, value))).collect(),
        body,
        shows_secret,
    };
    let mut response = reply.into_response();
    response.headers_mut().insert("idempotency-replayed", HeaderValue::from_static("true"));
    Ok(response)
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
    Ok(HeldIdempotencyKey { tenant, hash, request: Sha256::of(&request), in_flight_keys: app.in_flight_keys.clone() })
}
