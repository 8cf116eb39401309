//! The job that prunes the history of jobs.

use domain::Lane;
use jobs::{Completion, Job, JobContext, JobError, RunnableJob};
use serde::{Deserialize, Serialize};
use store::sql::jobs::JobRetention;

/// Deletes finished jobs that are old enough.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PruneJobs {}

impl Job for PruneJobs {
    const KIND: &'static str = "prune_jobs";
    const LANE: Lane = Lane::Low;
}

impl RunnableJob for PruneJobs {
    type Services = JobRetention;

    async fn run(self, ctx: JobContext, keep: Self::Services) -> Result<Completion, JobError> {
        while ctx.store.system().prune_jobs(keep).await?.is_more {
            ctx.report_progress();
        }
        Ok(Completion::Done)
    }
}
