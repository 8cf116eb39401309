//! `mailroom bench api`: load from a second process, and one table of response times.

mod client;
mod event_streams;
mod figures;
mod load;
mod plan;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use terminal::{Failure, Output, note};

use client::ApiServer;
use figures::{LoadFigures, UsageSnapshot};
use load::{LoadRate, RequestOutcome, RequestResult};
use plan::{LoadTarget, RequestPlan};

/// Length of the load before each measurement, which is not counted: connections are opened and pages come into memory.
const WARM_UP_SECONDS: f64 = 2.0;

#[derive(Debug, Args)]
pub struct ApiArgs {
    /// Where `mailroom serve` listens; given more than once, one after the other is measured
    #[arg(long, required = true, value_name = "URL")]
    pub url: Vec<String>,
    /// A file with an API key of each tenant, a line each; for each URL in turn
    #[arg(long, required = true, value_name = "FILE")]
    pub keys: Vec<PathBuf>,
    /// What the server is called in the table; for each URL in turn
    #[arg(long, value_name = "NAME")]
    pub name: Vec<String>,
    /// The server's process, whose memory and processor time are told; for each URL in turn
    #[arg(long, value_name = "PID")]
    pub pid: Vec<u32>,
    /// What to ask for, one after the other
    #[arg(long, value_delimiter = ',', default_value = "health,list,deep,search", value_name = "WHAT,…")]
    pub what: Vec<LoadKind>,
    /// Requests that are due each second, all tenants together; whether the server keeps up or not
    #[arg(long, default_value_t = 500.0, value_name = "N")]
    pub rate: f64,
    /// The same for searches, which nobody asks for as often as for lists
    #[arg(long, default_value_t = 50.0, value_name = "N")]
    pub search_rate: f64,
    #[arg(long, default_value_t = 20.0, value_name = "N")]
    pub seconds: f64,
    /// Connections; who finds all of them busy waits, and that counts
    #[arg(long, default_value_t = 32, value_name = "N")]
    pub connections: usize,
    /// Followers of events, for `--what sse`
    #[arg(long, default_value_t = 5000, value_name = "N")]
    pub clients: usize,
    /// Once more with one tenant that asks for a hundred times its share beside the others
    #[arg(long)]
    pub noisy: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LoadKind {
    /// Whether the server lives: what a request costs at least
    Health,
    /// The newest 50 emails
    List,
    /// 50 emails anywhere in the list
    Deep,
    /// Common and rare words, phrases, senders, and words that nobody wrote
    Search,
    /// Mostly lists, some searches, some whole emails
    Mixed,
    /// Followers of events to whom nothing is told
    Sse,
}

pub async fn run(args: &ApiArgs, out: Output) -> Result<ExitCode, Failure> {
    if args.keys.len() != args.url.len() {
        return Err(Failure::usage("give --keys once for each --url"));
    }
    let has_valid_rates = [args.rate, args.search_rate].iter().all(|rate| *rate > 0.0 && *rate <= 100_000.0);
    if !(has_valid_rates && args.seconds > 0.0 && args.seconds <= 86_400.0) {
        return Err(Failure::usage("rates are above 0 and at most 100,000 a second, --seconds at most a day"));
    }
    let mut figures = Vec::new();
    for (n, (url, keys)) in args.url.iter().zip(&args.keys).enumerate() {
        let name = args.name.get(n).unwrap_or(url);
        note(&format!("{name}: looking at its mail …"));
        let target = LoadTarget::sample(ApiServer::parse(url)?, read_keys(keys)?).await?;
        let bench = LoadBench { args, target: &target, pid: args.pid.get(n).copied() };
        for kind in &args.what {
            let mut measured = bench.measure(*kind).await?;
            measured.iter_mut().for_each(|figures| figures.name = format!("{name}, {}", figures.name));
            figures.extend(measured);
        }
    }
    figures::show(&figures, out)?;
    Ok(ExitCode::SUCCESS)
}

fn read_keys(file: &Path) -> Result<Vec<String>, Failure> {
    let text = std::fs::read_to_string(file)
        .map_err(|e| Failure::usage(format!("cannot read the keys in {}: {e}", file.display())))?;
    let keys: Vec<String> = text.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).collect();
    if keys.is_empty() {
        return Err(Failure::usage(format!("there is no key in {}", file.display())));
    }
    Ok(keys)
}

