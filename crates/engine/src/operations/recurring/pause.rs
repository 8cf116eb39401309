//! Pauses a recurring job.

use store::sql::schedules::Schedule;

use super::audited;
use crate::operations::{Invocation, RECURRING_PAUSE, Refusal};

/// Pauses a recurring job. Returns `false` if it was paused.
pub async fn pause(call: &Invocation<'_, bool>, schedule: &Schedule) -> Result<bool, Refusal> {
    let recording = call.record(audited(&RECURRING_PAUSE, schedule), &!schedule.is_paused).await?;
    let is_changed = recording.engine.store.system().pause_schedule(schedule.tenant_id, &schedule.name).await?;
    recording.finish().await?;
    Ok(is_changed)
}
