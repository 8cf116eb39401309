//! A tenant's directory is looked at, and its mailboxes are brought in step; or it is found out what that would mean.

use std::time::Duration;

use domain::{Clock, Provider};
use jobs::{Held, Job, JobError, Kind, Pool, Verdict, new_job};
use serde::{Deserialize, Serialize};
use store::sql::jobs::{NewJob, OnConflict, Unique};

use crate::directory::DiscoveryError;
use crate::sync::{Syncer, job_error};

/// Whoever finds no place waits for so long.
const NO_PLACE: Duration = Duration::from_secs(5);

/// However large an organisation is; each page is a sign of progress.
const LONGEST: Duration = Duration::from_secs(6 * 3600);
const SILENCE: Duration = Duration::from_secs(5 * 60);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Discovery {
    /// Unless that many would go that it is strange.
    Usual,
    /// However many go.
    Forced,
    /// Nothing is changed.
    Dry,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct DiscoverDirectory {
    provider: Provider,
    how: Discovery,
}

impl Job for DiscoverDirectory {
    const KIND: &'static str = "discover_directory";
}

impl DiscoverDirectory {
    /// Of each way one at a time.
    pub fn now(clock: &dyn Clock, provider: Provider, how: Discovery) -> anyhow::Result<NewJob> {
        let job = new_job(&Self { provider, how }, clock, None)?;
        let key = format!("{} {how:?}", provider.as_str());
        Ok(NewJob { unique: Some(Unique { key, policy: OnConflict::Merge }), ..job })
    }
}

pub(super) fn kind(syncer: Syncer) -> Kind {
    let kind = Kind::new(move |held, job: DiscoverDirectory| {
        let syncer = syncer.clone();
        async move {
            let Ok(_place) = syncer.discoveries.try_acquire() else { return Err(JobError::Throttled(NO_PLACE)) };
            run(&syncer, &held, &job).await
        }
    });
    kind.on(Pool::Remote).within(LONGEST, SILENCE)
}

async fn run(syncer: &Syncer, held: &Held, job: &DiscoverDirectory) -> Result<Verdict, JobError> {
    let (tenant, progress) = (held.tenant(), || held.progress());
    let store = held.store.tenant(tenant);
    let before = store.find_directory(job.provider).await?.map(|directory| directory.version);
    let outcome = match job.how {
        Discovery::Dry => syncer.try_discovery(tenant, job.provider, &progress).await.map(drop),
        how => syncer.discover(tenant, job.provider, how == Discovery::Forced, &progress).await.map(drop),
    };
    match outcome {
        Ok(()) => Ok(Verdict::Done),
        Err(e) if e.is_overtaken() => {
            if !store.is_active().await? {
                return Err(JobError::Throttled(NO_PLACE)); // until the tenant is back
            }
            // Whoever was faster may not be that sure. Of a directory that was changed meanwhile nobody has said so.
            let now = store.find_directory(job.provider).await?.map(|directory| directory.version);
            match job.how == Discovery::Forced && now == before {
                true => Err(JobError::Throttled(NO_PLACE)),
                false => Ok(Verdict::Done),
            }
        }
        Err(DiscoveryError::Provider(e)) if DiscoveryError::Provider(e.clone()).passes() => Err(job_error(&e, held)),
        // What is wrong stands in the directory's row, and it is tried again when it is due.
        Err(DiscoveryError::Provider(_) | DiscoveryError::NoGroup(_)) => Ok(Verdict::Done),
        Err(DiscoveryError::Other(e)) => Err(e.into()),
    }
}
