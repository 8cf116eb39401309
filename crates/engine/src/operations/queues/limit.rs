//! Limits the jobs of a kind or a tenant.

use serde_json::{Map, Value};
use store::sql::jobs::{JobScope, LimitChange};

use super::audited;
use crate::operations::{Invocation, QUEUE_LIMIT, Refusal};

/// Limits how many jobs of a tenant or kind may run at once, and how many of a tenant may wait.
pub async fn limit(
    call: &Invocation<'_, ()>,
    scope: &JobScope,
    running: LimitChange,
    waiting: LimitChange,
) -> Result<(), Refusal> {
    if matches!(scope, JobScope::Lane(_)) {
        return Err(Refusal::invalid("lane", "has no limits; use a tenant or a kind"));
    }
    let recording = call.record(audited(&QUEUE_LIMIT, scope, Some(limits_json(running, waiting))), &()).await?;
    let system = recording.engine.store.system();
    match scope {
        JobScope::Tenant(tenant) => system.limit_tenant(*tenant, running, waiting).await?,
        JobScope::Kind(kind) => system.limit_kind(kind, running).await?,
        JobScope::Lane(_) => {}
    }
    call.engine.notify_workers().await;
    recording.finish().await
}

/// Renders the limits that change.
fn limits_json(running: LimitChange, waiting: LimitChange) -> Value {
    let mut limits = Map::new();
    for (name, change) in [("most_running", running), ("most_waiting", waiting)] {
        match change {
            LimitChange::Keep => {}
            LimitChange::AtMost(most) => drop(limits.insert(name.to_owned(), most.into())),
            LimitChange::Unlimited => drop(limits.insert(name.to_owned(), Value::Null)),
        }
    }
    Value::Object(limits)
}
