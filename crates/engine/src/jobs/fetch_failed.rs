//! The job that requests the failed messages of a mailbox once more, when a person resumes it.

use jobs::{Completion, JobContext, JobError, RunnableJob};

use crate::Engine;
use crate::sync::FetchFailed;

impl RunnableJob for FetchFailed {
    type Services = Engine;

    async fn run(self, ctx: JobContext, engine: Engine) -> Result<Completion, JobError> {
        engine.fetch_failed(ctx.tenant(), self.mailbox).await?;
        Ok(Completion::Done)
    }
}
