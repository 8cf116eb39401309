//! `mailroom bench api`: load from a second process, and one table of how long it took.

mod client;
mod figures;
mod followers;
mod load;
mod plan;
pub mod process;
pub mod seed;

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::app;
use crate::cli::bench::{BenchApi, What};
use crate::failure::Failure;
use crate::output::{Output, tell};
use client::Server;
use figures::{Figures, Spent};
use load::{Done, Outcome, Pace};
use plan::Target;

/// Asked for before each measurement and not counted: connections are opened and pages come into memory.
const WARM_UP_SECONDS: f64 = 2.0;

pub async fn run(args: &BenchApi, out: Output) -> Result<ExitCode, Failure> {
    if args.keys.len() != args.url.len() {
        return Err(Failure::usage("give --keys once for each --url"));
    }
    let is_rate = |rate: f64| rate > 0.0 && rate <= 100_000.0;
    if !(is_rate(args.rate) && is_rate(args.search_rate) && args.seconds > 0.0 && args.seconds <= 86_400.0) {
        return Err(Failure::usage("rates are above 0 and at most 100,000 a second, --seconds at most a day"));
    }
    app::raise_file_limit();
    let mut figures = Vec::new();
    for (n, (url, keys)) in args.url.iter().zip(&args.keys).enumerate() {
        let name = args.name.get(n).unwrap_or(url);
        tell(&format!("{name}: looking at its mail …"));
        let target = Target::look(Server::parse(url)?, read_keys(keys)?).await?;
        let measure = Measure { args, target: &target, pid: args.pid.get(n).copied() };
        for what in &args.what {
            let mut measured = measure.what(*what).await?;
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
    match keys.is_empty() {
        true => Err(Failure::usage(format!("there is no key in {}", file.display()))),
        false => Ok(keys),
    }
}

struct Measure<'a> {
    args: &'a BenchApi,
    target: &'a Target,
    pid: Option<u32>,
}

impl Measure<'_> {
    async fn what(&self, what: What) -> Result<Vec<Figures>, Failure> {
        if what == What::Sse {
            return self.followers().await.map(|figures| vec![figures]);
        }
        let rate = if what == What::Search { self.args.search_rate } else { self.args.rate };
        tell(&format!("  {what:?}, {rate} a second …"));
        let plan = Arc::new(self.target.plan(what)?);
        let server = &self.target.server;
        let pace = Pace { rate, seconds: self.args.seconds, connections: self.args.connections };
        load::run(server, plan.clone(), Pace { seconds: WARM_UP_SECONDS.min(pace.seconds), ..pace }).await?;
        let spent = Spent::begin(self.pid);
        let done = load::run(server, plan.clone(), pace).await?;
        let mut figures = self.by_kind(&plan, &done, &spent);
        if self.args.noisy && what != What::Health {
            tell("  the same beside a noisy tenant …");
            let noisy = Arc::new(self.target.noisy()?);
            let share = rate / self.target.keys.len() as f64;
            let spent = Spent::begin(self.pid);
            let loud = Pace { rate: share * 100.0, ..pace };
            let (done, loud) =
                tokio::try_join!(load::run(server, plan.clone(), pace), load::run(server, noisy.clone(), loud))?;
            let mut beside = self.by_kind(&plan, &done, &spent);
            beside.iter_mut().for_each(|figures| figures.name += ", beside the noisy tenant");
            figures.extend(beside);
            figures.extend(self.by_kind(&noisy, &loud, &spent));
        }
        Ok(figures)
    }

    fn by_kind(&self, plan: &plan::Plan, done: &[Done], spent: &Spent) -> Vec<Figures> {
        let figures = |(kind, (name, _)): (usize, &(&'static str, Vec<Vec<u8>>))| {
            let of_kind: Vec<&Done> = done.iter().filter(|done| done.kind == kind).collect();
            let count = |outcome| of_kind.iter().filter(|done| done.outcome == outcome).count();
            let answered = of_kind.iter().filter(|done| done.outcome == Outcome::Answered);
            let mut figures = Figures::of(name, answered.map(|done| done.took).collect(), self.args.seconds);
            figures.refused = count(Outcome::Refused);
            figures.errors = count(Outcome::Failed);
            figures.spent(spent);
            figures
        };
        plan.kinds.iter().enumerate().map(figures).collect()
    }

    async fn followers(&self) -> Result<Figures, Failure> {
        let followers = followers::open(self.target, self.args.clients).await?;
        tell("  they wait …");
        let (spent, waiting) = (Spent::begin(self.pid), Instant::now());
        tokio::time::sleep(Duration::from_secs_f64(self.args.seconds)).await;
        let seconds = waiting.elapsed().as_secs_f64();
        let closed = followers.streams.iter().filter(|stream| !stream.is_open()).count();
        let name = format!("{} followers", followers.streams.len());
        let mut figures = Figures::of(&name, followers.took, seconds);
        figures.rate = 0.0;
        figures.errors = followers.failed + closed;
        figures.spent(&spent);
        Ok(figures)
    }
}
