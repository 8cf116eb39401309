//! Two calls at once, statement by statement: a test says whose turn it is and sees who waits for whom.
//!
//! The calls are the product's own; only the commit of a unit on PostgreSQL stops before each of its statements and before
//! its end, until the test lets it go on.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use deadpool_postgres::Object;
use tokio::sync::{Mutex, mpsc};
use tokio::task::JoinHandle;

use super::admin_url;
use crate::postgres::{Postgres, error};
use crate::{Location, StoreError};

tokio::task_local! {
    static GATE: Arc<Gate>;
}

/// Where a stepped call waits for its turn.
#[derive(Debug)]
pub(crate) struct Gate {
    turns: Mutex<mpsc::UnboundedReceiver<()>>,
    news: mpsc::UnboundedSender<News>,
}

#[derive(Debug)]
enum News {
    /// A transaction has begun, on this connection of the server.
    Begun(i32),
    /// It waits for its turn.
    AtGate,
}

/// The gate of this call, if it is a stepped one.
pub(crate) fn gate() -> Option<Arc<Gate>> {
    GATE.try_with(Arc::clone).ok()
}

impl Gate {
    pub async fn begun(&self, client: &Object) -> Result<(), StoreError> {
        let rows = client.query_typed("select pg_backend_pid()", &[]).await.map_err(error)?;
        let _ = self.news.send(News::Begun(rows[0].get(0)));
        Ok(())
    }

    pub async fn turn(&self) {
        let _ = self.news.send(News::AtGate);
        // No more turns are given when the test has ended.
        let _ = self.turns.lock().await.recv().await;
    }
}

/// A call under way.
#[derive(Debug)]
pub struct Stepped {
    turns: mpsc::UnboundedSender<()>,
    news: mpsc::UnboundedReceiver<News>,
    call: JoinHandle<()>,
    session: Option<i32>,
    is_under_way: bool,
    has_ended: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// It waits for its turn.
    AtGate,
    /// It waits for a lock that somebody else holds.
    Locked,
    Ended,
}

impl Stepped {
    pub fn start(call: impl Future<Output = ()> + Send + 'static) -> Self {
        let (turns, given) = mpsc::unbounded_channel();
        let (told, news) = mpsc::unbounded_channel();
        let gate = Arc::new(Gate { turns: Mutex::new(given), news: told });
        let call = tokio::spawn(GATE.scope(gate, call));
        Self { turns, news, call, session: None, is_under_way: true, has_ended: false }
    }

    /// Lets it send its next statement, or commit.
    pub fn let_go_on(&mut self) {
        self.is_under_way = true;
        let _ = self.turns.send(());
    }

    /// It stops at no gate any more.
    pub fn set_free(&mut self) {
        for _ in 0..10_000 {
            let _ = self.turns.send(());
        }
    }

    /// Where it stands once it has got as far as it can.
    pub async fn standing(&mut self, watcher: &Watcher) -> Standing {
        loop {
            while let Ok(news) = self.news.try_recv() {
                match news {
                    News::Begun(session) => self.session = Some(session),
                    News::AtGate => self.is_under_way = false,
                }
            }
            if self.has_ended || self.call.is_finished() {
                return self.end().await;
            }
            match self.session {
                _ if !self.is_under_way => return Standing::AtGate,
                Some(session) if watcher.is_locked(session).await => return Standing::Locked,
                _ => tokio::time::sleep(Duration::from_micros(100)).await,
            }
        }
    }

    /// Waits for its end; what it panicked with goes on here.
    pub async fn end(&mut self) -> Standing {
        if !self.has_ended {
            self.has_ended = true;
            if let Err(e) = (&mut self.call).await {
                std::panic::resume_unwind(e.into_panic());
            }
        }
        Standing::Ended
    }
}

/// Sees who waits for a lock.
#[derive(Debug)]
pub struct Watcher {
    client: Object,
}

impl Watcher {
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
