//! Discovers directories.

use domain::{Provider, TenantId};
use serde_json::json;

use crate::directory::{DiscoverDirectory, DiscoveryMode};
use crate::operations::invocation::AuditedChange;
use crate::operations::{DIRECTORY_DISCOVER, Invocation, Refusal};

/// Requests the discovery of these directories now, instead of at their next time.
pub async fn discover(
    call: &Invocation<'_, ()>,
    tenant: TenantId,
    providers: &[Provider],
    mode: DiscoveryMode,
) -> Result<(), Refusal> {
    call.check_tenant(&DIRECTORY_DISCOVER, tenant).await?;
    let recording = call.record(audited(tenant, providers, mode), &()).await?;
    let mut unit = recording.engine.store.tenant(tenant).write();
    for provider in providers {
        unit.enqueue(vec![DiscoverDirectory::request(call.engine.store.clock(), *provider, mode)?]);
    }
    unit.commit().await?;
    call.engine.notify_workers().await;
    recording.finish().await
}

/// Records that the caller discovers a directory by itself, from its beginning.
pub async fn record_discovery(
    call: &Invocation<'_, ()>,
    tenant: TenantId,
    provider: Provider,
    mode: DiscoveryMode,
) -> Result<(), Refusal> {
    call.check_tenant(&DIRECTORY_DISCOVER, tenant).await?;
    call.record_intent(audited(tenant, &[provider], mode)).await.map(drop)
}

fn audited(tenant: TenantId, providers: &[Provider], mode: DiscoveryMode) -> AuditedChange {
    let names: Vec<&str> = providers.iter().map(|provider| provider.as_str()).collect();
    AuditedChange {
        after: Some(json!({"dry_run": mode == DiscoveryMode::Dry, "force": mode == DiscoveryMode::Forced})),
        ..AuditedChange::new(&DIRECTORY_DISCOVER, tenant, names.join(" "))
    }
}
