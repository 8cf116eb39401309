//! The history of jobs has an end.

use domain::Lane;
use jobs::{Job, Kind, Verdict};
use serde::{Deserialize, Serialize};
use store::sql::jobs::KeepFor;

/// Forgets finished jobs that are old enough.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PruneJobs {}

impl Job for PruneJobs {
    const KIND: &'static str = "prune_jobs";
    const LANE: Lane = Lane::Low;
}

pub(super) fn kind(keep: KeepFor) -> Kind {
    Kind::new(move |held: jobs::Held, _: PruneJobs| async move {
        while held.store.system().prune_jobs(keep).await?.is_more {
            held.progress();
        }
        Ok(Verdict::Done)
    })
}
