//! The job that revokes the grant of a mailbox at its provider once the mailbox is disconnected.

use std::sync::Arc;
use std::time::Duration;

use domain::connector::{ConnectorAccount, NoApiAccess};
use domain::{Lane, MailboxId, Provider, Secret, SecretId, redact_for_log};
use jobs::{Completion, Job, JobContext, JobError, Pool, RetryPolicy, RunnableJob, new_job};
use serde::{Deserialize, Serialize};
use store::sql::jobs::NewJob;
use store::sql::mailboxes::Mailbox;
use store::{StoreError, TenantUnit};

use crate::Engine;
use crate::retry_policies::REVOKE_RETRY;
use crate::sync::Syncer;

/// When the job is tried again while a consent of the same account is in progress.
const LEASE_RETRY_DELAY: Duration = Duration::from_secs(5);

/// Revokes a grant at the provider and then deletes its secret. Until then the secret is kept: the call needs it.
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

impl RunnableJob for RevokeGrant {
    type Services = Syncer;
    const POOL: Pool = Pool::Remote;
    const RETRY: RetryPolicy = REVOKE_RETRY;

    async fn run(self, ctx: JobContext, syncer: Syncer) -> Result<Completion, JobError> {
        revoke(&syncer, &ctx, &self).await
    }
}

async fn revoke(syncer: &Syncer, ctx: &JobContext, job: &RevokeGrant) -> Result<Completion, JobError> {
    let engine = &syncer.engine;
    let store = engine.store.tenant(ctx.tenant());
    let mut delete_secret_unit = store.write();
    delete_secret_unit.delete_secret(job.secret);
    let Some(mailbox) = store.find_mailbox(&job.mailbox.to_string()).await? else {
        return Ok(Completion::Commit(delete_secret_unit));
    };
    let secret = engine.vault.open_text(ctx.tenant(), job.secret, job.provider.capabilities().secret_kind).await;
    let Some(secret) = secret.map_err(anyhow::Error::from)? else { return Ok(Completion::Done) };
    let account = account(ctx, job, &mailbox, secret);
    let connector = syncer.connectors.get(&job.provider);
    let Some(call) = connector.and_then(|connector| connector.revoke(&account)) else {
        return Ok(Completion::Commit(delete_secret_unit));
    };
    let Some(lease) = engine.acquire_grant_lease(job.provider, mailbox.account()).await? else {
        return Err(JobError::Deferred(LEASE_RETRY_DELAY));
    };
    let revoking = async {
        // A provider may know only one consent of an owner to our app: revoking it would end those of other tenants.
        if engine.store.system().is_account_connected(job.provider, mailbox.account()).await? {
            return Ok(Ok(()));
        }
        Ok(call.await)
    };
    match lease.run_while_held(revoking).await {
        Some(Ok(Ok(()))) => Ok(Completion::Commit(delete_secret_unit)),
        Some(Ok(Err(e))) => retry_or_give_up(ctx, job, delete_secret_unit, &e.to_string()),
        Some(Err(e)) => Err(StoreError::into(e)),
        None => retry_or_give_up(ctx, job, delete_secret_unit, "the call timed out"),
    }
}

fn account(ctx: &JobContext, job: &RevokeGrant, mailbox: &Mailbox, secret: Secret<String>) -> ConnectorAccount {
    ConnectorAccount {
        tenant: ctx.tenant(),
        mailbox: job.mailbox,
        address: mailbox.address.clone(),
        settings: mailbox.settings.connection_json(),
        secret: Some(secret),
        folders: Vec::new(),
        sweep_since: None,
        access: Arc::new(NoApiAccess),
    }
}

fn retry_or_give_up(
    ctx: &JobContext,
    job: &RevokeGrant,
    delete_secret_unit: TenantUnit,
    why: &str,
) -> Result<Completion, JobError> {
    if ctx.job.attempt < REVOKE_RETRY.max_retries.into() {
        return Err(JobError::Failed { class: "revoke", message: why.to_owned() });
    }
    tracing::warn!(
        tenant.id = %ctx.tenant(),
        mailbox.id = %job.mailbox,
        provider = job.provider.as_str(),
        error = redact_for_log(why),
        "grant not revoked at the provider; its secret is deleted"
    );
    Ok(Completion::Commit(delete_secret_unit))
}
