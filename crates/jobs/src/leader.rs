//! Leader election by a lease in the database: the process that holds the lease works, the others wait for it.
//!
//! The lease is renewed by a task of its own, so that long work does not lose it. A leader that cannot renew stops by the
//! monotonic clock at two thirds of the lease, before another can begin; and all its writes carry the lease's fence token
//! (P5), so that even a process that was suspended for a while and wakes up harms nothing.

use std::sync::Arc;
use std::time::Duration;

use domain::redact_for_log;
use store::Store;
use store::sql::schedules::LeaseToken;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until};

use crate::LeaseGate;

/// The default lease: a new leader is elected within 15 s of the death of the old one (the lease, and a third of it between
/// tries).
pub const LEADER_LEASE: Duration = Duration::from_secs(10);

/// A candidacy for a lease.
#[derive(Debug, Clone)]
pub struct Election {
    /// The lease's name, such as `scheduler`.
    pub name: String,
    /// A name for this process that is unique among all.
    pub holder: String,
    pub lease: Duration,
    /// Asked before the database.
    pub gate: Arc<dyn LeaseGate>,
}

/// A held lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leadership {
    pub name: String,
    pub token: u64,
}

impl Leadership {
    /// Returns the fence token, for [`store::TenantUnit::guard_lease`] and every other write as the leader.
    pub fn token(&self) -> LeaseToken<'_> {
        LeaseToken { name: &self.name, token: self.token }
    }
}

/// Runs `work` whenever this process is the leader, until `stop` ends. The work is dropped when the lease is lost; when it
/// ends by itself, the lease is released and acquired again.
pub async fn lead<F: Future<Output = ()>>(
    store: &Store,
    election: &Election,
    stop: impl Future<Output = ()>,
    mut work: impl FnMut(Leadership) -> F,
) {
    tokio::pin!(stop);
    loop {
        let token = tokio::select! {
            () = &mut stop => return,
            token = acquire(store, election) => token,
        };
        tracing::info!(lease = election.name, holder = election.holder, lease.token = token, "became the leader");
        let leadership = Leadership { name: election.name.clone(), token };
        let renewal = LeaseRenewal::start(store, election, token);
        let is_stopped = tokio::select! {
            () = &mut stop => true,
            () = renewal.lost() => {
                tracing::warn!(lease = election.name, holder = election.holder, "lost the lease");
                false
            }
            () = work(leadership) => false,
        };
        drop(renewal);
        if let Err(e) = store.system().release_lease(&election.name, &election.holder, token).await {
            tracing::debug!(
                lease = election.name,
                error = redact_for_log(&e),
                "cannot release the lease; it will expire"
            );
        }
        election.gate.release(&election.name, &election.holder).await;
        if is_stopped {
            return;
        }
        // Other candidates get a chance.
        sleep(retry_delay(election)).await;
    }
}

/// Waits until this process holds the lease; returns its fence token.
async fn acquire(store: &Store, election: &Election) -> u64 {
    let Election { name, holder, lease, gate } = election;
    loop {
        if !gate.may_acquire(name, holder, *lease).await {
            sleep(retry_delay(election)).await;
            continue;
        }
        match store.system().acquire_lease(name, holder, *lease).await {
            Ok(Some(token)) => return token,
            Ok(None) => {}
            Err(e) => tracing::warn!(lease = name, error = redact_for_log(&e), "cannot acquire the lease"),
        }
        sleep(retry_delay(election)).await;
    }
}

fn retry_delay(election: &Election) -> Duration {
    election.lease / 3
}

/// The task that renews a lease; dropping it stops the task.
struct LeaseRenewal {
    task: JoinHandle<()>,
    /// Until when this process may act as the leader.
    until: watch::Receiver<Instant>,
}

impl LeaseRenewal {
    fn start(store: &Store, election: &Election, token: u64) -> Self {
        // The lease was requested at most a round trip ago; the third of it that is not used covers that.
        let (sender, until) = watch::channel(valid_until(Instant::now(), election));
        let task = tokio::spawn(renew(store.clone(), election.clone(), token, sender));
        Self { task, until }
    }

    /// Waits until the lease is lost.
    async fn lost(&self) {
        let mut changes = self.until.clone();
        loop {
            let until = *changes.borrow_and_update();
            tokio::select! {
                () = sleep_until(until) => return,
                // Fails when the task has ended; then only the time remains.
                Ok(()) = changes.changed() => {}
            }
        }
    }
}

impl Drop for LeaseRenewal {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn renew(store: Store, election: Election, token: u64, until: watch::Sender<Instant>) {
    let Election { name, holder, lease, .. } = &election;
    let mut wait = retry_delay(&election);
    loop {
        sleep(wait).await;
        let asked = Instant::now();
        wait = retry_delay(&election);
        match store.system().renew_lease(name, holder, token, *lease).await {
            Ok(true) => drop(until.send_replace(valid_until(asked, &election))),
            Ok(false) => {
                until.send_replace(asked);
                return;
            }
            Err(e) => {
                tracing::warn!(lease = name, error = redact_for_log(&e), "cannot renew the lease");
                wait = retry_delay(&election) / 4; // there is little time left
            }
        }
    }
}

/// Returns until when a lease is safe to use, counted from the request for it, which is before it begins in the database.
fn valid_until(asked: Instant, election: &Election) -> Instant {
    asked + election.lease * 2 / 3
}
