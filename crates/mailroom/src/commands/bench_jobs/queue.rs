//! A database with a backlog: 97 of 100 jobs belong to one tenant, the rest to a hundred others.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use domain::{Clock, PlanTier, SystemClock, TenantId};
use jobs::probe::Noop;
use jobs::{Job, Kind, Kinds, Settings, SystemDice, Verdict, Worker, fair, new_job};
use store::sql::jobs::{Limit, NewJob, Target};
use store::{Location, Store};

use crate::failure::Failure;

/// Jobs in one unit when many are enqueued.
const BULK: usize = 1000;

const SMALL_TENANTS: usize = 100;

/// Longer than any run.
pub const LEASE: Duration = Duration::from_secs(24 * 3600);

pub struct Queue {
    pub store: Store,
    pub big: TenantId,
    small: Vec<TenantId>,
    /// How many jobs a backlog has.
    pub jobs: usize,
    pub has_floods: bool,
}

impl Queue {
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

    /// Two tenants come first, each with as many jobs as the backlog will have: one is paused, one has all running that
    /// it may have.
    pub async fn flood(mut self) -> Result<Self, Failure> {
        let system = self.store.system();
        let [paused, saturated] = [(); 2].map(|()| TenantId::new(&SystemClock));
        self.add((0..self.jobs).map(|_| saturated)).await?;
        system.limit_tenant(saturated, Limit::AtMost(1), Limit::Keep).await?;
        let kinds = [Noop::KIND.to_owned()];
        let worker = system.register_worker("bench", &kinds, LEASE).await?;
        system.count_arrivals().await?;
        let shares = fair::plan(&system.list_candidates(&kinds).await?, 1);
        let held = system.claim(worker, &shares).await?;
        if held.len() != 1 {
            return Err(Failure::problem("the tenant at its limit has nothing running"));
        }
        self.add((0..self.jobs).map(|_| paused)).await?;
        system.pause_jobs(&Target::Tenant(paused)).await?;
        self.has_floods = true;
        Ok(self)
    }

    pub async fn fill_history(&self, jobs: u64) -> Result<(), Failure> {
        Ok(self.store.system().fill_finished_jobs(self.big, jobs).await?)
    }

    pub fn owner(&self, n: usize) -> TenantId {
        if n % 100 >= 97 { self.small[(n / 100 + n) % self.small.len()] } else { self.big }
    }

    /// The backlog; jobs a second.
    pub async fn enqueue(&self) -> Result<f64, Failure> {
        self.add((0..self.jobs).map(|n| self.owner(n))).await
    }

    /// A job for each of these, in bulk.
    async fn add(&self, owners: impl Iterator<Item = TenantId>) -> Result<f64, Failure> {
        let mut by_tenant: HashMap<TenantId, Vec<NewJob>> = HashMap::new();
        for owner in owners {
            by_tenant.entry(owner).or_default().push(noop()?);
        }
        let jobs: usize = by_tenant.values().map(Vec::len).sum();
        let begun = Instant::now();
        for (tenant, mut jobs) in by_tenant {
            while !jobs.is_empty() {
                let mut unit = self.store.system().write_for(tenant);
                unit.enqueue(jobs.split_off(jobs.len().saturating_sub(BULK)));
                unit.commit().await?;
            }
        }
        Ok(jobs as f64 / begun.elapsed().as_secs_f64())
    }

    /// As `serve` has it.
    pub fn worker(&self, ran: impl Fn(&jobs::Held) + Send + Sync + 'static) -> Worker {
        let noop = Kind::new(move |held, _: Noop| {
            ran(&held);
            async { Ok(Verdict::Done) }
        });
        let settings = Settings {
            name: "bench".into(),
            lease: Duration::from_secs(60),
            poll: Duration::from_secs(1),
            io_slots: 16,
            cpu_slots: 2,
            remote_slots: 1,
            grace: Duration::from_secs(30),
        };
        Worker::start(self.store.clone(), Kinds::default().with(noop), settings, Arc::new(SystemDice))
    }

    /// Everything that waits is claimed, run and completed; jobs a second.
    pub async fn drain_by_worker(&self) -> Result<f64, Failure> {
        self.store.system().analyze().await?;
        let done = Arc::new(AtomicU64::new(0));
        let counter = done.clone();
        let begun = Instant::now();
        let worker = self.worker(move |_| {
            counter.fetch_add(1, Ordering::Relaxed);
        });
        while done.load(Ordering::Relaxed) < self.jobs as u64 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        worker.shut_down().await; // when everything is completed and committed
        Ok(self.jobs as f64 / begun.elapsed().as_secs_f64())
    }
}

pub fn noop() -> Result<NewJob, Failure> {
    let clock: &dyn Clock = &SystemClock;
    new_job(&Noop {}, clock, None).map_err(|e| Failure::problem(e.to_string()))
}
