//! `mailroom bench jobs`: how many jobs a second go through, how long they wait, and what fairness costs.

use std::collections::HashMap;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use domain::{Clock, JobId, PlanTier, SystemClock, TenantId};
use jobs::probe::Noop;
use jobs::{Kind, Kinds, Settings, SystemDice, Verdict, Worker, new_job};
use serde::Serialize;
use store::sql::jobs::NewJob;
use store::{Location, Store, scratch};

use crate::cli;
use crate::failure::Failure;
use crate::output::{Output, count, tell};

/// Jobs in one unit when many are enqueued.
const BULK: usize = 1000;

const SMALL_TENANTS: usize = 100;

/// Single jobs, one after the other, for the latency of an idle system.
const SINGLES: u64 = 300;

#[derive(Debug, Default, Serialize)]
struct Figures {
    database: &'static str,
    settings: &'static str,
    jobs: usize,
    enqueued_per_second: f64,
    completed_per_second: f64,
    without_fairness_per_second: f64,
    bare_sql_per_second: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    with_pinned_snapshot_per_second: Option<f64>,
    idle_latency_ms: Percentiles,
    mix_per_second: u64,
    mix_wait_big_tenant_ms: Percentiles,
    mix_wait_small_tenants_ms: Percentiles,
}

#[derive(Debug, Default, Clone, Copy, Serialize)]
struct Percentiles {
    p50: f64,
    p95: f64,
    p99: f64,
}

pub async fn run(args: &cli::BenchJobs, out: Output) -> Result<ExitCode, Failure> {
    let folder = tempfile::Builder::new().prefix("mailroom-bench-").tempdir_in(".")?;
    let path = folder.path().join("mailroom.db");
    let sqlite =
        Bench::open("SQLite", "WAL, synchronous=FULL", Location::Sqlite { path, connections: 4 }, args).await?;
    let mut figures = vec![sqlite.measure(None).await?];
    if let Some(server) = &args.postgres {
        let url = scratch::create_database(server).await?;
        let location = Location::Postgres { url: url.clone(), connections: 10 };
        let measured = match Bench::open("PostgreSQL", "synchronous_commit=on", location, args).await {
            Ok(bench) => bench.measure(Some(&url)).await,
            Err(e) => Err(e),
        };
        scratch::drop_database(server, &url).await?;
        figures.push(measured?);
    }
    show(&figures, out)?;
    Ok(ExitCode::SUCCESS)
}

struct Bench<'a> {
    name: &'static str,
    settings: &'static str,
    store: Store,
    big: TenantId,
    small: Vec<TenantId>,
    args: &'a cli::BenchJobs,
}

impl<'a> Bench<'a> {
    async fn open(
        name: &'static str,
        settings: &'static str,
        location: Location,
        args: &'a cli::BenchJobs,
    ) -> Result<Self, Failure> {
        let store = Store::open(&location, Arc::new(SystemClock))?;
        store.migrate().await?;
        let mut tenants = Vec::new();
        for n in 0..=SMALL_TENANTS {
            let tenant = store.system().create_tenant(&format!("tenant {n}"), PlanTier::Standard).await?;
            tenants.extend(tenant.map(|tenant| tenant.id));
        }
        let big = tenants.remove(0);
        if args.finished > 0 {
            tell(&format!("{name}: making {} finished jobs …", count(args.finished)));
            store.system().fill_finished_jobs(big, args.finished).await?;
        }
        Ok(Self { name, settings, store, big, small: tenants, args })
    }

    async fn measure(&self, url: Option<&str>) -> Result<Figures, Failure> {
        let mut figures =
            Figures { database: self.name, settings: self.settings, jobs: self.args.jobs, ..Figures::default() };
        // By turns, and the best of two: a database that flushes in the background spoils any single run.
        for _ in 0..2 {
            best(&mut figures.enqueued_per_second, self.step("enqueue", self.enqueue(self.args.jobs, true)).await?);
            best(&mut figures.completed_per_second, self.step("claim, run, complete", self.drain()).await?);
            self.enqueue(self.args.jobs, false).await?;
            let one_queue = self.step("the same with one queue for all", self.drain()).await?;
            best(&mut figures.without_fairness_per_second, one_queue);
        }
        self.enqueue(self.args.jobs, true).await?;
        figures.bare_sql_per_second = self.step("the same by bare SQL", self.drain_bare()).await?;
        if let Some(url) = url {
            self.enqueue(self.args.jobs, true).await?;
            let pinned = scratch::pin_snapshot(url).await?;
            figures.with_pinned_snapshot_per_second =
                Some(self.step("the same beside an old open transaction", self.drain()).await?);
            drop(pinned);
        }
        figures.idle_latency_ms = self.latency().await?;
        figures.mix_per_second = self.args.rate;
        (figures.mix_wait_big_tenant_ms, figures.mix_wait_small_tenants_ms) = self.mix().await?;
        Ok(figures)
    }

