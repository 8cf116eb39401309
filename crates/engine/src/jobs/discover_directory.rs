//! The job that discovers a tenant's directory and brings its mailboxes in line with it, or only reports what would
//! change.

use std::time::Duration;

use jobs::{Completion, JobContext, JobError, Pool, RunnableJob};

use crate::directory::{DiscoverDirectory, DiscoveryError, DiscoveryMode};
use crate::sync::{Syncer, job_error};

/// When a discovery is tried again that found no permit or was superseded.
const RETRY_DELAY: Duration = Duration::from_secs(5);

impl RunnableJob for DiscoverDirectory {
    type Services = Syncer;
    const POOL: Pool = Pool::Remote;
    /// However large an organisation is; each page counts as progress.
    const DEADLINE: Duration = Duration::from_secs(6 * 3600);

    async fn run(self, ctx: JobContext, syncer: Syncer) -> Result<Completion, JobError> {
        let Some(_permit) = syncer.acquire_discovery_permit() else {
            return Err(JobError::Deferred(RETRY_DELAY));
        };
        discover(&syncer, &ctx, &self).await
    }
}

async fn discover(syncer: &Syncer, ctx: &JobContext, job: &DiscoverDirectory) -> Result<Completion, JobError> {
    let (tenant, progress) = (ctx.tenant(), || ctx.report_progress());
    let store = ctx.store.tenant(tenant);
    let before = store.find_directory(job.provider).await?.map(|directory| directory.version);
    let outcome = match job.mode {
        DiscoveryMode::Dry => syncer.dry_run_discovery(tenant, job.provider, &progress).await.map(drop),
        mode => syncer.discover(tenant, job.provider, mode == DiscoveryMode::Forced, &progress).await.map(drop),
    };
    match outcome {
        Ok(()) => Ok(Completion::Done),
        Err(e) if e.is_superseded() => {
            if !store.is_active().await? {
                return Err(JobError::Deferred(RETRY_DELAY)); // until the tenant is back
            }
            // The discovery that superseded this one may not have been forced. If the directory was changed, force was
            // not meant for it.
            let now = store.find_directory(job.provider).await?.map(|directory| directory.version);
            if job.mode == DiscoveryMode::Forced && now == before {
                Err(JobError::Deferred(RETRY_DELAY))
            } else {
                Ok(Completion::Done)
            }
        }
        Err(DiscoveryError::Provider(e)) if DiscoveryError::Provider(e.clone()).is_transient() => {
            Err(job_error(&e, ctx))
        }
        // The error is recorded with the directory, which is discovered again when it is due.
        Err(DiscoveryError::Provider(_) | DiscoveryError::NoGroup(_)) => Ok(Completion::Done),
        Err(DiscoveryError::Other(e)) => Err(e.into()),
    }
}
