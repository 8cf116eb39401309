//! Steps through concurrent calls, statement by statement: a test decides which goes on and sees which wait for a lock.
//!
//! The calls are the product's own; only the commit of a unit on PostgreSQL stops before each of its statements and before
//! its end, until the test lets it go on.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use deadpool_postgres::Object;
use tokio::sync::{Mutex, mpsc};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::admin_url;
use crate::postgres::{Postgres, error};
use crate::{Location, StoreError};

/// How long a call is silent before the server is asked whether it waits for a lock.
const LOCK_CHECK_DELAY: Duration = Duration::from_millis(1);

tokio::task_local! {
    static GATE: Arc<StepGate>;
}

/// The gate at which a stepped call waits for its next step.
#[derive(Debug)]
pub(crate) struct StepGate {
    permits: Mutex<mpsc::UnboundedReceiver<()>>,
    events: mpsc::UnboundedSender<StepEvent>,
}

#[derive(Debug)]
enum StepEvent {
    /// A transaction has begun, on this connection of the server.
    Begun(i32),
    /// It waits for its next step.
    AtGate,
}

/// Returns the gate of this call, if it is a stepped one.
pub(crate) fn gate() -> Option<Arc<StepGate>> {
    GATE.try_with(Arc::clone).ok()
}

impl StepGate {
    pub async fn begun(&self, client: &Object) -> Result<(), StoreError> {
        let rows = client.query_typed("select pg_backend_pid()", &[]).await.map_err(error)?;
        let _ = self.events.send(StepEvent::Begun(rows[0].get(0)));
        Ok(())
    }

    pub async fn wait_for_turn(&self) {
        let _ = self.events.send(StepEvent::AtGate);
        // No more steps are given when the test has ended.
        let _ = self.permits.lock().await.recv().await;
    }
}

/// A call that runs step by step.
#[derive(Debug)]
pub struct SteppedCall {
    permits: mpsc::UnboundedSender<()>,
    events: mpsc::UnboundedReceiver<StepEvent>,
    call: JoinHandle<()>,
    session: Option<i32>,
    is_running: bool,
    has_ended: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallProgress {
    /// It waits for its next step.
    AtGate,
    /// It waits for a lock that another session holds.
    Locked,
    Ended,
}

impl SteppedCall {
    pub fn start(call: impl Future<Output = ()> + Send + 'static) -> Self {
        let (permits, given) = mpsc::unbounded_channel();
        let (sender, events) = mpsc::unbounded_channel();
        let gate = Arc::new(StepGate { permits: Mutex::new(given), events: sender });
        let call = tokio::spawn(GATE.scope(gate, call));
        Self { permits, events, call, session: None, is_running: true, has_ended: false }
    }

    /// Lets it send its next statement, or commit.
    pub fn step(&mut self) {
        self.is_running = true;
        let _ = self.permits.send(());
    }

    /// Lets it run to its end without stopping.
    pub fn run_freely(&mut self) {
        for _ in 0..10_000 {
            let _ = self.permits.send(());
        }
    }

    /// Returns its progress once it has got as far as it can.
    pub async fn progress(&mut self, watcher: &LockWatcher) -> CallProgress {
        loop {
            if self.has_ended || self.call.is_finished() {
                return self.end().await;
            }
            if !self.is_running && self.events.is_empty() {
                return CallProgress::AtGate;
            }
            match timeout(LOCK_CHECK_DELAY, self.events.recv()).await {
                Ok(Some(StepEvent::Begun(session))) => self.session = Some(session),
                Ok(Some(StepEvent::AtGate)) => self.is_running = false,
                // The call has dropped its gate.
                Ok(None) => return self.end().await,
                // Silence: it computes, or waits for a lock.
                Err(_) => {
                    if let Some(session) = self.session
                        && watcher.is_locked(session).await
                    {
                        return CallProgress::Locked;
                    }
                }
            }
        }
    }

    /// Waits for its end, and resumes its panic.
    pub async fn end(&mut self) -> CallProgress {
        if !self.has_ended {
            self.has_ended = true;
            if let Err(e) = (&mut self.call).await {
                std::panic::resume_unwind(e.into_panic());
            }
        }
        CallProgress::Ended
    }
}

/// Finds sessions that wait for a lock.
#[derive(Debug)]
pub struct LockWatcher {
    client: Object,
}

impl LockWatcher {
    pub async fn of(location: &Location) -> Self {
        let Location::Postgres { url, .. } = location else { panic!("only PostgreSQL has more than one writer") };
        let db = Postgres::open(&admin_url(url), 1).expect("the test server is there");
        Self { client: db.client().await.expect("the test server answers") }
    }

    async fn is_locked(&self, session: i32) -> bool {
        let sql = format!("select cardinality(pg_blocking_pids({session})) > 0");
        let rows = self.client.query_typed(&sql, &[]).await.expect("the test server answers");
        rows[0].get(0)
    }
}
