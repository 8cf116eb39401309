//! The job that collects unreferenced blobs every night.

use domain::{Lane, redact_for_log};
use jiff::SignedDuration;
use jobs::{Completion, Job, JobContext, JobError, JobKind};
use serde::{Deserialize, Serialize};

use crate::{Engine, Progress};

/// Collects the blobs of all tenants and merges small packs.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Collect {}

impl Job for Collect {
    const KIND: &'static str = "collect";
    const LANE: Lane = Lane::Low;
}

pub(super) fn kind(engine: Engine, grace: SignedDuration) -> JobKind {
    let mut kind = JobKind::new(move |ctx, _: Collect| {
        let engine = engine.clone();
        async move { run(&engine, &ctx, grace).await }
    });
    kind.deadline = std::time::Duration::from_secs(6 * 3600);
    kind.no_progress = kind.deadline;
    kind
}

async fn run(engine: &Engine, ctx: &JobContext, grace: SignedDuration) -> Result<Completion, JobError> {
    for tenant in engine.store.system().list_tenants().await? {
        let collected = engine.collect(tenant.id, grace, &Progress::default()).await?;
        ctx.report_progress();
        for problem in collected.problems {
            tracing::warn!(tenant.id = %tenant.id, error = redact_for_log(&problem), "collection incomplete");
        }
    }
    Ok(Completion::Done)
}
