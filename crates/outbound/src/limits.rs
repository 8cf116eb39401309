//! The limits of calls:
//!
//! | Limit | Key | Where |
//! | --- | --- | --- |
//! | circuit breaker | tenant and provider, or tenant and server | [`breaker`](crate::breaker) |
//! | Retry-After | mailbox | `retry_after` |
//! | calls, bytes and units per time | app, tenant, credential, mailbox, account | [`budget`](crate::budget) |
//! | calls in flight | provider, server, tenant, tenant at a server | [`call_limiter`](crate::call_limiter) |
//! | deadline | call | [`gateway`](crate::gateway) |

use std::collections::HashMap;
use std::time::Duration;

use domain::Provider;

use crate::budget::{Budget, BudgetOwner, Charge, Measure};
use crate::target::Target;
use crate::{breaker, call_limiter};

#[derive(Debug, Clone)]
pub struct CallSettings {
    /// The budgets of providers without an entry in `provider_budgets`.
    pub default_budgets: CallBudgets,
    pub provider_budgets: HashMap<Provider, CallBudgets>,
    /// The daily quota of each mailbox at a provider that has none of its own; 0: unlimited.
    pub mailbox_bytes_per_day: HashMap<Provider, u64>,
    /// Calls to one provider that are in flight at the same time: a slow or dead provider must not occupy the workers
    /// that could call another. Fetches are at most four fifths of them, backfill three.
    pub max_in_flight: Option<usize>,
    /// A job that would wait longer for a budget is rescheduled instead, so that others can run.
    pub max_wait: Duration,
    /// The deadline of a call. Connectors have timeouts of their own; this ends a call that they overlooked.
    pub deadline: Duration,
}

impl Default for CallSettings {
    fn default() -> Self {
        Self {
            default_budgets: CallBudgets::calls_per_second(150.0),
            provider_budgets: HashMap::new(),
            mailbox_bytes_per_day: HashMap::new(),
            max_in_flight: None,
            max_wait: Duration::from_secs(5),
            deadline: Duration::from_secs(600),
        }
    }
}

/// One limit, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimitRow {
    pub limit: &'static str,
    /// What has one of its own.
    pub of: String,
    pub allows: String,
}

impl CallSettings {
    /// Lists all limits, in the order in which a call meets them.
    pub fn rows(&self) -> Vec<LimitRow> {
        let mut rows = vec![
            row("circuit breaker", "tenant and provider; IMAP: tenant and server", breaker_text()),
            row("Retry-After", "mailbox", "as its provider says".to_owned()),
        ];
        for provider in Provider::ALL.into_iter().filter(|provider| provider.capabilities().is_remote) {
            rows.extend(self.budgets_of_provider(provider).rows(provider));
        }
        for provider in Provider::ALL {
            if let Some(bytes) = self.mailbox_bytes_per_day.get(&provider).filter(|bytes| **bytes > 0) {
                let of = format!("{}, mailbox", provider.as_str());
                rows.push(row("bytes", &of, Budget::per_day(*bytes as f64).to_string()));
            }
        }
        rows.push(row("bytes", "mailbox that sets bytes_per_day, or whose tenant does", "what it sets".to_owned()));
        if let Some(max) = self.max_in_flight {
            let [server, tenant, tenant_at_server] = call_limiter::server_limits(max);
            rows.extend([
                row("calls in flight", "provider", max.to_string()),
                row("calls in flight", "IMAP server", server.to_string()),
                row("calls in flight", "tenant, over all IMAP servers", tenant.to_string()),
                row("calls in flight", "tenant at one IMAP server", tenant_at_server.to_string()),
            ]);
        }
        rows.push(row("deadline", "call", format!("{} s", self.deadline.as_secs())));
        rows
    }

    pub fn budgets_of_provider(&self, provider: Provider) -> CallBudgets {
        *self.provider_budgets.get(&provider).unwrap_or(&self.default_budgets)
    }

    /// Returns the budgets of a target, with the byte quota of its mailbox.
    pub fn budgets_of(&self, target: &Target) -> CallBudgets {
        let mut budgets = self.budgets_of_provider(target.provider);
        if let Some(bytes) = target.bytes_per_day {
            budgets.mailbox.bytes = (bytes > 0).then(|| Budget::per_day(bytes as f64));
        }
        budgets
    }
}

