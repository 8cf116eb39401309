//! The job that prunes the log of webhook deliveries.

use std::time::Duration;

use domain::Lane;
use jobs::{Completion, Job, JobKind};
use serde::{Deserialize, Serialize};

/// Deletes deliveries that finished long enough ago, and removed webhooks.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PruneWebhooks {}

impl Job for PruneWebhooks {
    const KIND: &'static str = "prune_webhooks";
    const LANE: Lane = Lane::Low;
}

pub(super) fn kind(keep: Duration) -> JobKind {
    JobKind::new(move |ctx: jobs::JobContext, _: PruneWebhooks| async move {
        while ctx.store.system().prune_deliveries(keep).await? {
            ctx.report_progress();
        }
        Ok(Completion::Done)
    })
}
