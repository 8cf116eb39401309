//! The job that collects unreferenced blobs every night.

use std::time::Duration;

use domain::{Lane, redact_for_log};
use jiff::SignedDuration;
use jobs::{Completion, Job, JobContext, JobError, RunnableJob};
use serde::{Deserialize, Serialize};

use crate::{Engine, Progress};

/// Collects the blobs of all tenants and merges small packs.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Collect {}

impl Job for Collect {
    const KIND: &'static str = "collect";
    const LANE: Lane = Lane::Low;
}

impl RunnableJob for Collect {
    /// The engine, and how long unreferenced blobs are kept.
    type Services = (Engine, SignedDuration);
    const DEADLINE: Duration = Duration::from_secs(6 * 3600);
    const PROGRESS_DEADLINE: Duration = Self::DEADLINE;

    async fn run(self, ctx: JobContext, (engine, grace): Self::Services) -> Result<Completion, JobError> {
        // Where an erasure died before its own.
        engine.store.system().scrub(&|| ctx.report_progress()).await?;
        for tenant in engine.store.system().list_tenants().await? {
            let collected = engine.collect(tenant.id, grace, &Progress::default()).await?;
            ctx.report_progress();
            for problem in collected.problems {
                tracing::warn!(tenant.id = %tenant.id, error = redact_for_log(&problem), "collection incomplete");
            }
        }
        Ok(Completion::Done)
    }
}
