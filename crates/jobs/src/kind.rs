//! Job kinds and their handlers.

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
use store::sql::jobs::{ClaimedJob, NewJob, StartTime};
use store::{StorageFault, Store, StoreError, TenantUnit};

use crate::RetryPolicy;

/// A job's payload as a type; its fields are ids. A job may run twice, so its writes must be idempotent or in its unit.
/// A field named `mailbox` is logged as `mailbox.id` when an attempt fails.
pub trait Job: Serialize + DeserializeOwned + Send + 'static {
    const KIND: &'static str;
    const LANE: Lane = Lane::Normal;
}

/// How jobs of a kind run: in which pool, how often again, for how long, and what they do.
pub trait RunnableJob: Job {
    /// What the job works with besides its payload.
    type Services: Clone + Send + Sync + 'static;
    const POOL: Pool = Pool::Io;
    const RETRY: RetryPolicy = RetryPolicy::DEFAULT;
    /// The timeout of an attempt.
    const DEADLINE: Duration = Duration::from_secs(15 * 60);
    /// The timeout of an attempt that reports no progress.
    const PROGRESS_DEADLINE: Duration = Duration::from_secs(5 * 60);

    /// Makes one attempt. It may be repeated after it has succeeded.
    fn run(
        self,
        ctx: JobContext,
        services: Self::Services,
    ) -> impl Future<Output = Result<Completion, JobError>> + Send;
}

/// Makes a job to be enqueued in a unit: due at once, without key, order or parents. Change the fields for more.
pub fn new_job<J: Job>(job: &J, clock: &dyn Clock, traceparent: Option<&str>) -> Result<NewJob, serde_json::Error> {
    Ok(NewJob {
        id: JobId::new(clock),
        kind: J::KIND.to_owned(),
        lane: J::LANE,
        payload: serde_json::to_value(job)?,
        when: StartTime::Now,
        unique: None,
        order_key: None,
        after: Vec::new(),
        traceparent: traceparent.map(str::to_owned),
    })
}

/// Where a job runs. Each pool has its own slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Pool {
    /// Jobs that mostly wait for the database or the disk.
    Io,
    /// Jobs that wait for remote servers, many at once.
    Remote,
    /// Jobs that compute: each gets a thread of its own.
    Cpu,
}

