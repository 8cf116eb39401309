//! The job that erases the mail of a disconnected mailbox.

use std::time::Duration;

use domain::MailboxState;
use jobs::{Completion, JobContext, JobError, RunnableJob};
use store::{Precondition, StoreError};

use crate::Engine;
use crate::accounts::erasure::EraseMailbox;

/// How soon it is looked again whether a legal hold is lifted.
const HOLD_RECHECK_INTERVAL: Duration = Duration::from_secs(3600);

impl RunnableJob for EraseMailbox {
    type Services = Engine;
    const DEADLINE: Duration = Duration::from_secs(3600);
    const PROGRESS_DEADLINE: Duration = Self::DEADLINE;

    async fn run(self, ctx: JobContext, engine: Engine) -> Result<Completion, JobError> {
        let mailbox = engine.store.tenant(ctx.tenant()).find_mailbox(&self.mailbox.to_string()).await?;
        if let Some(mailbox) = mailbox.filter(|mailbox| mailbox.state == MailboxState::Disconnected) {
            engine.erase_mailbox(&mailbox).await.map_err(job_error)?;
        }
        engine.store.system().scrub(&|| ctx.report_progress()).await?;
        Ok(Completion::Done)
    }
}

fn job_error(e: anyhow::Error) -> JobError {
    match e.downcast_ref() {
        Some(StoreError::Precondition(Precondition::TenantHeld)) => JobError::Deferred(HOLD_RECHECK_INTERVAL),
        _ => e.into(),
    }
}
