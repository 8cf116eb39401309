//! What a tenant uses of its providers, what is left of that, and when what waits will be here: for people.
//!
//! Nothing is promised that nobody knows: where there is no limit nothing is left or gone, and a forecast that cannot be made
//! says why.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use domain::{MailboxId, Provider};
use jiff::Timestamp;
use serde::Serialize;
use store::sql::mailboxes::Mailbox;
use store::sql::sync::{BackfillProgress, Pause};
use store::sql::usage::Used;
use store::{StoreError, SystemStore, TenantStore};

use crate::calls::budget::Budget;
use crate::calls::meter::{hour, hours_before};
use crate::calls::{CallSettings, Pace};

/// Of one tenant at one provider.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ProviderUsage {
    pub provider: &'static str,
    /// Those that are looked at: of the others nothing comes, and nobody waits for it.
    pub mailboxes: u64,
    /// As budgets count them.
    pub calls: Spent,
    /// Of messages that were fetched.
    pub bytes: Spent,
    /// Messages of these that are known and not here yet, old and new.
    pub backlog: u64,
    /// What was there before these mailboxes were connected. Nothing: all of it is here.
    pub backfill: Option<Forecast>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Spent {
    /// Since the hour began.
    pub this_hour: u64,
    /// In this hour and the 23 before.
    pub last_day: u64,
    /// Nothing: as many as one likes.
    pub limits: Vec<Limit>,
}

/// Who may use how much, and what is left of that.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Limit {
    pub of: Whose,
    pub per: Span,
    pub allowed: u64,
    pub left: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Whose {
    Mailbox,
    Tenant,
    AllTenants,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Span {
    Hour,
    Day,
}

/// When what was there before is here.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Forecast {
    pub stored: u64,
    pub to_fetch: u64,
    /// Whether that is all there is.
    pub is_listed: bool,
    /// About then, if it goes on as in the last minutes.
    pub ends_at: Option<Timestamp>,
    /// Why nobody knows.
    pub unknown: Option<&'static str>,
}

pub const STILL_LISTED: &str = "older mail is still being listed";
pub const PAUSED: &str = "it is paused";
pub const NOTHING_CAME: &str = "nothing has come in the last minutes";

/// Longer than this is no forecast.
const TOO_LONG: Duration = Duration::from_secs(366 * 86_400);

impl Forecast {
    /// Of one mailbox.
    pub fn of(progress: &BackfillProgress, pause: Option<&Pause>, now: Timestamp) -> Self {
        let BackfillProgress { is_listed, stored, to_fetch, per_second } = *progress;
        let (ends_at, unknown) = match per_second {
            _ if !is_listed => (None, Some(STILL_LISTED)),
            _ if pause.is_some() => (None, Some(PAUSED)),
            Some(rate) if rate > 0.0 => {
                let left = Duration::try_from_secs_f64(to_fetch as f64 / rate).unwrap_or(TOO_LONG).min(TOO_LONG);
                (now.checked_add(left).ok(), None)
            }
            _ => (None, Some(NOTHING_CAME)),
        };
        Self { stored, to_fetch, is_listed, ends_at, unknown }
    }

    /// Both: they end with the later one, and nobody knows when if nobody knows of one.
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

/// By provider. What all tenants use together only an operator gets to see, and so only with `system`.
pub async fn of_tenant(
    store: &TenantStore,
    system: Option<&SystemStore>,
    settings: &CallSettings,
) -> Result<Vec<ProviderUsage>, StoreError> {
    let now = store.clock().now();
    let (this_hour, last_day) = used(store, now).await?;
    let all = match system {
        Some(system) => Some((system.sum_usage(hour(now)).await?, system.sum_usage(hours_before(now, 23)).await?)),
        None => None,
    };
    let mut forecasts = forecasts(store, now).await?;
    let load = store.list_provider_loads().await?;
    let mut usages = Vec::new();
    for provider in Provider::ALL {
        let name = provider.as_str();
        let load = load.get(name).copied().unwrap_or_default();
        let (hourly, daily) = (of(&this_hour, name), of(&last_day, name));
        if provider == Provider::Files || (load.mailboxes == 0 && daily == Used::default()) {
            continue;
        }
        let pace = settings.pace_of(provider);
        let shared = all.as_ref().map(|(hour, day)| (of(hour, name), of(day, name)));
        usages.push(ProviderUsage {
            provider: name,
            mailboxes: load.mailboxes,
            calls: calls(&pace, hourly, daily, shared.map(|(hour, _)| hour), now),
            bytes: bytes(&pace, hourly, daily, shared.map(|(_, day)| day)),
            backlog: load.backlog,
            backfill: forecasts.remove(name),
        });
    }
    Ok(usages)
}

/// What one mailbox has of that.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MailboxUsage {
    /// Of the tenant at its provider: budgets of calls are shared.
    pub calls: Spent,
    /// Of the mailbox itself, as far as messages are here.
    pub bytes: Spent,
    pub backlog: u64,
    pub backfill: Option<Forecast>,
}

