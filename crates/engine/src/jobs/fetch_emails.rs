//! The job that fetches, parses and stores messages that the ledger has queued.

use jobs::{Completion, JobContext, JobError, Pool, RetryPolicy, RunnableJob};

use crate::retry_policies::FETCH_RETRY;
use crate::sync::{FetchEmails, Syncer};

impl RunnableJob for FetchEmails {
    type Services = Syncer;
    const POOL: Pool = Pool::Remote;
    const RETRY: RetryPolicy = FETCH_RETRY;

    async fn run(self, ctx: JobContext, syncer: Syncer) -> Result<Completion, JobError> {
        syncer.fetch(&ctx, self).await
    }
}
