//! The job for the daily upkeep of the database.

use jobs::{Completion, Job, JobContext, JobError, RunnableJob};
use serde::{Deserialize, Serialize};

/// Creates partitions ahead of time.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Upkeep {}

impl Job for Upkeep {
    const KIND: &'static str = "upkeep";
}

impl RunnableJob for Upkeep {
    type Services = ();

    async fn run(self, ctx: JobContext, (): Self::Services) -> Result<Completion, JobError> {
        ctx.store.system().upkeep().await?;
        Ok(Completion::Done)
    }
}
