//! `mailroom bench poll`: how long a poll of many mailboxes takes in which nothing is new, and what waiting for them costs.
//!
//! The providers are a process of their own, and so is what connects the mailboxes, so that only polling is measured.

mod providers;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use domain::SystemRandom;
use domain::TenantId;
use engine::Engine;
use engine::sync::schedule::{self, PollIntervals};
use serde_json::{Value, json};
use store::{bench, scratch};
use terminal::{Failure, Output, count, note, process};

use self::providers::{PollProviders, wait_until_idle};
use super::{number, scratch_folder};
use crate::Installation;
use crate::installation::migrate;

/// How often mailboxes are polled: longer than a round takes.
const POLL_INTERVAL: Duration = Duration::from_secs(3600);

/// How often the scheduler runs, as in `serve`.
const SCHEDULER_INTERVAL: Duration = Duration::from_secs(1);

/// How long the cost of waiting is measured.
const IDLE_DURATION: Duration = Duration::from_secs(20);

#[derive(Debug, Args)]
pub struct PollArgs {
    #[arg(long, default_value_t = 10_000, value_name = "N")]
    pub mailboxes: usize,
    /// Tenants that they are spread over
    #[arg(long, default_value_t = 200, value_name = "N")]
    pub tenants: usize,
    /// What each provider allows
    #[arg(long, default_value_t = 150, value_name = "N", conflicts_with = "unlimited")]
    pub calls_per_second: u64,
    /// As many calls as can be made
    #[arg(long)]
    pub unlimited: bool,
    /// All mailboxes at Gmail, instead of half of them at Outlook
    #[arg(long)]
    pub one_provider: bool,
    /// One tenant has nine of ten mailboxes; how much longer the others wait for it
    #[arg(long)]
    pub one_large_tenant: bool,
    /// How far away the providers are
    #[arg(long, default_value_t = 20, value_name = "N")]
    pub latency_ms: u64,
    /// Mailboxes that are looked at at the same time
    #[arg(long, default_value_t = 500, value_name = "N")]
    pub in_flight: usize,
    /// How often each is looked at
    #[arg(long, default_value_t = 3, value_name = "N")]
    pub rounds: usize,
    /// Also measure on this PostgreSQL server, in a temporary database
    #[arg(long, value_name = "URL")]
    pub postgres: Option<String>,
    /// Connect the mailboxes at this simulator and do nothing else; the benchmark starts itself for that
    #[arg(long, hide = true, requires = "folder", value_name = "URL")]
    pub prepare: Option<String>,
    #[arg(long, hide = true, value_name = "DIR")]
    pub folder: Option<PathBuf>,
}

pub async fn run(args: &PollArgs, installation: &dyn Installation, out: Output) -> Result<ExitCode, Failure> {
    if let (Some(url), Some(folder)) = (&args.prepare, &args.folder) {
        let mailboxes = providers::prepare(args, installation, url, folder).await?;
        return out.object(&json!({ "mailboxes": mailboxes })).map(|()| ExitCode::SUCCESS);
    }
    let folder = scratch_folder()?;
    let providers = PollProviders::start(args)?;
    let mut figures = vec![measure(args, installation, &providers, folder.path(), None).await?];
    if let Some(server) = &args.postgres {
        let url = scratch::create_database(server).await?;
        let folder = folder.path().join("postgres");
        let measured = measure(args, installation, &providers, &folder, Some(&url)).await;
        scratch::drop_database(server, &url).await?;
        figures.push(measured?);
    }
    show(args, &figures, out)?;
    Ok(ExitCode::SUCCESS)
}

fn show(args: &PollArgs, figures: &[Value], out: Output) -> Result<(), Failure> {
    let budget = (!args.unlimited).then_some(args.calls_per_second);
    if out.json {
        return out.object(&json!({
            "mailboxes": args.mailboxes, "tenants": args.tenants, "latency_ms": args.latency_ms,
            "calls_per_second": budget, "one_provider": args.one_provider,
            "one_large_tenant": args.one_large_tenant, "databases": figures,
        }));
    }
    let mix = if args.one_provider { "all at Gmail" } else { "half at Gmail, half at Outlook" };
    let large = if args.one_large_tenant { ", of which one has nine of ten" } else { "" };
    let tenants = format!("{} tenants{large}", count(args.tenants as u64));
    let limit = budget.map_or_else(|| "without a budget".to_owned(), |calls| format!("{calls} calls/s per provider"));
    let mailboxes = count(args.mailboxes as u64);
    out.line(&format!("{mailboxes} mailboxes of {tenants}, {mix}, {} ms away, with nothing new,", args.latency_ms))?;
    out.line(&format!("{limit}, at most {} at a time; the middle of {} rounds:", args.in_flight, args.rounds.max(1)))?;
    let rows: Vec<[String; 7]> = figures
        .iter()
        .map(|figure| {
            [
                figure["database"].as_str().unwrap_or_default().to_owned(),
                format!("{:.1} s", number(figure, "round_seconds")),
                count(number(figure, "polls_per_second") as u64),
                format!("{:.2}", number(figure, "calls_per_poll")),
                format!("{:.0} %", number(figure, "round_cpu_percent")),
                format!("{:.1} %", number(figure, "idle_cpu_percent")),
                format!("{:.0} MB", number(figure, "peak_mb")),
            ]
        })
        .collect();
    let titles =
        ["database", "one round", "polls/s", "calls/poll", "of a core", "waiting, of a core", "memory at most"];
    out.table(titles, &rows)?;
    for figure in figures.iter().filter(|figure| figure["others_alone_seconds"].is_number()) {
        let (alone, beside) = (number(figure, "others_alone_seconds"), number(figure, "others_beside_seconds"));
        out.line(&format!(
            "{}: all mailboxes of the others were looked at after {alone:.1} s alone, {beside:.1} s beside the large tenant ({:.2}×).",
            figure["database"].as_str().unwrap_or_default(),
            beside / alone
        ))?;
    }
    Ok(())
}

