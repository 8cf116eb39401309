//! The mail of a mailbox that was disconnected goes for good.

use std::time::Duration;

use domain::{Lane, MailboxId, MailboxState};
use jobs::{Held, Job, JobError, Kind, Verdict, new_job};
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
    pub fn now(engine: &Engine, mailbox: MailboxId) -> anyhow::Result<NewJob> {
        Ok(new_job(&Self { mailbox }, engine.store.clock(), None)?)
    }
}

pub(super) fn kind(engine: Engine) -> Kind {
    let long = Duration::from_secs(3600);
    Kind::new(move |held, job: EraseMailbox| {
        let engine = engine.clone();
        async move { run(&engine, &held, &job).await }
    })
    .within(long, long)
}

async fn run(engine: &Engine, held: &Held, job: &EraseMailbox) -> Result<Verdict, JobError> {
    let mailbox = engine.store.tenant(held.tenant()).find_mailbox(&job.mailbox.to_string()).await?;
    if let Some(mailbox) = mailbox.filter(|mailbox| mailbox.state == MailboxState::Disconnected) {
        engine.erase_mailbox(&mailbox).await?;
    }
    Ok(Verdict::Done)
}
