//! A request that changes something: who sends it, what it says, and what it leaves behind.
//!
//! The change, its entry in the audit and the answer that is kept under its idempotency key are one commit: whoever sends
//! it again is answered the same, and nothing happens twice.

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
use engine::audit::Entry;
use jiff::Timestamp;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use store::record::{Body as Kept, KeptAnswer, Record};

use super::auth::Principal;
use super::body::{self, Nothing};
use super::problem::Problem;
use crate::App;
use crate::edge::{ClientAddress, RequestId};

const IDEMPOTENCY_KEY: &str = "idempotency-key";
const LONGEST_KEY: usize = 255;

/// Keys of requests that are being answered right now, in this process.
#[derive(Debug, Clone, Default)]
pub struct UnderWay(Arc<Mutex<HashSet<(TenantId, Sha256)>>>);

#[derive(Debug)]
pub struct Change<P, T = Nothing> {
    pub by: P,
    pub body: T,
    /// By the database's clock.
    pub now: Timestamp,
    if_match: Option<String>,
    key: Option<Key>,
    origin: Origin,
}

/// Where a request comes from, for the audit.
#[derive(Debug, Clone)]
struct Origin {
    actor: String,
    address: Option<String>,
    request_id: Option<String>,
}

/// As long as it lives, no other request of this process has the key.
#[derive(Debug)]
struct Key {
    tenant: TenantId,
    hash: Sha256,
    request: Sha256,
    under_way: UnderWay,
}

impl Drop for Key {
    fn drop(&mut self) {
        self.under_way.keys().remove(&(self.tenant, self.hash));
    }
}

impl UnderWay {
    fn keys(&self) -> std::sync::MutexGuard<'_, HashSet<(TenantId, Sha256)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a change does, for the audit. Nothing in it is secret.
#[derive(Debug)]
pub struct What {
    /// In whose audit it stands.
    pub tenant: TenantId,
    /// `tenant.create`
    pub action: &'static str,
    /// The id of what is changed.
    pub target: String,
    pub before: Option<Value>,
    pub after: Option<Value>,
}

/// What the caller is told once it has happened.
#[derive(Debug, Clone)]
pub struct Told {
    status: StatusCode,
    headers: Vec<(HeaderName, String)>,
    body: String,
    shows_secret: bool,
}

impl Told {
    pub fn created(location: String, body: &impl Serialize) -> Result<Self, Problem> {
        let headers = vec![(header::LOCATION, location)];
        Ok(Self { headers, ..Self::json(StatusCode::CREATED, body)? })
    }

    pub fn json(status: StatusCode, body: &impl Serialize) -> Result<Self, Problem> {
        let body = serde_json::to_string(body).map_err(|e| anyhow::anyhow!(e))?;
        Ok(Self { status, headers: Vec::new(), body, shows_secret: false })
    }

    pub fn done() -> Self {
        Self::empty(StatusCode::NO_CONTENT)
    }

    pub fn empty(status: StatusCode) -> Self {
        Self { status, headers: Vec::new(), body: String::new(), shows_secret: false }
    }

    pub fn with_etag(mut self, version: u64) -> Self {
        self.headers.push((header::ETAG, etag(version)));
        self
    }

    /// It is kept sealed.
    pub fn with_secret(self) -> Self {
        Self { shows_secret: true, ..self }
    }
}

pub fn etag(version: u64) -> String {
    format!("\"{version}\"")
}

impl IntoResponse for Told {
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
            // All of them are ids and numbers of ours.
            if let Ok(value) = HeaderValue::from_str(&value) {
                headers.insert(name, value);
            }
        }
        response
    }
}

impl<P: Principal, T: DeserializeOwned + 'static> FromRequest<App> for Change<P, T> {
    /// A problem, or what the same request was answered before.
    type Rejection = Response;

    async fn from_request(request: Request, app: &App) -> Result<Self, Response> {
        match Self::read(request, app).await {
            Ok(Read::New(change)) => Ok(*change),
            Ok(Read::Again(answer)) => Err(answer),
            Err(problem) => Err(problem.into_response()),
        }
    }
}

enum Read<P, T> {
    New(Box<Change<P, T>>),
    Again(Response),
}

impl<P: Principal, T: DeserializeOwned + 'static> Change<P, T> {
    async fn read(request: Request, app: &App) -> Result<Read<P, T>, Problem> {
        let (mut parts, body) = request.into_parts();
        let by = P::from_request_parts(&mut parts, app).await?;
        let bytes = Bytes::from_request(Request::from_parts(parts.clone(), body), app).await?;
        let key = match idempotency_key(&parts.headers)? {
            Some(key) => Some(hold(app, by.tenant(), key, &parts, &bytes)?),
            None => None,
        };
        if let Some(key) = &key
            && let Some(kept) = app.engine.store.system().find_answer(key.tenant, key.hash).await?
        {
            if kept.request_hash != key.request {
                return Err(Problem::invalid("Idempotency-Key", "it was used for another request"));
            }
            return Ok(Read::Again(replay(app, kept).await?));
        }
        let origin = Origin {
            actor: by.actor(),
            address: parts.extensions.get::<ClientAddress>().map(|address| address.0.to_string()),
            request_id: parts.extensions.get::<RequestId>().map(ToString::to_string),
        };
        let now = app.engine.store.system().now().await?;
        // As it is kept.
        let now = Timestamp::from_millisecond(now.as_millisecond()).unwrap_or(now);
        Ok(Read::New(Box::new(Self {
            by,
            body: body::parse_sent(&parts.headers, &bytes)?,
            now,
            if_match: parts.headers.get(header::IF_MATCH).and_then(|tags| tags.to_str().ok()).map(str::to_owned),
            key,
            origin,
        })))
    }
}

