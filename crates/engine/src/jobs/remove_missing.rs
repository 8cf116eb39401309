//! The job that removes what listings of a mailbox lack.

use jobs::{Completion, JobContext, JobError, RunnableJob};

use crate::sync::{RemoveMissing, Syncer};

impl RunnableJob for RemoveMissing {
    type Services = Syncer;

    async fn run(self, ctx: JobContext, syncer: Syncer) -> Result<Completion, JobError> {
        syncer.remove_missing(&ctx, self.mailbox).await
    }
}
