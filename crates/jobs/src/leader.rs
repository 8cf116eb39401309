//! One of many acts for all: who holds a lease works, the others wait for it.
//!
//! The lease is renewed by a task of its own, so that long work does not cost it. A leader that cannot renew stops by the
//! monotonic clock at two thirds of the lease, before anybody else can begin; and whatever it still writes carries the
//! lease's token (P5), so that even one that stopped to exist for a while and comes back harms nothing.

use std::sync::Arc;
use std::time::Duration;

use store::Store;
use store::sql::schedules::LeaseToken;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until};

use crate::Gate;

/// So that a new leader is there within 15 s of the death of the old one: the lease, and a third of it between tries.
pub const LEASE: Duration = Duration::from_secs(10);

/// Whom to be elected as, and what for.
#[derive(Debug, Clone)]
pub struct Election {
    /// The lease's name, such as `scheduler`.
    pub name: String,
    /// Different for every process.
    pub holder: String,
    pub lease: Duration,
    /// Asked before the database.
    pub gate: Arc<dyn Gate>,
}

/// The right to act, for as long as it lasts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leadership {
    pub name: String,
    pub token: u64,
}

impl Leadership {
    /// For [`store::TenantUnit::guard_lease`] and everything else that writes in the leader's name.
    pub fn token(&self) -> LeaseToken<'_> {
        LeaseToken { name: &self.name, token: self.token }
    }
}

/// Runs `work` whenever this process is the leader, until `stop` ends. The work is dropped where it stands when the lease
/// is lost; when it ends by itself, the lease is given up and asked for again.
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
            token = elected(store, election) => token,
        };
        tracing::info!(lease.token = token, "{} leads as {}", election.holder, election.name);
        let leadership = Leadership { name: election.name.clone(), token };
        let renewing = Renewing::start(store, election, token);
        let is_stopped = tokio::select! {
            () = &mut stop => true,
            () = renewing.lost() => {
                tracing::warn!("{} has lost the lease {}", election.holder, election.name);
                false
            }
            () = work(leadership) => false,
        };
        drop(renewing);
        if let Err(e) = store.system().release_lease(&election.name, &election.holder, token).await {
            tracing::debug!("the lease {} runs out by itself: {e}", election.name);
        }
        election.gate.release(&election.name, &election.holder).await;
        if is_stopped {
            return;
        }
        // Others get their turn.
        sleep(pause(election)).await;
    }
}

/// Waits until the lease is ours.
async fn elected(store: &Store, election: &Election) -> u64 {
    let Election { name, holder, lease, gate } = election;
    loop {
        if !gate.may_try(name, holder, *lease).await {
            sleep(pause(election)).await;
            continue;
        }
        match store.system().acquire_lease(name, holder, *lease).await {
            Ok(Some(token)) => return token,
            Ok(None) => {}
            Err(e) => tracing::warn!("cannot ask for the lease {name}: {e}"),
        }
        sleep(pause(election)).await;
    }
}

fn pause(election: &Election) -> Duration {
    election.lease / 3
}

/// The task that renews, for as long as this lives.
struct Renewing {
    task: JoinHandle<()>,
    /// Until when we may act.
    until: watch::Receiver<Instant>,
}

impl Renewing {
    fn start(store: &Store, election: &Election, token: u64) -> Self {
        // What passed since the lease was asked for is at most a round trip; a third of the lease is room enough for it.
        let (sender, until) = watch::channel(good_until(Instant::now(), election));
        let task = tokio::spawn(renew(store.clone(), election.clone(), token, sender));
        Self { task, until }
    }

    /// Ends when it is time to stop.
    async fn lost(&self) {
        let mut changes = self.until.clone();
        loop {
            let until = *changes.borrow_and_update();
            tokio::select! {
                () = sleep_until(until) => return,
                // Ends with the task as well, and then there is nothing to wait for but the time.
                Ok(()) = changes.changed() => {}
            }
        }
    }
}

impl Drop for Renewing {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn renew(store: Store, election: Election, token: u64, until: watch::Sender<Instant>) {
    let Election { name, holder, lease, .. } = &election;
    let mut wait = pause(&election);
    loop {
        sleep(wait).await;
        let asked = Instant::now();
        wait = pause(&election);
        match store.system().renew_lease(name, holder, token, *lease).await {
            Ok(true) => drop(until.send_replace(good_until(asked, &election))),
            Ok(false) => {
                until.send_replace(asked);
                return;
            }
            Err(e) => {
                tracing::warn!("cannot renew the lease {name}: {e}");
                wait = pause(&election) / 4; // there is little time left
            }
        }
    }
}

/// Counted from when the renewal was asked for, which is before it counts in the database.
fn good_until(asked: Instant, election: &Election) -> Instant {
    asked + election.lease * 2 / 3
}
