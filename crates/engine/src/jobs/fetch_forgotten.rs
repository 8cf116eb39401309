//! The job that finds queued messages without a fetch job: it was cancelled, failed too often, or ended because the
//! owner of the mailbox had left.

use domain::TenantId;
use jobs::{Completion, JobContext, JobError, RunnableJob};

use crate::sync::{FetchEmails, FetchForgotten};

/// Messages of a mailbox that are requested per run.
const MAX_MESSAGES_PER_COMMIT: u64 = 5000;

impl RunnableJob for FetchForgotten {
    type Services = ();

    async fn run(self, ctx: JobContext, (): Self::Services) -> Result<Completion, JobError> {
        if ctx.tenant() == TenantId::SYSTEM {
            let woken = ctx.store.system().wake_stranded_jobs().await?;
            if woken > 0 {
                tracing::warn!(jobs = woken, "parked jobs had nothing to wait for; woken");
            }
        }
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
}
