//! The provider of a mailbox is asked to tell us when something happens in it.

use domain::{Clock, Lane, MailboxId};
use jobs::{Held, Job, JobError, Kind, Pool, SystemDice, Verdict, new_job};
use serde::{Deserialize, Serialize};
use store::sql::jobs::{NewJob, OnConflict, Unique};

use crate::sync::{SyncMailbox, Syncer, only_one};

/// Asks. When it is asked again stands in its row, whatever comes of it, so this ends at once.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct WatchMailbox {
    mailbox: MailboxId,
}

impl Job for WatchMailbox {
    const KIND: &'static str = "watch_mailbox";
}

impl WatchMailbox {
    pub fn now(clock: &dyn Clock, mailbox: MailboxId) -> anyhow::Result<NewJob> {
        let job = new_job(&Self { mailbox }, clock, None)?;
        let unique = Some(Unique { key: mailbox.to_string(), policy: OnConflict::Merge });
        Ok(NewJob { unique, order_key: Some(order(mailbox)), ..job })
    }
}

/// Who asks for it and who ends it go one after the other: what is asked for must not come after its end.
pub(super) fn order(mailbox: MailboxId) -> String {
    format!("watch:{mailbox}")
}

pub(super) fn kind(syncer: Syncer) -> Kind {
    let mut kind = Kind::new(move |held, job: WatchMailbox| {
        let syncer = syncer.clone();
        async move { run(&syncer, &held, &job).await }
    });
    kind.pool = Pool::Remote;
    kind
}

async fn run(syncer: &Syncer, held: &Held, job: &WatchMailbox) -> Result<Verdict, JobError> {
    let Some(mut renewed) = syncer.renew_watch(held.tenant(), job.mailbox, &SystemDice).await? else {
        return Ok(Verdict::Done);
    };
    if renewed.is_unauthorized {
        let look = held.follow_up(&SyncMailbox { mailbox: job.mailbox }).map_err(anyhow::Error::from)?;
        renewed.unit.enqueue(vec![only_one(NewJob { lane: Lane::Normal, ..look }, job.mailbox)]);
    }
    Ok(Verdict::Commit(renewed.unit))
}
