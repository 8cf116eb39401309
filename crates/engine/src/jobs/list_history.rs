//! The job that lists mail from before the first sync, a page each time.

use jobs::{Completion, JobContext, JobError, Pool, RetryPolicy, RunnableJob};
use store::sql::sync::ListingPhase;

use crate::retry_policies::FETCH_RETRY;
use crate::sync::{ListHistory, Syncer};

impl RunnableJob for ListHistory {
    type Services = Syncer;
    const POOL: Pool = Pool::Remote;
    const RETRY: RetryPolicy = FETCH_RETRY;

    async fn run(self, ctx: JobContext, syncer: Syncer) -> Result<Completion, JobError> {
        syncer.list(&ctx, self.mailbox, ListingPhase::History).await
    }
}
