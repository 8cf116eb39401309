//! A tenant's directory becomes mailboxes: who there is ([`list`]), who of them is wanted and what that means for their
//! mailboxes ([`plan`]), and that it is so ([`apply`]). Everything can be done twice: what is recorded decides what is left.

mod apply;
mod list;
mod plan;
mod report;
mod trial;
mod view;
mod wish;

use std::collections::HashMap;
use std::time::Duration;

use domain::{ConnectorError, Provider, Rules, TenantId};
use serde::{Deserialize, Serialize};
use serde_json::json;
use store::StoreError;
use store::failpoint::{self, Effect};
use store::sql::directories::{Begun, By, Directory, NO_LONGER_DISCOVERING, RunEnd};

pub use report::{Item, Report};
pub use wish::{USUAL, Wish, Wrong, is_changed};

use crate::mailboxes::Backfill;
use crate::sync::Syncer;
use plan::Planner;
use view::View;

/// Where a directory is, and as whom we look at it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Place {
    /// At Microsoft: its id or one of its domains.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub directory: Option<String>,
    /// At Google: the address of an administrator for whom we act.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub administrator: Option<String>,
}

/// Why a look at a directory came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum DiscoveryError {
    #[error(transparent)]
    Provider(#[from] ConnectorError),
    /// A group that the rules name.
    #[error("there is no group {0} in the directory; correct the rules")]
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
    /// Somebody else works on the directory by now, or has removed it: nothing is wrong.
    pub fn is_overtaken(&self) -> bool {
        let Self::Other(e) = self else { return false };
        matches!(e.downcast_ref(), Some(StoreError::Precondition(NO_LONGER_DISCOVERING)))
    }

    /// We go no faster than we may, and go on from here in a while: nothing is wrong.
    fn is_our_pace(&self) -> bool {
        matches!(self, Self::Provider(ConnectorError::NotYet(_) | ConnectorError::Throttled { .. }))
    }

    /// It passes by itself, and what was listed so far still counts.
    pub fn passes(&self) -> bool {
        use ConnectorError::{NotYet, Throttled, Unavailable};
        matches!(self, Self::Provider(Throttled { .. } | NotYet(_) | Unavailable(_)))
    }
}

/// How a look at a directory ended.
#[derive(Debug, Clone, PartialEq)]
pub enum Ended {
    Done(Report),
    /// So many would go that nothing was done.
    Held(Report),
    /// There is no such directory.
    Nowhere,
}

impl Syncer {
    /// Looks who there is, and brings the mailboxes in step. `is_sure`: however many go. Whoever works on it is overtaken.
    pub async fn discover(
        &self,
        tenant: TenantId,
        provider: Provider,
        is_sure: bool,
        progress: &(dyn Fn() + Send + Sync),
    ) -> Result<Ended, DiscoveryError> {
        let store = self.engine.store.tenant(tenant);
        let Some(begun) = store.begin_discovery(provider).await? else { return Ok(Ended::Nowhere) };
        let by = By { provider, token: begun.token };
        let outcome = self.look_at(tenant, &begun, by, is_sure, progress).await;
        let (end, said) = match &outcome {
            Ok(Ended::Done(report)) => {
                (RunEnd { outcome: "done", report: json!(report), forgets: false }, "discovered")
            }
            // What it told may come from somebody who does not see everything any more.
            Ok(Ended::Held(report)) => (RunEnd { outcome: "held", report: json!(report), forgets: true }, "held"),
            Ok(Ended::Nowhere) => return outcome,
            Err(e) if e.is_overtaken() || e.is_our_pace() => return outcome,
            Err(e) => {
                let report = Report { reason: Some(e.to_string()), ..Report::default() };
                (RunEnd { outcome: "failed", report: json!(report), forgets: !e.passes() }, "failed")
            }
        };
        let mut unit = store.write();
        unit.end_discovery(by, &end, Duration::from_secs(begun.directory.interval_seconds));
        if is_news(&outcome, &begun.directory, end.outcome) {
            let mut data = end.report.clone();
            data["provider"] = json!(provider.as_str());
            unit.say(&format!("directory.{said}"), None, data);
        }
        failpoint::before(Effect::EndDiscovery);
        match unit.commit().await {
            Ok(_) => {}
            Err(StoreError::Precondition(NO_LONGER_DISCOVERING)) => return outcome,
            Err(e) => return Err(e.into()),
        }
        failpoint::after(Effect::EndDiscovery);
        metrics::counter!("mailroom_discoveries_total", "provider" => provider.as_str(), "outcome" => end.outcome)
            .increment(1);
        outcome
    }