pub async fn of_mailbox(
    store: &TenantStore,
    mailbox: &Mailbox,
    pause: Option<&Pause>,
    settings: &CallSettings,
) -> Result<MailboxUsage, StoreError> {
    let now = store.clock().now();
    let name = mailbox.provider.as_str();
    let (this_hour, last_day) = used(store, now).await?;
    let pace = settings.pace_for(mailbox);
    let load = store.find_mailbox_load(mailbox.id, hour(now), hours_before(now, 23)).await?;
    let backfill = store.list_backfills(Some(mailbox.id)).await?.remove(&mailbox.id);
    let own = pace.mailbox.bytes.map(|budget| daily(Whose::Mailbox, budget, load.bytes_last_day));
    let mut limits: Vec<Limit> = own.into_iter().collect();
    limits.extend(bytes(&pace, of(&this_hour, name), of(&last_day, name), None).limits);
    Ok(MailboxUsage {
        calls: calls(&pace, of(&this_hour, name), of(&last_day, name), None, now),
        bytes: Spent { this_hour: load.bytes_this_hour, last_day: load.bytes_last_day, limits },
        backlog: load.backlog,
        backfill: backfill.map(|progress| Forecast::of(&progress, pause, now)),
    })
}

type ByProvider = BTreeMap<String, Used>;

async fn used(store: &TenantStore, now: Timestamp) -> Result<(ByProvider, ByProvider), StoreError> {
    Ok((store.sum_usage(hour(now)).await?, store.sum_usage(hours_before(now, 23)).await?))
}

fn of(used: &ByProvider, provider: &str) -> Used {
    used.get(provider).copied().unwrap_or_default()
}

async fn forecasts(store: &TenantStore, now: Timestamp) -> Result<HashMap<String, Forecast>, StoreError> {
    let backfills = store.list_backfills(None).await?;
    if backfills.is_empty() {
        return Ok(HashMap::new());
    }
    let pauses = store.list_pauses().await?;
    let mailboxes = store.list_mailboxes().await?;
    let looked_at = mailboxes.iter().filter(|mailbox| mailbox.is_looked_at());
    let providers: HashMap<MailboxId, &'static str> =
        looked_at.map(|mailbox| (mailbox.id, mailbox.provider.as_str())).collect();
    let mut forecasts: HashMap<String, Forecast> = HashMap::new();
    for (mailbox, progress) in &backfills {
        let Some(provider) = providers.get(mailbox) else { continue };
        let forecast = Forecast::of(progress, pauses.get(mailbox), now);
        let together = match forecasts.remove(*provider) {
            Some(others) => others.and(&forecast),
            None => forecast,
        };
        forecasts.insert((*provider).to_owned(), together);
    }
    Ok(forecasts)
}

fn calls(pace: &Pace, this_hour: Used, last_day: Used, all: Option<Used>, now: Timestamp) -> Spent {
    let tenant = pace.tenant.calls.map(|budget| hourly(Whose::Tenant, budget, this_hour.calls, now));
    let shared = pace.app.calls.zip(all).map(|(budget, all)| hourly(Whose::AllTenants, budget, all.calls, now));
    let limits = tenant.into_iter().chain(shared).collect();
    Spent { this_hour: this_hour.calls, last_day: last_day.calls, limits }
}

