//! Writes the calls and bytes of each tenant at each provider now and then, so that people see them wherever the calls were
//! made. A process that dies loses the last seconds.

use jiff::{Timestamp, ToSpan};
use outbound::Gateway;
use store::sql::usage::{CallUsage, NewUsage};
use store::{Store, StoreError};

/// Writes the usage since the last time. What cannot be written is kept for the next time.
pub async fn write_usage(gateway: &Gateway, store: &Store) -> Result<(), StoreError> {
    let counts = gateway.take_usage();
    let hour = hour_start(store.clock().now());
    let usage: Vec<NewUsage> = counts
        .iter()
        .map(|(&(tenant, provider), count)| {
            let usage = CallUsage { calls: count.calls, bytes: count.bytes };
            NewUsage { tenant, provider, hour, usage }
        })
        .collect();
    let written = store.system().add_usage(&usage).await;
    if written.is_err() {
        gateway.return_usage(counts);
    }
    written
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
    use std::collections::HashMap;

    use domain::{PlanTier, Provider, SystemClock, TenantId};
    use outbound::usage_meter::CallCount;
    use store::testing::on_each_database;

    use super::*;

    #[tokio::test]
    async fn usage_adds_up_by_tenant_and_provider() {
        on_each_database(|db| async move {
            let tenant =
                async |name| db.store.system().create_tenant(name, PlanTier::Standard).await.unwrap().unwrap().id;
            let (acme, other) = (tenant("acme").await, tenant("other").await);
            let meter = Gateway::default();
            for _ in 0..2 {
                meter.return_usage(HashMap::from([
                    ((acme, Provider::Gmail), CallCount { calls: 3, bytes: 1000 }),
                    ((acme, Provider::Outlook), CallCount { calls: 1, bytes: 0 }),
                    ((other, Provider::Gmail), CallCount { calls: 10, bytes: 10 }),
                    ((TenantId::new(&SystemClock), Provider::Gmail), CallCount { calls: 7, bytes: 7 }),
                ]));
                write_usage(&meter, &db.store).await.unwrap();
                write_usage(&meter, &db.store).await.unwrap();
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
