//! Retries a job.

use domain::JobState;
use store::sql::jobs::{JobRow, RetryOutcome};

use super::audited;
use crate::operations::{Invocation, JOB_RETRY, Refusal};

/// Retries a job now: one that waits for its time becomes ready, a dead or cancelled one starts again.
pub async fn retry(call: &Invocation<'_, RetryOutcome>, job: &JobRow) -> Result<RetryOutcome, Refusal> {
    if !matches!(job.state, JobState::Scheduled | JobState::Retry | JobState::Dead | JobState::Cancelled) {
        return Err(Refusal::Conflict(format!("this job is {} and cannot be retried", job.state.as_str())));
    }
    let begun = call.record_intent(audited(&JOB_RETRY, job, None)).await?;
    let outcome = call.engine.store.system().retry_now(job.id).await?.ok_or(Refusal::NotFound("job"))?;
    if let RetryOutcome::Not { state } = outcome {
        let state = state.as_str();
        return Err(Refusal::Conflict(format!(
            "this job is {state} and cannot be retried: it is running, or another live job has its unique key"
        )));
    }
    call.engine.notify_workers().await;
    call.record_reply(begun, &outcome).await?;
    Ok(outcome)
}
