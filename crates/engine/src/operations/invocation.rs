//! One call of an operation: who calls, on which conditions, and the reply that is kept.

use std::fmt;

use domain::{Actor, Secret, SecretId, SecretKind, Sha256, TenantId};
use jiff::Timestamp;
use serde_json::Value;
use store::change_record::ChangeRecord;
use store::sql::idempotency::{ReplyBody, StoredReply};
use store::{Precondition, StoreError};

use super::{Operation, Refusal, TenantRequirement};
use crate::Engine;
use crate::accounts::audit::AuditRecord;

/// Who calls, and from where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    pub actor: Actor,
    /// The network address that a request came from.
    pub address: Option<String>,
    pub request_id: Option<String>,
}

impl From<Actor> for Origin {
    fn from(actor: Actor) -> Self {
        Self { actor, address: None, request_id: None }
    }
}

/// A key that makes repeated requests one, with the hash of the request that it came with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IdempotencyKey {
    /// The owner of the key.
    pub tenant: TenantId,
    pub hash: Sha256,
    pub request: Sha256,
}

/// What the caller is shown of an outcome, and gets again for the same request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptReply {
    pub status: u16,
    /// Headers besides those that every reply has.
    pub headers: Vec<(String, String)>,
    pub body: String,
    /// The body is stored encrypted.
    pub shows_secret: bool,
}

/// One call of an operation whose outcome is a `T`.
pub struct Invocation<'a, T> {
    pub engine: &'a Engine,
    /// The time of the change, by the database's clock, rounded as it is stored.
    pub now: Timestamp,
    origin: &'a Origin,
    /// The versions that the caller accepts; `None`: any.
    versions: Option<&'a [u64]>,
    reply: Option<PlannedReply<'a, T>>,
}

impl<T> fmt::Debug for Invocation<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Invocation").field("now", &self.now).field("origin", self.origin).finish_non_exhaustive()
    }
}

type Render<'a, T> = Box<dyn Fn(&T) -> anyhow::Result<KeptReply> + Send + Sync + 'a>;

/// The reply to keep under a key, once the outcome is known.
struct PlannedReply<'a, T> {
    key: IdempotencyKey,
    render: Render<'a, T>,
}

/// A change, as the audit log shows it. Must not contain secrets.
#[derive(Debug)]
pub(super) struct AuditedChange {
    pub operation: &'static Operation,
    /// The tenant whose audit log gets the entry; [`TenantId::SYSTEM`] for a change of the installation.
    pub tenant: TenantId,
    /// Id or name of what is changed.
    pub target: String,
    pub before: Option<Value>,
    pub after: Option<Value>,
}

impl AuditedChange {
    pub fn new(operation: &'static Operation, tenant: TenantId, target: impl ToString) -> Self {
        Self { operation, tenant, target: target.to_string(), before: None, after: None }
    }
}

/// An engine whose next commit also writes the audit entry and the kept reply of a change.
#[derive(Debug)]
pub(super) struct RecordingEngine {
    pub engine: Engine,
    tenant: TenantId,
    action: &'static str,
    target: String,
}

impl RecordingEngine {
    /// Commits the record if the change itself did not: there was nothing to change.
    pub async fn finish(self) -> Result<(), Refusal> {
        self.engine.store.record_now().await?;
        tracing::info!(tenant.id = %self.tenant, action = self.action, target = self.target, "change committed");
        Ok(())
    }
}

impl<'a, T> Invocation<'a, T> {
    /// Begins a call now, by the database's clock.
    pub async fn begin(engine: &'a Engine, origin: &'a Origin) -> Result<Self, StoreError> {
        Ok(Self::at(engine, origin, database_now(engine).await?))
    }

    /// Begins a call at a time from [`database_now`].
    pub fn at(engine: &'a Engine, origin: &'a Origin, now: Timestamp) -> Self {
        Self { engine, now, origin, versions: None, reply: None }
    }

    /// Requires that the resource has one of these versions.
    pub fn expecting(self, versions: Option<&'a [u64]>) -> Self {
        Self { versions, ..self }
    }

    /// Keeps the reply under a key, if there is one, in the commit of the change.
    pub fn replying(
        self,
        key: Option<IdempotencyKey>,
        render: impl Fn(&T) -> anyhow::Result<KeptReply> + Send + Sync + 'a,
    ) -> Self {
        Self { reply: key.map(|key| PlannedReply { key, render: Box::new(render) }), ..self }
    }

    /// Refuses an operation that the table does not allow for the tenant as it is.
    pub(super) async fn check_tenant(&self, operation: &Operation, tenant: TenantId) -> Result<(), Refusal> {
        if operation.tenant == TenantRequirement::None {
            return Ok(());
        }
        let found = self.engine.store.system().find_tenant(&tenant.to_string()).await?;
        let found = found.ok_or(Refusal::NotFound("tenant"))?;
        match (operation.tenant, found.hold_reason) {
            (TenantRequirement::Active, _) if !found.is_active => Err(Refusal::TenantInactive),
            (TenantRequirement::NotHeld, Some(reason)) => Err(Refusal::TenantHeld { reason }),
            _ => Ok(()),
        }
    }

