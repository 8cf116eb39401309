//! The job that erases a deleted tenant once its grace period is over. Only the audit entry of the deletion remains.

use std::time::Duration;

use domain::redact_for_log;
use jiff::SignedDuration;
use jobs::{Completion, JobContext, JobError, RunnableJob};
use store::sql::jobs::{NewJob, StartTime};

use crate::accounts::erasure::EraseTenant;
use crate::{Engine, Progress};

/// When the job is tried again that a backup, a legal hold or an error prevented.
const RETRY_DELAY: Duration = Duration::from_secs(3600);

impl RunnableJob for EraseTenant {
    type Services = Engine;
    /// Collecting the bytes of a large tenant takes long and reports no progress meanwhile.
    const DEADLINE: Duration = Duration::from_secs(6 * 3600);
    const PROGRESS_DEADLINE: Duration = Self::DEADLINE;

    async fn run(self, ctx: JobContext, engine: Engine) -> Result<Completion, JobError> {
        // Whatever prevents it now does not for ever, and the erasure was promised.
        erase(&engine, &ctx, &self).await.or_else(|e| {
            tracing::warn!(tenant.id = %self.tenant, error = redact_for_log(&e), "tenant not erased; retrying in an hour");
            retry_later(&ctx, &self)
        })
    }
}

async fn erase(engine: &Engine, ctx: &JobContext, job: &EraseTenant) -> Result<Completion, JobError> {
    let system = engine.store.system();
    let Some(tenant) = system.find_tenant(&job.tenant.to_string()).await? else {
        // Its rows went before the job died.
        system.scrub(&|| ctx.report_progress()).await?;
        return Ok(Completion::Done);
    };
    if tenant.deleted_at != Some(job.deleted_at) || tenant.is_active {
        return Ok(Completion::Done);
    }
    // A hold, a backup that copies its objects, or a writer of one: later.
    let is_busy = system.are_objects_held().await? || system.is_writing_packs(tenant.id).await?;
    if is_busy || !system.begin_erasing(&tenant).await? {
        return retry_later(ctx, job);
    }
    let store = engine.store.tenant(tenant.id);
    for mailbox in store.list_mailboxes().await? {
        ctx.report_progress();
        engine.erase_mailbox(&mailbox).await?;
    }
    while system.erase_rows(tenant.id).await? {
        ctx.report_progress();
    }
    let progress = Progress::default();
    let collected = engine.collect(tenant.id, SignedDuration::ZERO, &progress).await?;
    ctx.report_progress();
    let is_held = collected.objects_held > 0 || system.are_objects_held().await?;
    if !collected.problems.is_empty() || is_held || !system.forget_tenant(&tenant).await? {
        return retry_later(ctx, job);
    }
    system.scrub(&|| ctx.report_progress()).await?;
    tracing::info!(tenant.id = %tenant.id, "tenant erased");
    Ok(Completion::Done)
}

fn retry_later(ctx: &JobContext, job: &EraseTenant) -> Result<Completion, JobError> {
    let again = ctx.follow_up(job)?;
    let mut unit = ctx.write();
    unit.enqueue(vec![NewJob { when: StartTime::In(RETRY_DELAY), ..again }]);
    Ok(Completion::Commit(unit))
}
