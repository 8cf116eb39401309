//! The job that erases the mail of a disconnected mailbox.

use std::time::Duration;

use domain::{Lane, MailboxId, MailboxState};
use jobs::{Completion, Job, JobContext, JobError, JobKind, new_job};
use serde::{Deserialize, Serialize};
use store::sql::jobs::NewJob;

use crate::Engine;

/// Erases the emails of a mailbox, unless it was connected again.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct EraseMailbox {
    mailbox: MailboxId,
}

impl Job for EraseMailbox {
    const KIND: &'static str = "erase_mailbox";
    const LANE: Lane = Lane::Low;
}

impl EraseMailbox {
    pub fn new_job(engine: &Engine, mailbox: MailboxId) -> anyhow::Result<NewJob> {
        Ok(new_job(&Self { mailbox }, engine.store.clock(), None)?)
    }
}

pub(super) fn kind(engine: Engine) -> JobKind {
    let long = Duration::from_secs(3600);
    JobKind::new(move |ctx, job: EraseMailbox| {
        let engine = engine.clone();
        async move { run(&engine, &ctx, &job).await }
    })
    .with_timeouts(long, long)
}

async fn run(engine: &Engine, ctx: &JobContext, job: &EraseMailbox) -> Result<Completion, JobError> {
    let mailbox = engine.store.tenant(ctx.tenant()).find_mailbox(&job.mailbox.to_string()).await?;
    if let Some(mailbox) = mailbox.filter(|mailbox| mailbox.state == MailboxState::Disconnected) {
        engine.erase_mailbox(&mailbox).await?;
    }
    Ok(Completion::Done)
}
