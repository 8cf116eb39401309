//! The usage of provider quotas by a tenant, what is left of them, and forecasts of backfills, for people.
//!
//! Only what is known is reported: without a limit there is no remainder, and a forecast that cannot be made says why.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use domain::{MailboxId, Provider};
use jiff::Timestamp;
use serde::Serialize;
use store::sql::mailboxes::Mailbox;
use store::sql::sync::{BackfillProgress, SyncPause};
use store::sql::usage::CallUsage;
use store::{StoreError, SystemStore, TenantStore};

use crate::accounts::usage_writer::{hour_start, hours_before};
use crate::sync::target::target_of;
use outbound::budget::Budget;
use outbound::{CallBudgets, CallSettings};

/// The usage of one tenant at one provider.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ProviderUsage {
    pub provider: &'static str,
    /// Active mailboxes.
    pub mailboxes: u64,
    /// Calls, as budgets count them.
    pub calls: QuotaUsage,
    /// Bytes of fetched messages.
    pub bytes: QuotaUsage,
    /// Known messages that are not fetched yet, old and new.
    pub backlog: u64,
    /// The backfill of these mailboxes; `None`: it is complete.
    pub backfill: Option<BackfillForecast>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct QuotaUsage {
    /// Since the hour began.
    pub this_hour: u64,
    /// In this hour and the 23 before.
    pub last_day: u64,
    /// Empty: unlimited.
    pub limits: Vec<UsageLimit>,
}

/// A limit, and what is left of it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct UsageLimit {
    pub of: LimitOwner,
    pub per: LimitPeriod,
    pub allowed: u64,
    pub left: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitOwner {
    Mailbox,
    Tenant,
    AllTenants,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitPeriod {
    Hour,
    Day,
}

/// The forecast of a backfill.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BackfillForecast {
    pub stored: u64,
    pub to_fetch: u64,
    /// Whether the listing is complete.
    pub is_listed: bool,
    /// When the backfill ends, at the rate of the last minutes.
    pub ends_at: Option<Timestamp>,
    /// Why there is no forecast.
    pub unknown: Option<&'static str>,
}

pub const FORECAST_STILL_LISTING: &str = "older mail is still being listed";
pub const FORECAST_PAUSED: &str = "the mailbox is paused";
pub const FORECAST_NO_RATE: &str = "no messages were fetched in the last minutes";

/// The longest forecast.
const MAX_FORECAST: Duration = Duration::from_secs(366 * 86_400);

impl BackfillForecast {
    /// Returns the forecast of one mailbox.
    pub fn of(progress: &BackfillProgress, pause: Option<&SyncPause>, now: Timestamp) -> Self {
        let BackfillProgress { is_listed, stored, to_fetch, per_second } = *progress;
        let (ends_at, unknown) = match per_second {
            _ if !is_listed => (None, Some(FORECAST_STILL_LISTING)),
            _ if pause.is_some() => (None, Some(FORECAST_PAUSED)),
            Some(rate) if rate > 0.0 => {
                let left =
                    Duration::try_from_secs_f64(to_fetch as f64 / rate).unwrap_or(MAX_FORECAST).min(MAX_FORECAST);
                (now.checked_add(left).ok(), None)
            }
            _ => (None, Some(FORECAST_NO_RATE)),
        };
        Self { stored, to_fetch, is_listed, ends_at, unknown }
    }

    /// Combines two forecasts: the later one counts, and neither if one is unknown.
    fn and(self, other: &Self) -> Self {
        let unknown = self.unknown.or(other.unknown);
        Self {
            stored: self.stored + other.stored,
            to_fetch: self.to_fetch + other.to_fetch,
            is_listed: self.is_listed && other.is_listed,
            ends_at: if unknown.is_some() { None } else { self.ends_at.max(other.ends_at) },
            unknown,
        }
    }
}

/// Returns the usage of a tenant by provider. The limits of all tenants together need `system`, since only an operator
/// may see them.
pub async fn of_tenant(
    store: &TenantStore,
    system: Option<&SystemStore>,
    settings: &CallSettings,
) -> Result<Vec<ProviderUsage>, StoreError> {
    let now = store.clock().now();
    let (this_hour, last_day) = used(store, now).await?;
    let all = match system {
        Some(system) => {
            Some((system.sum_usage(hour_start(now)).await?, system.sum_usage(hours_before(now, 23)).await?))
        }
        None => None,
    };
    let mut forecasts = forecasts(store, now).await?;
    let load = store.list_provider_loads().await?;
    let mut usages = Vec::new();
    for provider in Provider::ALL {
        let name = provider.as_str();
        let load = load.get(name).copied().unwrap_or_default();
        let (hourly, daily) = (of(&this_hour, name), of(&last_day, name));
        if !provider.capabilities().is_remote || (load.mailboxes == 0 && daily == CallUsage::default()) {
            continue;
        }
        let budgets = settings.budgets_of_provider(provider);
        let shared = all.as_ref().map(|(hour, day)| (of(hour, name), of(day, name)));
        usages.push(ProviderUsage {
            provider: name,
            mailboxes: load.mailboxes,
            calls: calls(&budgets, hourly, daily, shared.map(|(hour, _)| hour), now),
            bytes: bytes(&budgets, hourly, daily, shared.map(|(_, day)| day)),
            backlog: load.backlog,
            backfill: forecasts.remove(name),
        });
    }
    Ok(usages)
}

