//! The right to list a mailbox, for as long as it is renewed.

use std::sync::Arc;
use std::time::Duration;

use domain::MailboxId;
use jobs::Gate;
use store::failpoint::{self, Guard};
use store::sql::sync::Begun;
use store::{StoreError, TenantStore};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::Desk;

/// Renewed by a task of its own while this lives. What is written in its name carries the token; that is what protects.
#[derive(Debug)]
pub struct Hold {
    pub token: u64,
    renewing: JoinHandle<()>,
    /// Given back with this.
    _turn: Turn,
}

impl Hold {
    /// `None`: somebody else lists it.
    pub async fn take(
        gate: &Arc<dyn Gate>,
        desk: &Desk,
        store: &TenantStore,
        mailbox: MailboxId,
        (holder, lease): (&str, Duration),
    ) -> Result<Option<(Self, Begun)>, StoreError> {
        let name = format!("sync:{mailbox}");
        if !gate.may_try(&name, holder, lease).await {
            return Ok(None);
        }
        let turn = Turn { gate: gate.clone(), name, holder: holder.to_owned() };
        let asked = Instant::now();
        let Some(begun) = desk.begin((store.id, mailbox), holder, lease).await? else { return Ok(None) };
        let renewing = tokio::spawn(renew(store.clone(), mailbox, begun.token, lease, asked));
        Ok(Some((Self { token: begun.token, renewing, _turn: turn }, begun)))
    }

    /// By our own clock the right has run out, or the database said so: time to stop.
    pub fn is_lost(&self) -> bool {
        !failpoint::is_off(Guard::OwnStop) && self.renewing.is_finished()
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.renewing.abort();
    }
}

/// While it lives, others need not ask the database; whatever came of ours.
#[derive(Debug)]
struct Turn {
    gate: Arc<dyn Gate>,
    name: String,
    holder: String,
}

impl Drop for Turn {
    fn drop(&mut self) {
        // Without a runtime the process ends, and the turn runs out by itself.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let (gate, name, holder) =
            (self.gate.clone(), std::mem::take(&mut self.name), std::mem::take(&mut self.holder));
        runtime.spawn(async move { gate.release(&name, &holder).await });
    }
}

/// Ends when the right is lost.
async fn renew(store: TenantStore, mailbox: MailboxId, token: u64, lease: Duration, mut renewed: Instant) {
    while renewed.elapsed() < lease * 2 / 3 {
        tokio::time::sleep(lease / 4).await;
        let asked = Instant::now();
        match store.renew_sync(mailbox, token, lease).await {
            Ok(true) => renewed = asked,
            Ok(false) => return,
            Err(e) => tracing::debug!("cannot renew the right to list a mailbox: {e}"),
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

    /// Only a hang gets there.
    const DEADLINE: Duration = Duration::from_secs(60);

    const LEASE: Duration = Duration::from_secs(60);

    #[derive(Debug, Default)]
    struct Doorman {
        refuses: AtomicBool,
        released: AtomicU32,
    }

    impl Gate for Doorman {
        fn may_try<'a>(&'a self, _: &'a str, _: &'a str, _: Duration) -> BoxFuture<'a, bool> {
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
            provider: Provider::Scripted,
            address: "me@acme.test".into(),
            settings: serde_json::json!({}),
            secret_ref: None,
            since: None,
        });
        unit.commit().await.unwrap();
        (store, id)
    }

    #[tokio::test]
    async fn who_may_not_try_does_not_ask_the_database_and_a_turn_is_given_back_whatever_came_of_it() {
        on_each_database(|db| async move {
            let (store, mailbox) = mailbox(&db).await;
            let doorman = Arc::new(Doorman::default());
            let gate: Arc<dyn Gate> = doorman.clone();
            let desk = Desk::new(db.store.clone());
            let take = || Hold::take(&gate, &desk, &store, mailbox, ("me", LEASE));
            let is_released = async |times| {
                let waiting = async {
                    while doorman.released.load(Ordering::SeqCst) < times {
                        tokio::task::yield_now().await;
                    }
                };
                tokio::time::timeout(DEADLINE, waiting).await.expect("the turn is given back");
            };
            doorman.refuses.store(true, Ordering::SeqCst);
            assert!(take().await.unwrap().is_none());
            doorman.refuses.store(false, Ordering::SeqCst);

            let (hold, _) = take().await.unwrap().unwrap();
            assert_eq!(hold.token, 1, "the database was asked for the first time");
            assert_eq!(doorman.released.load(Ordering::SeqCst), 0);
            // The gate says yes, the database no.
            assert!(take().await.unwrap().is_none());
            is_released(1).await;
            drop(hold);
            is_released(2).await;
        })
        .await;
    }
}
