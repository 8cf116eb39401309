//! Replays dead letters.

use store::sql::jobs::ReplayOptions;

use super::DeadLetters;
use crate::operations::{DEAD_LETTERS_REPLAY, Invocation, Refusal};

/// Replays dead letters; returns how many. One whose unique key another job has stays dead.
pub async fn replay(
    call: &Invocation<'_, u64>,
    letters: &DeadLetters,
    options: &ReplayOptions,
) -> Result<u64, Refusal> {
    if options.per_second.is_some_and(|rate| !(0.001..=1e6).contains(&rate)) {
        return Err(Refusal::invalid("per_second", "must be from 0.001 to 1000000"));
    }
    let begun = call.record_intent(letters.audited(&DEAD_LETTERS_REPLAY)).await?;
    let system = call.engine.store.system();
    let replayed = match letters {
        DeadLetters::One(job) => u64::from(system.replay_one(job.tenant_id, job.id, options).await?),
        DeadLetters::All(filter) => system.replay_dead(filter, options).await?,
    };
    call.engine.notify_workers().await;
    call.record_reply(begun, &replayed).await?;
    Ok(replayed)
}
