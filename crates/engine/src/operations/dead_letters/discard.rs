//! Discards dead letters.

use super::DeadLetters;
use crate::operations::{DEAD_LETTERS_DISCARD, Invocation, Refusal};

/// Removes dead letters for good; returns how many.
pub async fn discard(call: &Invocation<'_, u64>, letters: &DeadLetters) -> Result<u64, Refusal> {
    let begun = call.record_intent(letters.audited(&DEAD_LETTERS_DISCARD)).await?;
    let system = call.engine.store.system();
    let discarded = match letters {
        DeadLetters::One(job) => u64::from(system.discard_one(job.tenant_id, job.id).await?),
        DeadLetters::All(filter) => system.discard_dead(filter).await?,
    };
    call.record_reply(begun, &discarded).await?;
    Ok(discarded)
}
