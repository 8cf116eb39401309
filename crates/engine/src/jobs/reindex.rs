//! The job that makes the tokens of a tenant's emails once more. Each batch is an attempt of its own: what it wrote and
//! the cursor of the next one are one commit, so it can be killed anywhere.

use std::time::{Duration, Instant};

use domain::Lane;
use domain::search::TOKENS_VERSION;
use jobs::{Completion, Job, JobContext, JobError, JobKind, new_job};
use serde::{Deserialize, Serialize};
use store::StoreError;
use store::sql::jobs::{NewJob, OnConflict, UniqueKey};

use crate::Engine;
use crate::archive::reindex::ReindexRun;

/// Reindexes the next emails of a run. The payload is the run, and so shows its progress.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Reindex(pub ReindexRun);

impl Job for Reindex {
    const KIND: &'static str = "reindex";
    const LANE: Lane = Lane::Low;
}

/// A tenth of what an import writes, so that mail that comes in does not notice. A tenant's limit: other tenants'
/// reindexes run beside it.
const MAX_EMAILS_PER_SECOND: f64 = 200.0;

/// When a batch is tried again whose originals cannot be read now, or whose tokens this process cannot make.
const RETRY_DELAY: Duration = Duration::from_secs(60);

impl Reindex {
    /// The unique key: a tenant has one reindex at a time.
    pub const UNIQUE_KEY: &'static str = "reindex";

    /// Creates the job; a live one stays as it is.
    pub(crate) fn new_job(engine: &Engine, run: ReindexRun) -> anyhow::Result<NewJob> {
        let job = new_job(&Self(run), engine.store.clock(), None)?;
        Ok(NewJob { unique: Some(unique(OnConflict::Keep)), ..job })
    }
}

fn unique(policy: OnConflict) -> UniqueKey {
    UniqueKey { key: Reindex::UNIQUE_KEY.to_owned(), policy }
}

pub(super) fn kind(engine: Engine) -> JobKind {
    JobKind::new(move |ctx, job: Reindex| {
        let engine = engine.clone();
        async move { run(&engine, &ctx, &job.0).await }
    })
}

async fn run(engine: &Engine, ctx: &JobContext, run: &ReindexRun) -> Result<Completion, JobError> {
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
    let next = ctx.follow_up(&Reindex(batch.run)).map_err(anyhow::Error::from)?;
    let least = Duration::from_secs_f64(batch.replacements.len() as f64 / MAX_EMAILS_PER_SECOND);
    let mut unit = ctx.write();
    unit.replace_tokens(batch.replacements);
    let next = NewJob { unique: Some(unique(OnConflict::Replace)), lane: ctx.job.lane, ..next };
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