    async fn step(&self, what: &str, work: impl Future<Output = Result<f64, Failure>>) -> Result<f64, Failure> {
        let per_second = work.await?;
        tell(&format!("  {}, {what}: {} a second", self.name, count(per_second as u64)));
        Ok(per_second)
    }

    /// 97 of 100 for the big tenant; all of them when not `skewed`.
    fn owner(&self, n: usize, skewed: bool) -> TenantId {
        if skewed && n % 100 >= 97 { self.small[(n / 100 + n) % self.small.len()] } else { self.big }
    }

    async fn enqueue(&self, jobs: usize, skewed: bool) -> Result<f64, Failure> {
        let mut by_tenant: HashMap<TenantId, Vec<NewJob>> = HashMap::new();
        for n in 0..jobs {
            by_tenant.entry(self.owner(n, skewed)).or_default().push(noop()?);
        }
        let begun = Instant::now();
        for (tenant, mut jobs) in by_tenant {
            while !jobs.is_empty() {
                let mut unit = self.store.tenant(tenant).write();
                unit.enqueue(jobs.split_off(jobs.len().saturating_sub(BULK)));
                unit.commit().await?;
            }
        }
        Ok(jobs as f64 / begun.elapsed().as_secs_f64())
    }

    fn worker(&self, ran: impl Fn(&jobs::Held) + Send + Sync + 'static) -> Worker {
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
            grace: Duration::from_secs(30),
        };
        Worker::start(self.store.clone(), Kinds::default().with(noop), settings, Arc::new(SystemDice))
    }

    /// Everything that waits, by a worker as `serve` runs it.
    async fn drain(&self) -> Result<f64, Failure> {
        self.store.system().analyze().await?;
        let done = Arc::new(AtomicU64::new(0));
        let counter = done.clone();
        let begun = Instant::now();
        let worker = self.worker(move |_| {
            counter.fetch_add(1, Ordering::Relaxed);
        });
        while done.load(Ordering::Relaxed) < self.args.jobs as u64 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        worker.shut_down().await; // when everything is completed and committed
        Ok(self.args.jobs as f64 / begun.elapsed().as_secs_f64())
    }

    /// Claims and completions, one after the other, and nothing else.
    async fn drain_bare(&self) -> Result<f64, Failure> {
        let system = self.store.system();
        let kinds = ["noop".to_owned()];
        let worker = system.register_worker("bench", &kinds, Duration::from_secs(600)).await?;
        let begun = Instant::now();
        let mut done = 0;
        while done < self.args.jobs {
            system.count_arrivals().await?;
            let shares = jobs::fair::plan(&system.list_candidates(&kinds).await?, 500);
            let claimed = system.claim(worker, &shares).await?;
            done += system.finish_done(&claimed, || JobId::new(&SystemClock)).await?.len();
        }
        let seconds = begun.elapsed().as_secs_f64();
        system.dismiss_worker(worker).await?;
        Ok(self.args.jobs as f64 / seconds)
    }

    /// From the commit that enqueues a job to its start, when there is nothing else to do.
    async fn latency(&self) -> Result<Percentiles, Failure> {
        let (started, mut starts) = tokio::sync::mpsc::unbounded_channel();
        let worker = self.worker(move |_| {
            let _ = started.send(Instant::now());
        });
        let mut waits = Vec::new();
        for _ in 0..SINGLES {
            tokio::time::sleep(Duration::from_millis(7)).await;
            let mut unit = self.store.tenant(self.big).write();
            unit.enqueue(vec![noop()?]);
            unit.commit().await?;
            let committed = Instant::now();
            if let Some(start) = starts.recv().await {
                waits.push(start.saturating_duration_since(committed).as_secs_f64() * 1000.0);
            }
        }
        worker.shut_down().await;
        Ok(percentiles(waits))
    }

    /// Jobs keep coming while others run; how long those of the big tenant and of the small ones wait.
    async fn mix(&self) -> Result<(Percentiles, Percentiles), Failure> {
        let waits: Arc<Mutex<(Vec<f64>, Vec<f64>)>> = Arc::default();
        let (seen, big) = (waits.clone(), self.big);
        let worker = self.worker(move |held| {
            let wait = held.job.waited_micros as f64 / 1000.0;
            let mut waits = seen.lock().expect("nobody panics while holding the list");
            if held.tenant() == big { waits.0.push(wait) } else { waits.1.push(wait) }
        });
        let total = self.args.rate * self.args.seconds;
        let begun = Instant::now();
        let mut sent = 0;
        while sent < total {
            tokio::time::sleep(Duration::from_millis(10)).await;
            let due = (begun.elapsed().as_secs_f64() * self.args.rate as f64) as u64;
            let mut by_tenant: HashMap<TenantId, Vec<NewJob>> = HashMap::new();
            for n in sent..due.min(total) {
                by_tenant.entry(self.owner(n as usize, true)).or_default().push(noop()?);
            }
            sent = due.min(total);
            for (tenant, jobs) in by_tenant {
                let mut unit = self.store.tenant(tenant).write();
                unit.enqueue(jobs);
                unit.commit().await?;
            }
        }
        while (waits.lock().expect("nobody panics while holding the list").0.len() as u64) < total * 97 / 100 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        worker.shut_down().await;
        let (big, small) = std::mem::take(&mut *waits.lock().expect("nobody panics while holding the list"));
        Ok((percentiles(big), percentiles(small)))
    }
}

