//! The job that enqueues renewals of watches that are due, before they expire.

use std::collections::BTreeMap;
use std::time::Duration;

use domain::{MailboxId, TenantId};
use jobs::{Completion, Job, JobContext, JobError, JobKind};
use serde::{Deserialize, Serialize};

use super::WatchMailbox;
use crate::Engine;

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

pub(super) fn kind(engine: Engine) -> JobKind {
    JobKind::new(move |ctx, _: RenewWatches| {
        let engine = engine.clone();
        async move { run(&engine, &ctx).await }
    })
}

async fn run(engine: &Engine, ctx: &JobContext) -> Result<Completion, JobError> {
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
            unit.enqueue(vec![WatchMailbox::new_job(engine.store.clock(), mailbox)?]);
        }
        unit.commit().await?;
        ctx.report_progress();
    }
    Ok(Completion::Done)
}
