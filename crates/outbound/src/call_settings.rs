//! What limits calls, as it is configured: budgets by owner, calls in flight, waits.

use std::collections::HashMap;
use std::time::Duration;

use domain::Provider;

use crate::budget::{Budget, BudgetOwner, Charge, Measure};
use crate::limits::MAX_WEBHOOK_REQUESTS;
use crate::target::{Service, Target};

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

impl CallSettings {
    pub fn budgets_of_provider(&self, provider: Provider) -> CallBudgets {
        *self.provider_budgets.get(&provider).unwrap_or(&self.default_budgets)
    }

    /// Returns the budgets of a target, with the byte quota of its mailbox.
    pub fn budgets_of(&self, target: &Target) -> CallBudgets {
        // A webhook gets what its tenant's events are, and no provider counts it.
        let Service::Provider(provider) = target.service else { return CallBudgets::default() };
        let mut budgets = self.budgets_of_provider(provider);
        if let Some(bytes) = target.account.as_ref().and_then(|account| account.bytes_per_day) {
            budgets.mailbox.bytes = (bytes > 0).then(|| Budget::per_day(bytes as f64));
        }
        budgets
    }

    /// Returns the most calls to a service that may be in flight; `None`: any number.
    pub fn most_in_flight(&self, service: Service) -> Option<usize> {
        match service {
            Service::Provider(_) => self.max_in_flight,
            Service::Webhooks => Some(MAX_WEBHOOK_REQUESTS),
        }
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

    /// Returns what a request takes that costs units.
    pub(crate) fn unit_charges(&self, target: &Target, amount: f64) -> Vec<Charge> {
        let (Service::Provider(provider), Some(account)) = (target.service, &target.account) else { return Vec::new() };
        // A provider does not know how many tenants have an account.
        let owners = [(BudgetOwner::App(provider), self.app), (BudgetOwner::Account(account.name), self.mailbox)];
        let charges = owners.into_iter().filter_map(|(owner, allowance)| {
            let budget = allowance.units?;
            Some(Charge { owner, measure: Measure::Units, budget, amount })
        });
        charges.collect()
    }

    /// Returns what a call takes from each budget there is.
    pub(crate) fn charges(&self, target: &Target, calls: f64, bytes: f64) -> Vec<Charge> {
        let (Service::Provider(provider), Some(account)) = (target.service, &target.account) else { return Vec::new() };
        let tenant = target.tenant;
        let owners = [
            (BudgetOwner::App(provider), self.app),
            (BudgetOwner::Tenant(tenant, provider), self.tenant),
            (BudgetOwner::Credential(tenant, provider, account.credential), self.credential),
            (BudgetOwner::Mailbox(account.mailbox), self.mailbox),
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
