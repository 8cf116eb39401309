//! The job that erases the mail of a disconnected mailbox.

use std::time::Duration;

use domain::MailboxState;
use jobs::{Completion, JobContext, JobError, RunnableJob};

use crate::Engine;
use crate::accounts::erasure::EraseMailbox;

impl RunnableJob for EraseMailbox {
    type Services = Engine;
    const DEADLINE: Duration = Duration::from_secs(3600);
    const PROGRESS_DEADLINE: Duration = Self::DEADLINE;

    async fn run(self, ctx: JobContext, engine: Engine) -> Result<Completion, JobError> {
        let mailbox = engine.store.tenant(ctx.tenant()).find_mailbox(&self.mailbox.to_string()).await?;
        if let Some(mailbox) = mailbox.filter(|mailbox| mailbox.state == MailboxState::Disconnected) {
            engine.erase_mailbox(&mailbox).await?;
        }
        Ok(Completion::Done)
    }
}
