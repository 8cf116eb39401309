//! The job that discovers a tenant's directory and brings its mailboxes in line with it, or only reports what would
//! change.

use std::time::Duration;

use domain::{Clock, Provider};
use jobs::{Completion, Job, JobContext, JobError, JobKind, Pool, new_job};
use serde::{Deserialize, Serialize};
use store::sql::jobs::{NewJob, OnConflict, UniqueKey};

use crate::directory::DiscoveryError;
use crate::sync::{Syncer, job_error};

/// When a discovery is tried again that found no permit or was superseded.
const RETRY_DELAY: Duration = Duration::from_secs(5);

/// However large an organisation is; each page counts as progress.
const JOB_DEADLINE: Duration = Duration::from_secs(6 * 3600);
const PROGRESS_DEADLINE: Duration = Duration::from_secs(5 * 60);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DiscoveryMode {
    /// Changes are held back if suspiciously many mailboxes would go.
    Usual,
    /// Changes are applied, however many mailboxes go.
    Forced,
    /// A dry run: nothing is changed.
    Dry,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct DiscoverDirectory {
    provider: Provider,
    #[serde(rename = "how")]
    mode: DiscoveryMode,
}

impl Job for DiscoverDirectory {
    const KIND: &'static str = "discover_directory";
}

impl DiscoverDirectory {
    /// Creates the job; one per provider and mode is live at a time.
    pub fn new_job(clock: &dyn Clock, provider: Provider, mode: DiscoveryMode) -> anyhow::Result<NewJob> {
        let job = new_job(&Self { provider, mode }, clock, None)?;
        let key = format!("{} {mode:?}", provider.as_str());
        Ok(NewJob { unique: Some(UniqueKey { key, policy: OnConflict::Merge }), ..job })
    }
}

pub(super) fn kind(syncer: Syncer) -> JobKind {
    let kind = JobKind::new(move |ctx, job: DiscoverDirectory| {
        let syncer = syncer.clone();
        async move {
            let Ok(_permit) = syncer.discovery_permits.try_acquire() else {
                return Err(JobError::Deferred(RETRY_DELAY));
            };
            run(&syncer, &ctx, &job).await
        }
    });
    kind.in_pool(Pool::Remote).with_timeouts(JOB_DEADLINE, PROGRESS_DEADLINE)
}

async fn run(syncer: &Syncer, ctx: &JobContext, job: &DiscoverDirectory) -> Result<Completion, JobError> {
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
