//! Runs a recurring job now.

use domain::JobId;
use store::sql::schedules::Schedule;

use super::audited;
use crate::operations::{Invocation, RECURRING_RUN, Refusal};

/// Runs a recurring job now, besides its times. Returns `None` if its last run is live and they must not overlap.
pub async fn run(call: &Invocation<'_, ()>, schedule: &Schedule) -> Result<Option<JobId>, Refusal> {
    let recording = call.record(audited(&RECURRING_RUN, schedule), &()).await?;
    let store = &recording.engine.store;
    let job = jobs::recurring::run_now(store, store.clock(), schedule).await?;
    call.engine.notify_workers().await;
    recording.finish().await?;
    Ok(job)
}
