//! `mailroom bench jobs`: how many jobs a second are done, how long they wait, and what fairness costs.
//!
//! What is compared is measured by turns, in the same run and with the same settings; where a table must be in another
//! state for that, in a database of its own beside the first one.

mod claim_strategies;
mod figures;
mod latency;
mod queue;

use std::path::Path;
use std::process::ExitCode;

use clap::Args;
use store::{Location, bench, scratch};
use terminal::{Failure, Output, count, note};

use super::scratch_folder;
use claim_strategies::ClaimStrategy;
use figures::{JobFigures, ThroughputRounds};
use queue::BenchQueue;

/// Rounds of each measurement; enough for a median, because a database that flushes in the background spoils any single one.
const ROUNDS: usize = 3;

#[derive(Debug, Args)]
pub struct JobsArgs {
    /// Jobs in the backlog; 97 of 100 belong to one tenant, the rest to a hundred others
    #[arg(long, default_value_t = 100_000, value_name = "N")]
    pub jobs: usize,
    /// How many jobs come each second in the sustained mix
    #[arg(long, default_value_t = 2000, value_name = "N")]
    pub rate: u64,
    /// How long the sustained mix goes on
    #[arg(long, default_value_t = 10, value_name = "N")]
    pub seconds: u64,
    /// Measure beside so many finished jobs too, by turns with a database that has none
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub finished: u64,
    /// Also measure on this PostgreSQL server, in temporary databases
    #[arg(long, value_name = "URL")]
    pub postgres: Option<String>,
}

pub async fn run(args: &JobsArgs, out: Output) -> Result<ExitCode, Failure> {
    let folder = scratch_folder()?;
    let mut figures = vec![measure(args, &DatabaseServer::Sqlite(folder.path())).await?];
    if let Some(server) = &args.postgres {
        figures.push(measure(args, &DatabaseServer::Postgres(server)).await?);
    }
    figures::show(&figures, out)?;
    Ok(ExitCode::SUCCESS)
}

/// Where databases are created.
enum DatabaseServer<'a> {
    Sqlite(&'a Path),
    Postgres(&'a str),
}

impl DatabaseServer<'_> {
    fn describe(&self) -> (&'static str, &'static str) {
        match self {
            Self::Sqlite(_) => ("SQLite", "WAL, synchronous=FULL"),
            Self::Postgres(_) => ("PostgreSQL", "synchronous_commit=on"),
        }
    }

    async fn create(&self, name: &str) -> Result<Location, Failure> {
        Ok(match self {
            Self::Sqlite(folder) => Location::Sqlite { path: folder.join(format!("{name}.db")), connections: 4 },
            Self::Postgres(server) => {
                Location::Postgres { url: scratch::create_database(server).await?, connections: 10 }
            }
        })
    }

    async fn drop_database(&self, location: &Location) -> Result<(), Failure> {
        if let (Self::Postgres(server), Location::Postgres { url, .. }) = (self, location) {
            scratch::drop_database(server, url).await?;
        }
        Ok(())
    }
}

async fn measure(args: &JobsArgs, server: &DatabaseServer<'_>) -> Result<JobFigures, Failure> {
    let names = if args.finished > 0 { &["plain", "floods", "finished"][..] } else { &["plain", "floods"] };
    let mut locations = Vec::new();
    let mut created = Ok(());
    for name in names {
        match server.create(name).await {
            Ok(location) => locations.push(location),
            Err(e) => created = Err(e),
        }
    }
    let measured = match created {
        Ok(()) => measure_in(args, server, &locations).await,
        Err(e) => Err(e),
    };
    for location in &locations {
        server.drop_database(location).await?;
    }
    measured
}

async fn measure_in(
    args: &JobsArgs,
    server: &DatabaseServer<'_>,
    locations: &[Location],
) -> Result<JobFigures, Failure> {
    let (database, settings) = server.describe();
    let [plain, floods, ..] = locations else { return Err(Failure::problem("too few databases")) };
    let queue = BenchQueue::open(plain, args.jobs).await?;
    note(&format!("{database}: two tenants with {} jobs each that may not run …", count(args.jobs as u64)));
    let floods = BenchQueue::open(floods, args.jobs).await?.flood().await?;
    let finished = match locations.get(2) {
        Some(location) => {
            note(&format!("{database}: {} finished jobs …", count(args.finished)));
            let queue = BenchQueue::open(location, args.jobs).await?;
            queue.fill_history(args.finished).await?;
            Some(queue)
        }
        None => None,
    };
    let mut rounds = ThroughputRounds::default();
    for n in 0..ROUNDS {
        note(&format!("{database}, round {} of {ROUNDS}:", n + 1));
        measure_round(n, &queue, &floods, finished.as_ref(), &mut rounds).await?;
    }
    if let Location::Postgres { url, .. } = plain {
        queue.enqueue().await?;
        let pinned = bench::pin_snapshot(url).await?;
        rounds.with_pinned_snapshot.add(queue.drain_by_worker().await?);
        drop(pinned);
    }
    let idle_latency_ms = latency::measure_idle(&queue).await?;
    let (big, small) = latency::measure_mix(&queue, args.rate, args.seconds).await?;
    Ok(JobFigures {
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

/// Measures everything once; every other round in reverse order, so that no measurement always comes first.
async fn measure_round(
    n: usize,
    queue: &BenchQueue,
    floods: &BenchQueue,
    finished: Option<&BenchQueue>,
    rounds: &mut ThroughputRounds,
) -> Result<(), Failure> {
    let is_reversed = n % 2 == 1;
    let mut by_worker: Vec<(Option<&BenchQueue>, bool)> = vec![(Some(queue), false), (finished, true)];
    let mut strategies = [
        (queue, ClaimStrategy::Fair),
        (queue, ClaimStrategy::Fifo),
        (queue, ClaimStrategy::Bare),
        (floods, ClaimStrategy::Fair),
    ];
    if is_reversed {
        by_worker.reverse();
        strategies.reverse();
    }
    for (queue, has_history) in by_worker {
        let Some(queue) = queue else { continue };
        if !has_history {
            bench::truncate_finished_jobs(&queue.store.system()).await?;
        }
        let enqueued = queue.enqueue().await?;
        let completed = queue.drain_by_worker().await?;
        if has_history {
            rounds.beside_finished.add(announce("worker, beside finished jobs", completed));
        } else {
            rounds.enqueued.add(announce("enqueue", enqueued));
            rounds.worker.add(announce("worker", completed));
        }
    }
    for (queue, strategy) in strategies {
        bench::truncate_finished_jobs(&queue.store.system()).await?;
        let per_second = claim_strategies::drain(queue, strategy).await?;
        match (strategy, queue.has_floods) {
            (ClaimStrategy::Fair, false) => rounds.fair.add(announce("fair", per_second)),
            (ClaimStrategy::Fair, true) => rounds.beside_floods.add(announce("fair, beside floods", per_second)),
            (ClaimStrategy::Fifo, _) => rounds.fifo.add(announce("FIFO", per_second)),
            (ClaimStrategy::Bare, _) => rounds.bare.add(announce("bare SQL", per_second)),
        }
    }
    Ok(())
}

/// Prints a rate as soon as it is measured.
fn announce(what: &str, per_second: f64) -> f64 {
    note(&format!("  {what}: {} a second", count(per_second as u64)));
    per_second
}
