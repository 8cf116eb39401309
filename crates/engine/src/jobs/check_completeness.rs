//! The job that compares a few mailboxes a day with their providers.

use domain::metrics as catalogue;
use domain::{Lane, redact_for_log};
use jobs::{Completion, Job, JobContext, JobError, RunnableJob};
use serde::{Deserialize, Serialize};

use crate::sync::Syncer;

/// Compares a sample of all mailboxes; the sum of the differences is a metric.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CheckCompleteness {}

impl Job for CheckCompleteness {
    const KIND: &'static str = "check_completeness";
    const LANE: Lane = Lane::Low;
}

/// Mailboxes that are compared each time, the longest not compared first.
const SAMPLED_MAILBOXES: u64 = 20;

impl RunnableJob for CheckCompleteness {
    type Services = Syncer;

    async fn run(self, ctx: JobContext, syncer: Self::Services) -> Result<Completion, JobError> {
        let mut difference = 0;
        for (tenant, id) in ctx.store.system().sample_mailboxes(SAMPLED_MAILBOXES).await? {
            ctx.report_progress();
            let store = ctx.store.tenant(tenant);
            let Some(mailbox) = store.find_mailbox(&id.to_string()).await? else { continue };
            match syncer.compare(&mailbox).await {
                Ok(Some(compared)) if compared.difference() > 0 => {
                    // Its changes may be on their way; a difference that is still there tomorrow is not.
                    tracing::warn!(tenant.id = %tenant, mailbox.id = %id, difference = compared.difference(), "mailbox differs from its provider");
                    difference += compared.difference();
                }
                Ok(_) => {}
                Err(e) => {
                    let error = redact_for_log(&format_args!("{e:#}"));
                    tracing::warn!(tenant.id = %tenant, mailbox.id = %id, error, "mailbox not compared with its provider");
                }
            }
        }
        metrics::gauge!(catalogue::COMPLETENESS_DIFFERENCE).set(difference as f64);
        Ok(Completion::Done)
    }
}
