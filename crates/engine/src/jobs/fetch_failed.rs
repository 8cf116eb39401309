//! The job that requests the failed messages of a mailbox once more, when a person resumes it.

use domain::{Lane, MailboxId};
use jobs::{Completion, Job, JobKind, new_job};
use serde::{Deserialize, Serialize};
use store::sql::jobs::NewJob;

use crate::Engine;

/// Enqueues the jobs that fetch failed messages. Run twice, they are fetched once.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FetchFailed {
    mailbox: MailboxId,
}

impl Job for FetchFailed {
    const KIND: &'static str = "fetch_failed";
    const LANE: Lane = Lane::Normal;
}

impl FetchFailed {
    pub fn new_job(engine: &Engine, mailbox: MailboxId) -> anyhow::Result<NewJob> {
        Ok(new_job(&Self { mailbox }, engine.store.clock(), None)?)
    }
}

pub(super) fn kind(engine: Engine) -> JobKind {
    JobKind::new(move |ctx: jobs::JobContext, job: FetchFailed| {
        let engine = engine.clone();
        async move {
            engine.fetch_failed(ctx.tenant(), job.mailbox).await?;
            Ok(Completion::Done)
        }
    })
}