/// The budgets of calls to a provider: of our app as a whole, of each tenant, of each credential and of each mailbox.
#[derive(Debug, Clone, Copy, Default)]
pub struct CallBudgets {
    pub app: Allowance,
    pub tenant: Allowance,
    pub credential: Allowance,
    pub mailbox: Allowance,
}

/// The budgets of one owner; `None`: unlimited.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Allowance {
    pub calls: Option<Budget>,
    pub bytes: Option<Budget>,
    pub units: Option<Budget>,
}

impl CallBudgets {
    pub fn calls_per_second(app: f64) -> Self {
        let app = Allowance { calls: Some(Budget::per_second(app)), ..Allowance::default() };
        Self { app, ..Self::default() }
    }

    /// Adds budgets of units, for our app as a whole and for each mailbox.
    pub fn with_units(mut self, app: Option<Budget>, mailbox: Option<Budget>) -> Self {
        self.app.units = app;
        self.mailbox.units = mailbox;
        self
    }

    fn rows(&self, provider: Provider) -> Vec<LimitRow> {
        let owners = [
            ("all tenants", self.app),
            ("tenant", self.tenant),
            ("credential", self.credential),
            ("mailbox", self.mailbox),
        ];
        let mut rows = Vec::new();
        for (owner, Allowance { calls, bytes, units }) in owners {
            let of = format!("{}, {owner}", provider.as_str());
            for (limit, budget) in [("calls", calls), ("bytes", bytes), ("quota units", units)] {
                rows.extend(budget.map(|budget| row(limit, &of, budget.to_string())));
            }
        }
        rows
    }

    /// Returns what a request takes that costs units.
    pub(crate) fn unit_charges(&self, target: &Target, amount: f64) -> Vec<Charge> {
        // A provider does not know how many tenants have an account.
        let owners =
            [(BudgetOwner::App(target.provider), self.app), (BudgetOwner::Account(target.account), self.mailbox)];
        let charges = owners.into_iter().filter_map(|(owner, allowance)| {
            let budget = allowance.units?;
            Some(Charge { owner, measure: Measure::Units, budget, amount })
        });
        charges.collect()
    }

    /// Returns what a call takes from each budget there is.
    pub(crate) fn charges(&self, target: &Target, calls: f64, bytes: f64) -> Vec<Charge> {
        let Target { provider, tenant, credential, mailbox, .. } = *target;
        let owners = [
            (BudgetOwner::App(provider), self.app),
            (BudgetOwner::Tenant(tenant, provider), self.tenant),
            (BudgetOwner::Credential(tenant, provider, credential), self.credential),
            (BudgetOwner::Mailbox(mailbox), self.mailbox),
        ];
        let mut charges = Vec::new();
        for (owner, allowance) in owners {
            let budgets = [(Measure::Calls, allowance.calls, calls), (Measure::Bytes, allowance.bytes, bytes)];
            charges.extend(budgets.into_iter().filter_map(|(measure, budget, amount)| {
                budget.map(|budget| Charge { owner, measure, budget, amount })
            }));
        }
        charges
    }
}

fn row(limit: &'static str, of: &str, allows: String) -> LimitRow {
    LimitRow { limit, of: of.to_owned(), allows }
}

fn breaker_text() -> String {
    format!(
        "opens when {} % of at least {} calls in {} s fail; then a probe every {} s, and {} in a row close it",
        breaker::OPEN_AT_FAILURE_PERCENT,
        breaker::MIN_CALLS,
        breaker::WINDOW.as_secs(),
        breaker::PROBE_INTERVAL.as_secs(),
        breaker::SUCCESSES_TO_CLOSE
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_lists_every_limit_there_is() {
        let settings = CallSettings { max_in_flight: Some(100), ..CallSettings::default() };

        let rows = settings.rows();

        for (limit, count) in [("circuit breaker", 1), ("Retry-After", 1), ("calls", 3), ("deadline", 1)] {
            assert_eq!(rows.iter().filter(|row| row.limit == limit).count(), count, "{limit}: {rows:?}");
        }
        let in_flight: Vec<&str> =
            rows.iter().filter(|row| row.limit == "calls in flight").map(|row| row.allows.as_str()).collect();
        assert_eq!(in_flight, ["100", "50", "75", "37"]);
    }
}
