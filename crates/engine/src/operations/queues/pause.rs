//! Pauses and resumes the jobs of a lane, a kind or a tenant.

use store::sql::jobs::JobScope;

use super::audited;
use crate::operations::{Invocation, QUEUE_PAUSE, QUEUE_RESUME, Refusal};

/// Pauses jobs: running ones continue, no other is started. Returns `false` if they were paused.
pub async fn pause(call: &Invocation<'_, bool>, scope: &JobScope) -> Result<bool, Refusal> {
    let recording = call.record(audited(&QUEUE_PAUSE, scope, None), &true).await?;
    let is_changed = recording.engine.store.system().pause_jobs(scope).await?;
    recording.finish().await?;
    Ok(is_changed)
}

/// Resumes jobs. Returns `false` if they were not paused.
pub async fn resume(call: &Invocation<'_, bool>, scope: &JobScope) -> Result<bool, Refusal> {
    let recording = call.record(audited(&QUEUE_RESUME, scope, None), &true).await?;
    let is_changed = recording.engine.store.system().resume_jobs(scope).await?;
    call.engine.notify_workers().await;
    recording.finish().await?;
    Ok(is_changed)
}