    async fn look_at(
        &self,
        tenant: TenantId,
        begun: &Begun,
        by: By,
        is_sure: bool,
        progress: &(dyn Fn() + Send + Sync),
    ) -> Result<Ended, DiscoveryError> {
        let store = self.engine.store.tenant(tenant);
        let view = View::open(self, tenant, &begun.directory)?;
        let groups = view.groups(progress).await?;
        let listed = list::everybody(&view, &store, begun, by, progress).await?;
        let (rules, place) = (&view.rules, &view.place);
        let planner = Planner { rules, groups: &groups, place, provider: by.provider, told: HashMap::new() };
        let mut report = planner.count(&store, progress).await?;
        (report.listed, report.is_whole) = (listed.people, listed.is_whole);
        if let Some(reason) = report.is_strange().filter(|_| !is_sure) {
            report.reason = Some(reason);
            let (before, leaving) = (report.before, report.leaving);
            tracing::warn!(tenant.id = %tenant, provider = by.provider.as_str(), "a directory tells of {} people where there were {before}: nothing is changed", before - leaving);
            return Ok(Ended::Held(report));
        }
        let apply = apply::Apply {
            engine: &self.engine,
            store: &store,
            planner: &planner,
            by,
            backfill: backfill(&begun.directory),
            now: begun.now,
        };
        apply.run(&mut report, progress).await?;
        self.engine.tell_workers().await;
        tracing::info!(
            tenant.id = %tenant, provider = by.provider.as_str(),
            "looked at a directory: {} people, {} new mailboxes, {} came back, {} went", report.people, report.added, report.returned, report.left
        );
        Ok(Ended::Done(report))
    }

    /// What a look at it would change, which is recorded and nothing else. `None`: there is no such directory.
    pub async fn try_discovery(
        &self,
        tenant: TenantId,
        provider: Provider,
        progress: &(dyn Fn() + Send + Sync),
    ) -> Result<Option<Report>, DiscoveryError> {
        let store = self.engine.store.tenant(tenant);
        let Some(directory) = store.find_directory(provider).await? else { return Ok(None) };
        let outcome = async {
            let view = View::open(self, tenant, &directory)?;
            trial::report(&view, &store, provider, progress).await
        };
        let outcome = outcome.await;
        let report = match &outcome {
            Ok(report) => report.clone(),
            Err(e) if e.passes() => return outcome.map(Some),
            Err(e) => Report { reason: Some(e.to_string()), ..Report::default() },
        };
        let mut unit = store.write();
        unit.record_dry_run(provider, directory.version, json!(report));
        unit.commit().await?;
        outcome.map(Some)
    }
}

/// Whether the tenant is told: something changed, or it goes otherwise than the last time.
fn is_news(outcome: &Result<Ended, DiscoveryError>, before: &Directory, now: &str) -> bool {
    match outcome {
        Ok(Ended::Done(report)) => report.changes() > 0,
        _ => before.outcome.as_deref() != Some(now),
    }
}

pub(crate) fn rules(directory: &Directory) -> anyhow::Result<Rules> {
    Ok(serde_json::from_value(directory.rules.clone())?)
}

fn backfill(directory: &Directory) -> Backfill {
    match directory.backfill_seconds {
        None => Backfill::All,
        Some(0) => Backfill::None,
        Some(seconds) => Backfill::Last(Duration::from_secs(seconds)),
    }
}
