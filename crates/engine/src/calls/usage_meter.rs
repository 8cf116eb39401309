//! Counts the calls and bytes of each tenant at each provider, and writes them now and then, so that people see them
//! wherever the calls were made. A process that dies loses the last seconds.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use domain::{Provider, TenantId};
use jiff::{Timestamp, ToSpan};
use store::sql::usage::{CallUsage, NewUsage};
use store::{Store, StoreError};

#[derive(Debug, Default)]
pub struct UsageMeter(Mutex<HashMap<(TenantId, Provider), CallUsage>>);

impl UsageMeter {
    pub fn count(&self, owner: (TenantId, Provider), calls: u64, bytes: u64) {
        let mut counted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let used = counted.entry(owner).or_default();
        used.calls += calls;
        used.bytes += bytes;
    }

    /// Writes the counts since the last time. What cannot be written is kept for the next time.
    pub async fn write(&self, store: &Store) -> Result<(), StoreError> {
        let counted = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        let hour = hour_start(store.clock().now());
        let usage: Vec<NewUsage> = counted
            .iter()
            .map(|(&(tenant, provider), &used)| NewUsage { tenant, provider, hour, usage: used })
            .collect();
        let written = store.system().add_usage(&usage).await;
        if written.is_err() {
            counted.into_iter().for_each(|(owner, used)| self.count(owner, used.calls, used.bytes));
        }
        written
    }
}

/// Returns the beginning of the hour that contains `at`.
pub fn hour_start(at: Timestamp) -> Timestamp {
    let begun = at.as_second().div_euclid(3600) * 3600;
    Timestamp::from_second(begun).unwrap_or(at)
}

/// Returns the beginning of the hour that is so many hours before `at`.
pub fn hours_before(at: Timestamp, hours: i64) -> Timestamp {
    let then = hour_start(at);
    then.checked_sub(hours.hours()).unwrap_or(then)
}

#[cfg(test)]
mod tests {
    use domain::{PlanTier, SystemClock};
    use store::testing::on_each_database;

    use super::*;

    #[tokio::test]
    async fn usage_adds_up_by_tenant_and_provider() {
        on_each_database(|db| async move {
            let tenant =
                async |name| db.store.system().create_tenant(name, PlanTier::Standard).await.unwrap().unwrap().id;
            let (acme, other) = (tenant("acme").await, tenant("other").await);
            let meter = UsageMeter::default();
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
            assert_eq!(of_acme["gmail"], CallUsage { calls: 6, bytes: 2000 });
            assert_eq!(of_acme["outlook"], CallUsage { calls: 2, bytes: 0 });
            let all = db.store.system().sum_usage(since).await.unwrap();
            assert_eq!(all["gmail"], CallUsage { calls: 26, bytes: 2020 });

            let later = db.store.clock().now() + 2.hours();
            assert!(db.store.tenant(acme).sum_usage(later).await.unwrap().is_empty());
            assert!(!db.store.system().prune_usage(later, 100).await.unwrap());
            assert!(db.store.system().sum_usage(since).await.unwrap().is_empty());
        })
        .await;
    }

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn hours_are_aligned_to_the_clock() {
        assert_eq!(hour_start(at("2026-11-16T13:59:59.9Z")), at("2026-11-16T13:00:00Z"));
        assert_eq!(hour_start(at("1969-12-31T23:30:00Z")), at("1969-12-31T23:00:00Z"));
        assert_eq!(hours_before(at("2026-11-16T13:59:59Z"), 23), at("2026-11-15T14:00:00Z"));
    }
}
