//! Sets a directory.

use std::collections::BTreeMap;

use domain::TenantId;
use jiff::Timestamp;
use store::sql::directories::{Directory, DirectoryDefinition};

use super::audit_json;
use crate::directory::{DiscoverDirectory, DiscoveryMode};
use crate::operations::invocation::AuditedChange;
use crate::operations::{DIRECTORY_PUT, Invocation, Refusal};

/// Sets a tenant's directory, which was `before`, and requests a discovery unless it is paused.
pub async fn put(
    call: &Invocation<'_, Directory>,
    tenant: TenantId,
    before: Option<&Directory>,
    definition: &DirectoryDefinition,
) -> Result<Directory, Refusal> {
    call.check_version(before.map_or(0, |before| before.version))?;
    let after = next_row(before, definition, call.now);
    let change = AuditedChange {
        before: before.map(audit_json),
        after: Some(audit_json(&after)),
        ..AuditedChange::new(&DIRECTORY_PUT, tenant, definition.provider.as_str())
    };
    let recording = call.record(change, &after).await?;
    let mut unit = recording.engine.store.tenant(tenant).write();
    unit.put_directory(definition, before.map(|before| before.version), call.now);
    if !definition.is_paused {
        let clock = call.engine.store.clock();
        unit.enqueue(vec![DiscoverDirectory::request(clock, definition.provider, DiscoveryMode::Usual)?]);
    }
    unit.commit().await?;
    call.engine.notify_workers().await;
    recording.finish().await?;
    Ok(after)
}

/// The cursors are dropped: they could belong to another directory of the same name.
fn next_row(before: Option<&Directory>, definition: &DirectoryDefinition, now: Timestamp) -> Directory {
    let DirectoryDefinition { provider, settings, rules, backfill_seconds, interval_seconds, is_paused } =
        definition.clone();
    Directory {
        provider,
        settings,
        rules,
        backfill_seconds,
        interval_seconds,
        is_paused,
        version: before.map_or(1, |before| before.version + 1),
        next_at: now,
        run: before.map_or(0, |before| before.run),
        is_listing: false,
        is_whole: before.is_none_or(|before| before.is_whole),
        begun_at: before.and_then(|before| before.begun_at),
        cursors: BTreeMap::new(),
        whole_at: None,
        outcome: before.and_then(|before| before.outcome.clone()),
        last_run: before.and_then(|before| before.last_run.clone()),
        last_run_at: before.and_then(|before| before.last_run_at),
        dry_run: before.and_then(|before| before.dry_run.clone()),
        dry_run_at: before.and_then(|before| before.dry_run_at),
        created_at: before.map_or(now, |before| before.created_at),
        updated_at: now,
    }
}
