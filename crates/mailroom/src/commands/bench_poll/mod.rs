//! `mailroom bench poll`: how long a look at many mailboxes takes in which nothing is new, and what waiting for them costs.
//!
//! The providers are a process of their own, and so is what connects the mailboxes: what is measured is the looking.

mod world;

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use domain::TenantId;
use engine::Engine;
use engine::schedule::{self, Rhythm, Ticked};
use jobs::SystemDice;
use serde_json::{Value, json};
use store::scratch;

use crate::app;
use crate::cli::bench::BenchPoll;
use crate::failure::Failure;
use crate::output::{Output, count, tell};
use world::{World, until_quiet};

/// How often mailboxes are looked at: longer than a round takes.
const INTERVAL: Duration = Duration::from_secs(3600);

/// How often the calendar is looked at, as in `serve`.
const TICK: Duration = Duration::from_secs(1);

/// How long is measured what waiting costs.
const IDLE: Duration = Duration::from_secs(20);

pub async fn run(args: &BenchPoll, out: Output) -> Result<ExitCode, Failure> {
    app::raise_file_limit();
    if let (Some(url), Some(folder)) = (&args.prepare, &args.folder) {
        let mailboxes = world::prepare(args, url, folder).await?;
        return out.object(&json!({ "mailboxes": mailboxes })).map(|()| ExitCode::SUCCESS);
    }
    // Not the system's temporary folder: where that is memory, an fsync costs nothing.
    let folder = tempfile::Builder::new().prefix("mailroom-bench-").tempdir_in(".")?;
    let world = World::start(args)?;
    let mut figures = vec![measure(args, &world, folder.path(), None).await?];
    if let Some(server) = &args.postgres {
        let url = scratch::create_database(server).await?;
        let measured = measure(args, &world, &folder.path().join("postgres"), Some(&url)).await;
        scratch::drop_database(server, &url).await?;
        figures.push(measured?);
    }
    show(args, &figures, out)?;
    Ok(ExitCode::SUCCESS)
}

fn show(args: &BenchPoll, figures: &[Value], out: Output) -> Result<(), Failure> {
    let budget = (!args.unlimited).then_some(args.calls_per_second);
    if out.json {
        return out.object(&json!({
            "mailboxes": args.mailboxes, "tenants": args.tenants, "latency_ms": args.latency_ms,
            "calls_per_second": budget, "one_provider": args.one_provider,
            "one_large_tenant": args.one_large_tenant, "databases": figures,
        }));
    }
    let mix = if args.one_provider { "all at Gmail" } else { "half at Gmail, half at Outlook" };
    let tenants = match args.one_large_tenant {
        true => format!("{} tenants, of which one has nine of ten", count(args.tenants as u64)),
        false => format!("{} tenants", count(args.tenants as u64)),
    };
    let held = budget.map_or_else(|| "without a budget".to_owned(), |calls| format!("{calls} calls/s per provider"));
    let mailboxes = count(args.mailboxes as u64);
    out.line(&format!("{mailboxes} mailboxes of {tenants}, {mix}, {} ms away, with nothing new,", args.latency_ms))?;
    out.line(&format!("{held}, at most {} at a time; the middle of {} rounds:", args.in_flight, args.rounds.max(1)))?;
    let number = |figure: &Value, key: &str| figure[key].as_f64().unwrap_or(0.0);
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

async fn measure(args: &BenchPoll, world: &World, folder: &Path, url: Option<&str>) -> Result<Value, Failure> {
    let database = if url.is_some() { "PostgreSQL" } else { "SQLite" };
    let config = world.config(args, folder, url)?;
    if url.is_some() {
        app::open_store(&config)?.migrate().await?;
    }
    tell(&format!("{database}: connecting {} mailboxes …", count(args.mailboxes as u64)));
    world::prepare_apart(args, world, folder, url)?;
    let engine = app::open(&config).await?;
    let syncer = app::syncer(&config, &engine, "bench")?;
    let worker = app::start_worker(&config, &syncer, "bench");
    let bench = Bench { engine: &engine, large: large(args, &engine).await? };
    tell(&format!("{database}: a look at each, to begin with …"));
    bench.round(None).await?;
    world.requests().await?;

    let mut rounds = Vec::new();
    for n in 1..=args.rounds.max(1) {
        let round = bench.round(None).await?;
        tell(&format!("{database}: round {n}: {:.1} s, {:.0} % of a core", round.seconds, round.cpu_percent));
        rounds.push(round);
    }
    let requests = world.requests().await?;
    let looks = rounds.iter().map(|round| round.looks).sum::<usize>().max(1) as f64;
    let calls = requests.as_object().into_iter().flatten().filter_map(|(_, n)| n.as_f64()).sum::<f64>();
    rounds.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
    let middle = &rounds[rounds.len() / 2];
    let others_alone = match bench.large {
        Some(large) => Some(bench.round(Some(large)).await?.others_seconds),
        None => None,
    };
    let idle_cpu = bench.wait().await?;
    worker.shut_down().await;
    Ok(json!({
        "database": database, "round_seconds": middle.seconds, "round_cpu_percent": middle.cpu_percent,
        "polls_per_second": middle.looks as f64 / middle.seconds, "calls_per_poll": calls / looks,
        "others_alone_seconds": others_alone, "others_beside_seconds": middle.others_seconds,
        "requests": requests, "idle_cpu_percent": idle_cpu,
        "peak_mb": super::import::peak_memory().unwrap_or(0) as f64 / 1e6,
    }))
}

async fn large(args: &BenchPoll, engine: &Engine) -> Result<Option<TenantId>, Failure> {
    if !args.one_large_tenant {
        return Ok(None);
    }
    Ok(engine.store.system().find_tenant(world::LARGE).await?.map(|tenant| tenant.id))
}

/// What was prepared, while somebody works on it.
struct Bench<'a> {
    engine: &'a Engine,
    large: Option<TenantId>,
}

