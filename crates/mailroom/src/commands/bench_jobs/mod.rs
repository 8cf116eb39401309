//! `mailroom bench jobs`: how many jobs a second go through, how long they wait, and what fairness costs.
//!
//! What is compared is measured by turns, in the same run and with the same settings; where a table must be in another
//! state for that, in a database of its own beside the first one.

mod figures;
mod queue;
mod wait;
mod ways;

use std::path::Path;
use std::process::ExitCode;

use figures::{Figures, Rounds};
use queue::Queue;
use store::{Location, scratch};
use ways::Way;

use crate::cli;
use crate::failure::Failure;
use crate::output::{Output, count, tell};

/// Enough for one in the middle: a database that flushes in the background spoils any single one.
const ROUNDS: usize = 3;

pub async fn run(args: &cli::BenchJobs, out: Output) -> Result<ExitCode, Failure> {
    // Not the system's temporary folder: where that is memory, an fsync costs nothing.
    let folder = tempfile::Builder::new().prefix("mailroom-bench-").tempdir_in(".")?;
    let mut figures = vec![measure(args, &Server::Sqlite(folder.path())).await?];
    if let Some(server) = &args.postgres {
        figures.push(measure(args, &Server::Postgres(server)).await?);
    }
    figures::show(&figures, out)?;
    Ok(ExitCode::SUCCESS)
}

/// Where databases are made.
enum Server<'a> {
    Sqlite(&'a Path),
    Postgres(&'a str),
}

impl Server<'_> {
    fn describe(&self) -> (&'static str, &'static str) {
        match self {
            Self::Sqlite(_) => ("SQLite", "WAL, synchronous=FULL"),
            Self::Postgres(_) => ("PostgreSQL", "synchronous_commit=on"),
        }
    }

    async fn make(&self, name: &str) -> Result<Location, Failure> {
        Ok(match self {
            Self::Sqlite(folder) => Location::Sqlite { path: folder.join(format!("{name}.db")), connections: 4 },
            Self::Postgres(server) => {
                Location::Postgres { url: scratch::create_database(server).await?, connections: 10 }
            }
        })
    }

    async fn remove(&self, location: &Location) -> Result<(), Failure> {
        if let (Self::Postgres(server), Location::Postgres { url, .. }) = (self, location) {
            scratch::drop_database(server, url).await?;
        }
        Ok(())
    }
}

async fn measure(args: &cli::BenchJobs, server: &Server<'_>) -> Result<Figures, Failure> {
    let names = if args.finished > 0 { &["plain", "floods", "finished"][..] } else { &["plain", "floods"] };
    let mut locations = Vec::new();
    let mut made = Ok(());
    for name in names {
        match server.make(name).await {
            Ok(location) => locations.push(location),
            Err(e) => made = Err(e),
        }
    }
    let measured = match made {
        Ok(()) => measure_in(args, server, &locations).await,
        Err(e) => Err(e),
    };
    for location in &locations {
        server.remove(location).await?;
    }
    measured
}

async fn measure_in(args: &cli::BenchJobs, server: &Server<'_>, locations: &[Location]) -> Result<Figures, Failure> {
    let (database, settings) = server.describe();
    let [plain, floods, ..] = locations else { return Err(Failure::problem("too few databases")) };
    let queue = Queue::open(plain, args.jobs).await?;
    tell(&format!("{database}: two tenants with {} jobs each that may not run …", count(args.jobs as u64)));
    let floods = Queue::open(floods, args.jobs).await?.flood().await?;
    let finished = match locations.get(2) {
        Some(location) => {
            tell(&format!("{database}: {} finished jobs …", count(args.finished)));
            let queue = Queue::open(location, args.jobs).await?;
            queue.fill_history(args.finished).await?;
            Some(queue)
        }
        None => None,
    };
    let mut rounds = Rounds::default();
    for n in 0..ROUNDS {
        tell(&format!("{database}, round {} of {ROUNDS}:", n + 1));
        round(n, &queue, &floods, finished.as_ref(), &mut rounds).await?;
    }
    if let Location::Postgres { url, .. } = plain {
        queue.enqueue().await?;
        let pinned = scratch::pin_snapshot(url).await?;
        rounds.with_pinned_snapshot.add(queue.drain_by_worker().await?);
        drop(pinned);
    }
    let idle_latency_ms = wait::latency(&queue).await?;
    let (big, small) = wait::mix(&queue, args.rate, args.seconds).await?;
    Ok(Figures {
        database,
        settings,
        jobs: args.jobs,
        finished: args.finished,
        rounds,
        idle_latency_ms,
        mix_per_second: args.rate,
        mix_wait_big_tenant_ms: big,
        mix_wait_small_tenants_ms: small,
    })
}

/// Everything once. Every other time in reverse, so that nobody always comes first.
async fn round(
    n: usize,
    queue: &Queue,
    floods: &Queue,
    finished: Option<&Queue>,
    rounds: &mut Rounds,
) -> Result<(), Failure> {
    let is_reversed = n % 2 == 1;
    let mut by_worker: Vec<(Option<&Queue>, bool)> = vec![(Some(queue), false), (finished, true)];
    let mut ways = [(queue, Way::Fair), (queue, Way::Fifo), (queue, Way::Bare), (floods, Way::Fair)];
    if is_reversed {
        by_worker.reverse();
        ways.reverse();
    }
    for (queue, has_history) in by_worker {
        let Some(queue) = queue else { continue };
        if !has_history {
            queue.store.system().forget_finished_jobs().await?;
        }
        let enqueued = queue.enqueue().await?;
        let completed = queue.drain_by_worker().await?;
        if has_history {
            rounds.beside_finished.add(said("worker, beside finished jobs", completed));
        } else {
            rounds.enqueued.add(said("enqueue", enqueued));
            rounds.worker.add(said("worker", completed));
        }
    }
    for (queue, way) in ways {
        queue.store.system().forget_finished_jobs().await?;
        let per_second = ways::drain(queue, way).await?;
        match (way, queue.has_floods) {
            (Way::Fair, false) => rounds.fair.add(said("fair", per_second)),
            (Way::Fair, true) => rounds.beside_floods.add(said("fair, beside floods", per_second)),
            (Way::Fifo, _) => rounds.fifo.add(said("FIFO", per_second)),
            (Way::Bare, _) => rounds.bare.add(said("bare SQL", per_second)),
        }
    }
    Ok(())
}

fn said(what: &str, per_second: f64) -> f64 {
    tell(&format!("  {what}: {} a second", count(per_second as u64)));
    per_second
}
