//! A tenant that was deleted is erased, once its time has come: nothing of it is left but the entry that says so.

use std::time::Duration;

use domain::{Lane, TenantId};
use jiff::{SignedDuration, Timestamp};
use jobs::{Held, Job, JobError, Kind, Verdict, new_job};
use serde::{Deserialize, Serialize};
use store::sql::jobs::{NewJob, When};

use crate::{Engine, Progress};

/// Erases what a tenant has, if it is still deleted.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct EraseTenant {
    tenant: TenantId,
    /// Which of its deletions: it may have come back and been deleted again.
    deleted_at: Timestamp,
}

impl Job for EraseTenant {
    const KIND: &'static str = "erase_tenant";
    const LANE: Lane = Lane::Low;
}

/// When somebody keeps it from ending: a backup, or a hold.
const LATER: Duration = Duration::from_secs(3600);

impl EraseTenant {
    pub fn at(
        engine: &Engine,
        tenant: TenantId,
        deleted_at: Timestamp,
        after: SignedDuration,
    ) -> anyhow::Result<NewJob> {
        let job = new_job(&Self { tenant, deleted_at }, engine.store.clock(), None)?;
        Ok(NewJob { when: When::At(deleted_at.saturating_add(after)?), ..job })
    }
}

pub(super) fn kind(engine: Engine) -> Kind {
    // Collecting the bytes of a large tenant takes long and says nothing meanwhile.
    let long = Duration::from_secs(6 * 3600);
    Kind::new(move |held: Held, job: EraseTenant| {
        let engine = engine.clone();
        async move {
            // Whatever stands in the way now does not for ever, and somebody was promised that it will be gone.
            run(&engine, &held, &job).await.or_else(|e| {
                tracing::warn!(tenant = %job.tenant, "erasing a tenant is tried again in an hour: {e}");
                later(&held, &job)
            })
        }
    })
    .within(long, long)
}

async fn run(engine: &Engine, held: &Held, job: &EraseTenant) -> Result<Verdict, JobError> {
    let system = engine.store.system();
    let Some(tenant) = system.find_tenant(&job.tenant.to_string()).await? else { return Ok(Verdict::Done) };
    if tenant.deleted_at != Some(job.deleted_at) || tenant.is_active {
        return Ok(Verdict::Done);
    }
    // A hold, a backup that copies its objects, or somebody who writes one: later.
    let is_busy = system.are_objects_held().await? || system.is_writing_packs(tenant.id).await?;
    if is_busy || !system.begin_erasing(&tenant).await? {
        return later(held, job);
    }
    let store = engine.store.tenant(tenant.id);
    for mailbox in store.list_mailboxes().await? {
        held.progress();
        engine.erase_mailbox(&mailbox).await?;
    }
    while system.erase_rows(tenant.id).await? {
        held.progress();
    }
    let progress = Progress::default();
    let collected = engine.collect(tenant.id, SignedDuration::ZERO, &progress).await?;
    held.progress();
    let is_held = collected.objects_held > 0 || system.are_objects_held().await?;
    if !collected.problems.is_empty() || is_held || !system.forget_tenant(&tenant).await? {
        return later(held, job);
    }
    tracing::info!(tenant = %tenant.id, "a tenant was erased");
    Ok(Verdict::Done)
}

fn later(held: &Held, job: &EraseTenant) -> Result<Verdict, JobError> {
    let again = held.follow_up(job).map_err(anyhow::Error::from)?;
    let mut unit = held.write();
    unit.enqueue(vec![NewJob { when: When::In(LATER), ..again }]);
    Ok(Verdict::Commit(unit))
}
