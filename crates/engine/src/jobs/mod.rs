//! What each job does when it runs, one file each, and the registry of all of them. Payloads of jobs that others enqueue
//! stand with the code that requests them, so nothing in this crate uses this folder.

mod check_completeness;
mod collect;
mod discover_directories;
mod discover_directory;
mod erase_mailbox;
mod erase_tenant;
mod fetch_emails;
mod fetch_failed;
mod fetch_forgotten;
mod list_history;
mod list_mailbox;
mod poll_mailboxes;
mod prune_jobs;
mod prune_records;
mod prune_webhooks;
mod reindex;
mod remove_missing;
mod renew_watches;
mod retry_blobs;
mod revoke_grant;
mod stop_watch;
mod sync_mailbox;
mod upkeep;
mod watch_mailbox;

use std::time::Duration;

use domain::TenantId;
use jiff::SignedDuration;
use jobs::{Completion, Job, JobContext, JobError, JobKind, JobKinds, RunnableJob, noop};
use serde_json::json;
use store::StorageFault;
use store::sql::jobs::JobRetention;
use store::sql::schedules::{MissedPolicy, NewSchedule, OverlapPolicy};

pub use check_completeness::CheckCompleteness;
pub use collect::Collect;
pub use discover_directories::DiscoverDirectories;
pub use prune_jobs::PruneJobs;
pub use prune_records::PruneRecords;
pub use prune_webhooks::PruneWebhooks;
pub use renew_watches::RenewWatches;
pub use revoke_grant::RevokeGrant;
pub use upkeep::Upkeep;

use crate::Engine;
use crate::accounts::erasure::{EraseMailbox, EraseTenant};
use crate::archive::reindex::Reindex;
use crate::archive::repair::RetryBlobs;
use crate::directory::DiscoverDirectory;
use crate::sync::{
    FetchEmails, FetchFailed, FetchForgotten, ListHistory, ListMailbox, PollMailboxes, RemoveMissing, StopWatch,
    SyncMailbox, Syncer, WatchMailbox,
};

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
    let kinds = kinds_of_engine(JobKinds::default(), &syncer.engine, keep);
    // A job that crashes on demand.
    #[cfg(feature = "testing")]
    let kinds = kinds.with(jobs::probe::probe(jobs::RetryPolicy::default()));
    let engine = &syncer.engine;
    kinds
        .with(noop::kind())
        .with(of::<CheckCompleteness>(engine, syncer))
        .with(of::<DiscoverDirectory>(engine, syncer))
        .with(of::<FetchEmails>(engine, syncer))
        .with(of::<ListHistory>(engine, syncer))
        .with(of::<ListMailbox>(engine, syncer))
        .with(of::<PollMailboxes>(engine, syncer))
        .with(of::<RemoveMissing>(engine, syncer))
        .with(of::<RevokeGrant>(engine, syncer))
        .with(of::<StopWatch>(engine, syncer))
        .with(of::<SyncMailbox>(engine, syncer))
        .with(of::<WatchMailbox>(engine, syncer))
}

/// Adds the kinds that need no provider.
fn kinds_of_engine(kinds: JobKinds, engine: &Engine, keep: RetentionPeriods) -> JobKinds {
    kinds
        .with(of::<Collect>(engine, &(engine.clone(), keep.blobs)))
        .with(of::<DiscoverDirectories>(engine, engine))
        .with(of::<EraseMailbox>(engine, engine))
        .with(of::<EraseTenant>(engine, engine))
        .with(of::<FetchFailed>(engine, engine))
        .with(of::<FetchForgotten>(engine, &()))
        .with(of::<PruneJobs>(engine, &keep.jobs))
        .with(of::<PruneRecords>(engine, &keep.events))
        .with(of::<PruneWebhooks>(engine, &keep.deliveries))
        .with(of::<Reindex>(engine, engine))
        .with(of::<RenewWatches>(engine, engine))
        .with(of::<RetryBlobs>(engine, engine))
        .with(of::<Upkeep>(engine, &()))
}

/// Returns a kind whose jobs wait while our own storage takes no writes, and spend no attempt by that.
fn of<J: RunnableJob>(engine: &Engine, services: &J::Services) -> JobKind {
    let (engine, services) = (engine.clone(), services.clone());
    JobKind::new(move |ctx, job: J| run_judged(engine.clone(), job, ctx, services.clone()))
        .in_pool(J::POOL)
        .with_retry(J::RETRY)
        .with_timeouts(J::DEADLINE, J::PROGRESS_DEADLINE)
}

async fn run_judged<J: RunnableJob>(
    engine: Engine,
    job: J,
    ctx: JobContext,
    services: J::Services,
) -> Result<Completion, JobError> {
    match job.run(ctx, services).await {
        Err(JobError::Storage { fault: StorageFault::Possible, message }) => {
            Err(engine.judge_storage_error(message).await)
        }
        ended => ended,
    }
}

/// Returns the kinds of a process that does nothing but reindex.
pub fn reindex_kinds(engine: &Engine) -> JobKinds {
    JobKinds::default().with(of::<Reindex>(engine, engine))
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
