//! The job that asks a provider whether anything has changed in some mailboxes of a tenant.

use std::time::Duration;

use jobs::{Completion, JobContext, JobError, Pool, RetryPolicy, RunnableJob};

use crate::retry_policies::SYNC_RETRY;
use crate::sync::{PollMailboxes, Syncer};

impl RunnableJob for PollMailboxes {
    type Services = Syncer;
    const POOL: Pool = Pool::Remote;
    const RETRY: RetryPolicy = SYNC_RETRY;
    /// For budgets under which its turn comes late.
    const DEADLINE: Duration = Duration::from_secs(3600);
    const PROGRESS_DEADLINE: Duration = Self::DEADLINE;

    async fn run(self, ctx: JobContext, syncer: Syncer) -> Result<Completion, JobError> {
        syncer.poll(&ctx, self).await
    }
}
