//! What an operation of the walk is done to, made anew for each.

use std::path::PathBuf;

use domain::{Actor, ApiKeyId, Backfill, MailboxSettings, Provider, Sha256};
use engine::operations::mailboxes::ConnectRequest;
use engine::operations::{IdempotencyKey, Invocation, KeptReply, Operation, Origin};
use serde_json::json;
use store::TenantStore;
use store::sql::jobs::{JobRow, NewJob, StartTime};
use store::sql::mailboxes::Mailbox;
use testkit::{MailboxOperations, TestApp};

/// A tenant of its own with a mailbox, and who calls the operation.
pub struct Subject<'a> {
    pub app: &'a TestApp,
    pub tenant: TenantStore,
    /// As it was before the operation.
    pub mailbox: Mailbox,
    pub actor: Actor,
    pub key: Option<IdempotencyKey>,
    origin: Origin,
    reply: String,
}

impl<'a> Subject<'a> {
    pub async fn new(app: &'a TestApp, operation: &Operation) -> Self {
        let actor = Actor::Key(ApiKeyId::new(app.store().clock()));
        let name = format!("of {actor}");
        let tenant = app.create_tenant(&name).await;
        let id = app.engine.connect(tenant.id, connect_request("me@acme.test")).await.unwrap().unwrap();
        let mailbox = app.mailbox(&tenant, &id.to_string()).await;
        app.import(&tenant, "files@acme.test", "INBOX", ["Subject: one\n\nhello"]).await;
        let reply = format!("done: {}", operation.name);
        Self { app, tenant, mailbox, origin: actor.clone().into(), actor, key: None, reply }
    }

    /// Calls under an idempotency key of its own.
    pub fn with_key(self) -> Self {
        let (hash, request) = (Sha256::of(self.actor.to_string().as_bytes()), Sha256::of(self.reply.as_bytes()));
        let key = IdempotencyKey { tenant: self.tenant.id, hash, request };
        Self { key: Some(key), ..self }
    }

    pub async fn call<T>(&self) -> Invocation<'_, T> {
        let call = Invocation::begin(&self.app.engine, &self.origin).await.unwrap();
        call.replying(self.key, |_| {
            Ok(KeptReply { status: 200, headers: Vec::new(), body: self.reply.clone(), shows_secret: false })
        })
    }

    /// The body of the reply that is kept.
    pub fn reply(&self) -> &str {
        &self.reply
    }

    /// A path of its own that nothing has.
    pub fn path(&self, name: &str) -> PathBuf {
        self.app.folder.path().join(format!("{}-{name}", self.tenant.id))
    }

    /// A job that waits for its time.
    pub async fn job(&self) -> JobRow {
        let job = jobs::new_job(&jobs::noop::Noop {}, self.tenant.clock(), None).unwrap();
        let id = job.id;
        let mut unit = self.tenant.write();
        unit.enqueue(vec![NewJob { when: StartTime::In(std::time::Duration::from_secs(3600)), ..job }]);
        unit.commit().await.unwrap();
        self.app.store().system().find_job(id).await.unwrap().unwrap()
    }

    /// A job that has failed for the last time.
    pub async fn dead_letter(&self) -> JobRow {
        let (job, system) = (self.job().await, self.app.store().system());
        system.cancel_job(job.tenant_id, job.id, "to be dead").await.unwrap();
        self.app.db.run(&format!("update finished_jobs set state = 'dead' where id = '{}'", job.id)).await;
        system.find_job(job.id).await.unwrap().unwrap()
    }
}

/// A mailbox at a server that nobody calls.
pub fn connect_request(address: &str) -> ConnectRequest {
    ConnectRequest {
        provider: Provider::Imap,
        address: address.to_owned(),
        settings: MailboxSettings::of_connection(json!({"host": "imap.invalid", "port": 993})),
        secret: None,
        backfill: Backfill::None,
    }
}
