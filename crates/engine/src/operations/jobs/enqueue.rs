//! Enqueues jobs by hand.

use std::time::Duration;

use domain::{JobId, Lane, SystemRandom, TenantId};
use serde_json::{Value, json};
use store::sql::jobs::{NewJob, StartTime};

use crate::Engine;
use crate::operations::invocation::AuditedChange;
use crate::operations::{Invocation, JOB_ENQUEUE, Refusal};

/// Jobs per commit.
const BATCH_JOBS: u64 = 1000;

/// Equal jobs to enqueue.
#[derive(Debug, Clone)]
pub struct EnqueueRequest {
    pub kind: String,
    pub lane: Lane,
    pub payload: Value,
    pub delay: Option<Duration>,
    pub count: u64,
}

/// Jobs that were enqueued.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EnqueuedJobs {
    pub count: u64,
    pub last: Option<JobId>,
    /// The tenant may have no more waiting jobs.
    pub is_cut: bool,
}

/// Enqueues jobs for a tenant, until it has as many waiting ones as it may have.
pub async fn enqueue(
    call: &Invocation<'_, EnqueuedJobs>,
    tenant: TenantId,
    request: &EnqueueRequest,
) -> Result<EnqueuedJobs, Refusal> {
    // The payload may hold what is nobody's business.
    let change = AuditedChange {
        after: Some(json!({"count": request.count})),
        ..AuditedChange::new(&JOB_ENQUEUE, tenant, &request.kind)
    };
    let begun = call.record_intent(change).await?;
    let mut enqueued = EnqueuedJobs::default();
    while enqueued.count < request.count {
        let size = BATCH_JOBS.min(request.count - enqueued.count);
        let batch: Vec<NewJob> = (0..size).map(|_| new_job(call.engine, request)).collect();
        let last = batch.last().map(|job| job.id);
        let mut unit = call.engine.store.system().write_for(tenant);
        unit.admit(size);
        unit.enqueue(batch);
        match unit.commit().await.map_err(Refusal::from) {
            Err(refusal) if refusal.is(store::Precondition::TooManyWaitingJobs) => {
                enqueued.is_cut = true;
                break;
            }
            committed => drop(committed?),
        }
        enqueued = EnqueuedJobs { count: enqueued.count + size, last, is_cut: false };
    }
    call.engine.notify_workers().await;
    call.record_reply(begun, &enqueued).await?;
    Ok(enqueued)
}

fn new_job(engine: &Engine, request: &EnqueueRequest) -> NewJob {
    NewJob {
        id: JobId::new(engine.store.clock()),
        kind: request.kind.clone(),
        lane: request.lane,
        payload: request.payload.clone(),
        when: request.delay.map_or(StartTime::Now, StartTime::In),
        unique: None,
        order_key: None,
        after: Vec::new(),
        traceparent: Some(jobs::trace::new_traceparent(&SystemRandom)),
    }
}