    /// Returns why a change was refused that was to be committed: a legal hold that was set meanwhile has a reason.
    pub(super) async fn explain(&self, operation: &Operation, tenant: TenantId, refusal: Refusal) -> Refusal {
        if !refusal.is(Precondition::TenantHeld) {
            return refusal;
        }
        self.check_tenant(operation, tenant).await.err().unwrap_or(refusal)
    }

    /// Refuses a version that the caller does not expect.
    pub fn check_version(&self, version: u64) -> Result<(), Refusal> {
        if self.versions.is_none_or(|versions| versions.contains(&version)) {
            return Ok(());
        }
        Err(Refusal::OtherVersion)
    }

    /// Returns an engine whose next commit also writes the audit entry and the reply.
    pub(super) async fn record(&self, change: AuditedChange, outcome: &T) -> Result<RecordingEngine, Refusal> {
        let reply = self.reply_to(outcome).await?;
        Ok(self.recording(change, true, reply))
    }

    /// Writes the audit entry before a change of many commits, unless its reply is kept already.
    pub(super) async fn record_intent(&self, change: AuditedChange) -> Result<BegunChange, Refusal> {
        if let Some(PlannedReply { key, .. }) = &self.reply
            && self.engine.store.system().find_reply(key.tenant, key.hash).await?.is_some()
        {
            return Err(Refusal::DoneBefore);
        }
        let begun = BegunChange { operation: change.operation, tenant: change.tenant, target: change.target.clone() };
        let RecordingEngine { engine, tenant, action, target } = self.recording(change, true, None);
        engine.store.record_now().await?;
        tracing::info!(tenant.id = %tenant, action, target, "change begun");
        Ok(begun)
    }

    /// Keeps the reply after a change of many commits.
    pub(super) async fn record_reply(&self, begun: BegunChange, outcome: &T) -> Result<(), Refusal> {
        let BegunChange { operation, tenant, target } = begun;
        let reply = self.reply_to(outcome).await?;
        let recording = self.recording(AuditedChange::new(operation, tenant, target), false, reply);
        Ok(recording.engine.store.record_now().await?)
    }

    fn recording(&self, change: AuditedChange, is_audited: bool, reply: Option<StoredReply>) -> RecordingEngine {
        let (tenant, action, target) = (change.tenant, change.operation.name, change.target.clone());
        let entry = is_audited.then(|| self.entry(change));
        let record = ChangeRecord { tenant, at: self.now, entry, reply };
        RecordingEngine { engine: self.engine.with_record(record), tenant, action, target }
    }

    fn entry(&self, change: AuditedChange) -> String {
        let Origin { actor, address, request_id } = self.origin;
        let entry = AuditRecord {
            at: self.now,
            actor: actor.clone(),
            action: change.operation.name,
            target: change.target,
            address: address.clone(),
            request_id: request_id.clone(),
            before: change.before,
            after: change.after,
        };
        entry.text()
    }

    async fn reply_to(&self, outcome: &T) -> Result<Option<StoredReply>, Refusal> {
        let Some(PlannedReply { key, render }) = &self.reply else { return Ok(None) };
        let KeptReply { status, headers, body, shows_secret } = render(outcome)?;
        let body = if shows_secret {
            let id = SecretId::new(self.engine.store.clock());
            let sealed = self.engine.vault.seal(key.tenant, id, SecretKind::StoredReply, &Secret::new(body)).await;
            ReplyBody::Sealed(sealed.map_err(anyhow::Error::from)?)
        } else {
            ReplyBody::Plain(body)
        };
        let IdempotencyKey { tenant, hash, request } = *key;
        Ok(Some(StoredReply { tenant, key_hash: hash, request_hash: request, status, headers, body }))
    }
}

/// A change of many commits that is on record as begun.
#[derive(Debug)]
pub(super) struct BegunChange {
    operation: &'static Operation,
    tenant: TenantId,
    target: String,
}

/// Returns the time by the database's clock, rounded as it is stored.
pub async fn database_now(engine: &Engine) -> Result<Timestamp, StoreError> {
    let now = engine.store.system().now().await?;
    Ok(Timestamp::from_millisecond(now.as_millisecond()).unwrap_or(now))
}

/// Returns the reply that is kept under a key, with the hash of the request that it came with.
pub async fn find_reply(
    engine: &Engine,
    tenant: TenantId,
    key_hash: Sha256,
) -> anyhow::Result<Option<(Sha256, KeptReply)>> {
    let Some(stored) = engine.store.system().find_reply(tenant, key_hash).await? else { return Ok(None) };
    let (body, shows_secret) = match stored.body {
        ReplyBody::Plain(body) => (body, false),
        ReplyBody::Sealed(sealed) => {
            let bytes = engine.vault.open_sealed(tenant, SecretKind::StoredReply, &sealed).await?;
            (String::from_utf8_lossy(bytes.expose()).into_owned(), true)
        }
    };
    let reply = KeptReply { status: stored.status, headers: stored.headers, body, shows_secret };
    Ok(Some((stored.request_hash, reply)))
}
