//! The job that requests or renews the watch of a mailbox.

use domain::{Clock, Lane, MailboxId};
use jobs::{Completion, Job, JobContext, JobError, JobKind, Pool, SystemRandom, new_job};
use serde::{Deserialize, Serialize};
use store::sql::jobs::{NewJob, OnConflict, UniqueKey};

use crate::sync::{SyncMailbox, Syncer, unique_per_mailbox};

/// Requests the watch. Its row records when the next request is due, whatever the outcome, so the job is not retried.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct WatchMailbox {
    mailbox: MailboxId,
}

impl Job for WatchMailbox {
    const KIND: &'static str = "watch_mailbox";
}

impl WatchMailbox {
    pub fn new_job(clock: &dyn Clock, mailbox: MailboxId) -> anyhow::Result<NewJob> {
        let job = new_job(&Self { mailbox }, clock, None)?;
        let unique = Some(UniqueKey { key: mailbox.to_string(), policy: OnConflict::Merge });
        Ok(NewJob { unique, order_key: Some(order_key(mailbox)), ..job })
    }
}

/// Returns the order key: requests and ends of a watch run one after the other, so that none comes after its end.
pub(super) fn order_key(mailbox: MailboxId) -> String {
    format!("watch:{mailbox}")
}

pub(super) fn kind(syncer: Syncer) -> JobKind {
    let mut kind = JobKind::new(move |ctx, job: WatchMailbox| {
        let syncer = syncer.clone();
        async move { run(&syncer, &ctx, &job).await }
    });
    kind.pool = Pool::Remote;
    kind
}

async fn run(syncer: &Syncer, ctx: &JobContext, job: &WatchMailbox) -> Result<Completion, JobError> {
    let Some(mut renewed) = syncer.renew_watch(ctx.tenant(), job.mailbox, &SystemRandom).await? else {
        return Ok(Completion::Done);
    };
    if renewed.is_unauthorized {
        let look = ctx.follow_up(&SyncMailbox { mailbox: job.mailbox }).map_err(anyhow::Error::from)?;
        renewed.unit.enqueue(vec![unique_per_mailbox(NewJob { lane: Lane::Normal, ..look }, job.mailbox)]);
    }
    Ok(Completion::Commit(renewed.unit))
}
