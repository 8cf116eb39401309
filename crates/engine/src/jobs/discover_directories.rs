//! The job that enqueues the discovery of directories that are due, because people come and go.

use std::time::Duration;

use jobs::{Completion, Job, JobContext, JobError, RunnableJob};
use serde::{Deserialize, Serialize};

use crate::Engine;
use crate::directory::{DiscoverDirectory, DiscoveryMode};

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

impl RunnableJob for DiscoverDirectories {
    type Services = Engine;

    async fn run(self, ctx: JobContext, engine: Self::Services) -> Result<Completion, JobError> {
        let system = ctx.store.system();
        for (tenant, provider) in system.list_due_directories(MAX_DIRECTORIES_PER_RUN).await? {
            let mut unit = system.write_for(tenant);
            unit.defer_directory(provider, FALLBACK_INTERVAL);
            unit.enqueue(vec![DiscoverDirectory::request(engine.store.clock(), provider, DiscoveryMode::Usual)?]);
            unit.commit().await?;
            ctx.report_progress();
        }
        Ok(Completion::Done)
    }
}
