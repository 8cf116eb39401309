//! The job that ends the watch of a mailbox that was disconnected.

use std::time::Duration;

use domain::{ConnectorError, MailboxId, SecretId, redact_for_log};
use jiff::SignedDuration;
use jobs::{Completion, Job, JobContext, JobError, JobKind, Pool, new_job};
use serde::{Deserialize, Serialize};
use store::sql::jobs::NewJob;

use super::RevokeGrant;
use super::watch_mailbox::order_key;
use crate::Engine;
use crate::sync::Syncer;
use crate::sync::push::StopWatchError;

/// Ends the watch of an account unless another mailbox has it. Then a job of its own revokes the grant, which the call
/// needs.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct StopWatch {
    mailbox: MailboxId,
    /// The secret of the mailbox when it was disconnected.
    secret: Option<SecretId>,
}

impl Job for StopWatch {
    const KIND: &'static str = "stop_watch";
}

/// A provider that cannot be reached for so long is not called: the watch expires by itself after a week, and the grant
/// is to be revoked.
const MAX_STOP_DURATION: SignedDuration = SignedDuration::from_hours(1);
const MAX_STOP_ATTEMPTS: u64 = 5;

/// When a provider is called again that asks to wait without saying how long.
const DEFAULT_RETRY_DELAY: Duration = Duration::from_secs(30);

impl StopWatch {
    pub fn new_job(engine: &Engine, mailbox: MailboxId, secret: Option<SecretId>) -> anyhow::Result<NewJob> {
        let job = new_job(&Self { mailbox, secret }, engine.store.clock(), None)?;
        Ok(NewJob { order_key: Some(order_key(mailbox)), ..job })
    }
}

pub(super) fn kind(syncer: Syncer) -> JobKind {
    let mut kind = JobKind::new(move |ctx, job: StopWatch| {
        let syncer = syncer.clone();
        async move { run(&syncer, &ctx, &job).await }
    });
    kind.pool = Pool::Remote;
    kind
}

async fn run(syncer: &Syncer, ctx: &JobContext, job: &StopWatch) -> Result<Completion, JobError> {
    let store = syncer.engine.store.tenant(ctx.tenant());
    let Some(mailbox) = store.find_mailbox(&job.mailbox.to_string()).await? else { return Ok(Completion::Done) };
    let now = syncer.engine.store.system().now().await?;
    let may_retry = ctx.job.attempt < MAX_STOP_ATTEMPTS && now.duration_since(ctx.job.created_at) < MAX_STOP_DURATION;
    match syncer.stop_watch(mailbox.clone(), job.secret).await {
        Ok(()) => {}
        Err(StopWatchError::Provider(ConnectorError::Throttled { retry_after })) if may_retry => {
            return Err(JobError::Deferred(retry_after.unwrap_or(DEFAULT_RETRY_DELAY)));
        }
        Err(StopWatchError::Provider(ConnectorError::RateLimited(wait))) if may_retry => {
            return Err(JobError::Deferred(wait));
        }
        Err(StopWatchError::Provider(e @ ConnectorError::Unavailable(_))) if may_retry => {
            return Err(JobError::Failed { class: "unavailable", message: e.to_string() });
        }
        Err(StopWatchError::Other(e)) if may_retry => return Err(e.into()),
        Err(StopWatchError::Provider(e)) => {
            tracing::info!(tenant.id = %ctx.tenant(), mailbox.id = %job.mailbox, error = redact_for_log(&e), "watch not ended; it expires by itself");
        }
        Err(StopWatchError::Other(e)) => {
            let error = redact_for_log(&format_args!("{e:#}"));
            tracing::warn!(tenant.id = %ctx.tenant(), mailbox.id = %job.mailbox, error, "watch not ended");
        }
    }
    let mut unit = ctx.write();
    unit.forget_watch(job.mailbox);
    if let Some(secret) = job.secret {
        unit.enqueue(vec![RevokeGrant::now(&syncer.engine, &mailbox, secret)?]);
    }
    Ok(Completion::Commit(unit))
}
