//! The job that enqueues renewals of watches that are due, before they expire.

use std::collections::BTreeMap;
use std::time::Duration;

use domain::{MailboxId, TenantId};
use jobs::{Completion, Job, JobContext, JobError, RunnableJob};
use serde::{Deserialize, Serialize};

use crate::Engine;
use crate::sync::WatchMailbox;

/// Enqueues the renewal of each watch that is due.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RenewWatches {}

impl Job for RenewWatches {
    const KIND: &'static str = "renew_watches";
}

/// Watches per run, which is every minute; with one renewal a day that is enough for 700,000 mailboxes, and if all are
/// due at once they do not crowd out other jobs.
const MAX_WATCHES_PER_RUN: u64 = 500;

/// A renewal records when the watch is due again; if it never runs, it is due after this.
const FALLBACK_INTERVAL: Duration = Duration::from_secs(3600);

impl RunnableJob for RenewWatches {
    type Services = Engine;

    async fn run(self, ctx: JobContext, engine: Self::Services) -> Result<Completion, JobError> {
        let system = ctx.store.system();
        let mut by_tenant: BTreeMap<TenantId, Vec<MailboxId>> = BTreeMap::new();
        for (tenant, mailbox) in system.list_due_watches(MAX_WATCHES_PER_RUN).await? {
            by_tenant.entry(tenant).or_default().push(mailbox);
        }
        for (tenant, mut mailboxes) in by_tenant {
            mailboxes.sort_unstable();
            let mut unit = system.write_for(tenant);
            unit.defer_watches(&mailboxes, FALLBACK_INTERVAL);
            for mailbox in mailboxes {
                unit.enqueue(vec![WatchMailbox::request(engine.store.clock(), mailbox)?]);
            }
            unit.commit().await?;
            ctx.report_progress();
        }
        Ok(Completion::Done)
    }
}
