//! The job that makes the tokens of a tenant's emails once more. Each batch is an attempt of its own: what it wrote and
//! the cursor of the next one are one commit, so it can be killed anywhere.

use std::time::{Duration, Instant};

use domain::search::TOKENS_VERSION;
use jobs::{Completion, JobContext, JobError, RunnableJob};
use store::StoreError;
use store::sql::jobs::{NewJob, OnConflict};

use crate::Engine;
use crate::archive::reindex::{Reindex, ReindexRun};

/// A tenth of what an import writes, so that mail that comes in does not notice. A tenant's limit: other tenants'
/// reindexes run beside it.
const MAX_EMAILS_PER_SECOND: f64 = 200.0;

/// When a batch is tried again whose originals cannot be read now, or whose tokens this process cannot make.
const RETRY_DELAY: Duration = Duration::from_secs(60);

impl RunnableJob for Reindex {
    type Services = Engine;

    async fn run(self, ctx: JobContext, engine: Engine) -> Result<Completion, JobError> {
        reindex(&engine, &ctx, &self.0).await
    }
}

async fn reindex(engine: &Engine, ctx: &JobContext, run: &ReindexRun) -> Result<Completion, JobError> {
    if run.version > TOKENS_VERSION {
        // Requested by a newer version; during an upgrade a process of that version comes soon.
        return Err(JobError::Deferred(RETRY_DELAY));
    }
    let begun = Instant::now();
    let store = ctx.store.tenant(ctx.tenant());
    let batch = engine.next_reindex_batch(&store, run, || ctx.report_progress()).await.map_err(job_error)?;
    let Some(batch) = batch else {
        tracing::info!(
            tenant.id = %ctx.tenant(),
            examined = run.examined,
            reindexed = run.reindexed,
            unreadable = run.unreadable,
            "reindex done"
        );
        return Ok(Completion::Done);
    };
    let next = ctx.follow_up(&Reindex(batch.run))?;
    let least = Duration::from_secs_f64(batch.replacements.len() as f64 / MAX_EMAILS_PER_SECOND);
    let mut unit = ctx.write();
    unit.replace_tokens(batch.replacements);
    let next = NewJob { unique: Some(Reindex::unique(OnConflict::Replace)), lane: ctx.job.lane, ..next };
    unit.enqueue_continuation(&ctx.job, next);
    tokio::time::sleep(least.saturating_sub(begun.elapsed())).await;
    Ok(Completion::Commit(unit))
}

/// Blob storage that is down spends no attempt.
fn job_error(e: anyhow::Error) -> JobError {
    match e.downcast_ref::<StoreError>() {
        Some(StoreError::BlobsUnavailable(_)) => JobError::Deferred(RETRY_DELAY),
        _ => e.into(),
    }
}
