//! What kinds of work there are, and what a handler sees of a job.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use domain::{Clock, JobId, Lane, TenantId};
use futures_util::future::BoxFuture;
use serde::Serialize;
use serde::de::DeserializeOwned;
use store::sql::jobs::{Claimed, NewJob, When};
use store::{Store, TenantUnit};

use crate::Retry;

/// A piece of work as a type; its fields are ids. It may run twice, so its writes must bear that or be in its unit.
pub trait Job: Serialize + DeserializeOwned + Send + 'static {
    const KIND: &'static str;
    const LANE: Lane = Lane::Normal;
}

/// A job to be enqueued as part of a unit: as soon as may be, and bound to nothing. Change the fields for more.
pub fn new_job<J: Job>(job: &J, clock: &dyn Clock, traceparent: Option<&str>) -> Result<NewJob, serde_json::Error> {
    Ok(NewJob {
        id: JobId::new(clock),
        kind: J::KIND.to_owned(),
        lane: J::LANE,
        payload: serde_json::to_value(job)?,
        when: When::Now,
        unique: None,
        order_key: None,
        after: Vec::new(),
        traceparent: traceparent.map(str::to_owned),
    })
}

/// Where it runs: work that mostly waits, work that waits for somebody far away and of which there is much at once, or work
/// that computes and gets a thread of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Pool {
    Io,
    Remote,
    Cpu,
}

/// What a handler says when all went well.
#[derive(Debug)]
pub enum Verdict {
    /// Nothing to write; completed together with others.
    Done,
    /// What it wrote, and what it enqueued: committed with the completion or not at all.
    Commit(TenantUnit),
}

#[derive(Debug, thiserror::Error)]
pub enum JobError {
    /// Tried again by the kind's rule. The class is for people and for grouping: `io`, `parse`, `refused`.
    #[error("{message}")]
    Failed { class: &'static str, message: String },
    /// Trying again is of no use.
    #[error("{message}")]
    Fatal { class: &'static str, message: String },
    /// Somebody else is busy; spends no attempt.
    #[error("throttled for {0:?}")]
    Throttled(Duration),
}

impl From<anyhow::Error> for JobError {
    fn from(e: anyhow::Error) -> Self {
        Self::Failed { class: "error", message: format!("{e:#}") }
    }
}

impl From<store::StoreError> for JobError {
    fn from(e: store::StoreError) -> Self {
        Self::Failed { class: "store", message: e.to_string() }
    }
}

/// A job while it runs, as its handler sees it.
#[derive(Debug, Clone)]
pub struct Held {
    pub job: Arc<Claimed>,
    pub store: Store,
    progress: Arc<AtomicU64>,
    kept: Arc<Mutex<Vec<Box<dyn Any + Send>>>>,
}

impl Held {
    pub(crate) fn new(job: Arc<Claimed>, store: Store) -> Self {
        Self { job, store, progress: Arc::default(), kept: Arc::default() }
    }

    pub fn tenant(&self) -> TenantId {
        self.job.tenant
    }

    /// A unit for this job's tenant, to be returned as [`Verdict::Commit`].
    pub fn write(&self) -> TenantUnit {
        match self.job.tenant {
            TenantId::SYSTEM => self.store.system().write_for(TenantId::SYSTEM),
            tenant => self.store.tenant(tenant).write(),
        }
    }

    /// A job that follows this one, in its trace.
    pub fn follow_up<J: Job>(&self, job: &J) -> Result<NewJob, serde_json::Error> {
        new_job(job, self.store.clock(), self.job.traceparent.as_deref())
    }

    /// Still at it: the no-progress timer begins again.
    pub fn progress(&self) {
        self.progress.fetch_add(1, Ordering::Relaxed);
    }

    /// Dropped when the job has ended, which is after the commit of what it returned.
    pub fn keep(&self, something: impl Send + 'static) {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).push(Box::new(something));
    }

    pub(crate) fn progress_so_far(&self) -> u64 {
        self.progress.load(Ordering::Relaxed)
    }
}

type Run = dyn Fn(Held) -> BoxFuture<'static, Result<Verdict, JobError>> + Send + Sync;

/// How jobs of one kind are run.
#[derive(Clone)]
pub struct Kind {
    pub name: &'static str,
    pub pool: Pool,
    pub retry: Retry,
    /// The longest that an attempt may take.
    pub deadline: Duration,
    /// The longest that it may go without a sign of progress.
    pub no_progress: Duration,
    pub(crate) run: Arc<Run>,
}

impl fmt::Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kind").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Kind {
    /// `handler` gets the typed payload; one that does not parse never reaches it.
    pub fn new<J: Job, F>(handler: impl Fn(Held, J) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<Verdict, JobError>> + Send + 'static,
    {
        let run = move |held: Held| -> BoxFuture<'static, Result<Verdict, JobError>> {
            match serde_json::from_value::<J>(held.job.payload.clone()) {
                Ok(job) => Box::pin(handler(held, job)),
                Err(e) => {
                    let message = format!("the payload is not one of this program's: {e}");
                    Box::pin(async move { Err(JobError::Fatal { class: "payload", message }) })
                }
            }
        };
        Self {
            name: J::KIND,
            pool: Pool::Io,
            retry: Retry::default(),
            deadline: Duration::from_secs(15 * 60),
            no_progress: Duration::from_secs(5 * 60),
            run: Arc::new(run),
        }
    }

    pub fn on(self, pool: Pool) -> Self {
        Self { pool, ..self }
    }

    pub fn retried(self, retry: Retry) -> Self {
        Self { retry, ..self }
    }

    pub fn within(self, deadline: Duration, no_progress: Duration) -> Self {
        Self { deadline, no_progress, ..self }
    }
}

/// What this process can do.
#[derive(Debug, Clone, Default)]
pub struct Kinds {
    by_name: BTreeMap<&'static str, Kind>,
}

impl Kinds {
    #[must_use]
    pub fn with(mut self, kind: Kind) -> Self {
        self.by_name.insert(kind.name, kind);
        self
    }

    pub fn find(&self, name: &str) -> Option<&Kind> {
        self.by_name.get(name)
    }

    pub fn names(&self) -> Vec<String> {
        self.by_name.keys().map(|name| (*name).to_owned()).collect()
    }

    pub(crate) fn names_of(&self, pool: Pool) -> Vec<String> {
        self.by_name.values().filter(|kind| kind.pool == pool).map(|kind| kind.name.to_owned()).collect()
    }
}