impl<P, T> Change<P, T> {
    /// It is the version that the caller has read, if the caller says which.
    pub fn expect_version(&self, version: u64) -> Result<(), Problem> {
        let Some(wanted) = &self.if_match else { return Ok(()) };
        if wanted.trim() == "*" || wanted.split(',').any(|tag| tag.trim() == etag(version)) {
            return Ok(());
        }
        Err(Problem::new(StatusCode::PRECONDITION_FAILED, "it was changed since you read it; read it again"))
    }

    /// Whatever is committed next by this engine's store is the change.
    pub async fn record(&self, app: &App, what: What, told: Told) -> Result<Recording, Problem> {
        let entry = Some(self.origin.entry(self.now, &what));
        let record = Record { tenant: what.tenant, at: self.now, entry, answer: self.answer(app, &told).await? };
        Ok(Recording { engine: app.engine.recording(record), told })
    }

    /// Before a change that is more than one commit.
    pub async fn intend(&self, app: &App, what: &What) -> Result<(), Problem> {
        let entry = Some(self.origin.entry(self.now, what));
        let record = Record { tenant: what.tenant, at: self.now, entry, answer: None };
        Ok(app.engine.store.recording(record).record_now().await?)
    }

    /// After it.
    pub async fn conclude(&self, app: &App, what: &What, told: Told) -> Result<Response, Problem> {
        let record = Record { tenant: what.tenant, at: self.now, entry: None, answer: self.answer(app, &told).await? };
        Recording { engine: app.engine.recording(record), told }.done().await
    }

    async fn answer(&self, app: &App, told: &Told) -> Result<Option<KeptAnswer>, Problem> {
        match &self.key {
            Some(key) => Ok(Some(key.keep(app, told).await?)),
            None => Ok(None),
        }
    }
}

/// A change that is about to be made.
#[derive(Debug)]
pub struct Recording {
    pub engine: Engine,
    told: Told,
}

impl Recording {
    /// After the change: it is durable, and so is what is told.
    pub async fn done(self) -> Result<Response, Problem> {
        self.engine.store.record_now().await?;
        Ok(self.told.into_response())
    }
}

impl Origin {
    fn entry(&self, at: Timestamp, what: &What) -> String {
        let entry = Entry {
            at,
            actor: self.actor.clone(),
            action: what.action,
            target: what.target.clone(),
            address: self.address.clone(),
            request_id: self.request_id.clone(),
            before: what.before.clone(),
            after: what.after.clone(),
        };
        entry.text()
    }
}

impl Key {
    async fn keep(&self, app: &App, told: &Told) -> Result<KeptAnswer, Problem> {
        let body = if told.shows_secret {
            let id = SecretId::new(app.engine.store.clock());
            let text = Secret::new(told.body.clone());
            let sealed = app.engine.vault.seal(self.tenant, id, SecretKind::Answer, &text).await;
            Kept::Sealed(sealed.map_err(anyhow::Error::from)?)
        } else {
            Kept::Plain(told.body.clone())
        };
        let headers = told.headers.iter().map(|(name, value)| (name.to_string(), value.clone())).collect();
        Ok(KeptAnswer {
            tenant: self.tenant,
            key_hash: self.hash,
            request_hash: self.request,
            status: told.status.as_u16(),
            headers,
            body,
        })
    }
}

async fn replay(app: &App, kept: KeptAnswer) -> Result<Response, Problem> {
    let (body, shows_secret) = match kept.body {
        Kept::Plain(body) => (body, false),
        Kept::Sealed(sealed) => {
            let opened = app.engine.vault.open_sealed(kept.tenant, SecretKind::Answer, &sealed).await;
            let bytes = opened.map_err(anyhow::Error::from)?;
            (String::from_utf8_lossy(bytes.expose()).into_owned(), true)
        }
    };
    let header = |(name, value): (String, String)| name.parse::<HeaderName>().ok().map(|name| (name, value));
    let told = Told {
        status: StatusCode::from_u16(kept.status).unwrap_or(StatusCode::OK),
        headers: kept.headers.into_iter().filter_map(header).collect(),
        body,
        shows_secret,
    };
    let mut response = told.into_response();
    response.headers_mut().insert("idempotency-replayed", HeaderValue::from_static("true"));
    Ok(response)
}

fn idempotency_key(headers: &HeaderMap) -> Result<Option<&str>, Problem> {
    let Some(key) = headers.get(IDEMPOTENCY_KEY) else { return Ok(None) };
    let key = key.to_str().ok().filter(|key| !key.is_empty() && key.len() <= LONGEST_KEY);
    let wrong = || Problem::invalid("Idempotency-Key", format!("it is 1 to {LONGEST_KEY} visible characters"));
    key.map(Some).ok_or_else(wrong)
}

fn hold(app: &App, tenant: TenantId, key: &str, parts: &Parts, body: &[u8]) -> Result<Key, Problem> {
    let hash = Sha256::of(key.as_bytes());
    // Without the host: the same request may come by another protocol, or through another name.
    let address = parts.uri.path_and_query().map_or("/", PathAndQuery::as_str);
    let mut request = format!("{} {address}\n", parts.method).into_bytes();
    request.extend_from_slice(body);
    if !app.under_way.keys().insert((tenant, hash)) {
        return Err(Problem::conflict("a request with this Idempotency-Key is being answered; try again in a moment"));
    }
    Ok(Key { tenant, hash, request: Sha256::of(&request), under_way: app.under_way.clone() })
}
