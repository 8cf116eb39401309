//! The job that stores bytes which blob storage could not take before.

use std::sync::Arc;

use anyhow::Context;
use domain::Lane;
use jobs::{Completion, Job, JobContext, JobError, RunnableJob};
use serde::{Deserialize, Serialize};

use crate::{Engine, Progress};

/// Completes the emails of all tenants that lack bytes.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RetryBlobs {}

impl Job for RetryBlobs {
    const KIND: &'static str = "retry_blobs";
    const LANE: Lane = Lane::Low;
}

impl RunnableJob for RetryBlobs {
    type Services = Engine;

    async fn run(self, ctx: JobContext, engine: Self::Services) -> Result<Completion, JobError> {
        for tenant in engine.store.system().list_tenants().await? {
            let store = engine.store.tenant(tenant.id);
            for mailbox in store.list_mailboxes().await? {
                ctx.report_progress();
                let mailbox = Arc::new(mailbox);
                let repaired = engine.retry_blobs(&store, &mailbox, &Progress::default()).await;
                let repaired = repaired.with_context(|| format!("tenant {}", tenant.id))?;
                if repaired.completed > 0 {
                    tracing::info!(tenant.id = %tenant.id, mailbox.id = %mailbox.id, completed = repaired.completed, "incomplete emails completed");
                }
            }
        }
        Ok(Completion::Done)
    }
}
