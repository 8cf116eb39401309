//! The job that finds queued messages without a fetch job: it was cancelled, failed too often, or ended because the
//! owner of the mailbox had left.

use domain::{Clock, Lane, TenantId};
use jobs::{Completion, Job, JobContext, JobError, JobKind, new_job};
use serde::{Deserialize, Serialize};
use store::sql::jobs::{NewJob, OnConflict, UniqueKey};

use crate::sync::FetchEmails;

/// Enqueues fetches of such messages for the mailboxes of its tenant; as a job of the system, for all tenants.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FetchForgotten {}

impl Job for FetchForgotten {
    const KIND: &'static str = "fetch_forgotten";
    const LANE: Lane = Lane::Low;
}

impl FetchForgotten {
    /// Creates the job for a mailbox that is active again and should not wait for the schedule. Many at once share one
    /// job.
    pub fn new_job(clock: &dyn Clock) -> anyhow::Result<NewJob> {
        let job = new_job(&Self {}, clock, None)?;
        Ok(NewJob { unique: Some(UniqueKey { key: Self::KIND.to_owned(), policy: OnConflict::Merge }), ..job })
    }
}

/// Messages of a mailbox that are requested per run.
const MAX_MESSAGES_PER_COMMIT: u64 = 5000;

pub(super) fn kind() -> JobKind {
    JobKind::new(|ctx, _: FetchForgotten| async move { run(&ctx).await })
}

async fn run(ctx: &JobContext) -> Result<Completion, JobError> {
    let only = Some(ctx.tenant()).filter(|tenant| *tenant != TenantId::SYSTEM);
    for (tenant, mailbox) in ctx.store.system().list_mailboxes_without_fetches(only).await? {
        ctx.report_progress();
        let store = ctx.store.tenant(tenant);
        let messages = store.list_unfetched_messages(mailbox, MAX_MESSAGES_PER_COMMIT).await?;
        if messages.is_empty() {
            continue; // all of them are dead letters
        }
        tracing::warn!(tenant.id = %tenant, mailbox.id = %mailbox, messages = messages.len(), "queued messages had no fetch job; requested again");
        let mut unit = store.write();
        unit.enqueue(FetchEmails::unsized_jobs(mailbox, &messages, ctx.store.clock())?);
        unit.commit().await?;
    }
    Ok(Completion::Done)
}
