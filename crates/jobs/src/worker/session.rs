//! Registers the worker, renews its lease, and runs everything else while it holds the lease.

use std::sync::Arc;
use std::time::{Duration, Instant};

use domain::redact_for_log;
use store::failpoint::{self, Guard};
use store::{Precondition, StoreError};
use tokio::sync::{Semaphore, mpsc, watch};

use super::{PoolLimits, Session, WorkerContext, back_off, claimer, completer, is_transient, upkeep};
use crate::Pool;

/// Capacity of the completer's queue: several batches, so that no slot waits for a commit.
const COMPLETION_QUEUE_JOBS: usize = 4096;

pub(super) async fn run_sessions(work: WorkerContext, mut stopped: watch::Receiver<bool>) {
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
                tracing::warn!(error = redact_for_log(&e), "cannot register the worker");
                tries += 1;
                tokio::select! {
                    () = back_off(tries, &*work.random) => {}
                    _ = stopped.changed() => {}
                }
            }
        }
    }
}

async fn run_session(work: &WorkerContext, worker: domain::WorkerId, stopped: &mut watch::Receiver<bool>) {
    let (done, completions) = mpsc::channel(COMPLETION_QUEUE_JOBS);
    let session = Arc::new(Session {
        work: work.clone(),
        worker,
        tracked: std::sync::Mutex::default(),
        running: std::sync::Mutex::default(),
        suspect_permits: Arc::new(Semaphore::new(1)),
        done: std::sync::Mutex::new(Some(done)),
        limits: PoolLimits::default(),
    });
    // A task of its own, so that nothing can delay the renewal.
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
        drop(session.done.lock().expect("no thread panics while it holds the sender").take());
        std::future::pending::<()>().await;
    };
    tokio::select! {
        _ = is_lost.changed() => {
            tracing::warn!(worker.id = %worker, "worker lease is lost; its jobs run again elsewhere");
        }
        () = upkeep::run(&session) => {}
        () = pools => {}
        () = completer => {
            if let Err(e) = session.store().system().dismiss_worker(worker).await {
                tracing::warn!(error = redact_for_log(&e), "cannot deregister the worker; its lease will expire");
            }
        }
    }
}

/// Renews the lease until it is lost: the database says so, or two thirds of it passed without an answer.
async fn renew(session: Arc<Session>, lost: watch::Sender<bool>) {
    let lease = session.work.settings.lease;
    // Often, because the answer also lists the jobs to stop.
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
                let mut running = session.running.lock().expect("no thread panics while it holds the list");
                for request in requests {
                    if let Some(stop) = running.remove(&request.id) {
                        let _ = stop.send(request.why); // it may just have ended
                    }
                }
            }
            Ok(Err(StoreError::Precondition(Precondition::WorkerLeaseExpired))) => break,
            Ok(Err(e)) if !is_transient(&e) => {
                tracing::error!(error = redact_for_log(&e), "cannot renew the worker's lease");
            }
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
