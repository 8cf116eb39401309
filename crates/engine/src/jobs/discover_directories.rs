//! The job that enqueues the discovery of directories that are due, because people come and go.

use std::time::Duration;

use jobs::{Completion, Job, JobContext, JobError, JobKind};
use serde::{Deserialize, Serialize};

use super::{DiscoverDirectory, DiscoveryMode};
use crate::Engine;

/// Enqueues the discovery of each directory that is due.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct DiscoverDirectories {}

impl Job for DiscoverDirectories {
    const KIND: &'static str = "discover_directories";
}

/// Directories per run, which is every minute.
const MAX_DIRECTORIES_PER_RUN: u64 = 500;

/// A discovery records when the directory is due again; if it never runs, it is due after this.
const FALLBACK_INTERVAL: Duration = Duration::from_secs(3600);

pub(super) fn kind(engine: Engine) -> JobKind {
    JobKind::new(move |ctx, _: DiscoverDirectories| {
        let engine = engine.clone();
        async move { run(&engine, &ctx).await }
    })
}

async fn run(engine: &Engine, ctx: &JobContext) -> Result<Completion, JobError> {
    let system = ctx.store.system();
    for (tenant, provider) in system.list_due_directories(MAX_DIRECTORIES_PER_RUN).await? {
        let mut unit = system.write_for(tenant);
        unit.defer_directory(provider, FALLBACK_INTERVAL);
        unit.enqueue(vec![DiscoverDirectory::new_job(engine.store.clock(), provider, DiscoveryMode::Usual)?]);
        unit.commit().await?;
        ctx.report_progress();
    }
    Ok(Completion::Done)
}
