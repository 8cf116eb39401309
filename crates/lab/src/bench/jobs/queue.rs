//! A database with a backlog: 97 of 100 jobs belong to one tenant, the rest to a hundred others.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use domain::{Clock, PlanTier, SystemClock, TenantId};
use jobs::noop::Noop;
use jobs::{Completion, Job, JobKind, JobKinds, SystemRandom, Worker, WorkerSettings, fair, new_job};
use store::sql::jobs::{JobScope, LimitChange, NewJob};
use store::{Location, Store, bench};
use terminal::Failure;

/// Jobs that are enqueued in one unit.
const MAX_ENQUEUE_BATCH: usize = 1000;

const SMALL_TENANTS: usize = 100;

/// A lease that is longer than any run.
pub const LEASE: Duration = Duration::from_secs(24 * 3600);

/// A database with 101 tenants, in which a backlog is enqueued and worked off.
pub struct BenchQueue {
    pub store: Store,
    pub big: TenantId,
    small: Vec<TenantId>,
    /// Number of jobs of a backlog.
    pub jobs: usize,
    pub has_floods: bool,
}

impl BenchQueue {
    pub async fn open(location: &Location, jobs: usize) -> Result<Self, Failure> {
        let store = Store::open(location, Arc::new(SystemClock))?;
        store.migrate().await?;
        let mut tenants = Vec::new();
        for n in 0..=SMALL_TENANTS {
            let tenant = store.system().create_tenant(&format!("tenant {n}"), PlanTier::Standard).await?;
            tenants.extend(tenant.map(|tenant| tenant.id));
        }
        let big = tenants.remove(0);
        Ok(Self { store, big, small: tenants, jobs, has_floods: false })
    }

    /// Adds two tenants ahead of all others, each with as many jobs as the backlog will have: one is paused, one is at its
    /// limit of running jobs.
    pub async fn flood(mut self) -> Result<Self, Failure> {
        let system = self.store.system();
        let [paused, saturated] = [(); 2].map(|()| TenantId::new(&SystemClock));
        self.enqueue_for((0..self.jobs).map(|_| saturated)).await?;
        system.limit_tenant(saturated, LimitChange::AtMost(1), LimitChange::Keep).await?;
        let kinds = [Noop::KIND.to_owned()];
        let worker = system.register_worker("bench", &kinds, LEASE).await?;
        system.count_arrivals().await?;
        let shares = fair::plan_shares(&system.list_queue_candidates(&kinds).await?, 1);
        let claimed = system.claim_jobs(worker, &shares).await?;
        if claimed.len() != 1 {
            return Err(Failure::problem("the tenant at its limit has nothing running"));
        }
        self.enqueue_for((0..self.jobs).map(|_| paused)).await?;
        system.pause_jobs(&JobScope::Tenant(paused)).await?;
        self.has_floods = true;
        Ok(self)
    }

    /// Adds finished jobs, as if they had been done.
    pub async fn fill_history(&self, jobs: u64) -> Result<(), Failure> {
        Ok(bench::insert_finished_jobs(&self.store.system(), self.big, jobs).await?)
    }

    /// Returns the tenant of a job by its number in the backlog.
    pub fn owner(&self, n: usize) -> TenantId {
        if n % 100 >= 97 { self.small[(n / 100 + n) % self.small.len()] } else { self.big }
    }

    /// Enqueues the backlog; returns jobs per second.
    pub async fn enqueue(&self) -> Result<f64, Failure> {
        self.enqueue_for((0..self.jobs).map(|n| self.owner(n))).await
    }

    /// Enqueues a job for each of these tenants, in bulk; returns jobs per second.
    async fn enqueue_for(&self, owners: impl Iterator<Item = TenantId>) -> Result<f64, Failure> {
        let mut by_tenant: HashMap<TenantId, Vec<NewJob>> = HashMap::new();
        for owner in owners {
            by_tenant.entry(owner).or_default().push(noop()?);
        }
        let jobs: usize = by_tenant.values().map(Vec::len).sum();
        let begun = Instant::now();
        for (tenant, mut jobs) in by_tenant {
            while !jobs.is_empty() {
                let mut unit = self.store.system().write_for(tenant);
                unit.enqueue(jobs.split_off(jobs.len().saturating_sub(MAX_ENQUEUE_BATCH)));
                unit.commit().await?;
            }
        }
        Ok(jobs as f64 / begun.elapsed().as_secs_f64())
    }

    /// Starts a worker as `serve` has it, which reports each job that it runs.
    pub fn start_worker(&self, on_run: impl Fn(&jobs::JobContext) + Send + Sync + 'static) -> Worker {
        let noop = JobKind::new(move |context, _: Noop| {
            on_run(&context);
            async { Ok(Completion::Done) }
        });
        let settings = WorkerSettings {
            name: "bench".into(),
            lease: Duration::from_secs(60),
            poll: Duration::from_secs(1),
            io_slots: 16,
            cpu_slots: 2,
            remote_slots: 1,
            grace: Duration::from_secs(30),
        };
        Worker::start(self.store.clone(), JobKinds::default().with(noop), settings, Arc::new(SystemRandom))
    }

    /// Claims, runs and completes the backlog by a worker; returns jobs per second.
    pub async fn drain_by_worker(&self) -> Result<f64, Failure> {
        self.store.system().refresh_statistics().await?;
        let done = Arc::new(AtomicU64::new(0));
        let counter = done.clone();
        let begun = Instant::now();
        let worker = self.start_worker(move |_| {
            counter.fetch_add(1, Ordering::Relaxed);
        });
        while done.load(Ordering::Relaxed) < self.jobs as u64 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        worker.shut_down().await; // when everything is completed and committed
        Ok(self.jobs as f64 / begun.elapsed().as_secs_f64())
    }
}

/// Returns a job that does nothing.
pub fn noop() -> Result<NewJob, Failure> {
    let clock: &dyn Clock = &SystemClock;
    new_job(&Noop {}, clock, None).map_err(|e| Failure::problem(e.to_string()))
}
