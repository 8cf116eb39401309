//! What a database needs every day.

use jobs::{Job, JobError, Kind, Verdict};
use serde::{Deserialize, Serialize};

/// Partitions are made ahead.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Upkeep {}

impl Job for Upkeep {
    const KIND: &'static str = "upkeep";
}

pub(super) fn kind() -> Kind {
    Kind::new(|held, _: Upkeep| async move {
        held.store.system().upkeep().await.map_err(JobError::from)?;
        Ok(Verdict::Done)
    })
}
