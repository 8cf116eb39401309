//! What Mailroom does by itself, as jobs: a file each, and the list of them.

mod check_completeness;
mod collect;
mod fetch_forgotten;
mod prune_jobs;
mod retry_blobs;
mod upkeep;

use domain::TenantId;
use jiff::SignedDuration;
use jobs::{Job, Kinds, Retry, probe};
use serde_json::json;
use store::sql::jobs::KeepFor;
use store::sql::schedules::{Missed, NewSchedule, Overlap};

pub use check_completeness::CheckCompleteness;
pub use collect::Collect;
pub use fetch_forgotten::FetchForgotten;
pub use prune_jobs::PruneJobs;
pub use retry_blobs::RetryBlobs;
pub use upkeep::Upkeep;

use crate::sync::Syncer;

/// All kinds of work that this program can do.
pub fn kinds(syncer: &Syncer, keep: KeepFor, grace: SignedDuration) -> Kinds {
    let engine = &syncer.engine;
    let listing = syncer.list_kinds().into_iter().fold(Kinds::default(), Kinds::with);
    listing
        .with(syncer.fetch_kind())
        .with(check_completeness::kind(syncer.clone()))
        .with(collect::kind(engine.clone(), grace))
        .with(fetch_forgotten::kind())
        .with(probe::noop())
        .with(probe::probe(Retry::default()))
        .with(upkeep::kind())
        .with(prune_jobs::kind(keep))
        .with(retry_blobs::kind(engine.clone()))
}

/// What happens again and again. At odd minutes, so that not everybody's machines wake up together.
pub fn schedules() -> Vec<NewSchedule> {
    vec![
        recurring::<Upkeep>("17 3 * * *"),
        recurring::<PruneJobs>("43 * * * *"),
        recurring::<RetryBlobs>("7,37 * * * *"),
        recurring::<FetchForgotten>("19 * * * *"),
        recurring::<Collect>("29 2 * * *"),
        recurring::<CheckCompleteness>("11 5 * * *"),
    ]
}

fn recurring<J: Job>(cron: &str) -> NewSchedule {
    NewSchedule {
        name: J::KIND.to_owned(),
        tenant: TenantId::SYSTEM,
        kind: J::KIND.to_owned(),
        lane: J::LANE,
        payload: json!({}),
        cron: cron.to_owned(),
        zone: "UTC".to_owned(),
        missed: Missed::RunOnce,
        overlap: Overlap::Skip,
    }
}
