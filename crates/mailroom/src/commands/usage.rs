//! `mailroom tenant usage`: what a tenant uses of its providers, what is left, and when what waits will be here.

use engine::Engine;
use engine::usage::{self, Forecast, Limit, ProviderUsage, Span, Spent, Whose};
use jiff::Timestamp;
use serde_json::json;

use crate::app;
use crate::config::Config;
use crate::failure::Failure;
use crate::output::{Output, count, size};

pub async fn run(config: &Config, engine: &Engine, name: &str, out: Output) -> Result<(), Failure> {
    let tenant = app::tenant(&engine.store, name).await?;
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
    out.line("Calls are counted as budgets count them, to the last seconds; hours and days end with this hour.")
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

/// `1,200 this hour, 9,000 in a day; 538,800 of 540,000 left this hour for all tenants`
pub fn spent(spent: &Spent, said: fn(u64) -> String) -> String {
    let used = format!("{} this hour, {} in a day", said(spent.this_hour), said(spent.last_day));
    let limits = spent.limits.iter().map(|limit| left(limit, said));
    [used].into_iter().chain(limits).collect::<Vec<_>>().join("; ")
}

fn left(limit: &Limit, said: fn(u64) -> String) -> String {
    let whose = match limit.of {
        Whose::Mailbox => "it",
        Whose::Tenant => "the tenant",
        Whose::AllTenants => "all tenants",
    };
    let when = match limit.per {
        Span::Hour => "this hour",
        Span::Day => "in a day",
    };
    format!("{} of {} left {when} for {whose}", said(limit.left), said(limit.allowed))
}

/// `4,200 of 10,000, ends about 2026-11-16 14:05 UTC`
fn backfill(forecast: &Forecast) -> String {
    let Forecast { stored, to_fetch, is_listed, ends_at, unknown } = forecast;
    let at_least = if *is_listed { "" } else { "at least " };
    let so_far = format!("{} of {at_least}{}", count(*stored), count(stored + to_fetch));
    match (ends_at, unknown) {
        (Some(at), _) => format!("{so_far}, ends about {}", minute(*at)),
        (None, Some(why)) => format!("{so_far}, nobody knows when it ends: {why}"),
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
    fn what_is_used_is_told_with_what_is_left_of_each_limit() {
        let limit = |of, per, allowed, left| Limit { of, per, allowed, left };
        let mut calls = Spent { this_hour: 1200, last_day: 9000, limits: vec![] };
        assert_eq!(spent(&calls, count), "1,200 this hour, 9,000 in a day");

        calls.limits =
            vec![limit(Whose::Tenant, Span::Hour, 3600, 2400), limit(Whose::AllTenants, Span::Hour, 540_000, 0)];
        let told = "1,200 this hour, 9,000 in a day; 2,400 of 3,600 left this hour for the tenant; 0 of 540,000 left this hour for all tenants";
        assert_eq!(spent(&calls, count), told);
    }

    #[test]
    fn the_end_of_a_backfill_is_told_where_it_is_known_and_else_why_it_is_not() {
        let known = Forecast {
            stored: 4200,
            to_fetch: 5800,
            is_listed: true,
            ends_at: "2026-11-16T14:05:30Z".parse().ok(),
            unknown: None,
        };
        assert_eq!(backfill(&known), "4,200 of 10,000, ends about 2026-11-16 14:05 UTC");
        let unknown = Forecast { is_listed: false, ends_at: None, unknown: Some(usage::STILL_LISTED), ..known };
        let told = "4,200 of at least 10,000, nobody knows when it ends: older mail is still being listed";
        assert_eq!(backfill(&unknown), told);
    }
}
