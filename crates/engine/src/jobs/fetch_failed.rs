//! Messages of a mailbox that were given up are asked for once more, when somebody resumes it.

use domain::{Lane, MailboxId};
use jobs::{Job, Kind, Verdict, new_job};
use serde::{Deserialize, Serialize};
use store::sql::jobs::NewJob;

use crate::Engine;

/// Enqueues the jobs that fetch them. Done twice, they are fetched once.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FetchFailed {
    mailbox: MailboxId,
}

impl Job for FetchFailed {
    const KIND: &'static str = "fetch_failed";
    const LANE: Lane = Lane::Normal;
}

impl FetchFailed {
    pub fn now(engine: &Engine, mailbox: MailboxId) -> anyhow::Result<NewJob> {
        Ok(new_job(&Self { mailbox }, engine.store.clock(), None)?)
    }
}

pub(super) fn kind(engine: Engine) -> Kind {
    Kind::new(move |held: jobs::Held, job: FetchFailed| {
        let engine = engine.clone();
        async move {
            engine.fetch_failed(held.tenant(), job.mailbox).await?;
            Ok(Verdict::Done)
        }
    })
}
