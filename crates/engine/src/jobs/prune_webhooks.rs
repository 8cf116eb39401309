//! The job that prunes the log of webhook deliveries.

use std::time::Duration;

use domain::Lane;
use jobs::{Completion, Job, JobContext, JobError, RunnableJob};
use serde::{Deserialize, Serialize};

/// Deletes deliveries that finished long enough ago, and removed webhooks.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PruneWebhooks {}

impl Job for PruneWebhooks {
    const KIND: &'static str = "prune_webhooks";
    const LANE: Lane = Lane::Low;
}

impl RunnableJob for PruneWebhooks {
    type Services = Duration;

    async fn run(self, ctx: JobContext, keep: Self::Services) -> Result<Completion, JobError> {
        while ctx.store.system().prune_deliveries(keep).await? {
            ctx.report_progress();
        }
        Ok(Completion::Done)
    }
}
