//! The job for the daily upkeep of the database.

use jobs::{Completion, Job, JobError, JobKind};
use serde::{Deserialize, Serialize};

/// Creates partitions ahead of time.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Upkeep {}

impl Job for Upkeep {
    const KIND: &'static str = "upkeep";
}

pub(super) fn kind() -> JobKind {
    JobKind::new(|ctx, _: Upkeep| async move {
        ctx.store.system().upkeep().await.map_err(JobError::from)?;
        Ok(Completion::Done)
    })
}
