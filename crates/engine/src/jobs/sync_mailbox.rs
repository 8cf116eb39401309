//! The job that lists what has changed in a mailbox.

use jobs::{Completion, JobContext, JobError, Pool, RetryPolicy, RunnableJob};
use store::sql::sync::ListingPhase;

use crate::retry_policies::SYNC_RETRY;
use crate::sync::{SyncMailbox, Syncer};

impl RunnableJob for SyncMailbox {
    type Services = Syncer;
    const POOL: Pool = Pool::Remote;
    const RETRY: RetryPolicy = SYNC_RETRY;

    async fn run(self, ctx: JobContext, syncer: Syncer) -> Result<Completion, JobError> {
        syncer.list(&ctx, self.mailbox, ListingPhase::Changes).await
    }
}