/// The usage of one mailbox.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MailboxUsage {
    /// The tenant's calls at its provider, since budgets of calls are shared.
    pub calls: QuotaUsage,
    /// The bytes of the mailbox itself, as far as messages are stored.
    pub bytes: QuotaUsage,
    pub backlog: u64,
    pub backfill: Option<BackfillForecast>,
}

pub async fn of_mailbox(
    store: &TenantStore,
    mailbox: &Mailbox,
    pause: Option<&SyncPause>,
    settings: &CallSettings,
) -> Result<MailboxUsage, StoreError> {
    let now = store.clock().now();
    let name = mailbox.provider.as_str();
    let (this_hour, last_day) = used(store, now).await?;
    let budgets = settings.budgets_of(&target_of(mailbox, settings));
    let load = store.find_mailbox_load(mailbox.id, hour_start(now), hours_before(now, 23)).await?;
    let backfill = store.list_backfills(Some(mailbox.id)).await?.remove(&mailbox.id);
    let own = budgets.mailbox.bytes.map(|budget| daily_limit(LimitOwner::Mailbox, budget, load.bytes_last_day));
    let mut limits: Vec<UsageLimit> = own.into_iter().collect();
    limits.extend(bytes(&budgets, of(&this_hour, name), of(&last_day, name), None).limits);
    Ok(MailboxUsage {
        calls: calls(&budgets, of(&this_hour, name), of(&last_day, name), None, now),
        bytes: QuotaUsage { this_hour: load.bytes_this_hour, last_day: load.bytes_last_day, limits },
        backlog: load.backlog,
        backfill: backfill.map(|progress| BackfillForecast::of(&progress, pause, now)),
    })
}

type ByProvider = BTreeMap<String, CallUsage>;

async fn used(store: &TenantStore, now: Timestamp) -> Result<(ByProvider, ByProvider), StoreError> {
    Ok((store.sum_usage(hour_start(now)).await?, store.sum_usage(hours_before(now, 23)).await?))
}

fn of(used: &ByProvider, provider: &str) -> CallUsage {
    used.get(provider).copied().unwrap_or_default()
}

async fn forecasts(store: &TenantStore, now: Timestamp) -> Result<HashMap<String, BackfillForecast>, StoreError> {
    let backfills = store.list_backfills(None).await?;
    if backfills.is_empty() {
        return Ok(HashMap::new());
    }
    let pauses = store.list_pauses().await?;
    let mailboxes = store.list_mailboxes().await?;
    let looked_at = mailboxes.iter().filter(|mailbox| mailbox.is_sync_enabled());
    let providers: HashMap<MailboxId, &'static str> =
        looked_at.map(|mailbox| (mailbox.id, mailbox.provider.as_str())).collect();
    let mut forecasts: HashMap<String, BackfillForecast> = HashMap::new();
    for (mailbox, progress) in &backfills {
        let Some(provider) = providers.get(mailbox) else { continue };
        let forecast = BackfillForecast::of(progress, pauses.get(mailbox), now);
        let together = match forecasts.remove(*provider) {
            Some(others) => others.and(&forecast),
            None => forecast,
        };
        forecasts.insert((*provider).to_owned(), together);
    }
    Ok(forecasts)
}

fn calls(
    budgets: &CallBudgets,
    this_hour: CallUsage,
    last_day: CallUsage,
    all: Option<CallUsage>,
    now: Timestamp,
) -> QuotaUsage {
    let tenant = budgets.tenant.calls.map(|budget| hourly_limit(LimitOwner::Tenant, budget, this_hour.calls, now));
    let shared =
        budgets.app.calls.zip(all).map(|(budget, all)| hourly_limit(LimitOwner::AllTenants, budget, all.calls, now));
    let limits = tenant.into_iter().chain(shared).collect();
    QuotaUsage { this_hour: this_hour.calls, last_day: last_day.calls, limits }
}

