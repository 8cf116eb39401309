//! Cancels a job.

use serde_json::json;
use store::sql::jobs::{CancelOutcome, JobRow};

use super::audited;
use crate::operations::{Invocation, JOB_CANCEL, Refusal};

/// Cancels a job; a running one is asked to stop.
pub async fn cancel(
    call: &Invocation<'_, CancelOutcome>,
    job: &JobRow,
    reason: &str,
) -> Result<CancelOutcome, Refusal> {
    if !job.is_live() {
        return Err(Refusal::Conflict(format!("this job is already {}", job.state.as_str())));
    }
    let begun = call.record_intent(audited(&JOB_CANCEL, job, Some(json!({"reason": reason})))).await?;
    let outcome = call.engine.store.system().cancel_job(job.tenant_id, job.id, reason).await?;
    if outcome == CancelOutcome::NotLive {
        return Err(Refusal::Conflict("this job has already ended".to_owned()));
    }
    call.record_reply(begun, &outcome).await?;
    Ok(outcome)
}
