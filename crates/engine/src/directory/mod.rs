//! Discovers a tenant's directory and derives its mailboxes: lists the users ([`list`]), plans what follows for their
//! mailboxes ([`plan`]), and applies that ([`apply`]). Every step can be repeated: the records decide what is left to
//! do.

mod apply;
mod client;
mod config;
mod discovery_request;
mod dry_run;
mod list;
mod plan;
mod report;

use std::collections::HashMap;
use std::time::Duration;

use domain::metrics as catalogue;
use domain::{Backfill, ConnectorError, DirectoryRules, EventType, Provider, TenantId};
use serde_json::json;
use store::failpoint::Effect;
use store::sql::directories::{Directory, DiscoveryClaim, DiscoveryResult, DiscoveryToken};
use store::{Precondition, StoreError};

pub use config::{DEFAULT_DISCOVERY_INTERVAL, DirectoryConfig, directory_providers};
pub use discovery_request::{DiscoverDirectory, DiscoveryMode};
pub use report::{DiscoveryReport, ReportItem};

use crate::sync::Syncer;
use client::DirectoryClient;
use plan::Planner;

/// Why a discovery failed.
#[derive(Debug, thiserror::Error)]
pub enum DiscoveryError {
    #[error(transparent)]
    Provider(#[from] ConnectorError),
    /// A group of the rules does not exist.
    #[error("the group {0} is not in the directory; correct the rules")]
    NoGroup(String),
    #[error(transparent)]
    Other(#[from] anyhow::Error),
}

impl From<StoreError> for DiscoveryError {
    fn from(e: StoreError) -> Self {
        Self::Other(e.into())
    }
}

impl DiscoveryError {
    /// Returns whether another discovery has taken over, or the directory was removed: nothing is wrong.
    pub fn is_superseded(&self) -> bool {
        let Self::Other(e) = self else { return false };
        matches!(e.downcast_ref(), Some(StoreError::Precondition(Precondition::DiscoveryTakenOver)))
    }

    /// Returns whether a rate limit interrupted the discovery, which resumes in a while: nothing is wrong.
    fn is_rate_limited(&self) -> bool {
        matches!(self, Self::Provider(ConnectorError::RateLimited(_) | ConnectorError::Throttled { .. }))
    }

    /// Returns whether the error passes by itself, so that the listing can be resumed.
    pub fn is_transient(&self) -> bool {
        use ConnectorError::{RateLimited, Throttled, Unavailable};
        matches!(self, Self::Provider(Throttled { .. } | RateLimited(_) | Unavailable(_)))
    }
}

/// The outcome of a discovery.
#[derive(Debug, Clone, PartialEq)]
pub enum DiscoveryOutcome {
    Done(DiscoveryReport),
    /// So many mailboxes would go that nothing was changed.
    Held(DiscoveryReport),
    /// The directory does not exist.
    NotFound,
}

impl Syncer {
    /// Lists the users and brings the mailboxes in line. `is_forced`: however many go. Supersedes a discovery that is
    /// running.
    pub async fn discover(
        &self,
        tenant: TenantId,
        provider: Provider,
        is_forced: bool,
        progress: &(dyn Fn() + Send + Sync),
    ) -> Result<DiscoveryOutcome, DiscoveryError> {
        let store = self.engine.store.tenant(tenant);
        let Some(begun) = store.begin_discovery(provider).await? else { return Ok(DiscoveryOutcome::NotFound) };
        let by = DiscoveryToken { provider, token: begun.token };
        let outcome = self.discover_and_apply(tenant, &begun, by, is_forced, progress).await;
        let (end, event) = match &outcome {
            Ok(DiscoveryOutcome::Done(report)) => (
                DiscoveryResult { outcome: "done", report: json!(report), resets_listing: false },
                EventType::DirectoryDiscovered,
            ),
            // The listing may come from an administrator who no longer sees everybody.
            Ok(DiscoveryOutcome::Held(report)) => (
                DiscoveryResult { outcome: "held", report: json!(report), resets_listing: true },
                EventType::DirectoryHeld,
            ),
            Ok(DiscoveryOutcome::NotFound) => return outcome,
            Err(e) if e.is_superseded() || e.is_rate_limited() => return outcome,
            Err(e) => {
                let report = DiscoveryReport { reason: Some(e.to_string()), ..DiscoveryReport::default() };
                (
                    DiscoveryResult { outcome: "failed", report: json!(report), resets_listing: !e.is_transient() },
                    EventType::DirectoryFailed,
                )
            }
        };
        let mut unit = store.write();
        unit.end_discovery(by, &end, Duration::from_secs(begun.directory.interval_seconds));
        if is_reportable(&outcome, &begun.directory, end.outcome) {
            let mut data = end.report.clone();
            data["provider"] = json!(provider.as_str());
            unit.emit_event(event, None, data);
        }
        match unit.commit_at(Effect::EndDiscovery).await {
            Ok(_) => {}
            Err(StoreError::Precondition(Precondition::DiscoveryTakenOver)) => return outcome,
            Err(e) => return Err(e.into()),
        }
        metrics::counter!(catalogue::DISCOVERIES, "provider" => provider.as_str(), "outcome" => end.outcome)
            .increment(1);
        outcome
    }

    async fn discover_and_apply(
        &self,
        tenant: TenantId,
        begun: &DiscoveryClaim,
        by: DiscoveryToken,
        is_forced: bool,
        progress: &(dyn Fn() + Send + Sync),
    ) -> Result<DiscoveryOutcome, DiscoveryError> {
        let started = std::time::Instant::now();
        let store = self.engine.store.tenant(tenant);
        let client = DirectoryClient::open(self, tenant, &begun.directory)?;
        let groups = client.groups(progress).await?;
        let listed = list::list_users(&client, &store, begun, by, progress).await?;
        let (rules, location) = (&client.rules, &client.location);
        let planner =
            Planner { rules, groups: &groups, location, provider: by.provider, current_addresses: HashMap::new() };
        let mut report = planner.count(&store, progress).await?;
        (report.listed, report.is_whole) = (listed.people, listed.is_whole);
        if let Some(reason) = report.too_many_leave().filter(|_| !is_forced) {
            report.reason = Some(reason);
            let (before, leaving) = (report.before, report.leaving);
            tracing::warn!(tenant.id = %tenant, provider = by.provider.as_str(), before, after = before - leaving, "discovery held back: too many mailboxes would go");
            return Ok(DiscoveryOutcome::Held(report));
        }
        let apply = apply::PlanApplier {
            engine: &self.engine,
            store: &store,
            planner: &planner,
            by,
            backfill: Backfill::from_seconds(begun.directory.backfill_seconds),
            now: begun.now,
        };
        apply.run(&mut report, progress).await?;
        self.engine.notify_workers().await;
        if report.changes() > 0 {
            tracing::info!(
                tenant.id = %tenant,
                provider = by.provider.as_str(),
                users = report.people,
                added = report.added,
                adopted = report.adopted,
                returned = report.returned,
                removed = report.left,
                renamed = report.renamed,
                duration_ms = started.elapsed().as_millis() as u64,
                "directory discovered"
            );
        }
        Ok(DiscoveryOutcome::Done(report))
    }

    /// Records what a discovery would change, and nothing else. Returns `None` if the directory does not exist.
    pub async fn dry_run_discovery(
        &self,
        tenant: TenantId,
        provider: Provider,
        progress: &(dyn Fn() + Send + Sync),
    ) -> Result<Option<DiscoveryReport>, DiscoveryError> {
        let store = self.engine.store.tenant(tenant);
        let Some(directory) = store.find_directory(provider).await? else { return Ok(None) };
        let outcome = async {
            let client = DirectoryClient::open(self, tenant, &directory)?;
            dry_run::report(&client, &store, provider, progress).await
        };
        let outcome = outcome.await;
        let report = match &outcome {
            Ok(report) => report.clone(),
            Err(e) if e.is_transient() => return outcome.map(Some),
            Err(e) => DiscoveryReport { reason: Some(e.to_string()), ..DiscoveryReport::default() },
        };
        let mut unit = store.write();
        unit.record_dry_run(provider, directory.version, json!(report));
        unit.commit().await?;
        outcome.map(Some)
    }
}

/// Returns whether an event is recorded: something changed, or the outcome differs from the last time.
fn is_reportable(outcome: &Result<DiscoveryOutcome, DiscoveryError>, before: &Directory, now: &str) -> bool {
    match outcome {
        Ok(DiscoveryOutcome::Done(report)) => report.changes() > 0,
        _ => before.outcome.as_deref() != Some(now),
    }
}

pub(crate) fn rules(directory: &Directory) -> anyhow::Result<DirectoryRules> {
    Ok(serde_json::from_value(directory.rules.clone())?)
}
