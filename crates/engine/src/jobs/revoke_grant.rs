//! What an owner's consent gave us for a mailbox is given back once the mailbox is disconnected.

use std::sync::Arc;
use std::time::Duration;

use domain::connector::{Account, NoAccess};
use domain::{Lane, MailboxId, Provider, Secret, SecretId};
use jobs::{Held, Job, JobError, Kind, Pool, Retry, Verdict, new_job};
use serde::{Deserialize, Serialize};
use store::sql::jobs::NewJob;
use store::sql::mailboxes::Mailbox;
use store::{StoreError, TenantUnit};

use crate::Engine;
use crate::sync::{Syncer, connection};

/// A provider that is away for a weekend still hears of it. Then the secret is forgotten all the same: its owner can take
/// it back at the provider.
const RETRY: Retry = Retry { retries: 150, first: Duration::from_secs(10), longest: Duration::from_secs(3600) };

/// Until whoever gives their consent just now is through with it.
const BUSY: Duration = Duration::from_secs(5);

/// Tells the provider to forget a secret, which is then deleted here. Until that it is kept: nothing else can end it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RevokeGrant {
    mailbox: MailboxId,
    provider: Provider,
    secret: SecretId,
}

impl Job for RevokeGrant {
    const KIND: &'static str = "revoke_grant";
    const LANE: Lane = Lane::Normal;
}

impl RevokeGrant {
    pub(super) fn now(engine: &Engine, mailbox: &Mailbox, secret: SecretId) -> anyhow::Result<NewJob> {
        let job = Self { mailbox: mailbox.id, provider: mailbox.provider, secret };
        Ok(new_job(&job, engine.store.clock(), None)?)
    }
}

pub(super) fn kind(syncer: Syncer) -> Kind {
    let mut kind = Kind::new(move |held, job: RevokeGrant| {
        let syncer = syncer.clone();
        async move { run(&syncer, &held, &job).await }
    });
    kind.retry = RETRY;
    kind.pool = Pool::Remote;
    kind
}

async fn run(syncer: &Syncer, held: &Held, job: &RevokeGrant) -> Result<Verdict, JobError> {
    let engine = &syncer.engine;
    let store = engine.store.tenant(held.tenant());
    let mut forget = store.write();
    forget.delete_secret(job.secret);
    let Some(mailbox) = store.find_mailbox(&job.mailbox.to_string()).await? else {
        return Ok(Verdict::Commit(forget));
    };
    let secret = engine.vault.open_text(held.tenant(), job.secret, job.provider.secret_kind()).await;
    let Some(secret) = secret.map_err(anyhow::Error::from)? else { return Ok(Verdict::Done) };
    let account = account(held, job, &mailbox, secret);
    let connector = syncer.connectors.get(&job.provider);
    let Some(call) = connector.and_then(|connector| connector.revoke(&account)) else {
        return Ok(Verdict::Commit(forget));
    };
    let Some(grant) = engine.hold_grant(job.provider, mailbox.account()).await? else {
        return Err(JobError::Throttled(BUSY));
    };
    let taking_back = async {
        // A provider may know only one consent of an owner to our app: with it, those of others would go.
        if engine.store.system().is_connected(job.provider, mailbox.account()).await? {
            return Ok(Ok(()));
        }
        Ok(call.await)
    };
    match grant.during(taking_back).await {
        Some(Ok(Ok(()))) => Ok(Verdict::Commit(forget)),
        Some(Ok(Err(e))) => give_up_at_last(held, forget, &e.to_string()),
        Some(Err(e)) => Err(StoreError::into(e)),
        None => give_up_at_last(held, forget, "it takes too long"),
    }
}

fn account(held: &Held, job: &RevokeGrant, mailbox: &Mailbox, secret: Secret<String>) -> Account {
    Account {
        tenant: held.tenant(),
        mailbox: job.mailbox,
        address: mailbox.address.clone(),
        settings: connection(&mailbox.settings),
        secret: Some(secret),
        folders: Vec::new(),
        sweep_since: None,
        access: Arc::new(NoAccess),
    }
}

fn give_up_at_last(held: &Held, forget: TenantUnit, why: &str) -> Result<Verdict, JobError> {
    if held.job.attempt < RETRY.retries.into() {
        return Err(JobError::Failed { class: "revoke", message: why.to_owned() });
    }
    tracing::warn!("a consent was not taken back, and its secret is forgotten: {why}");
    Ok(Verdict::Commit(forget))
}
