//! Moves a job to another lane.

use domain::Lane;
use serde_json::json;
use store::sql::jobs::JobRow;

use super::audited;
use crate::operations::{Invocation, JOB_MOVE, Refusal};

/// Moves a job to a lane. Returns `false` if it is there already. A running one continues; its next attempt is in the lane.
pub async fn move_to(call: &Invocation<'_, bool>, job: &JobRow, lane: Lane) -> Result<bool, Refusal> {
    if !job.is_live() {
        return Err(Refusal::Conflict(format!("this job is {} and cannot be moved", job.state.as_str())));
    }
    let is_moved = job.lane != lane;
    let recording = call.record(audited(&JOB_MOVE, job, Some(json!({"lane": lane.as_str()}))), &is_moved).await?;
    recording.engine.store.system().move_job(job.tenant_id, job.id, lane).await?;
    call.engine.notify_workers().await;
    recording.finish().await?;
    Ok(is_moved)
}