fn bytes(budgets: &CallBudgets, this_hour: CallUsage, last_day: CallUsage, all: Option<CallUsage>) -> QuotaUsage {
    let tenant = budgets.tenant.bytes.map(|budget| daily_limit(LimitOwner::Tenant, budget, last_day.bytes));
    let shared = budgets.app.bytes.zip(all).map(|(budget, all)| daily_limit(LimitOwner::AllTenants, budget, all.bytes));
    let limits = tenant.into_iter().chain(shared).collect();
    QuotaUsage { this_hour: this_hour.bytes, last_day: last_day.bytes, limits }
}

/// Returns an hourly limit. What was not used in time does not come back: of an hour that ends soon little is left.
fn hourly_limit(of: LimitOwner, budget: Budget, used: u64, now: Timestamp) -> UsageLimit {
    let rest = 3600 - now.as_second().rem_euclid(3600);
    let to_come = (budget.per_second * rest as f64 + budget.burst) as u64;
    let limit = limit(of, LimitPeriod::Hour, (budget.per_second * 3600.0) as u64, used);
    UsageLimit { left: limit.left.min(to_come), ..limit }
}

/// Returns a daily limit, as [`Budget::per_day`] splits it: a tenth as burst, the rest evenly.
fn daily_limit(of: LimitOwner, budget: Budget, used: u64) -> UsageLimit {
    limit(of, LimitPeriod::Day, (budget.per_second * 86_400.0 + budget.burst).round() as u64, used)
}

fn limit(of: LimitOwner, per: LimitPeriod, allowed: u64, used: u64) -> UsageLimit {
    UsageLimit { of, per, allowed, left: allowed.saturating_sub(used) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn progress(is_listed: bool, to_fetch: u64, per_second: Option<f64>) -> BackfillProgress {
        BackfillProgress { is_listed, stored: 10, to_fetch, per_second }
    }

    const NOON: &str = "2026-11-16T12:00:00Z";

    fn forecast(progress: &BackfillProgress, pause: Option<&SyncPause>) -> BackfillForecast {
        BackfillForecast::of(progress, pause, NOON.parse().unwrap())
    }

    #[test]
    fn forecast_needs_a_rate_and_a_complete_listing() {
        let now: Timestamp = NOON.parse().unwrap();
        let pause = SyncPause { until: now, reason: "the provider asked to wait".into() };

        let soon = forecast(&progress(true, 600, Some(10.0)), None);
        assert_eq!((soon.ends_at, soon.unknown), ("2026-11-16T12:01:00Z".parse().ok(), None));
        assert_eq!(forecast(&progress(false, 600, Some(10.0)), None).unknown, Some(FORECAST_STILL_LISTING));
        assert_eq!(forecast(&progress(true, 600, None), None).unknown, Some(FORECAST_NO_RATE));
        assert_eq!(forecast(&progress(true, 600, Some(10.0)), Some(&pause)).unknown, Some(FORECAST_PAUSED));

        let later = forecast(&progress(true, 1200, Some(10.0)), None);
        let both = soon.clone().and(&later);
        assert_eq!((both.to_fetch, both.ends_at), (1800, "2026-11-16T12:02:00Z".parse().ok()));
        let unsure = both.and(&forecast(&progress(true, 1, None), None));
        assert_eq!((unsure.ends_at, unsure.unknown, unsure.is_listed), (None, Some(FORECAST_NO_RATE), true));
    }

    #[test]
    fn limit_of_all_tenants_needs_their_usage() {
        let mut budgets = CallBudgets::calls_per_second(150.0);
        let used = CallUsage { calls: 1000, bytes: 400 };
        let now: Timestamp = NOON.parse().unwrap();
        assert_eq!(calls(&budgets, used, used, None, now).limits, []);
        let all = CallUsage { calls: 600_000, bytes: 0 };
        let shared = calls(&budgets, used, used, Some(all), now).limits;
        assert_eq!(
            shared,
            [UsageLimit { of: LimitOwner::AllTenants, per: LimitPeriod::Hour, allowed: 540_000, left: 0 }]
        );

        budgets.tenant.calls = Some(Budget::per_second(1.0));
        budgets.tenant.bytes = Some(Budget::per_day(1000.0));
        assert_eq!(
            calls(&budgets, used, used, None, now).limits,
            [UsageLimit { of: LimitOwner::Tenant, per: LimitPeriod::Hour, allowed: 3600, left: 2600 }]
        );
        let late = calls(&budgets, used, used, None, "2026-11-16T12:59:00Z".parse().unwrap()).limits;
        assert_eq!(late[0].left, 61, "what was not used in time is gone");
        let own = bytes(&budgets, used, used, None).limits;
        assert_eq!(own, [UsageLimit { of: LimitOwner::Tenant, per: LimitPeriod::Day, allowed: 1000, left: 600 }]);
    }
}