async fn measure(
    args: &PollArgs,
    installation: &dyn Installation,
    providers: &PollProviders,
    folder: &Path,
    url: Option<&str>,
) -> Result<Value, Failure> {
    let database = if url.is_some() { "PostgreSQL" } else { "SQLite" };
    let installation = installation.load(None, providers.settings(args, folder, url))?;
    if url.is_some() {
        migrate(&*installation).await?;
    }
    note(&format!("{database}: connecting {} mailboxes …", count(args.mailboxes as u64)));
    providers::prepare_in_child_process(args, providers, folder, url)?;
    let engine = installation.open().await?;
    let syncer = installation.syncer(&engine, "bench")?;
    let worker = installation.start_worker(&syncer, "bench");
    let bench = PollBench { engine: &engine, large_tenant: find_large_tenant(args, &engine).await? };
    note(&format!("{database}: a look at each, to begin with …"));
    bench.poll_once(None).await?;
    providers.count_requests().await?;

    let mut rounds = Vec::new();
    for n in 1..=args.rounds.max(1) {
        let round = bench.poll_once(None).await?;
        note(&format!("{database}: round {n}: {:.1} s, {:.0} % of a core", round.seconds, round.cpu_percent));
        rounds.push(round);
    }
    let requests = providers.count_requests().await?;
    let polls = rounds.iter().map(|round| round.polls).sum::<usize>().max(1) as f64;
    let calls = requests.as_object().into_iter().flatten().filter_map(|(_, n)| n.as_f64()).sum::<f64>();
    rounds.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
    let middle = &rounds[rounds.len() / 2];
    let others_alone = match bench.large_tenant {
        Some(large) => Some(bench.poll_once(Some(large)).await?.others_seconds),
        None => None,
    };
    let idle_cpu = bench.measure_idle().await?;
    worker.shut_down().await;
    Ok(json!({
        "database": database, "round_seconds": middle.seconds, "round_cpu_percent": middle.cpu_percent,
        "polls_per_second": middle.polls as f64 / middle.seconds, "calls_per_poll": calls / polls,
        "others_alone_seconds": others_alone, "others_beside_seconds": middle.others_seconds,
        "requests": requests, "idle_cpu_percent": idle_cpu,
        "peak_mb": process::peak_memory().unwrap_or(0) as f64 / 1e6,
    }))
}

async fn find_large_tenant(args: &PollArgs, engine: &Engine) -> Result<Option<TenantId>, Failure> {
    if !args.one_large_tenant {
        return Ok(None);
    }
    Ok(engine.store.system().find_tenant(providers::LARGE_TENANT_NAME).await?.map(|tenant| tenant.id))
}

/// An installation with connected mailboxes and a running worker.
struct PollBench<'a> {
    engine: &'a Engine,
    large_tenant: Option<TenantId>,
}

/// One poll of every mailbox.
struct PollRound {
    polls: usize,
    seconds: f64,
    cpu_percent: f64,
    /// Time until the last mailbox was polled that is not the large tenant's.
    others_seconds: f64,
}

impl PollBench<'_> {
    /// Polls all mailboxes, except those of one tenant.
    async fn poll_once(&self, except: Option<TenantId>) -> Result<PollRound, Failure> {
        let system = self.engine.store.system();
        let due = bench::make_mailboxes_due(&system, except).await? as usize;
        let (begun, began_at, cpu) = (Instant::now(), system.now().await?, process::own_cpu_seconds());
        let mut enqueued = 0;
        while enqueued < due {
            let intervals = PollIntervals::uniform(POLL_INTERVAL);
            let ticked = schedule::tick(&self.engine.store, &intervals, &SystemRandom).await?;
            enqueued += ticked.mailboxes as usize;
            if ticked.mailboxes == 0 || !ticked.backlogs.is_empty() {
                tokio::time::sleep(SCHEDULER_INTERVAL).await;
            }
        }
        wait_until_idle(self.engine).await?;
        let seconds = begun.elapsed().as_secs_f64();
        let cpu_percent = (process::own_cpu_seconds() - cpu) / seconds * 100.0;
        let mut syncs = bench::list_last_syncs(&system).await?;
        syncs.retain(|(_, at)| *at >= began_at);
        let others = syncs.iter().filter(|(tenant, _)| Some(*tenant) != self.large_tenant);
        let last = others.map(|(_, at)| at.duration_since(began_at).as_secs_f64()).fold(0.0, f64::max);
        if syncs.len() != due {
            return Err(Failure::problem(format!("of {due} mailboxes {} were looked at", syncs.len())));
        }
        Ok(PollRound { polls: syncs.len(), seconds, cpu_percent, others_seconds: last })
    }

    /// Returns the processor time while nothing is due, in percent of a core.
    async fn measure_idle(&self) -> Result<f64, Failure> {
        let (begun, cpu) = (Instant::now(), process::own_cpu_seconds());
        while begun.elapsed() < IDLE_DURATION {
            schedule::tick(&self.engine.store, &PollIntervals::uniform(POLL_INTERVAL), &SystemRandom).await?;
            tokio::time::sleep(SCHEDULER_INTERVAL).await;
        }
        Ok((process::own_cpu_seconds() - cpu) / begun.elapsed().as_secs_f64() * 100.0)
    }
}
