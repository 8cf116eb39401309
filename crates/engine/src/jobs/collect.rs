//! What nobody names any more is given back every night.

use domain::Lane;
use jiff::SignedDuration;
use jobs::{Held, Job, JobError, Kind, Verdict};
use serde::{Deserialize, Serialize};

use crate::{Engine, Progress};

/// Collects the blobs of all tenants and merges small packs.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Collect {}

impl Job for Collect {
    const KIND: &'static str = "collect";
    const LANE: Lane = Lane::Low;
}

pub(super) fn kind(engine: Engine, grace: SignedDuration) -> Kind {
    let mut kind = Kind::new(move |held, _: Collect| {
        let engine = engine.clone();
        async move { run(&engine, &held, grace).await }
    });
    kind.deadline = std::time::Duration::from_secs(6 * 3600);
    kind.no_progress = kind.deadline;
    kind
}

async fn run(engine: &Engine, held: &Held, grace: SignedDuration) -> Result<Verdict, JobError> {
    for tenant in engine.store.system().list_tenants().await? {
        let collected = engine.collect(tenant.id, grace, &Progress::default()).await?;
        held.progress();
        for problem in collected.problems {
            tracing::warn!(tenant = %tenant.id, "collecting: {problem}");
        }
    }
    Ok(Verdict::Done)
}