fn bytes(pace: &Pace, this_hour: Used, last_day: Used, all: Option<Used>) -> Spent {
    let tenant = pace.tenant.bytes.map(|budget| daily(Whose::Tenant, budget, last_day.bytes));
    let shared = pace.app.bytes.zip(all).map(|(budget, all)| daily(Whose::AllTenants, budget, all.bytes));
    let limits = tenant.into_iter().chain(shared).collect();
    Spent { this_hour: this_hour.bytes, last_day: last_day.bytes, limits }
}

/// What nobody used in time does not come back: of an hour that ends soon little is left.
fn hourly(of: Whose, budget: Budget, used: u64, now: Timestamp) -> Limit {
    let rest = 3600 - now.as_second().rem_euclid(3600);
    let to_come = (budget.per_second * rest as f64 + budget.burst) as u64;
    let limit = limit(of, Span::Hour, (budget.per_second * 3600.0) as u64, used);
    Limit { left: limit.left.min(to_come), ..limit }
}

/// As [`Budget::per_day`] was told: a tenth at once, the rest evenly.
fn daily(of: Whose, budget: Budget, used: u64) -> Limit {
    limit(of, Span::Day, (budget.per_second * 86_400.0 + budget.burst).round() as u64, used)
}

fn limit(of: Whose, per: Span, allowed: u64, used: u64) -> Limit {
    Limit { of, per, allowed, left: allowed.saturating_sub(used) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn progress(is_listed: bool, to_fetch: u64, per_second: Option<f64>) -> BackfillProgress {
        BackfillProgress { is_listed, stored: 10, to_fetch, per_second }
    }

    #[test]
    fn a_forecast_is_made_when_all_is_known_and_says_why_when_it_is_not() {
        let now: Timestamp = "2026-11-16T12:00:00Z".parse().unwrap();
        let pause = Pause { until: now, reason: "its server asked to wait".into() };
        let of = |progress: &BackfillProgress, pause| Forecast::of(progress, pause, now);

        let soon = of(&progress(true, 600, Some(10.0)), None);
        assert_eq!((soon.ends_at, soon.unknown), ("2026-11-16T12:01:00Z".parse().ok(), None));
        assert_eq!(of(&progress(false, 600, Some(10.0)), None).unknown, Some(STILL_LISTED));
        assert_eq!(of(&progress(true, 600, None), None).unknown, Some(NOTHING_CAME));
        assert_eq!(of(&progress(true, 600, Some(10.0)), Some(&pause)).unknown, Some(PAUSED));

        let later = of(&progress(true, 1200, Some(10.0)), None);
        let both = soon.clone().and(&later);
        assert_eq!((both.to_fetch, both.ends_at), (1800, "2026-11-16T12:02:00Z".parse().ok()));
        let unsure = both.and(&of(&progress(true, 1, None), None));
        assert_eq!((unsure.ends_at, unsure.unknown, unsure.is_listed), (None, Some(NOTHING_CAME), true));
    }

    #[test]
    fn what_is_left_is_told_where_there_is_a_limit_and_of_all_tenants_only_to_who_may_know() {
        let mut pace = Pace::calls_per_second(150.0);
        let used = Used { calls: 1000, bytes: 400 };
        let now: Timestamp = "2026-11-16T12:00:00Z".parse().unwrap();
        assert_eq!(calls(&pace, used, used, None, now).limits, []);
        let all = Used { calls: 600_000, bytes: 0 };
        let shared = calls(&pace, used, used, Some(all), now).limits;
        assert_eq!(shared, [Limit { of: Whose::AllTenants, per: Span::Hour, allowed: 540_000, left: 0 }]);

        pace.tenant.calls = Some(Budget::per_second(1.0));
        pace.tenant.bytes = Some(Budget::per_day(1000.0));
        let own = |now| calls(&pace, used, used, None, now).limits;
        assert_eq!(own(now), [Limit { of: Whose::Tenant, per: Span::Hour, allowed: 3600, left: 2600 }]);
        let late = own("2026-11-16T12:59:00Z".parse().unwrap());
        assert_eq!(late[0].left, 61, "what was not used in time is gone");
        let own = bytes(&pace, used, used, None).limits;
        assert_eq!(own, [Limit { of: Whose::Tenant, per: Span::Day, allowed: 1000, left: 600 }]);
    }
}
