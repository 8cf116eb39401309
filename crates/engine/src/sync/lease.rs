//! The lease that allows one holder to list a mailbox.

use std::sync::Arc;
use std::time::Duration;

use domain::{MailboxId, redact_for_log};
use jobs::LeaseGate;
use store::failpoint::{self, Guard};
use store::sql::sync::SyncClaim;
use store::{StoreError, TenantStore};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::StatementBatchers;

/// A lease that a task renews while this value lives. Every write under it checks the fence token; that is what
/// protects.
#[derive(Debug)]
pub struct SyncLease {
    pub token: u64,
    renewing: JoinHandle<()>,
    /// Released with the lease.
    _reservation: GateReservation,
}

impl SyncLease {
    /// Takes the lease of a mailbox. Returns `None` if another holder has it.
    pub async fn acquire(
        gate: &Arc<dyn LeaseGate>,
        statement_batchers: &StatementBatchers,
        store: &TenantStore,
        mailbox: MailboxId,
        (holder, lease): (&str, Duration),
    ) -> Result<Option<(Self, SyncClaim)>, StoreError> {
        let name = format!("sync:{mailbox}");
        if !gate.may_acquire(&name, holder, lease).await {
            return Ok(None);
        }
        let reservation = GateReservation { gate: gate.clone(), name, holder: holder.to_owned() };
        let asked = Instant::now();
        let Some(begun) = statement_batchers.begin_sync((store.id, mailbox), holder, lease).await? else {
            return Ok(None);
        };
        let renewing = tokio::spawn(renew_until_lost(store.clone(), mailbox, begun.token, lease, asked));
        Ok(Some((Self { token: begun.token, renewing, _reservation: reservation }, begun)))
    }

    /// Returns whether the lease has run out, by our own clock or by the database's word: time to stop.
    pub fn is_lost(&self) -> bool {
        !failpoint::is_off(Guard::OwnStop) && self.renewing.is_finished()
    }
}

impl Drop for SyncLease {
    fn drop(&mut self) {
        self.renewing.abort();
    }
}

/// Our reservation at the gate: while it lives, other processes do not ask the database for the lease. Released on drop,
/// whether or not the lease was granted.
#[derive(Debug)]
struct GateReservation {
    gate: Arc<dyn LeaseGate>,
    name: String,
    holder: String,
}

impl Drop for GateReservation {
    fn drop(&mut self) {
        // Without a runtime the process ends, and the reservation expires by itself.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let (gate, name, holder) =
            (self.gate.clone(), std::mem::take(&mut self.name), std::mem::take(&mut self.holder));
        runtime.spawn(async move { gate.release(&name, &holder).await });
    }
}

/// Renews the lease until it is lost.
async fn renew_until_lost(store: TenantStore, mailbox: MailboxId, token: u64, lease: Duration, mut renewed: Instant) {
    while renewed.elapsed() < lease * 2 / 3 {
        tokio::time::sleep(lease / 4).await;
        let asked = Instant::now();
        match store.renew_sync(mailbox, token, lease).await {
            Ok(true) => renewed = asked,
            Ok(false) => return,
            Err(e) => {
                tracing::debug!(tenant.id = %store.id, mailbox.id = %mailbox, error = redact_for_log(&e), "sync lease not renewed");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

    use domain::{PlanTier, Provider, SystemClock};
    use futures_util::future::BoxFuture;
    use store::sql::mailboxes::NewMailbox;
    use store::testing::{TestDatabase, on_each_database};

    use super::*;

    /// Reached only by a hang.
    const DEADLINE: Duration = Duration::from_secs(60);

    const LEASE: Duration = Duration::from_secs(60);

    #[derive(Debug, Default)]
    struct FakeGate {
        refuses: AtomicBool,
        released: AtomicU32,
    }

    impl LeaseGate for FakeGate {
        fn may_acquire<'a>(&'a self, _: &'a str, _: &'a str, _: Duration) -> BoxFuture<'a, bool> {
            Box::pin(async { !self.refuses.load(Ordering::SeqCst) })
        }

        fn release<'a>(&'a self, name: &'a str, holder: &'a str) -> BoxFuture<'a, ()> {
            assert!(name.starts_with("sync:") && holder == "me", "{name} {holder}");
            Box::pin(async {
                self.released.fetch_add(1, Ordering::SeqCst);
            })
        }
    }

    async fn mailbox(db: &TestDatabase) -> (TenantStore, MailboxId) {
        let tenant = db.store.system().create_tenant("acme", PlanTier::Standard).await.unwrap().unwrap();
        let store = db.store.tenant(tenant.id);
        let id = MailboxId::new(&SystemClock);
        let mut unit = store.write();
        unit.add_mailbox(NewMailbox {
            id,
            provider: Provider::Gmail,
            address: "me@acme.test".into(),
            settings: domain::MailboxSettings::default(),
            secret_ref: None,
            since: None,
        });
        unit.commit().await.unwrap();
        (store, id)
    }

    #[tokio::test]
    async fn gate_reservation_is_always_released() {
        on_each_database(|db| async move {
            let (store, mailbox) = mailbox(&db).await;
            let fake = Arc::new(FakeGate::default());
            let gate: Arc<dyn LeaseGate> = fake.clone();
            let statement_batchers = StatementBatchers::new(db.store.clone());
            let acquire = || SyncLease::acquire(&gate, &statement_batchers, &store, mailbox, ("me", LEASE));
            let is_released = async |times| {
                let waiting = async {
                    while fake.released.load(Ordering::SeqCst) < times {
                        tokio::task::yield_now().await;
                    }
                };
                tokio::time::timeout(DEADLINE, waiting).await.expect("the turn is given back");
            };
            fake.refuses.store(true, Ordering::SeqCst);
            assert!(acquire().await.unwrap().is_none());
            fake.refuses.store(false, Ordering::SeqCst);

            let (hold, _) = acquire().await.unwrap().unwrap();
            assert_eq!(hold.token, 1, "the database was asked for the first time");
            assert_eq!(fake.released.load(Ordering::SeqCst), 0);
            // The gate says yes, the database no.
            assert!(acquire().await.unwrap().is_none());
            is_released(1).await;
            drop(hold);
            is_released(2).await;
        })
        .await;
    }
}
