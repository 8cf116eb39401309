//! The job that ends the watch of a mailbox that was disconnected.

use std::time::Duration;

use domain::{ConnectorError, redact_for_log};
use jobs::{Completion, JobContext, JobError, Pool, RunnableJob};

use super::RevokeGrant;
use crate::retry_policies::{MAX_STOP_ATTEMPTS, MAX_STOP_DURATION};
use crate::sync::push::StopWatchError;
use crate::sync::{StopWatch, Syncer};

/// When a provider is called again that asks to wait without saying how long.
const DEFAULT_RETRY_DELAY: Duration = Duration::from_secs(30);

impl RunnableJob for StopWatch {
    type Services = Syncer;
    const POOL: Pool = Pool::Remote;

    async fn run(self, ctx: JobContext, syncer: Syncer) -> Result<Completion, JobError> {
        let store = syncer.engine.store.tenant(ctx.tenant());
        let Some(mailbox) = store.find_mailbox(&self.mailbox.to_string()).await? else { return Ok(Completion::Done) };
        let now = syncer.engine.store.system().now().await?;
        let may_retry =
            ctx.job.attempt < MAX_STOP_ATTEMPTS && now.duration_since(ctx.job.created_at) < MAX_STOP_DURATION;
        match syncer.stop_watch(mailbox.clone(), self.secret).await {
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
                tracing::info!(tenant.id = %ctx.tenant(), mailbox.id = %self.mailbox, error = redact_for_log(&e), "watch not ended; it expires by itself");
            }
            Err(StopWatchError::Other(e)) => {
                let error = redact_for_log(&format_args!("{e:#}"));
                tracing::warn!(tenant.id = %ctx.tenant(), mailbox.id = %self.mailbox, error, "watch not ended");
            }
        }
        let mut unit = ctx.write();
        unit.forget_watch(self.mailbox);
        if let Some(secret) = self.secret {
            unit.enqueue(vec![RevokeGrant::now(&syncer.engine, &mailbox, secret)?]);
        }
        Ok(Completion::Commit(unit))
    }
}
