//! Directories are looked at again and again, for people come and go.

use std::time::Duration;

use jobs::{Held, Job, JobError, Kind, Verdict};
use serde::{Deserialize, Serialize};

use super::{DiscoverDirectory, Discovery};
use crate::Engine;

/// Asks for a look at each that is due.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct DiscoverDirectories {}

impl Job for DiscoverDirectories {
    const KIND: &'static str = "discover_directories";
}

/// As many each minute.
const BATCH: u64 = 500;

/// The look itself says when it is due again; if it never came to that, after this.
const UNLESS_LOOKED: Duration = Duration::from_secs(3600);

pub(super) fn kind(engine: Engine) -> Kind {
    Kind::new(move |held, _: DiscoverDirectories| {
        let engine = engine.clone();
        async move { run(&engine, &held).await }
    })
}

async fn run(engine: &Engine, held: &Held) -> Result<Verdict, JobError> {
    let system = held.store.system();
    for (tenant, provider) in system.list_due_directories(BATCH).await? {
        let mut unit = system.write_for(tenant);
        unit.put_off_directory(provider, UNLESS_LOOKED);
        unit.enqueue(vec![DiscoverDirectory::now(engine.store.clock(), provider, Discovery::Usual)?]);
        unit.commit().await?;
        held.progress();
    }
    Ok(Verdict::Done)
}
