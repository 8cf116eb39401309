//! `mailroom tenant usage`: usage of provider budgets, and the forecast of backfills.

use engine::Engine;
use engine::accounts::usage::{self, BackfillForecast, LimitOwner, LimitPeriod, ProviderUsage, QuotaUsage, UsageLimit};
use jiff::Timestamp;
use serde_json::json;
use terminal::{Failure, Output, count, size};

use crate::app;
use crate::config::Config;

pub async fn run(config: &Config, engine: &Engine, name: &str, out: Output) -> Result<(), Failure> {
    let tenant = app::find_tenant(&engine.store, name).await?;
    let (store, system) = (engine.store.tenant(tenant.id), engine.store.system());
    let providers = usage::of_tenant(&store, Some(&system), &app::call_settings(config)).await?;
    let totals = store.totals().await?;
    if out.json {
        return out.object(&json!({"tenant_id": tenant.id, "totals": totals, "providers": providers}));
    }
    if providers.is_empty() {
        return out.line("This tenant has no mailboxes at a provider.");
    }
    let rows: Vec<[String; 6]> = providers.iter().map(row).collect();
    out.table(["provider", "mailboxes", "calls", "bytes", "to fetch", "backfill"], &rows)?;
    out.line("Calls are weighted as the budgets count them; the last seconds may be missing. A day is this hour and the 23 before.")
}

fn row(usage: &ProviderUsage) -> [String; 6] {
    [
        usage.provider.to_owned(),
        count(usage.mailboxes),
        spent(&usage.calls, count),
        spent(&usage.bytes, size),
        count(usage.backlog),
        usage.backfill.as_ref().map_or_else(|| "done".to_owned(), backfill),
    ]
}

/// Formats usage: `1,200 this hour, 9,000 in a day; 538,800 of 540,000 left this hour for all tenants`.
pub fn spent(spent: &QuotaUsage, said: fn(u64) -> String) -> String {
    let used = format!("{} this hour, {} in a day", said(spent.this_hour), said(spent.last_day));
    let limits = spent.limits.iter().map(|limit| left(limit, said));
    [used].into_iter().chain(limits).collect::<Vec<_>>().join("; ")
}

fn left(limit: &UsageLimit, said: fn(u64) -> String) -> String {
    let whose = match limit.of {
        LimitOwner::Mailbox => "it",
        LimitOwner::Tenant => "the tenant",
        LimitOwner::AllTenants => "all tenants",
    };
    let when = match limit.per {
        LimitPeriod::Hour => "this hour",
        LimitPeriod::Day => "in a day",
    };
    format!("{} of {} left {when} for {whose}", said(limit.left), said(limit.allowed))
}

/// Formats a backfill: `4,200 of 10,000, ends about 2026-11-16 14:05 UTC`.
fn backfill(forecast: &BackfillForecast) -> String {
    let BackfillForecast { stored, to_fetch, is_listed, ends_at, unknown } = forecast;
    let at_least = if *is_listed { "" } else { "at least " };
    let so_far = format!("{} of {at_least}{}", count(*stored), count(stored + to_fetch));
    match (ends_at, unknown) {
        (Some(at), _) => format!("{so_far}, ends about {}", minute(*at)),
        (None, Some(why)) => format!("{so_far}, end unknown: {why}"),
        (None, None) => so_far,
    }
}

fn minute(at: Timestamp) -> String {
    at.strftime("%Y-%m-%d %H:%M UTC").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_is_shown_with_each_limit() {
        let mut calls = QuotaUsage { this_hour: 1200, last_day: 9000, limits: vec![] };
        assert_eq!(spent(&calls, count), "1,200 this hour, 9,000 in a day");

        calls.limits = vec![
            UsageLimit { of: LimitOwner::Tenant, per: LimitPeriod::Hour, allowed: 3600, left: 2400 },
            UsageLimit { of: LimitOwner::AllTenants, per: LimitPeriod::Hour, allowed: 540_000, left: 0 },
        ];
        let expected = "1,200 this hour, 9,000 in a day; 2,400 of 3,600 left this hour for the tenant; 0 of 540,000 left this hour for all tenants";
        assert_eq!(spent(&calls, count), expected);
    }

    #[test]
    fn unknown_end_of_a_backfill_is_explained() {
        let known = BackfillForecast {
            stored: 4200,
            to_fetch: 5800,
            is_listed: true,
            ends_at: "2026-11-16T14:05:30Z".parse().ok(),
            unknown: None,
        };
        assert_eq!(backfill(&known), "4,200 of 10,000, ends about 2026-11-16 14:05 UTC");
        let unknown =
            BackfillForecast { is_listed: false, ends_at: None, unknown: Some(usage::FORECAST_STILL_LISTING), ..known };
        let expected = "4,200 of at least 10,000, end unknown: older mail is still being listed";
        assert_eq!(backfill(&unknown), expected);
    }
}