/// The measurements of one server.
struct LoadBench<'a> {
    args: &'a ApiArgs,
    target: &'a LoadTarget,
    pid: Option<u32>,
}

impl LoadBench<'_> {
    async fn measure(&self, kind: LoadKind) -> Result<Vec<LoadFigures>, Failure> {
        if kind == LoadKind::Sse {
            return self.measure_event_streams().await.map(|figures| vec![figures]);
        }
        let rate = if kind == LoadKind::Search { self.args.search_rate } else { self.args.rate };
        note(&format!("  {kind:?}, {rate} a second …"));
        let plan = Arc::new(self.target.plan(kind)?);
        let server = &self.target.server;
        let (seconds, connections) = (self.args.seconds, self.args.connections);
        let load = LoadRate { requests_per_second: rate, seconds, connections };
        load::run(server, plan.clone(), LoadRate { seconds: WARM_UP_SECONDS.min(seconds), ..load }).await?;
        let before = UsageSnapshot::take(self.pid);
        let results = load::run(server, plan.clone(), load).await?;
        let mut figures = self.by_kind(&plan, &results, &before);
        if self.args.noisy && kind != LoadKind::Health {
            note("  the same beside a noisy tenant …");
            let noisy = Arc::new(self.target.noisy_plan()?);
            let share = rate / self.target.keys.len() as f64;
            let before = UsageSnapshot::take(self.pid);
            let noisy_load = LoadRate { requests_per_second: share * 100.0, ..load };
            let (results, noisy_results) =
                tokio::try_join!(load::run(server, plan.clone(), load), load::run(server, noisy.clone(), noisy_load))?;
            let mut beside = self.by_kind(&plan, &results, &before);
            beside.iter_mut().for_each(|figures| figures.name += ", beside the noisy tenant");
            figures.extend(beside);
            figures.extend(self.by_kind(&noisy, &noisy_results, &before));
        }
        Ok(figures)
    }

    /// Returns the figures of each kind of request of a plan.
    fn by_kind(&self, plan: &RequestPlan, results: &[RequestResult], before: &UsageSnapshot) -> Vec<LoadFigures> {
        let mut all = Vec::new();
        for (kind, (name, _)) in plan.kinds.iter().enumerate() {
            let of_kind: Vec<&RequestResult> = results.iter().filter(|result| result.kind == kind).collect();
            let answered = of_kind.iter().filter(|result| result.outcome == RequestOutcome::Answered);
            let mut figures = LoadFigures::of(name, answered.map(|result| result.took).collect(), self.args.seconds);
            figures.refused = count_outcome(&of_kind, RequestOutcome::Refused);
            figures.errors = count_outcome(&of_kind, RequestOutcome::Failed);
            figures.set_usage(before);
            all.push(figures);
        }
        all
    }

    async fn measure_event_streams(&self) -> Result<LoadFigures, Failure> {
        let followers = event_streams::open(self.target, self.args.clients).await?;
        note("  they wait …");
        let (before, waiting) = (UsageSnapshot::take(self.pid), Instant::now());
        tokio::time::sleep(Duration::from_secs_f64(self.args.seconds)).await;
        let seconds = waiting.elapsed().as_secs_f64();
        let closed = followers.streams.iter().filter(|stream| !stream.is_open()).count();
        let name = format!("{} followers", followers.streams.len());
        let mut figures = LoadFigures::of(&name, followers.took, seconds);
        figures.rate = 0.0;
        figures.errors = followers.failed + closed;
        figures.set_usage(&before);
        Ok(figures)
    }
}

fn count_outcome(results: &[&RequestResult], outcome: RequestOutcome) -> usize {
    results.iter().filter(|result| result.outcome == outcome).count()
}
