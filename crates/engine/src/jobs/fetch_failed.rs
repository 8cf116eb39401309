//! The job that requests the failed messages of a mailbox once more, when a person resumes it: their dead letters are
//! replayed.

use jobs::{Completion, JobContext, JobError, RunnableJob};

use store::sql::sync::{DeadFetches, FailedMessages};

use crate::Engine;
use crate::sync::FetchFailed;

impl RunnableJob for FetchFailed {
    type Services = Engine;

    async fn run(self, ctx: JobContext, engine: Engine) -> Result<Completion, JobError> {
        ctx.store.system().replay_dead_fetches(ctx.tenant(), DeadFetches::OfMailbox(self.mailbox)).await?;
        engine.fetch_failed(ctx.tenant(), self.mailbox, FailedMessages::All).await?;
        engine.notify_workers().await;
        Ok(Completion::Done)
    }
}
