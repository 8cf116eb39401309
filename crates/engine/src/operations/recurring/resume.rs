//! Resumes a recurring job.

use store::sql::schedules::Schedule;

use super::audited;
use crate::operations::{Invocation, RECURRING_RESUME, Refusal};

/// Resumes a recurring job; times during the pause are not made up. Returns `false` if it was not paused.
pub async fn resume(call: &Invocation<'_, bool>, schedule: &Schedule) -> Result<bool, Refusal> {
    let recording = call.record(audited(&RECURRING_RESUME, schedule), &schedule.is_paused).await?;
    let store = &recording.engine.store;
    let is_changed = jobs::recurring::resume(store, store.clock(), schedule).await?;
    recording.finish().await?;
    Ok(is_changed)
}
