//! `mailroom bench poll`: how long a look at many mailboxes takes in which nothing is new, and what waiting for them costs.
//!
//! The provider is a process of its own, so that what is measured is ours.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use domain::{MailboxId, PlanTier, Provider, Secret, TenantId};
use engine::Engine;
use engine::mailboxes::{Backfill, Connect};
use jobs::SystemDice;
use serde_json::{Value, json};
use store::scratch;

use crate::app;
use crate::cli;
use crate::config::Config;
use crate::failure::Failure;
use crate::output::{Output, count, tell};

/// Mailboxes are spread over so many tenants.
const TENANTS: usize = 10;

/// How long is measured what waiting costs.
const IDLE: Duration = Duration::from_secs(30);

pub async fn run(args: &cli::BenchPoll, out: Output) -> Result<ExitCode, Failure> {
    // Not the system's temporary folder: where that is memory, an fsync costs nothing.
    let folder = tempfile::Builder::new().prefix("mailroom-bench-").tempdir_in(".")?;
    let provider = Simulation::start(args)?;
    let mut figures = vec![measure(args, &provider, folder.path(), None).await?];
    if let Some(server) = &args.postgres {
        let url = scratch::create_database(server).await?;
        let measured = measure(args, &provider, &folder.path().join("postgres"), Some(&url)).await;
        scratch::drop_database(server, &url).await?;
        figures.push(measured?);
    }
    if out.json {
        return out
            .object(&json!({"mailboxes": args.mailboxes, "latency_ms": args.latency_ms, "databases": figures}))
            .map(|()| ExitCode::SUCCESS);
    }
    let number = |figure: &Value, key: &str| figure[key].as_f64().unwrap_or(0.0);
    let rows: Vec<[String; 5]> = figures
        .iter()
        .map(|figure| {
            [
                figure["database"].as_str().unwrap_or_default().to_owned(),
                format!("{:.1} s", number(figure, "round_seconds")),
                format!("{:.0} %", number(figure, "round_cpu_percent")),
                format!("{:.1} %", number(figure, "idle_cpu_percent")),
                format!("{:.0} MB", number(figure, "peak_mb")),
            ]
        })
        .collect();
    out.line(&format!(
        "{} mailboxes with nothing new, {} ms away, at most {} at a time:",
        count(args.mailboxes as u64),
        args.latency_ms,
        args.in_flight
    ))?;
    out.table(["database", "one round", "of a core", "waiting, of a core", "memory at most"], &rows)?;
    Ok(ExitCode::SUCCESS)
}

struct Simulation {
    process: Child,
    url: String,
}

impl Simulation {
    fn start(args: &cli::BenchPoll) -> Result<Self, Failure> {
        let mut process = Command::new(std::env::current_exe()?)
            .args(["sim", "--json", "--listen", "127.0.0.1:0", "--emails", "0"])
            .args(["--accounts", &args.mailboxes.to_string(), "--latency-ms", &args.latency_ms.to_string()])
            .stdout(Stdio::piped())
            .spawn()?;
        let stdout = process.stdout.take().ok_or_else(|| Failure::problem("the simulation says nothing"))?;
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        let said: Value = serde_json::from_str(&line).map_err(|e| Failure::problem(format!("the simulation: {e}")))?;
        Ok(Self { process, url: said["url"].as_str().unwrap_or_default().to_owned() })
    }
}

impl Drop for Simulation {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

async fn measure(
    args: &cli::BenchPoll,
    provider: &Simulation,
    folder: &Path,
    postgres: Option<&str>,
) -> Result<Value, Failure> {
    let mut settings = vec![
        ("MAILROOM_DATA_DIR".to_owned(), folder.display().to_string()),
        ("MAILROOM_SYNC__MAILBOX_WORKERS".to_owned(), args.in_flight.to_string()),
    ];
    settings.extend(postgres.map(|url| ("MAILROOM_DATABASE__URL".to_owned(), url.to_owned())));
    let config = Config::load(None, settings, None)?;
    if postgres.is_some() {
        app::open_store(&config)?.migrate().await?;
    }
    let engine = app::open(&config).await?;
    let database = if postgres.is_some() { "PostgreSQL" } else { "SQLite" };
    tell(&format!("{database}: connecting {} mailboxes …", count(args.mailboxes as u64)));
    let mailboxes = connect(args, provider, &engine).await?;
    let syncer = app::syncer(&config, &engine, "bench")?;
    let worker = app::start_worker(&config, &syncer, "bench");
    until_quiet(&engine).await?;

    tell(&format!("{database}: a look at each …"));
    let mut rounds = Vec::new();
    for _ in 0..3 {
        engine.store.system().make_all_mailboxes_due().await?;
        let (begun, cpu) = (Instant::now(), cpu_seconds());
        let mut asked = 0;
        while asked < mailboxes {
            if let engine::schedule::Ticked::Asked { mailboxes, .. } =
                engine::schedule::tick(&engine.store, Duration::from_secs(300), &SystemDice).await?
            {
                asked += mailboxes as usize;
            }
        }
        until_quiet(&engine).await?;
        let seconds = begun.elapsed().as_secs_f64();
        rounds.push((seconds, (cpu_seconds() - cpu) / seconds * 100.0));
    }
    rounds.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (round_seconds, round_cpu) = rounds[rounds.len() / 2];
    tell(&format!("{database}: waiting …"));
    let cpu = cpu_seconds();
    let idle = Instant::now();
    while idle.elapsed() < IDLE {
        engine::schedule::tick(&engine.store, Duration::from_secs(300), &SystemDice).await?;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let idle_cpu = (cpu_seconds() - cpu) / idle.elapsed().as_secs_f64() * 100.0;
    worker.shut_down().await;
    Ok(json!({
        "database": database, "round_seconds": round_seconds, "round_cpu_percent": round_cpu,
        "idle_cpu_percent": idle_cpu, "peak_mb": super::import::peak_memory().unwrap_or(0) as f64 / 1e6,
    }))
}

async fn connect(args: &cli::BenchPoll, provider: &Simulation, engine: &Engine) -> Result<usize, Failure> {
    let mut tenants: Vec<TenantId> = Vec::new();
    for n in 0..TENANTS {
        let made = engine.store.system().create_tenant(&format!("tenant {n}"), PlanTier::Standard).await?;
        tenants.extend(made.map(|tenant| tenant.id));
    }
    let mut made: Vec<MailboxId> = Vec::with_capacity(args.mailboxes);
    for batch in (0..args.mailboxes).collect::<Vec<_>>().chunks(64) {
        let connecting = batch.iter().map(|n| {
            let connect = Connect {
                provider: Provider::Scripted,
                address: format!("box{}@scripted.example", n + 1),
                settings: json!({"connection": {"url": provider.url}}),
                secret: Some(Secret::new(format!("token-{}", n + 1))),
                backfill: Backfill::All,
            };
            engine.connect(tenants[n % TENANTS], connect)
        });
        for id in futures_util::future::join_all(connecting).await {
            made.extend(id?);
        }
    }
    Ok(made.len())
}

async fn until_quiet(engine: &Engine) -> Result<(), Failure> {
    while engine.store.system().has_work().await? {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

/// Of this process, in user and system mode; the system counts in hundredths.
pub fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name of the program, which may have blanks in it, ends with the last bracket.
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    let ticks: f64 = fields.skip(11).take(2).filter_map(|field| field.parse::<f64>().ok()).sum();
    ticks / 100.0
}
