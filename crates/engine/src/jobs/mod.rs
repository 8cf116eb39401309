//! The jobs of Mailroom, one file each, and their registry.

mod check_completeness;
mod collect;
mod discover_directories;
mod discover_directory;
mod erase_mailbox;
mod erase_tenant;
mod fetch_failed;
mod fetch_forgotten;
mod prune_jobs;
mod prune_records;
mod prune_webhooks;
mod reindex;
mod renew_watches;
mod retry_blobs;
mod revoke_grant;
mod stop_watch;
mod upkeep;
mod watch_mailbox;

use std::time::Duration;

use domain::TenantId;
use jiff::SignedDuration;
use jobs::{Job, JobKinds, noop};
use serde_json::json;
use store::sql::jobs::JobRetention;
use store::sql::schedules::{MissedPolicy, NewSchedule, OverlapPolicy};

pub use check_completeness::CheckCompleteness;
pub use collect::Collect;
pub use discover_directories::DiscoverDirectories;
pub use discover_directory::{DiscoverDirectory, DiscoveryMode};
pub use erase_mailbox::EraseMailbox;
pub use erase_tenant::EraseTenant;
pub use fetch_failed::FetchFailed;
pub use fetch_forgotten::FetchForgotten;
pub use prune_jobs::PruneJobs;
pub use prune_records::PruneRecords;
pub use prune_webhooks::PruneWebhooks;
pub use reindex::Reindex;
pub use renew_watches::RenewWatches;
pub use retry_blobs::RetryBlobs;
pub use revoke_grant::RevokeGrant;
pub use stop_watch::StopWatch;
pub use upkeep::Upkeep;
pub use watch_mailbox::WatchMailbox;

use crate::Engine;
use crate::sync::Syncer;

/// How long records are kept.
#[derive(Debug, Clone, Copy)]
pub struct RetentionPeriods {
    pub jobs: JobRetention,
    pub events: SignedDuration,
    /// Finished webhook deliveries.
    pub deliveries: Duration,
    /// Unreferenced blobs.
    pub blobs: SignedDuration,
}

/// Returns all kinds of jobs that this program can run.
pub fn kinds(syncer: &Syncer, keep: RetentionPeriods) -> JobKinds {
    let engine = &syncer.engine;
    let listing = syncer.list_kinds().into_iter().fold(JobKinds::default(), JobKinds::with);
    // A job that crashes on demand.
    #[cfg(feature = "testing")]
    let listing = listing.with(jobs::probe::probe(jobs::RetryPolicy::default()));
    listing
        .with(syncer.fetch_kind())
        .with(syncer.poll_kind())
        .with(check_completeness::kind(syncer.clone()))
        .with(collect::kind(engine.clone(), keep.blobs))
        .with(discover_directories::kind(engine.clone()))
        .with(discover_directory::kind(syncer.clone()))
        .with(erase_mailbox::kind(engine.clone()))
        .with(erase_tenant::kind(engine.clone()))
        .with(fetch_failed::kind(engine.clone()))
        .with(fetch_forgotten::kind())
        .with(noop::kind())
        .with(upkeep::kind())
        .with(prune_jobs::kind(keep.jobs))
        .with(prune_records::kind(keep.events))
        .with(prune_webhooks::kind(keep.deliveries))
        .with(reindex::kind(engine.clone()))
        .with(renew_watches::kind(engine.clone()))
        .with(retry_blobs::kind(engine.clone()))
        .with(revoke_grant::kind(syncer.clone()))
        .with(stop_watch::kind(syncer.clone()))
        .with(watch_mailbox::kind(syncer.clone()))
}

/// Returns the kinds of a process that does nothing but reindex.
pub fn reindex_kinds(engine: &Engine) -> JobKinds {
    JobKinds::default().with(reindex::kind(engine.clone()))
}

/// Returns the recurring jobs. They run at odd minutes, so that not all installations wake up together.
pub fn schedules() -> Vec<NewSchedule> {
    vec![
        recurring::<Upkeep>("17 3 * * *"),
        recurring::<PruneJobs>("43 * * * *"),
        recurring::<PruneRecords>("23 * * * *"),
        recurring::<PruneWebhooks>("53 * * * *"),
        recurring::<RenewWatches>("* * * * *"),
        recurring::<DiscoverDirectories>("* * * * *"),
        recurring::<RetryBlobs>("7,37 * * * *"),
        recurring::<FetchForgotten>("19 * * * *"),
        recurring::<Collect>("29 2 * * *"),
        recurring::<CheckCompleteness>("11 5 * * *"),
    ]
}

fn recurring<J: Job>(cron: &str) -> NewSchedule {
    NewSchedule {
        name: J::KIND.to_owned(),
        tenant: TenantId::SYSTEM,
        kind: J::KIND.to_owned(),
        lane: J::LANE,
        payload: json!({}),
        cron: cron.to_owned(),
        zone: "UTC".to_owned(),
        missed: MissedPolicy::RunOnce,
        overlap: OverlapPolicy::Skip,
    }
}
