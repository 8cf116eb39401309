//! What was asked of providers for whom, counted here and written now and then: for people, who see it wherever the calls
//! were made. Who dies loses the last seconds of it.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use domain::{Provider, TenantId};
use jiff::{Timestamp, ToSpan};
use store::sql::usage::{NewUsage, Used};
use store::{Store, StoreError};

#[derive(Debug, Default)]
pub struct Meter(Mutex<HashMap<(TenantId, Provider), Used>>);

impl Meter {
    pub fn count(&self, whose: (TenantId, Provider), calls: u64, bytes: u64) {
        let mut counted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let used = counted.entry(whose).or_default();
        used.calls += calls;
        used.bytes += bytes;
    }

    /// What was counted since the last time. If it cannot be written, it is counted again.
    pub async fn write(&self, store: &Store) -> Result<(), StoreError> {
        let counted = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        let hour = hour(store.clock().now());
        let usage =
            |(&(tenant, provider), &used): (&(TenantId, Provider), &Used)| NewUsage { tenant, provider, hour, used };
        let usage: Vec<NewUsage> = counted.iter().map(usage).collect();
        let written = store.system().add_usage(&usage).await;
        if written.is_err() {
            counted.into_iter().for_each(|(whose, used)| self.count(whose, used.calls, used.bytes));
        }
        written
    }
}

/// When the hour began that this is in.
pub fn hour(at: Timestamp) -> Timestamp {
    let begun = at.as_second().div_euclid(3600) * 3600;
    Timestamp::from_second(begun).unwrap_or(at)
}

/// So many hours before, to the hour.
pub fn hours_before(at: Timestamp, hours: i64) -> Timestamp {
    let then = hour(at);
    then.checked_sub(hours.hours()).unwrap_or(then)
}

#[cfg(test)]
mod tests {
    use domain::{PlanTier, SystemClock};
    use store::testing::on_each_database;

    use super::*;

    #[tokio::test]
    async fn what_is_counted_adds_up_by_tenant_and_provider_and_of_tenants_that_are_gone_nothing_is_kept() {
        on_each_database(|db| async move {
            let tenant =
                async |name| db.store.system().create_tenant(name, PlanTier::Standard).await.unwrap().unwrap().id;
            let (acme, other) = (tenant("acme").await, tenant("other").await);
            let meter = Meter::default();
            for _ in 0..2 {
                meter.count((acme, Provider::Gmail), 3, 1000);
                meter.count((acme, Provider::Outlook), 1, 0);
                meter.count((other, Provider::Gmail), 10, 10);
                meter.count((TenantId::new(&SystemClock), Provider::Gmail), 7, 7);
                meter.write(&db.store).await.unwrap();
                meter.write(&db.store).await.unwrap();
            }

            let since = hours_before(db.store.clock().now(), 1);
            let of_acme = db.store.tenant(acme).sum_usage(since).await.unwrap();
            assert_eq!(of_acme["gmail"], Used { calls: 6, bytes: 2000 });
            assert_eq!(of_acme["outlook"], Used { calls: 2, bytes: 0 });
            let all = db.store.system().sum_usage(since).await.unwrap();
            assert_eq!(all["gmail"], Used { calls: 26, bytes: 2020 });

            let later = db.store.clock().now() + 2.hours();
            assert!(db.store.tenant(acme).sum_usage(later).await.unwrap().is_empty());
            assert!(!db.store.system().prune_usage(later, 100).await.unwrap());
            assert!(db.store.system().sum_usage(since).await.unwrap().is_empty());
        })
        .await;
    }

    #[test]
    fn hours_begin_when_clocks_say_so() {
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        assert_eq!(hour(at("2026-11-16T13:59:59.9Z")), at("2026-11-16T13:00:00Z"));
        assert_eq!(hour(at("1969-12-31T23:30:00Z")), at("1969-12-31T23:00:00Z"));
        assert_eq!(hours_before(at("2026-11-16T13:59:59Z"), 23), at("2026-11-15T14:00:00Z"));
    }
}