/// The result of a successful attempt.
#[derive(Debug)]
pub enum Completion {
    /// Nothing to write; completed in a batch with others.
    Done,
    /// The handler's writes and follow-up jobs: committed together with the job's completion or not at all.
    Commit(TenantUnit),
    /// The job is parked with this unit until something wakes what is parked on `on`; `reason` is for people. The unit
    /// must check that there is something to wait for: if it is refused, the job is tried again at once.
    Park { unit: TenantUnit, on: String, reason: String },
    /// The job becomes a dead letter with this unit: a retry cannot succeed.
    GiveUp { unit: TenantUnit, class: &'static str, message: String },
}

/// The failure of an attempt.
#[derive(Debug, thiserror::Error)]
pub enum JobError {
    /// Retried by the kind's retry policy. The class is for people and for grouping: `io`, `parse`, `refused`.
    #[error("{message}")]
    Failed { class: &'static str, message: String },
    /// A retry cannot succeed: the job becomes a dead letter at once.
    #[error("{message}")]
    Fatal { class: &'static str, message: String },
    /// The job has to wait for a limit or for a busy server; retried after the delay without spending an attempt.
    #[error("throttled for {0:?}")]
    Deferred(Duration),
    /// The same, for something whose absence people should see.
    #[error("{reason}")]
    Waiting { delay: Duration, reason: String },
    /// Storage failed. If it is certainly to blame, the job waits ever longer and spends no attempt; otherwise it has
    /// failed, unless the owner of the kind finds out that storage takes nothing at all.
    #[error("{message}")]
    Storage { fault: StorageFault, message: String },
}

impl From<anyhow::Error> for JobError {
    fn from(e: anyhow::Error) -> Self {
        let message = format!("{e:#}");
        match storage_fault(&e) {
            Some(fault) => Self::Storage { fault, message },
            None => Self::Failed { class: "error", message },
        }
    }
}

impl From<serde_json::Error> for JobError {
    fn from(e: serde_json::Error) -> Self {
        anyhow::Error::from(e).into()
    }
}

impl From<StoreError> for JobError {
    fn from(e: StoreError) -> Self {
        let message = e.to_string();
        match e.storage_fault() {
            Some(fault) => Self::Storage { fault, message },
            None => Self::Failed { class: "store", message },
        }
    }
}

/// Returns whether storage may be to blame for an error: the store, or a disk.
pub fn storage_fault(e: &anyhow::Error) -> Option<StorageFault> {
    e.chain().find_map(|cause| match cause.downcast_ref::<StoreError>() {
        Some(e) => e.storage_fault(),
        None => cause.is::<std::io::Error>().then_some(StorageFault::Possible),
    })
}

/// A running job, as its handler sees it.
#[derive(Debug, Clone)]
pub struct JobContext {
    pub job: Arc<ClaimedJob>,
    pub store: Store,
    progress: Arc<AtomicU64>,
    guards: Arc<Mutex<Vec<Box<dyn Any + Send>>>>,
}

impl JobContext {
    pub(crate) fn new(job: Arc<ClaimedJob>, store: Store) -> Self {
        Self { job, store, progress: Arc::default(), guards: Arc::default() }
    }

    pub fn tenant(&self) -> TenantId {
        self.job.tenant
    }

    /// Begins a unit for this job's tenant, to be returned as [`Completion::Commit`].
    pub fn write(&self) -> TenantUnit {
        match self.job.tenant {
            TenantId::SYSTEM => self.store.system().write_for(TenantId::SYSTEM),
            tenant => self.store.tenant(tenant).write(),
        }
    }

    /// Makes a job that follows this one, in the same trace.
    pub fn follow_up<J: Job>(&self, job: &J) -> Result<NewJob, serde_json::Error> {
        new_job(job, self.store.clock(), self.job.traceparent.as_deref())
    }

    /// Reports progress: restarts the no-progress timer.
    pub fn report_progress(&self) {
        self.progress.fetch_add(1, Ordering::Relaxed);
    }

    /// Keeps a value (a lease, a permit) until the job is settled, which is after the commit of its unit.
    pub fn hold_until_settled(&self, guard: impl Send + 'static) {
        self.guards.lock().unwrap_or_else(PoisonError::into_inner).push(Box::new(guard));
    }

    pub(crate) fn progress_count(&self) -> u64 {
        self.progress.load(Ordering::Relaxed)
    }
}

type JobHandler = dyn Fn(JobContext) -> BoxFuture<'static, Result<Completion, JobError>> + Send + Sync;

/// A job kind: its handler and how its jobs are run.
#[derive(Clone)]
pub struct JobKind {
    pub name: &'static str,
    pub pool: Pool,
    pub retry: RetryPolicy,
    /// The timeout of an attempt.
    pub deadline: Duration,
    /// The timeout of an attempt that reports no progress.
    pub no_progress: Duration,
    pub(crate) run: Arc<JobHandler>,
}

impl fmt::Debug for JobKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JobKind").field("name", &self.name).finish_non_exhaustive()
    }
}

impl JobKind {
    /// Makes the kind of a job type.
    pub fn of<J: RunnableJob>(services: J::Services) -> Self {
        Self {
            pool: J::POOL,
            retry: J::RETRY,
            deadline: J::DEADLINE,
            no_progress: J::PROGRESS_DEADLINE,
            ..Self::new(move |ctx, job: J| job.run(ctx, services.clone()))
        }
    }

    /// Makes a kind with default settings. `handler` gets the typed payload; a payload that does not parse is a fatal error.
    pub fn new<J: Job, F>(handler: impl Fn(JobContext, J) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<Completion, JobError>> + Send + 'static,
    {
        Self {
            name: J::KIND,
            pool: Pool::Io,
            retry: RetryPolicy::DEFAULT,
            deadline: Duration::from_secs(15 * 60),
            no_progress: Duration::from_secs(5 * 60),
            run: Arc::new(move |context| match serde_json::from_value::<J>(context.job.payload.clone()) {
                Ok(job) => Box::pin(handler(context, job)),
                Err(e) => {
                    let message = format!("the payload cannot be read by this version: {e}");
                    Box::pin(async move { Err(JobError::Fatal { class: "payload", message }) })
                }
            }),
        }
    }

    pub fn in_pool(self, pool: Pool) -> Self {
        Self { pool, ..self }
    }

    pub fn with_retry(self, retry: RetryPolicy) -> Self {
        Self { retry, ..self }
    }

    pub fn with_timeouts(self, deadline: Duration, no_progress: Duration) -> Self {
        Self { deadline, no_progress, ..self }
    }
}

/// The job kinds that this process can run.
#[derive(Debug, Clone, Default)]
pub struct JobKinds {
    by_name: BTreeMap<&'static str, JobKind>,
}

impl JobKinds {
    #[must_use]
    pub fn with(mut self, kind: JobKind) -> Self {
        self.by_name.insert(kind.name, kind);
        self
    }

    pub fn find(&self, name: &str) -> Option<&JobKind> {
        self.by_name.get(name)
    }

    pub fn names(&self) -> Vec<String> {
        self.by_name.keys().map(|name| (*name).to_owned()).collect()
    }

    pub(crate) fn names_of(&self, pool: Pool) -> Vec<String> {
        self.by_name.values().filter(|kind| kind.pool == pool).map(|kind| kind.name.to_owned()).collect()
    }
}
