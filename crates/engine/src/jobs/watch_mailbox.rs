//! The job that requests or renews the watch of a mailbox.

use domain::Lane;
use jobs::{Completion, JobContext, JobError, Pool, RunnableJob, SystemRandom};
use store::sql::jobs::NewJob;

use crate::sync::{SyncMailbox, Syncer, WatchMailbox};

impl RunnableJob for WatchMailbox {
    type Services = Syncer;
    const POOL: Pool = Pool::Remote;

    async fn run(self, ctx: JobContext, syncer: Syncer) -> Result<Completion, JobError> {
        let Some(mut renewed) = syncer.renew_watch(ctx.tenant(), self.mailbox, &SystemRandom).await? else {
            return Ok(Completion::Done);
        };
        if renewed.is_unauthorized {
            let sync = SyncMailbox::request_in(&ctx, self.mailbox)?;
            renewed.unit.enqueue(vec![NewJob { lane: Lane::Normal, ..sync }]);
        }
        Ok(Completion::Commit(renewed.unit))
    }
}
