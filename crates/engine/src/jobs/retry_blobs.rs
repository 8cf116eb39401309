//! The job that stores bytes which blob storage could not take before.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use domain::{MailboxId, TenantId, redact_for_log};
use jobs::{Completion, JobContext, JobError, RunnableJob};
use store::TenantStore;
use store::sql::jobs::StartTime;
use store::sql::sync::{DeadFetches, FailedMessages};

use crate::archive::repair::RetryBlobs;
use crate::{Engine, Progress};

/// When a message is fetched again that failed for storage, though storage took other things: it may be too large for what
/// is left of a disk, and must not be downloaded all the time.
const STORAGE_REPLAY_DELAY: Duration = Duration::from_secs(6 * 3600);

/// When emails are completed that were left although storage took a probe.
const INCOMPLETE_RETRY_DELAY: Duration = Duration::from_secs(60);

impl RunnableJob for RetryBlobs {
    type Services = Engine;

    async fn run(self, ctx: JobContext, engine: Self::Services) -> Result<Completion, JobError> {
        if ctx.tenant() == TenantId::SYSTEM {
            return request_for_all(&ctx).await;
        }
        if let Some(trouble) = engine.check_storage().await {
            return Err(trouble.into_job_error(ctx.store.clock().now()));
        }
        let store = ctx.store.tenant(ctx.tenant());
        let mut left = 0;
        for mailbox in store.list_incomplete_mailboxes().await? {
            ctx.report_progress();
            left += complete_mailbox(&engine, &store, mailbox).await?;
        }
        let letters = DeadFetches::OfStorage { age: STORAGE_REPLAY_DELAY };
        ctx.store.system().replay_dead_fetches(ctx.tenant(), letters).await?;
        engine.notify_workers().await;
        if left > 0 {
            // Storage went away again, or something else was storing them at the same time.
            let reason = format!("{left} emails could not be completed yet");
            return Err(JobError::Waiting { delay: INCOMPLETE_RETRY_DELAY, reason });
        }
        Ok(Completion::Done)
    }
}

async fn request_for_all(ctx: &JobContext) -> Result<Completion, JobError> {
    for tenant in ctx.store.system().list_tenants_with_missing_bytes().await? {
        ctx.report_progress();
        let mut unit = ctx.store.system().write_for(tenant);
        unit.enqueue(vec![RetryBlobs::request(ctx.store.clock(), StartTime::Now)?]);
        unit.commit().await?;
    }
    Ok(Completion::Done)
}

/// Completes emails from their originals, and requests the messages that still lack bytes by the ledger. Returns how many
/// were left that have their originals.
async fn complete_mailbox(engine: &Engine, store: &TenantStore, mailbox: MailboxId) -> anyhow::Result<u64> {
    let Some(mailbox) = store.find_mailbox(&mailbox.to_string()).await?.map(Arc::new) else { return Ok(0) };
    let repaired = engine.retry_blobs(store, &mailbox, &Progress::default()).await;
    let repaired = repaired.with_context(|| format!("mailbox {}", mailbox.id))?;
    if repaired.completed > 0 {
        tracing::info!(tenant.id = %store.id, mailbox.id = %mailbox.id, completed = repaired.completed, "incomplete emails completed");
    }
    for problem in &repaired.problems {
        tracing::warn!(tenant.id = %store.id, mailbox.id = %mailbox.id, error = redact_for_log(problem), "email not completed");
    }
    if mailbox.provider.capabilities().is_remote && mailbox.is_sync_enabled() {
        engine.fetch_failed(store.id, mailbox.id, FailedMessages::WithoutBytes).await?;
    }
    Ok(repaired.incomplete)
}
