//! Registers, keeps the lease, and runs everything else while it holds.

use std::sync::Arc;
use std::time::{Duration, Instant};

use store::StoreError;
use store::failpoint::{self, Guard};
use store::sql::jobs::LEASE_LOST;
use tokio::sync::{Semaphore, mpsc, watch};

use super::{Limits, Session, Work, claimer, completer, is_passing, pause, upkeep};
use crate::Pool;

/// Completions on their way: enough for several batches, so that nobody waits for a commit to begin the next job.
const WAITING_COMPLETIONS: usize = 4096;

pub(super) async fn run_sessions(work: Work, mut stopped: watch::Receiver<bool>) {
    let mut tries = 0;
    while !*stopped.borrow() && stopped.has_changed().is_ok() {
        let kinds = work.kinds.names();
        let settings = &work.settings;
        match work.store.system().register_worker(&settings.name, &kinds, settings.lease).await {
            Ok(worker) => {
                tries = 0;
                run_session(&work, worker, &mut stopped).await;
            }
            Err(e) => {
                tracing::warn!("cannot begin to work: {e}");
                tries += 1;
                tokio::select! {
                    () = pause(tries, &*work.dice) => {}
                    _ = stopped.changed() => {}
                }
            }
        }
    }
}

async fn run_session(work: &Work, worker: domain::WorkerId, stopped: &mut watch::Receiver<bool>) {
    let (done, completions) = mpsc::channel(WAITING_COMPLETIONS);
    let session = Arc::new(Session {
        work: work.clone(),
        worker,
        held: std::sync::Mutex::default(),
        running: std::sync::Mutex::default(),
        suspects: Arc::new(Semaphore::new(1)),
        done: std::sync::Mutex::new(Some(done)),
        limits: Limits::default(),
    });
    // A task of its own, so that nothing else can keep it from renewing.
    let (lost, mut is_lost) = watch::channel(false);
    let mut renewing = tokio::task::JoinSet::new();
    renewing.spawn(renew(session.clone(), lost));
    let completer = completer::run(session.clone(), completions);
    let pools = async {
        tokio::join!(
            claimer::run(&session, Pool::Io, work.settings.io_slots, stopped.clone()),
            claimer::run(&session, Pool::Cpu, work.settings.cpu_slots, stopped.clone()),
            claimer::run(&session, Pool::Remote, work.settings.remote_slots, stopped.clone()),
        );
        // The completer ends when it has completed everything.
        drop(session.done.lock().expect("nobody panics while holding it").take());
        std::future::pending::<()>().await;
    };
    tokio::select! {
        _ = is_lost.changed() => {
            tracing::warn!(%worker, "the lease is lost; what ran here is given up and begun again elsewhere");
        }
        () = upkeep::run(&session) => {}
        () = pools => {}
        () = completer => {
            if let Err(e) = session.store().system().dismiss_worker(worker).await {
                tracing::warn!("cannot sign off: {e}; what is left comes back when the lease runs out");
            }
        }
    }
}

/// Ends when the lease is lost: the database says so, or two thirds of it went by without an answer.
async fn renew(session: Arc<Session>, lost: watch::Sender<bool>) {
    let lease = session.work.settings.lease;
    // Often, because the answer also tells what is to be stopped.
    let every = (lease / 4).min(session.work.settings.poll);
    let mut renewed = Instant::now();
    loop {
        tokio::time::sleep(every).await;
        let left = (lease * 2 / 3).saturating_sub(renewed.elapsed());
        let asked = Instant::now();
        match tokio::time::timeout(
            left.max(Duration::from_millis(1)),
            session.store().system().renew_worker(session.worker, lease),
        )
        .await
        {
            Ok(Ok(requests)) => {
                renewed = asked;
                let mut running = session.running.lock().expect("nobody panics while holding the list");
                for request in requests {
                    if let Some(stop) = running.remove(&request.id) {
                        let _ = stop.send(request.why); // it may just have ended
                    }
                }
            }
            Ok(Err(StoreError::Precondition(LEASE_LOST))) => break,
            Ok(Err(e)) if !is_passing(&e) => tracing::error!("cannot renew the lease: {e}"),
            Ok(Err(_)) | Err(_) => {}
        }
        if renewed.elapsed() >= lease * 2 / 3 {
            break;
        }
    }
    if failpoint::is_off(Guard::OwnStop) {
        std::future::pending::<()>().await;
    }
    lost.send_replace(true);
}