/// One look at every mailbox.
struct Round {
    looks: usize,
    seconds: f64,
    cpu_percent: f64,
    /// Until the last mailbox was looked at that is not the large tenant's.
    others_seconds: f64,
}

impl Bench<'_> {
    /// All but one tenant's.
    async fn round(&self, but: Option<TenantId>) -> Result<Round, Failure> {
        let system = self.engine.store.system();
        let due = system.make_mailboxes_due(but).await? as usize;
        let (begun, began_at, cpu) = (Instant::now(), system.now().await?, cpu_seconds());
        let mut asked = 0;
        while asked < due {
            match schedule::tick(&self.engine.store, &Rhythm::even(INTERVAL), &SystemDice).await? {
                Ticked::Asked { mailboxes, .. } if mailboxes > 0 => asked += mailboxes as usize,
                ticked => {
                    if let Ticked::Slowed { mailboxes, .. } = ticked {
                        asked += mailboxes as usize;
                    }
                    tokio::time::sleep(TICK).await;
                }
            }
        }
        until_quiet(self.engine).await?;
        let seconds = begun.elapsed().as_secs_f64();
        let cpu_percent = (cpu_seconds() - cpu) / seconds * 100.0;
        let looks = system.list_last_looks().await?;
        let since: Vec<_> = looks.into_iter().filter(|(_, at)| *at >= began_at).collect();
        let others = since.iter().filter(|(tenant, _)| Some(*tenant) != self.large);
        let last = others.map(|(_, at)| at.duration_since(began_at).as_secs_f64()).fold(0.0, f64::max);
        if since.len() != due {
            return Err(Failure::problem(format!("of {due} mailboxes {} were looked at", since.len())));
        }
        Ok(Round { looks: since.len(), seconds, cpu_percent, others_seconds: last })
    }

    /// What it costs when nothing is due, in percent of a core.
    async fn wait(&self) -> Result<f64, Failure> {
        let (begun, cpu) = (Instant::now(), cpu_seconds());
        while begun.elapsed() < IDLE {
            schedule::tick(&self.engine.store, &Rhythm::even(INTERVAL), &SystemDice).await?;
            tokio::time::sleep(TICK).await;
        }
        Ok((cpu_seconds() - cpu) / begun.elapsed().as_secs_f64() * 100.0)
    }
}

/// Of this process, in user and system mode; the system counts in hundredths.
pub fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name of the program, which may have blanks in it, ends with the last bracket.
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    let ticks: f64 = fields.skip(11).take(2).filter_map(|field| field.parse::<f64>().ok()).sum();
    ticks / 100.0
}
