//! The job that lists a whole mailbox, a page each time, to compare it with the ledger.

use jobs::{Completion, JobContext, JobError, Pool, RetryPolicy, RunnableJob};
use store::sql::sync::ListingPhase;

use crate::retry_policies::FETCH_RETRY;
use crate::sync::{ListMailbox, Syncer};

impl RunnableJob for ListMailbox {
    type Services = Syncer;
    const POOL: Pool = Pool::Remote;
    const RETRY: RetryPolicy = FETCH_RETRY;

    async fn run(self, ctx: JobContext, syncer: Syncer) -> Result<Completion, JobError> {
        syncer.list(&ctx, self.mailbox, ListingPhase::FullComparison).await
    }
}