fn best(so_far: &mut f64, now: f64) {
    *so_far = so_far.max(now);
}

fn noop() -> Result<NewJob, Failure> {
    let clock: &dyn Clock = &SystemClock;
    new_job(&Noop {}, clock, None).map_err(|e| Failure::problem(e.to_string()))
}

fn percentiles(mut values: Vec<f64>) -> Percentiles {
    values.sort_by(f64::total_cmp);
    let at = |share: usize| values.get((values.len() * share / 100).min(values.len().saturating_sub(1))).copied();
    let at = |share| at(share).unwrap_or_default();
    Percentiles { p50: at(50), p95: at(95), p99: at(99) }
}

fn show(figures: &[Figures], out: Output) -> Result<(), Failure> {
    if out.json {
        // One object: the figures of each database under its name.
        let all: serde_json::Map<String, serde_json::Value> =
            figures.iter().map(|f| (f.database.to_lowercase(), serde_json::json!(f))).collect();
        return out.object(&all);
    }
    let per_second = |value: f64| count(value as u64);
    let three = |p: Percentiles| format!("{:.1} / {:.1} / {:.1}", p.p50, p.p95, p.p99);
    let rows: Vec<[String; 3]> = figures
        .iter()
        .flat_map(|f| {
            let row = |what: &str, value: String| [format!("{} ({})", f.database, f.settings), what.to_owned(), value];
            let mut rows = vec![
                row("enqueue in bulk, jobs/s", per_second(f.enqueued_per_second)),
                row("claim + run + complete, jobs/s", per_second(f.completed_per_second)),
                row("the same without fairness", per_second(f.without_fairness_per_second)),
                row("the same by bare SQL, one at a time", per_second(f.bare_sql_per_second)),
            ];
            rows.extend(
                f.with_pinned_snapshot_per_second.map(|v| row("the same beside an old snapshot", per_second(v))),
            );
            rows.push(row("enqueue → start when idle, ms p50 / p95 / p99", three(f.idle_latency_ms)));
            rows.push(row(
                &format!("wait at {} jobs/s, big tenant, ms", count(f.mix_per_second)),
                three(f.mix_wait_big_tenant_ms),
            ));
            rows.push(row("the same, small tenants, ms", three(f.mix_wait_small_tenants_ms)));
            rows
        })
        .collect();
    let jobs = figures.first().map_or(0, |f| f.jobs);
    out.line(&format!("{} jobs, 97 of 100 of one tenant, durable:\n", count(jobs as u64)))?;
    out.table(["database", "", ""], &rows)
}
