//! Weighs the tenants of a plan.

use domain::{PlanTier, TenantId};
use serde_json::json;

use crate::operations::invocation::AuditedChange;
use crate::operations::{Invocation, QUEUE_WEIGHT, Refusal};

/// Sets the weight of a plan's tenants in the shares of workers, from 1 to 1000.
pub async fn set_weight(call: &Invocation<'_, ()>, plan: PlanTier, weight: u64) -> Result<(), Refusal> {
    let change = AuditedChange {
        after: Some(json!({"weight": weight})),
        ..AuditedChange::new(&QUEUE_WEIGHT, TenantId::SYSTEM, plan.as_str())
    };
    let recording = call.record(change, &()).await?;
    recording.engine.store.system().set_weight(plan, weight).await?;
    recording.finish().await
}
