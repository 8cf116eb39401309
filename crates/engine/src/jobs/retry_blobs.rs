//! Bytes that blob storage could not take are tried again.

use std::sync::Arc;

use anyhow::Context;
use domain::Lane;
use jobs::{Held, Job, JobError, Kind, Verdict};
use serde::{Deserialize, Serialize};

use crate::{Engine, Progress};

/// Looks at the mailboxes of all tenants for emails that lack bytes.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RetryBlobs {}

impl Job for RetryBlobs {
    const KIND: &'static str = "retry_blobs";
    const LANE: Lane = Lane::Low;
}

pub(super) fn kind(engine: Engine) -> Kind {
    Kind::new(move |held, _: RetryBlobs| {
        let engine = engine.clone();
        async move { run(&engine, &held).await }
    })
}

async fn run(engine: &Engine, held: &Held) -> Result<Verdict, JobError> {
    for tenant in engine.store.system().list_tenants().await? {
        let store = engine.store.tenant(tenant.id);
        for mailbox in store.list_mailboxes().await? {
            held.progress();
            let repaired = engine.retry_blobs(&store, &Arc::new(mailbox), &Progress::default()).await;
            let repaired = repaired.with_context(|| format!("tenant {}", tenant.id))?;
            if repaired.completed > 0 {
                tracing::info!(tenant = %tenant.id, completed = repaired.completed, "emails are complete now");
            }
        }
    }
    Ok(Verdict::Done)
}
