//! The job that prunes the history of jobs.

use domain::Lane;
use jobs::{Completion, Job, JobKind};
use serde::{Deserialize, Serialize};
use store::sql::jobs::JobRetention;

/// Deletes finished jobs that are old enough.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PruneJobs {}

impl Job for PruneJobs {
    const KIND: &'static str = "prune_jobs";
    const LANE: Lane = Lane::Low;
}

pub(super) fn kind(keep: JobRetention) -> JobKind {
    JobKind::new(move |ctx: jobs::JobContext, _: PruneJobs| async move {
        while ctx.store.system().prune_jobs(keep).await?.is_more {
            ctx.report_progress();
        }
        Ok(Completion::Done)
    })
}
